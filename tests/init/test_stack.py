"""`stackyard init --stack`: a stack.yaml that begins with what lies in the directory, and is read as it is meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stackyard.init.stack import begun, found
from support.cli import inside

PROJECT = """\
[project]
name = "Signals of all"
version = "0.3"
requires-python = ">=3.10"
dependencies = ["idna>=3"]
[project.optional-dependencies]
gpu = ["certifi", "idna"]
"""
FILES = {
    "environment.yml": "name: waves\nchannels: [conda-forge]\ndependencies: [python=3.11, numpy]\n",
    "requirements.txt": "idna==3.7\n",
    "pyproject.toml": PROJECT,
}
PARSED = {
    "environment.yml": ("waves", {"conda": ["python=3.11", "numpy"]}),
    "requirements.txt": ("demo", {"pip": ["idna==3.7"]}),
    "pyproject.toml": ("Signals-of-all", {"pip": ["."]}),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path / "demo")
    return tmp_path / "demo"


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_is_read_as_the_file_is(place: Path, name: str) -> None:
    (place / name).write_text(FILES[name])
    assert inside("init", "--stack").out.splitlines()[0] == "wrote stack.yaml"
    shown = json.loads(inside("show", "--parsed", "stack.yaml", "--json").out)
    stack, packages = PARSED[name]
    (variant,) = shown["variants"]
    assert variant["stack"] == stack
    for kind, texts in packages.items():
        got = [each["text"] if isinstance(each, dict) else each for each in variant["environment"][kind]]
        assert got == texts


def test_extras_and_pythons_are_comments_to_take(place: Path) -> None:
    (place / "pyproject.toml").write_text(PROJECT)
    text = begun(place)
    assert "# - .[gpu]                        # in its place, with this extra: certifi, idna" in text
    assert "told by pyproject.toml: >=3.10" in text and 'version: "0.3"' in text
    (place / "stack.yaml").write_text(text.replace("- .  ", "# -", 1).replace("# - .[gpu]", "- .[gpu]"))
    assert ".[gpu]" in inside("show", "--parsed", "stack.yaml", "--json").out.replace(str(place), ".")


def test_settings_of_tools_are_no_project(place: Path) -> None:
    (place / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert found(place) == ""
    refused = inside("init", "--stack", expect=2)
    assert "nothing in" in refused.err and "hint: it begins with environment.yml" in refused.err
    (place / "requirements.txt").write_text("idna\n")
    assert found(place) == "requirements.txt"


def test_a_project_that_tells_nothing_or_is_broken(place: Path) -> None:
    (place / "pyproject.toml").write_text('[build-system]\nrequires = ["x"]\n[project]\nname = 3\nversion = []\n')
    assert "name: demo " in begun(place) and "# version:" in begun(place)
    (place / "pyproject.toml").write_text("[project\n")
    assert "pyproject.toml cannot be read: " in inside("init", "--stack", expect=2).err


def test_nothing_is_overwritten(place: Path) -> None:
    (place / "requirements.txt").write_text("idna\n")
    (place / "stack.yaml").symlink_to("nowhere")
    assert "stack.yaml is there already" in inside("init", "--stack", expect=2).err
    assert not (place / "nowhere").exists()
    assert "environment: requirements.txt" in inside("init", "--stack", "--dry-run").out
    assert "environment: requirements.txt" in inside("init", "--stack", "-o", "-").out
    inside("init", "--stack", "-o", "other.yaml")
    assert (place / "other.yaml").read_text() == begun(place)


def test_a_project_is_offered(place: Path, tmp_path: Path) -> None:
    (place / "pyproject.toml").write_text(PROJECT)
    shown = inside("init", "-o", str(tmp_path / "site.yaml")).out
    assert re.search(r"^  stackyard init --stack +a stack\.yaml that begins with pyproject\.toml$", shown, re.MULTILINE)
    assert "stackyard deploy" not in shown
    refused = inside("deploy", "pyproject.toml", expect=2)
    assert "hint: write a stack.yaml that begins with it: stackyard init --stack" in refused.err
