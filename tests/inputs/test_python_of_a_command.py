"""``--python``: another Python than the file's, for one command."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.inputs.load import load_stack
from stackyard.inputs.models import Site, Stack
from stackyard.inputs.workspace import Workspace
from stackyard.lock.stackfiles import load_stacks
from stackyard.yard.layout import Yard

ENVIRONMENT = "dependencies: [python=3.11, numpy]\n"
MATRIX = """
version: "1"
matrix: {python: ["3.11", "3.12"], mpi: [openmpi, mpich]}
environment: {dependencies: [numpy]}
"""


def loaded(path: Path, text: str, python: str, *variants: str) -> Stack:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    workspace = Workspace(Site(), Yard(path.parent / "yard"))
    (stack,) = load_stacks([path], workspace, variants=variants, python=python)
    return stack


def test_the_python_of_an_environment_is_replaced_and_its_own_stays_in_the_lock(tmp_path: Path) -> None:
    stack = loaded(tmp_path / "environment.yml", ENVIRONMENT, "3.12")
    assert [v.name for v in stack.variants] == ["py311", "py312"]
    (wanted,) = stack.wanted
    assert [p.text for p in wanted.environment.conda] == ["python=3.12", "numpy"]
    assert "--python: Python 3.12, in place of python=3.11 in the file" in wanted.notices


@pytest.mark.parametrize(
    "text",
    [
        "python: '3.10'\nversion: '1'\nenvironment: {dependencies: [pip: [six]]}\n",
        "interpreter: {source: host, version: '>=3.10', path: /usr/bin/python3}\nversion: '1'\n"
        "environment: {dependencies: [pip: [six]]}\n",
    ],
)
def test_the_interpreter_of_the_host_too(tmp_path: Path, text: str) -> None:
    (wanted,) = loaded(tmp_path / "stack.yaml", text, "3.12").wanted
    assert (wanted.name, wanted.interpreter.version, wanted.interpreter.path) == ("py312", "3.12", "")


def test_a_requirements_file_has_the_python_too(tmp_path: Path) -> None:
    stack = loaded(tmp_path / "requirements.txt", "six\n", "3.12")
    assert [v.name for v in stack.variants] == ["py3", "py312"] and stack.wanted[0].interpreter.version == "3.12"


def test_an_axis_is_chosen_from(tmp_path: Path) -> None:
    stack = loaded(tmp_path / "stack.yaml", MATRIX, "3.12")
    assert [v.name for v in stack.wanted] == ["py312-openmpi", "py312-mpich"] and len(stack.variants) == 4
    assert [v.name for v in loaded(tmp_path / "stack.yaml", MATRIX, "3.12", "py312-mpich").wanted] == ["py312-mpich"]
    with pytest.raises(InputError, match=r"no variant with Python 3\.13") as caught:
        loaded(tmp_path / "stack.yaml", MATRIX, "3.13")
    assert caught.value.hint == "its matrix has 3.11, 3.12: add 3.13 to `matrix: python:`"
    with pytest.raises(InputError, match="has another Python"):
        loaded(tmp_path / "stack.yaml", MATRIX, "3.12", "py311-mpich")


@pytest.mark.parametrize("python", ["3", "312", ">=3.10", "three"])
def test_what_is_not_a_version_is_refused(tmp_path: Path, python: str) -> None:
    with pytest.raises(InputError, match="is not a version of Python"):
        loaded(tmp_path / "environment.yml", ENVIRONMENT, python)


def test_a_wrapped_image_has_none(tmp_path: Path) -> None:
    wrapped = "version: '1'\nwrap: {image: 'docker://alpine', commands: [ls]}\n"
    with pytest.raises(InputError, match="no Python of its own"):
        loaded(tmp_path / "stack.yaml", wrapped, "3.12")


def test_the_build_of_torch_is_that_of_the_requested_variants(tmp_path: Path) -> None:
    path = tmp_path / "stack.yaml"
    path.write_text(MATRIX.replace("environment:", "pip: {torch_backend: cu128}\nenvironment:"))
    load = partial(load_stacks, [path], Workspace(Site(), Yard(tmp_path / "yard")))
    assert {v.torch_backend for v in load()[0].variants} == {"cu128"}
    (stack,) = load(variants=["py312-mpich"], torch_backend="cpu")
    assert [v.torch_backend for v in stack.variants] == ["cu128", "cu128", "cu128", "cpu"]
    with pytest.raises(InputError, match="no such build of torch: cuda12"):
        load(torch_backend="cuda12")
    path.write_text(MATRIX + "pip: {torch_backend: cuda}\n")
    with pytest.raises(InputError, match="torch_backend"):
        load_stack(path, Site())
