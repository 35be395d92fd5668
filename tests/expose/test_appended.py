"""What a module puts at the end of the user's lists and texts: there while it is loaded, gone afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stackyard.core import posix
from stackyard.core.change import Append, EnvironmentChange, Flags, Join, Prepend, SetRestorable
from stackyard.expose.base import merged
from stackyard.expose.modulefiles import lua, tcl
from stackyard.inputs.models import Site
from stackyard.yard.layout import Yard
from support import modules, stackrecords

PAIRS = [(system, shell) for system in modules.SYSTEMS for shell in modules.SHELLS]
CATALOGUE = "file:///p%20q/etc/xml/catalog file:///etc/xml/catalog"
CHANGE = EnvironmentChange(
    (
        Append("PLUGINS", "/p/lib/plugins"), Append("PLUGINS", "/p/more"), Append("ALONE", "/p/share"),
        Prepend("BOTH", "/p/1"), Append("BOTH", "/p/2"), Append("PATH", "/p/last/bin"),
        Join("XML_CATALOG_FILES", "", CATALOGUE, " "), Join("XML_ALONE", "", CATALOGUE, " "),
        Join("LUA_PATH", "/p/?.lua", "/p/?/init.lua", ";"), Join("HDF5", "/p/h", "", ":", "/usr/h"),
        Join("HDF5_ALONE", "/p/h", "/p/z", ":", "/usr/h"), Join("DASH", "-Dx='1'", "", " "),
    )
)  # fmt: skip
USER = {
    "PLUGINS": "/u/a:/u/b", "BOTH": "/u", "XML_CATALOG_FILES": "file:///u", "LUA_PATH": "./?.lua", "HDF5": "/u/h",
    "DASH": "-Dy $HOME",
}  # fmt: skip
NAMES = {getattr(operation, "variable", "") for operation in CHANGE}


@pytest.mark.real
@pytest.mark.parametrize(("system", "shell"), PAIRS)
def test_a_module_gives_back_what_it_extends(tmp_path: Path, system: str, shell: str) -> None:
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    record = stackrecords.record(Yard(tmp_path / "yard"), "odd", "1", change=CHANGE)
    file = tmp_path / "modules" / "odd" / ("1.lua" if system == "lmod" else "1")
    file.parent.mkdir(parents=True)
    file.write_text((lua.render if system == "lmod" else tcl.render)(record, Site(), change=CHANGE))
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MODULEPATH": str(tmp_path / "modules"), **USER}
    shots = [modules.snapshot(shell, tmp_path / name) for name in ("before", "loaded", "after", "again", "end")]
    lines = [modules.initialise(system, shell), shots[0]]
    for words, shot in zip(("load", "unload", "load", "unload"), shots[1:], strict=True):
        lines += [f"module {words} odd/1", shot]
    output = modules.run(shell, "\n".join(lines) + "\n", environ, tmp_path)
    taken = [modules.take(tmp_path / name) for name in ("before", "loaded", "after", "again", "end")]
    assert all(taken), output
    before, loaded, after, again, end = ({n: t.environ.get(n) for n in NAMES} for t in taken if t)
    wanted = CHANGE.apply({name: value for name, value in before.items() if value is not None})
    assert loaded == again == {name: wanted.get(name) for name in NAMES}
    assert after == end == before


@pytest.mark.parametrize("program", ["bash", "sh"])
@pytest.mark.parametrize("environ", [USER, {}, dict.fromkeys(USER, "")])
def test_shells_do_the_same(tmp_path: Path, program: str, environ: dict[str, str]) -> None:
    script = posix.change_text(CHANGE) + "/usr/bin/env -0\n"
    plain = {"PATH": "/usr/bin:/bin", **environ}
    done = subprocess.run([program, "-c", script], env=plain, capture_output=True, check=True, text=True)
    found = dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)
    assert {name: found.get(name) for name in NAMES} == {name: CHANGE.apply(plain).get(name) for name in NAMES}


def test_what_two_packages_join_to_one_variable_is_one_operation() -> None:
    operations = [
        Join("A", "", "x", " "), Join("A", "y", "", " "), Join("A", "", "z", ";"), Join("B", "", "1", " ", "0"),
        Join("B", "", "2", " "), Flags("C", "-x"), Join("C", "", "-y", " "), SetRestorable("D", "d"),
        Join("D", "a", "b", ","), Append("E", "/1"), Append("E", "/2"), Append("E", "/1"),
    ]  # fmt: skip
    change = EnvironmentChange(tuple(operations))
    made = merged(change)
    assert made.operations == (
        Join("A", "y", "x;z", " "), Join("B", "", "1 2", " ", "0"), Join("C", "", "-x -y", " "),
        SetRestorable("D", "a,d,b"), Append("E", "/2"), Append("E", "/1"),
    )  # fmt: skip
    for environ in ({}, dict.fromkeys("ABC", "u")):
        wanted = change.apply(environ)
        assert {n: made.apply(environ)[n] for n in "ABCD"} == {n: wanted[n] for n in "ABCD"}


@pytest.mark.parametrize("separator", ["", "\n", "ab", "'"])
def test_a_separator_is_one_that_no_shell_reads_otherwise(separator: str) -> None:
    with pytest.raises(ValueError, match="separator"):
        Join("A", "x", "", separator)
