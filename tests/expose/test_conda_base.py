"""A stack that holds conda: its functions without running conda at load, in child shells too, and a clean unload."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stackyard.core.change import Function, Set, SetRestorable
from stackyard.expose.base import base_change
from stackyard.inputs.models import Site
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord, PackageRecord
from support import modules, stackrecords
from support.hostile import export

STANDIN = Path(__file__).parents[1] / "support" / "standin" / "conda_cli.py"
PAIRS = [(system, shell) for system in modules.SYSTEMS for shell in ("bash", "zsh", "fish")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Yard, BuildRecord]:
    """A published base module whose conda writes down every call, with one environment of the user's."""
    root = tmp_path_factory.mktemp("base")
    yard = Yard(root / "yard")
    made = stackrecords.record(yard, "base", "24.1", packages=stackrecords.CONDA)
    prefix = Path(made.prefix)
    for directory in (prefix / "bin", prefix / "conda-meta", root / "scratch/stackyard/conda/envs/mine/conda-meta"):
        directory.mkdir(parents=True)
    text = STANDIN.read_text().replace("Path(sys.prefix)", f"Path({str(prefix)!r})").replace("@VERSION@", "24.1.2")
    (prefix / "bin/conda.py").write_text(text)
    call = f'#!/bin/sh\necho "$@" >> {root}/calls\nexec {sys.executable} -I {prefix}/bin/conda.py "$@"\n'
    (prefix / "bin/conda").write_text(call)
    (prefix / "bin/conda").chmod(0o755)
    stackrecords.publish(yard, [stackrecords.entry(made, default=True)], [made])
    return yard, made


def play(base: tuple[Yard, BuildRecord], system: str, shell: str, place: Path, *lines: str, **more: str) -> str:
    if reason := modules.missing(system, shell):
        pytest.skip(reason)
    scratch = base[0].root.parent / "scratch"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(place), "LANG": "C.UTF-8", "TERM": "dumb", "SCRATCH": str(scratch)}
    start = [modules.initialise(system, shell), *lines]
    return modules.run(shell, "\n".join(start) + "\n", {**environ, **more, "MODULEPATH": str(base[0].modules)}, place)


def test_the_base_sets_neither_level_nor_prefix(base: tuple[Yard, BuildRecord]) -> None:
    change = base_change(base[1], Site())
    variables = {op.variable for op in change if isinstance(op, SetRestorable | Set)}
    assert not variables & {"CONDA_SHLVL", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"}
    assert {"sh", "fish", "csh"} == set(next(op for op in change if isinstance(op, Function)).bodies)


@pytest.mark.parametrize(("package", "asked"), [("conda", "bin/conda shell.posix"), ("mamba", "bin/mamba shell ")])
def test_each_program_is_asked_in_its_own_way(tmp_path: Path, package: str, asked: str) -> None:
    made = stackrecords.record(Yard(tmp_path), "base", "1", packages=[PackageRecord(package, "2.0", "conda")])
    function = next(op for op in base_change(made, Site()) if isinstance(op, Function) and op.name == package)
    assert asked in function.bodies["sh"]


@pytest.mark.real
@pytest.mark.parametrize(("system", "shell"), PAIRS)
def test_loading_runs_no_conda(base: tuple[Yard, BuildRecord], tmp_path: Path, system: str, shell: str) -> None:
    calls = base[0].root.parent / "calls"
    calls.unlink(missing_ok=True)
    out = play(base, system, shell, tmp_path, "module load base", "type conda")
    assert "function" in out
    assert not calls.exists()


@pytest.mark.real
@pytest.mark.parametrize(("system", "shell"), PAIRS)
def test_what_the_user_activated_is_left_first(
    base: tuple[Yard, BuildRecord], tmp_path: Path, system: str, shell: str
) -> None:
    """Activated twice over, then unloaded: every variable and function is as before the load."""
    shots = {name: modules.snapshot(shell, tmp_path / name) for name in ("before", "active", "after")}
    active = ["conda activate base", "conda activate mine", shots["active"]]
    out = play(base, system, shell, tmp_path, "module load base", "module unload base", shots["before"],
               "module load base", *active, "module unload base", shots["after"])  # fmt: skip
    before, now, after = (modules.take(tmp_path / name) for name in shots)
    assert before and now and after, out
    assert now.environ["CONDA_SHLVL"] == "2"
    assert now.environ["CONDA_PREFIX"].endswith("/envs/mine")
    odd = {k for k in before.environ.keys() | after.environ.keys() if before.environ.get(k) != after.environ.get(k)}
    assert not {key for key in odd if not key.startswith(("_ModuleTable", "_LMFILES_", "__LMOD", "_"))}, out
    new = after.functions.keys() ^ before.functions.keys()
    assert not {name for name in new if shell != "fish" or "conda" in name}, "fish loads its own ones as it goes"


@pytest.mark.real
@pytest.mark.parametrize(("system", "shell"), PAIRS)
def test_what_was_active_before_the_load_stays(
    base: tuple[Yard, BuildRecord], tmp_path: Path, system: str, shell: str
) -> None:
    own = {"CONDA_SHLVL": "1", "CONDA_PREFIX": "/home/u/env", "CONDA_EXE": "/home/u/bin/conda"}
    lines = [export(shell, name, value) for name, value in own.items()]
    shown = [f"printenv {name}" for name in own]
    out = play(base, system, shell, tmp_path, *lines, "module load base", "module unload base", *shown)
    assert out.split() == list(own.values())


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_child_shells_have_the_functions(base: tuple[Yard, BuildRecord], tmp_path: Path, system: str) -> None:
    check = "bash -c 'type -t conda __conda_activate; conda activate mine && echo level=$CONDA_SHLVL'"
    out = play(base, system, "bash", tmp_path, "module load base", check, "module unload base", check)
    assert out.split()[:3] == ["function", "function", "level=1"]
    assert out.count("function") == 2
