"""A whole verification of small real prefixes, through real module systems."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from verifykit import Stack, by_name

from stackyard.core.change import Alias, EnvironmentChange, Function, Set
from stackyard.core.errors import InputError, StackyardError
from stackyard.inputs.sites.sitemodels import ModulePolicy, Site
from stackyard.verify.report import KINDS, Report, read_report
from stackyard.yard.revision.record import Activation
from stackyard.yard.write import atomic


def good(stack: Stack) -> Stack:
    stack.install("fine", {"fine/__init__.py": "def main(): print('hello')\n"}, scripts={"fine": "fine:main"})
    change = (Set("FINE_HOME", "x 'y'"), Function("fine_f", {"sh": "echo 1"}), Alias("fine_a", "ls -l"))
    stack.change(activation=Activation(EnvironmentChange(change)), checks=({"name": "says", "run": ["fine"]},))
    return stack


def test_good_stack_passes_with_both_module_systems(stack: Stack, systems: list[object]) -> None:
    report = good(stack).verify()
    assert report.state == "passed", [check.line() for check in report.problems()]
    assert len(report.systems) == 2
    assert set(report.load_seconds) == set(report.systems)
    assert {check.kind for check in report.checks} == set(KINDS)
    assert by_name(report, "own")["says"].detail == "hello"


def test_checks_write_nothing_into_the_prefix(stack: Stack, systems: list[object]) -> None:
    def listing() -> list[str]:
        return sorted(f"{directory}/{name}" for directory, _, names in os.walk(stack.prefix) for name in names)

    good(stack)
    before = listing()
    stack.verify()
    assert listing() == before


def test_without_a_module_system_the_checks_still_run(stack: Stack, no_systems: None) -> None:
    report = good(stack).verify()
    assert report.state == "passed", [check.line() for check in report.problems()]
    for kind in ("load", "symmetry"):
        (check,) = by_name(report, kind).values()
        assert (check.status, check.required) == ("skipped", False)
        assert "no module system" in check.detail
    assert by_name(report, "import")["fine"].status == "passed"
    assert by_name(report, "own")["says"].status == "passed"


def test_tcl_only_site_is_verified_and_lua_only_site_says_why_not(stack: Stack, systems: list[object]) -> None:
    report = good(stack).verify("load", site=Site(modules=ModulePolicy(formats=("tcl",))))
    assert [check.status for check in report.checks] == ["passed", "passed"]
    for file in stack.yard.modules.rglob("*"):
        assert file.suffix != ".lua"


def test_missing_modulefile_fails_and_says_what_the_module_system_said(stack: Stack, systems: list[object]) -> None:
    modules = good(stack).modules()
    for file in (modules / "demo").iterdir():
        file.unlink()
    report = stack.verify("load", "import", modules=modules)
    failed = by_name(report, "load")
    assert {check.status for check in failed.values()} == {"failed"}
    assert all("demo/1.0-py311-1" in check.detail for check in failed.values())
    assert by_name(report, "import")["fine"].status == "passed"


@pytest.mark.parametrize("leak", ["variable", "path", "function", "alias"])
def test_a_module_that_leaks_on_purpose_fails(stack: Stack, systems: list[object], leak: str) -> None:
    modules = good(stack).modules()
    lua = {
        "variable": 'execute{cmd="export LEAK=1", modeA={"load"}}',
        "path": 'execute{cmd="export PATH=/leak:$PATH", modeA={"unload"}}',
        "function": 'execute{cmd="leak() { :; }", modeA={"load"}}',
        "alias": 'execute{cmd="alias leak=ls", modeA={"load"}}',
    }[leak]
    file = modules / f"{stack.record.module}.lua"
    file.write_text(file.read_text() + lua + "\n")
    report = stack.verify("symmetry", modules=modules)
    results = by_name(report, "symmetry")
    lmod = next(check for name, check in results.items() if name.startswith("Lmod"))
    other = next(check for name, check in results.items() if not name.startswith("Lmod"))
    assert report.state == "failed"
    assert lmod.status == "failed"
    assert "leak" in lmod.detail.lower()
    assert other.status == "passed"


def test_a_modulefile_that_forgets_an_operation_fails(stack: Stack, systems: list[object]) -> None:
    modules = good(stack).modules()
    for file in (modules / f"{stack.record.module}.lua", modules / stack.record.module):
        kept = [line for line in file.read_text().splitlines() if "FINE_HOME" not in line]
        file.write_text("\n".join(kept) + "\n")
    report = stack.verify("load", modules=modules)
    assert {check.status for check in report.checks} == {"failed"}
    assert all("FINE_HOME is unset" in check.detail for check in report.checks)


def test_hostile_environment_of_the_caller(stack: Stack, systems: list[object], tmp_path: Path) -> None:
    """Whatever a user has set, the stack's Python sees only the stack."""
    (tmp_path / "fine.py").write_text("raise RuntimeError('the wrong one')\n")
    environ = {
        "PATH": "/usr/bin:/bin:/usr/bin::",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
    }
    report = good(stack).verify("load", "symmetry", "interpreter", "import", environ=environ)
    assert report.state == "passed", [check.detail for check in report.problems()]


def test_variable_that_only_the_stack_should_set_but_the_user_has(
    stack: Stack, systems: list[object], tmp_path: Path
) -> None:
    """A plain setenv loses the user's value; the check sees that, so activation is captured as `SetRestorable`."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "FINE_HOME": "mine"}
    for check in good(stack).verify("symmetry", environ=environ).checks:
        assert check.status == "failed"
        assert "FINE_HOME is unset, not 'mine'" in check.detail


def test_report_survives_its_file_and_is_junit(stack: Stack, no_systems: None, tmp_path: Path) -> None:
    stack.install("broken", {"broken.py": "raise ValueError('\\x1b[31mred\\x00')\n"})
    report = good(stack).verify()
    path = tmp_path / "report.json"
    atomic.write_json(path, report.to_json(), checked=True)
    assert read_report(path) == report
    assert json.loads(path.read_text())["state"] == "failed"
    root = ElementTree.fromstring(report.junit())
    assert root.get("tests") == str(len(report.checks))
    assert root.get("failures") == "1"
    (failure,) = root.iterfind(".//failure")
    assert "red" in (failure.text or "")


def test_report_of_another_format_is_refused() -> None:
    with pytest.raises(StackyardError, match="format 99"):
        Report.from_json({"format": 99})


def test_unknown_kind_is_an_input_error(stack: Stack) -> None:
    with pytest.raises(InputError, match="nonsense"):
        stack.verify("nonsense")
