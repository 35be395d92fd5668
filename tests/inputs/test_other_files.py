"""Files that are something else under the name of an environment or of requirements: one error that says what."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.load import kind_of, load_environment

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 120\n"
LMOD = 'help(\n[[\nPyTorch\n]])\n\nlocal base = "/sw"\nprepend_path("PATH", pathJoin(base, "bin"))\nload("gcc")\n'
BATCH = "### a job\n#PBS -l nodes=1:ppn=4\n#PBS -N [NAME]\ncd $PBS_O_WORKDIR\nmodule load amber\n"
SQL = "use staff;\n\nCREATE TABLE Person (\n  ID int NOT NULL,\n  Name varchar(45)\n);\nselect * from Person;\n"
SUBMIT = "universe = vanilla\nexecutable = run.sh\nlog = out.log\nerror = out.err\noutput = out.txt\nqueue 1\n"


@pytest.mark.parametrize("name", ["requirements.txt", "environment.yml", "pixi.lock"])
@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (POINTER, "a pointer of Git LFS", "git lfs pull"),
        ('\n<!DOCTYPE html>\n<html lang="en">\n', "a web page", "Raw"),
        ("404: Not Found", "404 Not Found", "URL"),
    ],
)
def test_what_was_downloaded_instead(tmp_path: Path, name: str, text: str, what: str, hint: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=what) as caught:
        kind_of(path)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "what", "line"), [(LMOD, "this is a modulefile", 1), (BATCH, "this is a batch script", 2)]
)
@pytest.mark.parametrize("name", ["PyTorch", "submit.txt"])
def test_programs_by_their_text(tmp_path: Path, name: str, text: str, what: str, line: int) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=what) as caught:
        kind_of(path)
    assert caught.value.where and caught.value.where.line == line


def test_pyproject_without_a_project(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.black]\nline-length = 120\n")
    with pytest.raises(InputError, match="settings of tools, and no Python project"):
        kind_of(path)
    path.write_text('[tool.poetry]\nname = "x"\n')
    with pytest.raises(InputError, match="this is a Python project"):
        kind_of(path)


@pytest.mark.parametrize("text", [SQL, SUBMIT])
def test_other_text_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"not a requirements file: \d of \d lines are invalid") as caught:
        load_environment(path)
    assert not hasattr(caught.value, "problems")


def test_a_list_with_some_wrong_lines_has_an_error_for_each(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("\n".join(f"name{n}" for n in range(9)) + "\nnumpy is good\nso is scipy\na b c\nd e f\ng h i\n")
    with pytest.raises(InputError, match="5 problems found"):
        load_environment(path)
