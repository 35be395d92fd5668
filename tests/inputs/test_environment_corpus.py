"""Files that nobody of this project wrote: all of their content is in what `show --parsed` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rattler import MatchSpec
from ruamel.yaml import YAML

from stackyard.core.errors import InputError, ManyErrors
from stackyard.inputs.load import kind_of, load_environment
from stackyard.inputs.parsed import parsed_json

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "env"
DATA = Path(__file__).parents[1] / "data" / "env"
REFUSED = {"conda__conda__tests__env__support__invalid_keys.yml", "open-ce__open-ce__envs__horovod-env.yaml"}
FILES = sorted([*CORPUS.glob("*"), *DATA.glob("*.y*ml"), *DATA.glob("*.txt")])
GOOD = [path for path in FILES if path.name not in REFUSED]

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real files is not beside the repository")


def written(path: Path) -> tuple[list[str], list[str]]:
    """What a plain YAML reader finds: the conda entries and the lines of pip."""
    data = YAML(typ="safe", pure=True).load(path.read_text())
    conda: list[str] = []
    pip: list[str] = []
    for entry in data["dependencies"]:
        if isinstance(entry, str):
            conda.append(entry)
        for key, value in entry.items() if isinstance(entry, dict) else ():
            (pip if key == "pip" else conda).extend(value if isinstance(value, list) else [value])
    return conda, pip


def accounted(line: str, parsed: dict[str, Any]) -> bool:
    """Whether a pip line is a requirement, an option or an included file of the result."""
    texts = {entry["text"] for entry in parsed["pip"]}
    if line.split(" --", maxsplit=1)[0].split(" #", maxsplit=1)[0].strip() in texts:
        return True
    value = line.split(maxsplit=1)[-1].removeprefix("file:").partition("=")[-1] or line.split(maxsplit=1)[-1]
    options = str(parsed["pip_options"]) + str(parsed["files"]) + str(parsed["missing"])
    return line.startswith("-") and value.removeprefix("file:") in options


@pytest.mark.parametrize("path", [path for path in GOOD if path.suffix != ".txt"], ids=lambda path: path.name)
def test_every_dependency_is_in_the_result(path: Path) -> None:
    parsed = parsed_json(path)
    conda, pip = written(path)
    assert [entry["text"] for entry in parsed["conda"]] == conda
    assert [line for line in pip if not accounted(line, parsed)] == []


@pytest.mark.parametrize("path", [path for path in GOOD if path.suffix == ".txt"], ids=lambda path: path.name)
def test_every_line_of_a_requirements_file_is_in_the_result(path: Path) -> None:
    parsed = parsed_json(path)
    assert parsed["kind"] == "requirements"
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    for line in filter(None, lines):
        shown = line.partition("=")[2] if line.startswith("--") else line
        assert shown in str(parsed)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_every_spec_is_one_that_the_solver_reads(path: Path) -> None:
    for requirement in load_environment(path, strict=False).conda:
        assert MatchSpec(requirement.spec).name is not None


@needs_corpus
def test_misspelt_keys_are_all_named_with_what_was_meant() -> None:
    with pytest.raises(ManyErrors) as caught:
        load_environment(CORPUS / "conda__conda__tests__env__support__invalid_keys.yml")
    hints = [problem.hint for problem in caught.value.problems]
    assert hints == [f"did you mean {key!r}?" for key in ("name", "channels", "dependencies", "prefix")]
    assert [problem.where.line for problem in caught.value.problems if problem.where] == [1, 2, 4, 6]


@needs_corpus
def test_jinja_is_named_with_its_line() -> None:
    path = CORPUS / "open-ce__open-ce__envs__horovod-env.yaml"
    with pytest.raises(InputError) as caught:
        kind_of(path)
    assert str(caught.value.where) == f"{path}:8:1"
    assert caught.value.exit_code == 2
    assert "Jinja" in caught.value.message
    assert "selector" in str(caught.value.hint)


@needs_corpus
def test_real_selectors_hashes_and_includes() -> None:
    parsed = parsed_json(CORPUS / "conda__conda-lock__tests__test-pip-with-platform-selector__environment.yml")
    assert parsed["pip"][0]["platforms"] == ["linux-64"]
    hashed = parsed_json(CORPUS / "conda__conda-lock__tests__test-pip-hash-checking__environment.yml")
    assert hashed["pip"][0]["hashes"] == ["sha256:1234"]
    assert any("no file can match" in notice for notice in hashed["notices"])
    horovod = parsed_json(CORPUS / "kaust-vislab__horovod-gpu-data-science-project__environment.yml")
    assert [Path(missing).name for missing in horovod["missing"]] == ["requirements.txt"]


@needs_corpus
def test_included_files_are_read_where_they_are(tmp_path: Path) -> None:
    for name in ("environment.yml", "requirements.txt"):
        source = CORPUS / f"kaust-vislab__horovod-gpu-data-science-project__{name}"
        (tmp_path / name).write_bytes(source.read_bytes())
    environment = load_environment(tmp_path / "environment.yml")
    names = [requirement.name for requirement in environment.pip]
    assert names == ["mxnet-cu101mkl", "tensorflow-gpu", "horovod", "jupyterlab-nvdashboard", "jupyter-tensorboard"]
    assert environment.pip_options.no_binary == ("horovod",)
    assert environment.files == (str(tmp_path / "environment.yml"), str(tmp_path / "requirements.txt"))
    assert environment.pip[2].place.file == str(tmp_path / "requirements.txt")
    (tmp_path / "requirements.txt").unlink()
    with pytest.raises(InputError) as caught:
        load_environment(tmp_path / "environment.yml")
    assert str(caught.value.where) == f"{tmp_path / 'environment.yml'}:23:7"
