"""Doors: what they name exists, has a docstring, and is imported when it is asked for, and nothing else with it."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import stackyard
from stackyard.core.doors import names_of

ROOT = Path(stackyard.__file__).parent
DOORS = sorted(path.parent.name for path in ROOT.glob("*/api.py"))


def imports_of(file: Path) -> set[str]:
    """The names that a type checker knows of a door."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in nodes for alias in node.names} - {"TYPE_CHECKING", "door"}


def test_every_room_that_cli_uses_has_a_door() -> None:
    rooms = "board catalogue deploy doctor expose images init inputs lint lock make study upkeep verify yard"
    assert rooms.split() == DOORS


@pytest.mark.parametrize("room", DOORS)
def test_a_door_names_what_is_there(room: str) -> None:
    module = import_module(f"stackyard.{room}.api")
    assert set(dir(module)) == set(names_of(ROOT / room / "api.py")) == imports_of(ROOT / room / "api.py")
    for name in dir(module):
        found = getattr(module, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert found.__doc__, name
        if inspect.isfunction(found):
            assert "return" in found.__annotations__, name


def test_a_door_names_only_what_cli_and_the_python_api_use() -> None:
    used: set[str] = set()
    for file in [ROOT / "calls.py", *(ROOT / "cli").rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        doors = {alias: room for room, alias in re.findall(r"from stackyard\.(\w+) import api as (\w+)", text)}
        used |= {f"{doors[alias]}.{name}" for alias, name in re.findall(r"\b(\w+)\.(\w+)", text) if alias in doors}
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
        used |= {f"{node.module.split('.')[1]}.{a.name}" for node in nodes if ".api" in node.module for a in node.names}
    named = {f"{room}.{name}" for room in DOORS for name in names_of(ROOT / room / "api.py")}
    assert named - used == {"lint.LintReport", "lint.Script", "lint.lint_text", "lint.parse_script"}, "used by tests"


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    code = "import sys; from stackyard.yard.api import Yard; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "stackyard.yard.layout" in done.stdout.split()
    assert not {"stackyard.yard.catalogue", "stackyard.yard.revision.record"} & set(done.stdout.split())


def test_a_door_has_no_other_name() -> None:
    module = import_module("stackyard.yard.api")
    with pytest.raises(AttributeError, match=r"'stackyard\.yard\.api' has no attribute 'yard'"):
        _ = module.yard
    star: dict[str, object] = {}
    exec("from stackyard.make.api import *", star)
    assert set(dir(import_module("stackyard.make.api"))) < set(star)
