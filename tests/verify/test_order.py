"""What a verification runs, in which order, and what it shows meanwhile: the same for everyone who reads reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from verifykit import Stack

import stackyard.verify
from stackyard.core.change import EnvironmentChange, Set
from stackyard.core.progress import SilentProgress
from stackyard.verify.checks.base import Check
from stackyard.verify.context import Context
from stackyard.verify.report import KINDS, CheckResult
from stackyard.verify.table import TABLE
from stackyard.yard.revision.record import Activation


class Phases(SilentProgress):
    """A progress that keeps the phases."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def phase(self, subject: str, phase: str, detail: str = "") -> None:
        self.seen.append(f"{phase} {detail}")


ORDER = [
    "skipped load module",
    "skipped symmetry module",
    "skipped content files",
    "warned content signatures",
    "passed content unchanged by the checks",
    "passed interpreter python",
    "passed import fine",
    "passed command fine",
    "passed consistency pip",
    "passed consistency files",
    "passed library all files",
    "passed own says",
]
PHASES = ["verify files", "verify load and unload", "verify imports and commands", "verify the stack's own checks"]
OF_KIND = {
    "content": [PHASES[0]],
    "import": [PHASES[2]],
    "command": [PHASES[2]],
    "own": [PHASES[3]],
}
"""By kind, the phases that are shown besides loading where it alone is asked for."""


@pytest.fixture
def fine(stack: Stack, no_systems: None) -> Stack:
    stack.install("fine", {"fine/__init__.py": "def main(): print('hello')\n"}, scripts={"fine": "fine:main"})
    own = ({"name": "says", "run": ["fine"]},)
    stack.change(activation=Activation(EnvironmentChange((Set("FINE_HOME", "x"),))), checks=own)
    return stack


def test_results_and_phases_have_their_order(fine: Stack) -> None:
    phases = Phases()
    report = fine.verify(progress=phases)
    assert [f"{check.status} {check.kind} {check.name}" for check in report.checks] == ORDER
    assert phases.seen == PHASES


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_alone_gives_the_same_results_of_it(fine: Stack, kind: str) -> None:
    phases = Phases()
    report = fine.verify(kind, progress=phases)
    assert [f"{check.status} {check.kind} {check.name}" for check in report.checks] == [
        line for line in ORDER if line.split()[1] == kind
    ]
    assert phases.seen == sorted([PHASES[1], *OF_KIND.get(kind, ())], key=PHASES.index)


def test_every_byte_is_named_as_such(fine: Stack) -> None:
    phases = Phases()
    fine.verify("content", deep=True, progress=phases)
    assert phases.seen == ["verify every byte", PHASES[1]]


def test_a_check_is_one_row_of_the_table(fine: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(context: Context) -> list[CheckResult]:
        return [CheckResult("own", "here", "passed", context.environ["FINE_HOME"])]

    every = Check(("own",), "own", look, title="one more")
    never = Check(("own",), "own", look, applies=lambda record: record.stack != "demo", title="not of this one")
    monkeypatch.setattr("stackyard.verify.verify.TABLE", (*TABLE, every, never))
    phases = Phases()
    (check,) = [check for check in fine.verify("own", progress=phases).checks if check.name == "here"]
    assert check.detail == "x"
    assert phases.seen[-1] == "verify one more"


def test_every_kind_has_a_row_or_makes_the_environment() -> None:
    assert {kind for check in TABLE for kind in check.kinds} | {"load", "symmetry", "interpreter"} == set(KINDS)


IMPORTED = re.compile(r"^from stackyard\.verify\.checks\.([\w.]+) import \(?([\w, ]+)", re.MULTILINE)


def test_only_the_table_imports_a_row() -> None:
    """So that one more check is one more module and one more row."""
    sources = Path(stackyard.verify.__file__).parents[1]
    table = sources / "verify" / "table.py"
    rows = {(m[1], m[2]) for m in IMPORTED.finditer(table.read_text(encoding="utf-8"))} - {("base", "Check")}
    names = {(module, name) for module, several in rows for name in several.split(", ")}
    assert len(names) == len(TABLE)
    for path in set(sources.rglob("*.py")) - {table}:
        found = IMPORTED.finditer(path.read_text(encoding="utf-8"))
        assert not names & {(m[1], name) for m in found for name in m[2].split(", ")}, path
