"""One variant of several: locked, deployed, and named, while the others stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.lock.lockfile.text import read as read_lock
from support import programs
from support.cli import stackyard

STACK = """\
name: tools
version: "{version}"
matrix:
  toolset: [cpu, gpu]
  include:
    - {{toolset: cuda12, variant: py312-gpu}}
modules:
  variables: {{TOOLSET: "{{toolset}} {word}"}}
environment:
  dependencies:
    - pip:
        - no-such-project-of-anybody==1  # [toolset == 'cpu' and {broken}]
"""


@pytest.fixture(autouse=True)
def _lmod() -> None:
    programs.need("lmod")


def _write(directory: Path, *, version: str = "1.0", word: str = "a", broken: bool = False) -> Path:
    file = directory / "stack.yaml"
    text = STACK.format(version=version, word=word, broken="toolset == 'cpu'")
    file.write_text(text if broken else text[: text.index("environment:")])
    return file


def _deploy(yard: Path, file: Path, *options: str) -> dict[str, str]:
    done = stackyard("--yard", yard, "deploy", file, *options, "--json").value["revisions"]
    return {each["module"]: each["status"] for each in done}


def _listed(yard: Path) -> list[str]:
    return [row["module"] for row in stackyard("--yard", yard, "list", "--json").value]


def _locked(file: Path) -> list[str]:
    return [each.variant for each in read_lock(Path(f"{file}.lock")).variants]


def test_one_variant_is_locked_and_deployed_and_the_others_are_not_needed(tmp_path: Path) -> None:
    yard, file = tmp_path / "yard", _write(tmp_path, broken=True)
    assert _deploy(yard, file, "--variant", "py312-gpu") == {"tools/1.0-py312-gpu-1": "published"}
    assert _locked(file) == ["py312-gpu"]
    assert _deploy(yard, file, "--variant", "py312-gpu", "--locked") == {"tools/1.0-py312-gpu-1": "unchanged"}
    everything = stackyard("--yard", yard, "deploy", file, expect=2)
    assert "no-such-project-of-anybody" in everything.err and _listed(yard) == ["tools/1.0-py312-gpu-1"]
    both = _deploy(yard, file, "--variant", "1.0-gpu", "--variant", "py312-gpu")
    assert both == {"tools/1.0-gpu-1": "published", "tools/1.0-py312-gpu-1": "unchanged"}
    assert _locked(file) == ["gpu", "py312-gpu"]  # in the order of the matrix


def test_the_others_stay_published_and_locked_as_they_were(tmp_path: Path) -> None:
    yard, file = tmp_path / "yard", _write(tmp_path)
    _deploy(yard, file)
    names = ["tools/1.0-cpu-1", "tools/1.0-gpu-1", "tools/1.0-py312-gpu-1"]
    before = read_lock(Path(f"{file}.lock")).variants
    _write(tmp_path, word="b")
    assert _deploy(yard, file, "--variant", "gpu") == {"tools/1.0-gpu-2": "published"}
    rows = {row["module"]: row["superseded"] for row in stackyard("--yard", yard, "list", "--json").value}
    assert rows == {**dict.fromkeys(names, False), "tools/1.0-gpu-1": True, "tools/1.0-gpu-2": False}
    after = read_lock(Path(f"{file}.lock")).variants
    assert [v for v in after if v.variant != "gpu"] == [v for v in before if v.variant != "gpu"]
    assert stackyard("--yard", yard, "show", "tools", "--json").value["module"] == names[2]


def test_the_same_variant_of_another_version_stays_the_newest_of_its_version(tmp_path: Path) -> None:
    yard, file = tmp_path / "yard", _write(tmp_path)
    text = file.read_text().replace('version: "1.0"', 'versions: ["1.0", "2.0"]')
    file.write_text(text.replace("toolset: cuda12", 'version: "2.0", toolset: cuda12'))
    _deploy(yard, file)
    file.write_text(file.read_text().replace("{toolset} a", "{toolset} b"))
    assert _deploy(yard, file, "--variant", "2.0-gpu") == {"tools/2.0-gpu-2": "published"}
    rows = {row["module"]: row["superseded"] for row in stackyard("--yard", yard, "list", "--json").value}
    assert [module for module, superseded in rows.items() if superseded] == ["tools/2.0-gpu-1"]


@pytest.mark.parametrize("verb", ["deploy", "lock"])
def test_a_wrong_name_lists_those_of_the_file(tmp_path: Path, verb: str) -> None:
    file = _write(tmp_path)
    refused = stackyard("--yard", tmp_path / "yard", verb, file, "--variant", "py313-gpu", expect=2)
    assert f"no such variant in {file}: py313-gpu" in refused.err and "it has cpu, gpu, py312-gpu" in refused.err
    assert not Path(f"{file}.lock").exists() and not (tmp_path / "yard").exists()


def test_lock_renews_and_exports_the_variant_that_is_named(tmp_path: Path) -> None:
    file = _write(tmp_path, broken=True)
    stackyard("--yard", tmp_path / "yard", "lock", file, "--variant", "gpu")
    assert _locked(file) == ["gpu"]
    stackyard("--yard", tmp_path / "yard", "lock", file, "--variant", "gpu", "--locked")
    told = stackyard("--yard", tmp_path / "yard", "lock", file, "--locked", expect=2)
    assert "tools 1.0-cpu" in told.err and "is not locked" in told.err
    text = stackyard("--yard", tmp_path / "yard", "lock", file, "--variant", "gpu", "--export", "explicit").out
    assert "@EXPLICIT" in text


def test_a_variant_is_a_name_for_every_verb(tmp_path: Path) -> None:
    yard, file = tmp_path / "yard", _write(tmp_path)
    _deploy(yard, file)
    _deploy(yard, _write(tmp_path, version="2.0"), "--variant", "cpu")
    for name, module in [("tools@cpu", "2.0-cpu-1"), ("tools@gpu", "1.0-gpu-1"), ("tools/1.0@cpu", "1.0-cpu-1")]:
        assert stackyard("--yard", yard, "show", name, "--json").value["module"] == f"tools/{module}"
    assert stackyard("--yard", yard, "run", "tools@gpu", "--", "sh", "-c", "echo $TOOLSET").out == "gpu a\n"
    stackyard("--yard", yard, "diff", "tools@cpu", "tools@gpu")
    wrong = stackyard("--yard", yard, "show", "tools@rocm", expect=2)
    assert "no such variant" in wrong.err and "tools has cpu, gpu, py312-gpu" in wrong.err


def test_a_key_for_variants_is_told_where_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "stack.yaml").write_text("variants: {py312-gpu: {python: 3.12}}\nenvironment: {dependencies: [six]}\n")
    refused = stackyard("--yard", tmp_path / "yard", "deploy", tmp_path / "stack.yaml", expect=2)
    assert "unknown key 'variants'" in refused.err and "`matrix:`" in refused.err
