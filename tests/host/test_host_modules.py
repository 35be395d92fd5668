"""Both module systems, really loaded: what a session sees, and the errors for each thing that can be wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.host.machine import modules
from stackyard.host.machine.modules import (
    ModuleLoadError,
    ModuleSystem,
    ModuleSystemBroken,
    ModuleSystemTooOld,
    environment_with,
    find_environment_modules,
    find_lmod,
    find_spider,
    fresh_environment,
    is_bookkeeping,
    session,
    the_module_system,
)
from support import modules as real
from support import programs

LUA = """
prepend_path("PATH", "/opt/demo/bin")
setenv("DEMO", "a 'b'  \\"c\\"")
set_shell_function("demo_function", "echo $1", "")
set_alias("demo_alias", "ls -l")
"""
TCL = """#%Module
prepend-path PATH /opt/demo/bin
setenv DEMO {a 'b'  "c"}
set-function demo_function {echo $1}
set-alias demo_alias {ls -l}
"""


@pytest.fixture(params=["lmod", "em"])
def system(request: pytest.FixtureRequest) -> ModuleSystem:
    problem = real.missing(request.param, "bash")
    if problem:
        pytest.skip(problem)
    found = (
        find_lmod({}) if request.param == "lmod" else find_environment_modules({"MODULES_CMD": str(real.modulecmd())})
    )
    assert found is not None
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "module files"
    (directory / "demo").mkdir(parents=True)
    (directory / "demo" / "1.lua").write_text(LUA)
    (directory / "demo" / "1").write_text(TCL)
    return directory


def test_found_with_its_version(system: ModuleSystem) -> None:
    output = subprocess.run([system.command, "bash", "--version"], capture_output=True, text=True, check=True)
    assert system.version in output.stdout + output.stderr
    assert system.version in system.title


def test_session_sees_each_step(system: ModuleSystem, tree: Path) -> None:
    done = session(system, [tree], [("load", "demo/1"), ("unload", "demo/1")])
    load, unload = done.steps
    assert (load.code, unload.code) == (0, 0)
    assert load.state.variables["DEMO"] == "a 'b'  \"c\""
    assert load.state.variables["PATH"] == "/opt/demo/bin:" + done.start.variables["PATH"]
    assert "demo_function" in load.state.functions
    assert load.state.aliases["demo_alias"] == "ls -l"
    assert 0 < load.seconds < 60
    assert "demo_function" not in unload.state.functions
    assert "demo_alias" not in unload.state.aliases
    changed = {n for n, _ in set(unload.state.variables.items()) ^ set(done.start.variables.items())}
    assert all(is_bookkeeping(name) for name in changed)


def test_environment_keeps_what_the_caller_gave(system: ModuleSystem, tree: Path) -> None:
    given = fresh_environment(MINE="line one\nline two", EMPTY="")
    found = environment_with(system, [tree], ["demo/1"], given)
    assert found["MINE"] == "line one\nline two"
    assert found["EMPTY"] == ""
    assert found["DEMO"].startswith("a 'b'")


def test_first_module_path_wins(system: ModuleSystem, tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "demo"
    shutil.copytree(tree / "demo", other)
    for name in ("1", "1.lua"):
        (other / name).write_text((other / name).read_text().replace("/opt/demo", "/opt/other"))
    found = environment_with(system, [other.parent, tree], ["demo"])
    assert found["PATH"].startswith("/opt/other/bin:")


def test_unknown_module(system: ModuleSystem, tree: Path) -> None:
    with pytest.raises(ModuleLoadError, match=r"cannot load the module demo/7") as error:
        environment_with(system, [tree], ["demo/7"])
    assert "demo/7" in (error.value.detail or "")
    assert str(tree) in (error.value.hint or "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish"])
def test_init_defines_module_in_every_shell(system: ModuleSystem, shell: str, tree: Path, tmp_path: Path) -> None:
    programs.need(shell)
    quiet = {"bash": ["--norc"], "zsh": ["-f"], "tcsh": ["-f"], "fish": ["--no-config"]}[shell]
    plain = tree.rename(tmp_path / "plain")  # Lmod's fish cannot have a space in the module path
    script = f"{system.init(shell)}\nmodule use '{plain}'\nmodule load demo/1\nprintenv DEMO\n"
    argv = [shell, *quiet, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, env=fresh_environment(), check=False)
    assert "a 'b'" in done.stdout, done.stderr


def test_no_module_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_LMOD_HOMES", ())
    monkeypatch.setattr(modules, "_EM_COMMANDS", ())
    assert find_lmod({}) is None
    if find_environment_modules({}) is None:
        with pytest.raises(MissingError, match="no module system") as error:
            the_module_system({})
        assert "LMOD_CMD" in (error.value.hint or "")


@pytest.mark.parametrize(("variable", "place"), [("LMOD_DIR", "x"), ("LMOD_CMD", "x/lmod"), ("LMOD_PKG", ".")])
def test_the_spider_is_where_lmod_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, place: str
) -> None:
    monkeypatch.setattr(modules, "_LMOD_HOMES", (str(tmp_path / "usual"),))
    directories = {"LMOD_PKG": "libexec"}
    spider = tmp_path / directories.get(variable, "x") / "spider"
    assert find_spider({variable: str(tmp_path / place)}) is None
    spider.parent.mkdir()
    program(spider, "#!/bin/sh\n")
    assert find_spider({variable: str(tmp_path / place)}) == spider
    assert find_spider({}) is None


def program(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    path.chmod(0o755)
    return {"LMOD_CMD": str(path)}


def test_module_system_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(ModuleSystemBroken, match="does not print its version") as error:
        find_lmod(program(tmp_path / "lmod", "#!/no/such/lua\n"))
    assert "Lua" in (error.value.hint or "")
    with pytest.raises(ModuleSystemBroken) as error:
        find_lmod(program(tmp_path / "lmod", "#!/bin/sh\necho 'module posix not found' >&2; exit 1\n"))
    assert "module posix not found" in (error.value.detail or "")


def test_module_system_that_is_too_old(tmp_path: Path) -> None:
    with pytest.raises(ModuleSystemTooOld, match=r"Lmod 5\.9 .*too old"):
        find_lmod(program(tmp_path / "lmod", "#!/bin/sh\necho 'Modules based on Lua: Version 5.9'\n"))


def test_shell_that_dies_is_not_taken_for_a_load(system: ModuleSystem, tmp_path: Path) -> None:
    (tmp_path / "libexec").mkdir()
    (tmp_path / "libexec" / "lmod").write_text("")
    with pytest.raises(ModuleSystemBroken, match="does not work in bash"):
        session(ModuleSystem(system.kind, "9", tmp_path / "libexec" / "lmod"), [], [("list",)])
