"""Nothing outside of its own file asks which scheduler it has: what differs is an attribute of `Batch`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import stackyard
from stackyard.launch.plan.schedulers import TABLE

ROOT = Path(stackyard.__file__).parent
ROOMS = ("launch", "cli", "deploy", "upkeep", "inputs", "verify")
FAMILIES = {"launch/shim/identity.py"}  # names of launchers' variables, which Flux and Slurm have too


def compared(tree: ast.AST) -> Iterator[int]:
    """The lines of comparisons with the name of a scheduler."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            words = {leaf.value for part in (node.left, *node.comparators) for leaf in ast.walk(part)
                     if isinstance(leaf, ast.Constant)}  # fmt: skip
            if words & {*TABLE}:
                yield node.lineno


def test_no_name_of_a_scheduler_is_compared() -> None:
    found = []
    for file in (file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        name = str(file.relative_to(ROOT))
        if name not in FAMILIES:
            found += [f"{name}:{line}" for line in compared(ast.parse(file.read_text()))]
    assert found == []
    assert [*compared(ast.parse("x == 'a' or context.scheduler in ('slurm', 'lsf')"))] == [1]
