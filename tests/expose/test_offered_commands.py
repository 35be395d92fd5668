"""A module that offers some commands of a stack and nothing else of it, under both module systems."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.expose.base import full_change
from stackyard.expose.commands import example, scripts, write_commands
from stackyard.expose.published import freeze
from stackyard.inputs.models import ModuleSettings, Site
from stackyard.verify.checks import content
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from support import modules, stackrecords
from support.stackrecords import entry, record

TOOL = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ.get('PYTHONPATH'), 'away' in sys.path]))\n"


@pytest.fixture
def tool(tmp_path: Path) -> BuildRecord:
    """A stack with a Python of its own, a Python program and a compiled one, of which it offers two."""
    made = record(Yard(tmp_path / "yard"), "tool", "1", settings={"commands": ["tool", "true"]})
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made.prefix], check=True)
    program = Path(made.prefix, "bin", "tool")
    program.write_text(f"#!{made.prefix}/bin/python\n{TOOL}")
    program.chmod(0o755)
    Path(made.prefix, "bin", "true").symlink_to("/bin/true")
    return made


def directory(of: BuildRecord) -> Path:
    return RevisionPaths.of(of.path).commands


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_loading_changes_two_paths_and_nothing_else(tool: BuildRecord, tmp_path: Path, system: str) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    shown = stackrecords.publish(Yard(tmp_path / "yard"), [entry(tool, default=True)], [tool])
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "PYTHONPATH": "away", "CONDA_PREFIX": "/mine"}
    lines = [modules.initialise(system, "bash"), f"module use {shown}", modules.snapshot("bash", tmp_path / "before"),
             "module load tool", modules.snapshot("bash", tmp_path / "after"), "command -v tool python3",
             "tool 'a  b' '*'", "module unload tool", modules.snapshot("bash", tmp_path / "end")]  # fmt: skip
    out = modules.run("bash", "\n".join(lines), environ, tmp_path)
    assert out.splitlines()[-3:] == [f"{directory(tool)}/tool", "/usr/bin/python3", '[["a  b", "*"], "away", false]'], (
        out
    )
    before, after, end = (modules.take(tmp_path / name) for name in ("before", "after", "end"))
    assert before and after and end
    own = ("LMOD", "_LM", "__LMOD", "_Module", "LOADEDMODULES", "__MODULES", "MODULES", "_")
    changed = {n for n, value in after.environ.items() if before.environ.get(n) != value and not n.startswith(own)}
    assert changed == {"PATH", "MANPATH"}
    assert after.environ["MANPATH"] == f"{tool.prefix}/share/man:", "the system's pages stay"
    assert end.environ["PATH"] == before.environ["PATH"] and "share/man" not in end.environ.get("MANPATH", "")


def test_other_programs_start_as_they_are(tool: BuildRecord) -> None:
    freeze(tool, Site())
    assert sorted(path.name for path in directory(tool).iterdir()) == ["tool", "true"]
    assert (directory(tool) / "true").read_text() == f'#!/bin/sh\nexec {tool.prefix}/bin/true "$@"\n'
    assert subprocess.run([directory(tool) / "true"], check=False).returncode == 0


def test_a_hint_names_a_command_that_the_stack_has(tmp_path: Path) -> None:
    made = record(Yard(tmp_path), "tool", "1")
    assert example(replace(made, settings={"commands": ["tool", "true"]})) == "tool"
    assert example(replace(made, interpreter={"version": "3.11"})) == "python"
    assert example(made) == "bash"


@pytest.mark.parametrize(
    ("start", "isolated"),
    [
        ("#!/usr/bin/env python3\n", True),
        ("#!/bin/sh\n'''exec' '/a long path/bin/python' \"$0\" \"$@\"\n' '''\n", True),
        ('#!/bin/sh\n"exec" "python"\n', False),
        ("#!/bin/bash\n# starts python\nexec python -m tool\n", False),
        ("\x7fELF python", False),
    ],
)
def test_only_a_python_program_is_started_with_python(tmp_path: Path, start: str, isolated: bool) -> None:
    made = record(Yard(tmp_path), "tool", "1", settings={"commands": ["tool"]})
    program = Path(made.prefix, "bin", "tool")
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(start)
    ((path, text),) = scripts(made).items()
    assert ("/bin/python -I " in text) == isolated
    write_commands(made)
    assert oct(path.stat().st_mode) == "0o100555", "nobody can write to it"


def test_a_script_that_was_changed_is_found(tool: BuildRecord) -> None:
    freeze(tool, Site())
    assert content.own_files(tool) == []
    (directory(tool) / "tool").chmod(0o755)
    (directory(tool) / "tool").write_text("#!/bin/sh\nexec evil\n")
    (changed,) = content.own_files(tool)
    assert (changed.status, changed.detail) == (
        "failed",
        f"{directory(tool) / 'tool'}: the file was changed after it was written",
    )
    lacking = replace(tool, settings={"commands": ["tol"]})
    (missing,) = content.own_files(lacking)
    assert missing.detail.startswith("tool/1-py311-1 has no command tol: ")


def test_a_command_that_the_stack_lacks(tool: BuildRecord) -> None:
    lacking = replace(tool, settings={"commands": ["tol"]})
    with pytest.raises(InputError, match="tool/1-py311-1 has no command tol"):
        freeze(lacking, Site())
    assert not RevisionPaths.of(tool.path).module.exists()


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "$(id)", "-x", "exec"])
def test_a_name_that_is_not_one(name: str) -> None:
    with pytest.raises(ValueError, match="is not a name of"):
        ModuleSettings(commands=(name,))


def test_variables_are_its_own_and_those_of_the_site_are_not(tool: BuildRecord) -> None:
    with_variables = replace(tool, settings={**tool.settings, "variables": {"TOOL": "{prefix}/x"}})
    change = full_change(with_variables, Site())
    assert change.apply({"PATH": "/bin", "MANPATH": "/man"}) == {
        "PATH": f"{directory(tool)}:/bin", "MANPATH": f"{tool.prefix}/share/man:/man", "TOOL": f"{tool.prefix}/x"
    }  # fmt: skip
