"""A list that was not set is not set after a stack was replaced by another of its family, in one step or in two."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.inputs.models import Site
from stackyard.inputs.sites.sitemodels import ModulePolicy
from stackyard.yard.layout import Yard
from support import modules, stackrecords


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
@pytest.mark.parametrize("before", [None, "/m"])
def test_manpath_is_given_back_after_a_swap(tmp_path: Path, system: str, before: str | None) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    yard = Yard(tmp_path / "yard")
    records = [stackrecords.record(yard, name, "1") for name in ("one", "two")]
    stackrecords.publish(yard, [stackrecords.entry(each, default=True) for each in records], records)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "MODULEPATH": str(yard.modules)}
    swap = "module load two" if system == "lmod" else "module switch one two"
    note = 'echo "[${MANPATH-unset}]"'
    lines = [modules.initialise(system, "bash"), "unset MANPATH" if before is None else f"export MANPATH={before}"]
    lines += ["module load one", swap, "module load one" if system == "lmod" else "module switch two one", note]
    lines += ["module unload one", note]
    output = modules.run("bash", "\n".join(lines) + "\n", environ, tmp_path)
    shown = [line for line in output.splitlines() if line.startswith("[")]
    assert shown[0].startswith(f"[{records[0].prefix}/share/man:")
    assert shown[1] == f"[{before or 'unset'}]"


@pytest.mark.real
@pytest.mark.parametrize(("system", "format"), [("lmod", "lua"), ("lmod", "tcl"), ("em", "tcl")])
@pytest.mark.parametrize("before", [None, "/m"])
def test_two_directories_of_one_module_are_both_taken_off(
    tmp_path: Path, system: str, format: str, before: str | None
) -> None:
    """As the module of an extension has them: its own and that of its base."""
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    yard = Yard(tmp_path / "yard")
    more = EnvironmentChange((Prepend("MANPATH", "/of/the/base", keep_system=True),))
    record = stackrecords.record(yard, "one", "1", change=more)
    site = Site(modules=ModulePolicy(formats=(format,)))  # type: ignore[arg-type]
    stackrecords.publish(yard, [stackrecords.entry(record, default=True)], [record], site=site)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "MODULEPATH": str(yard.modules)}
    note = 'echo "[${MANPATH-unset}]"'
    lines = [modules.initialise(system, "bash"), "unset MANPATH" if before is None else f"export MANPATH={before}"]
    lines += ["module load one", note, "module unload one", note]
    output = modules.run("bash", "\n".join(lines) + "\n", environ, tmp_path)
    loaded, left = (line for line in output.splitlines() if line.startswith("["))
    assert {"/of/the/base", f"{record.prefix}/share/man"} < set(loaded[1:-1].split(":"))
    assert left == f"[{before or 'unset'}]"
