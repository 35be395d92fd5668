"""The layout names every path of a yard: no other module joins a name to one of its directories."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import stackyard
from stackyard.core.below import Below
from stackyard.yard import layout
from stackyard.yard.layout import Yard

SOURCES = Path(stackyard.__file__).parent
OTHERS = {"yard/layout.py"}
DIRECTORIES = {name for name, value in vars(Yard).items() if isinstance(value, (property, Below))} - {"modules"}


def joins(tree: ast.AST) -> Iterator[ast.BinOp]:
    """``yard.root / ...``, ``job.yard.cache / ...``: a directory of something that is called a yard, joined."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.left, ast.Attribute):
            owner = ast.unparse(node.left.value)
            if owner.endswith("yard") and node.left.attr in {"root", *DIRECTORIES}:
                yield node


def test_nobody_else_joins_paths_of_a_yard() -> None:
    files = [path for path in sorted(SOURCES.rglob("*.py")) if str(path.relative_to(SOURCES)) not in OTHERS]
    found = [f"{path}: {ast.unparse(node)}" for path in files for node in joins(ast.parse(path.read_text()))]
    assert found == []


def test_every_path_is_in_the_yard_and_no_two_are_the_same() -> None:
    yard = Yard(Path("/yard"))
    revision, generation = yard.revision("s", "1"), yard.generation(7)
    paths = [getattr(each, name) for each in (yard, revision, generation) for name in properties(type(each))]
    assert len(set(paths)) == len(paths)
    assert all(path.is_relative_to(yard.root) for path in paths)
    assert [path.name for path in paths if path.name.removesuffix(".json") not in str(layout.__doc__)] == []


def properties(cls: type) -> list[str]:
    return [name for name, value in vars(cls).items() if isinstance(value, (property, Below)) and name != "number"]
