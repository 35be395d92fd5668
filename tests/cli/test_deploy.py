"""The whole way, as a person types it, on a real conda channel and with real wheels."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from support import modules, programs
from support.cli import stackyard, warm


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Path:
    """A newcomer's project: an environment.yml of his own."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "environment.yml").write_text(
        f"name: demo\nchannels: [{real_channel.as_uri()}]\n"
        "dependencies:\n  - python=3.11\n  - six=1.16\n  - numpy\n  - pip:\n    - tomli-w\n"
        "variables:\n  DEMO_DATA: /data\n"
    )
    return directory


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Path:
    """A yard in which the project is published."""
    yard = tmp_path_factory.mktemp("yards") / "yard"
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    stackyard("--yard", yard, "deploy", project / "environment.yml", "--version", "1.0")
    return yard


def test_list_and_show_have_what_scripts_need(yard: Path) -> None:
    (row,) = stackyard("--yard", yard, "list", "--json").value
    assert row["module"] == "demo/1.0-py311-1"
    assert (row["stack"], row["version"], row["variant"], row["revision"]) == ("demo", "1.0", "py311", 1)
    assert row["default"] is True and row["state"] == "published"
    assert Path(row["path"]).is_dir() and row["created"].endswith("+00:00")
    shown = stackyard("--yard", yard, "show", "demo", "--json").value
    kinds = {p["name"]: p for p in shown["packages"]}
    assert kinds["six"]["version"] == "1.16.0" and kinds["six"]["kind"] == "conda" and kinds["six"]["channel"]
    assert kinds["tomli-w"]["kind"] == "pip" and kinds["tomli-w"]["index"]
    assert all(re.fullmatch("[0-9a-f]{64}", p["sha256"]) for p in shown["packages"])
    assert Path(shown["modulefile"]).is_file() and Path(shown["lock"]).is_file()
    assert shown["report"]["state"] == "passed"
    size = shown["size"]
    assert size["bytes"] > 10_000_000 and size["files"] == size["entries"] > 1000
    assert stackyard("--yard", yard, "list", "--size", "--json").value[0]["size"] == size
    assert f" {size['files']:,}" in stackyard("--yard", yard, "list", "--size").out


@pytest.mark.parametrize("name", ["demo", "demo/1.0", "demo/1.0-py311", "demo/1.0-py311-1"])
def test_run_knows_all_names(yard: Path, name: str) -> None:
    code = "import six, numpy, tomli_w, os; print(six.__version__, os.environ['DEMO_DATA'])"
    assert stackyard("--yard", yard, "run", name, "--", "python", "-c", code).out == "1.16.0 /data\n"


def test_run_keeps_the_exit_code(yard: Path) -> None:
    stackyard("--yard", yard, "run", "demo", "--", "sh", "-c", "exit 7", expect=7)
    missing = stackyard("--yard", yard, "run", "demo", "--", "no-such-program", expect=4)
    assert "no-such-program" in missing.err


def test_the_same_inputs_do_nothing(yard: Path, project: Path) -> None:
    before = os.readlink(yard / "modules")
    for _ in range(2):
        (row,) = stackyard("--yard", yard, "deploy", project / "environment.yml", "--version", "1.0", "--json").value[
            "revisions"
        ]
        assert (row["module"], row["status"]) == ("demo/1.0-py311-1", "unchanged")
    assert os.readlink(yard / "modules") == before


def test_another_day_is_no_change(yard: Path, project: Path) -> None:
    first = stackyard("--yard", yard, "deploy", project / "environment.yml", "--json").value["revisions"][0]
    lock = Path(f"{project}/environment.yml.lock")
    lock.write_text(re.sub(r"20\d\d\.\d\d\.\d\d", "2020.01.02", lock.read_text()))
    again = stackyard("--yard", yard, "deploy", project / "environment.yml", "--json").value["revisions"][0]
    assert again["status"] == "unchanged" and again["module"] == first["module"]
    lock.unlink()


def test_dry_run_writes_nothing(yard: Path, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "environment.yml"
    other.write_text((project / "environment.yml").read_text().replace("six=1.16", "six=1.17"))
    before = sorted(str(p) for p in yard.rglob("*"))
    told = stackyard("--yard", yard, "deploy", other, "--version", "1.0", "--dry-run", "--json").value
    assert [(r["module"], r["action"]) for r in told["revisions"]] == [("demo/1.0-py311-2", "build")]
    assert sorted(str(p) for p in yard.rglob("*")) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["environment.yml"]


def test_a_change_is_a_new_revision_and_can_be_taken_back(yard: Path, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "environment.yml"
    other.write_text((project / "environment.yml").read_text().replace("six=1.16", "six=1.17"))
    stackyard("--yard", yard, "deploy", other, "--version", "1.0")
    assert "1.16.0" in (diff := stackyard("--yard", yard, "diff", "demo/1.0-py311-1", "demo").out) and "1.17.0" in diff
    stackyard("--yard", yard, "rollback")
    modules = {r["module"]: r["state"] for r in stackyard("--yard", yard, "list", "--all", "--json").value}
    assert modules["demo/1.0-py311-1"] == "published" and modules["demo/1.0-py311-2"] == "withdrawn"
    code = "import six; print(six.__version__)"
    assert stackyard("--yard", yard, "run", "demo", "--", "python", "-c", code).out == "1.16.0\n"
    assert stackyard("--yard", yard, "run", "demo/1.0-py311-2", "--", "python", "-c", code).out == "1.17.0\n"
    (row,) = stackyard("--yard", yard, "deploy", other, "--version", "1.0", "--json").value["revisions"]
    assert (row["module"], row["status"]) == ("demo/1.0-py311-2", "published")
    stackyard("--yard", yard, "rollback", "demo/1.0-py311-1")
    assert stackyard("--yard", yard, "run", "demo", "--", "python", "-c", code).out == "1.16.0\n"


def test_why_names_the_chain(yard: Path) -> None:
    assert stackyard("--yard", yard, "why", "demo", "six", "--json").value == [["six 1.16.0"]]
    unknown = stackyard("--yard", yard, "why", "demo", "flask", expect=2)
    assert "flask" in unknown.err


def test_locked_refuses_a_stale_lock_and_says_what_changed(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text((project / "environment.yml").read_text())
    missing = stackyard("--yard", tmp_path / "y", "deploy", file, "--locked", expect=2)
    assert "lock" in missing.err
    stackyard("--yard", tmp_path / "y", "lock", file)
    stackyard("--yard", tmp_path / "y", "lock", file, "--locked")
    file.write_text(file.read_text().replace("  - numpy\n", "  - numpy\n  - tqdm\n"))
    stale = stackyard("--yard", tmp_path / "y", "deploy", file, "--locked", expect=2)
    assert "tqdm" in stale.err and "numpy" not in stale.err
    assert not (tmp_path / "y" / "modules").exists()


def test_a_user_reads_the_sites_yard_and_writes_to_his_own(yard: Path, project: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"name: here\nyard: {yard}\n")
    mine, file = tmp_path / "mine", project / "environment.yml"
    told = stackyard("--site", site, "--yard", mine, "deploy", file, "--version", "1.0", "--json").value
    assert [r["status"] for r in told["revisions"]] == ["inherited"]
    assert not (mine / "stacks").exists()
    own = tmp_path / "environment.yml"
    own.write_text(file.read_text().replace("name: demo", "name: own"))
    before = _tree(yard)
    stackyard("--site", site, "--yard", mine, "deploy", own, "--version", "1.0")
    assert _tree(yard) == before
    modules = {r["module"]: r["yard"] for r in stackyard("--site", site, "--yard", mine, "list", "--json").value}
    assert modules["own/1.0-py311-1"] == str(mine) and modules["demo/1.0-py311-1"] == str(yard)


def _tree(root: Path) -> list[tuple[str, int]]:
    return sorted((str(p), p.lstat().st_mtime_ns) for p in root.rglob("*"))


def test_a_failing_check_is_not_published_and_the_other_variant_is(
    yard: Path, real_channel: Path, tmp_path: Path
) -> None:
    stack = tmp_path / "stack.yaml"
    stack.write_text(
        f"""
name: two
version: "1"
matrix: {{flavour: [good, bad]}}
environment:
  channels: [{real_channel.as_uri()}]
  dependencies: [python=3.11, six]
checks:
  - name: flavour
    run: [python, -c, "import sys; sys.exit('{{flavour}}' == 'bad')"]
"""
    )
    told = stackyard("--yard", warm(tmp_path / "y", yard), "deploy", stack, "--json", expect=3).value
    assert {r["module"]: r["status"] for r in told["revisions"]} == {
        "two/1-good-1": "published",
        "two/1-bad-1": "failed",
    }
    assert [r["module"] for r in stackyard("--yard", tmp_path / "y", "list", "--json").value] == ["two/1-good-1"]
    text = stackyard("--yard", tmp_path / "y", "deploy", stack, expect=3)
    assert f"stackyard --yard {tmp_path / 'y'} run two/1-bad-1 -- bash" in text.out
    stackyard("--yard", tmp_path / "y", "run", "two/1-bad-1", "--", "python", "-c", "import six")
    report = json.loads((tmp_path / "y/stacks/two/1-bad-1/report.json").read_text())
    assert any(c["status"] == "failed" and c["name"] == "flavour" for c in report["checks"])
    assert (tmp_path / "y/stacks/two/1-bad-1/report.xml").exists()


def test_a_check_for_another_node_leaves_it_unverified(yard: Path, real_channel: Path, tmp_path: Path) -> None:
    stack = tmp_path / "stack.yaml"
    stack.write_text(
        f"""
name: gpu
version: "1"
environment:
  channels: [{real_channel.as_uri()}]
  dependencies: [python=3.11, six]
checks:
  - name: on a gpu
    run: ["true"]
    needs: {{arch: m68k}}
"""
    )
    held = stackyard("--yard", warm(tmp_path / "y", yard), "deploy", stack, expect=3)
    assert "--allow-unverified" in held.out
    assert stackyard("--yard", tmp_path / "y", "list", "--json").value == []
    stackyard("--yard", tmp_path / "y", "deploy", stack, "--allow-unverified")
    assert [r["state"] for r in stackyard("--yard", tmp_path / "y", "list", "--json").value] == ["unverified"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list", "--nonsense"], "--nonsense"),
        (["deplyo", "x"], "deploy"),
        (["show", "nothing/1"], "nothing/1"),
        (["deploy", "/no/such/environment.yml"], "/no/such/environment.yml"),
        (["--site", "/no/such/site.yaml", "deploy", "x"], "/no/such/site.yaml"),
        (["rollback"], "nothing is published"),
    ],
)
def test_mistakes_end_with_code_2_and_name_the_thing(words: list[str], says: str, tmp_path: Path) -> None:
    done = stackyard("--yard", tmp_path / "y", *words, expect=2)
    assert says in done.err and "Traceback" not in done.err
    assert not (tmp_path / "y").exists()


def test_lmod_loads_what_was_published(yard: Path) -> None:
    programs.need("lmod")
    init = modules.lmod_init("bash")
    script = f". {init}; module use {yard}/modules; module load demo && python -c 'import numpy; print(numpy.__file__)'"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert str(yard) in done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("git", [False, True])
def test_an_editable_project_beside_its_file_with_the_yard_inside(tmp_path: Path, git: bool) -> None:
    """Neither the lock that is written beside the file nor the yard belongs to the project's snapshot."""
    project = tmp_path / "project"
    (project / "greet").mkdir(parents=True)
    (project / "greet" / "__init__.py").write_text("def main():\n    print('hello')\n")
    (project / "pyproject.toml").write_text(
        '[project]\nname = "greet"\nversion = "0.1"\n[project.scripts]\ngreet = "greet:main"\n'
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    )
    (project / "environment.yml").write_text("name: ed\ndependencies:\n  - pip:\n    - -e .\n")
    if git:
        subprocess.run(["git", "init", "-q", project], check=True)
    yard, file = project / "yard", project / "environment.yml"
    first = stackyard("--yard", yard, "deploy", file)
    assert "snapshot" in first.out + first.err
    assert stackyard("--yard", yard, "run", "ed", "--", "greet").out == "hello\n"
    (row,) = stackyard("--yard", yard, "deploy", file, "--json").value["revisions"]
    assert row["status"] == "unchanged"
    (project / "greet" / "__init__.py").write_text("def main():\n    print('hello again')\n")
    (row,) = stackyard("--yard", yard, "deploy", file, "--json").value["revisions"]
    assert row["status"] == "published" and row["module"].endswith("-2")
    assert stackyard("--yard", yard, "run", "ed", "--", "greet").out == "hello again\n"
