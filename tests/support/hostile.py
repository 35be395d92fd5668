"""Environments that people really have, what is done in them, and how the outcome is judged.

The measure is a control module of plain one-line operations on the same variables, loaded and unloaded in the same
environment: what the module system itself disturbs is not held against a stack, everything else is.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from stackyard.core.change import Alias, EnvironmentChange, Flags, Function, Prepend, Set, SetRestorable
from stackyard.expose.limits import unquotable_in
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from support import modules, stackrecords

STRANGE = "a \"b\" $HOME [x] {y} \\ 'c' ü `d` ; e & f | g * ? ~ #"
CHANGE = EnvironmentChange(
    (
        Set("STRANGE", STRANGE),
        Set("PROJ_DATA", "/opt/share/proj"),
        SetRestorable("OMP_NUM_THREADS", "4"),
        Flags("CFLAGS", "-O2 -isystem /a -isystem /b"),
        Prepend("XDG_DATA_DIRS", "/opt/data"),
        Function("greet", {"sh": 'echo "hello $1"', "fish": 'echo "hello $argv[1]"', "csh": "echo hello"}),
        Alias("gg", "echo alias of the stack"),
    )
)
BORROWED = ("PYTHONNOUSERSITE", "PYTHONHOME", "PYTHONPATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "OMP_NUM_THREADS")
OFFERED = ("CONDA_ENVS_PATH", "CONDA_PKGS_DIRS", "PIP_CACHE_DIR", "UV_CACHE_DIR", "CONDARC")
_BOOKKEEPING = re.compile(
    r"_ModuleTable|LOADEDMODULES|_LMFILES_|MODULES_|__MODULES_|LMOD_|__LMOD_|_$|SHLVL|PWD|OLDPWD|MODULEPATH|MODULESHOME|"
    r"BASH_FUNC_(module|ml|_module_raw|clearMT|xSetTitleLmod)"
)


@dataclass(frozen=True)
class Case:
    """One environment: variables (None: unset), what the user changes while the module is loaded, his own functions."""

    variables: dict[str, str | None] = field(default_factory=dict)
    during: dict[str, str] = field(default_factory=dict)
    own_names: bool = False


def cases(prefix: str) -> dict[str, Case]:
    """The environments by name; `prefix` is the stack's, for those that hold it already."""
    quoted = 'it\'s "q" $HOME `id` \\ ü ; #x'
    return {
        "plain": Case(),
        "path with duplicates": Case({"PATH": "/usr/bin:/bin:/usr/bin:/bin"}),
        "path with empty parts": Case({"PATH": "/usr/bin::/bin"}),
        "path with a leading colon": Case({"PATH": ":/usr/bin:/bin"}),
        "path with a trailing colon": Case({"PATH": "/usr/bin:/bin:"}),
        "path with a trailing slash": Case({"PATH": "/usr/bin/:/bin"}),
        "prefix last in path": Case({"PATH": f"/usr/bin:/bin:{prefix}/bin"}),
        "prefix first in path": Case({"PATH": f"{prefix}/bin:/usr/bin:/bin"}),
        "path with spaces": Case({"PATH": "/opt/my tools/bin:/usr/bin:/bin"}),
        "manpath empty": Case({"MANPATH": ""}),
        "manpath set": Case({"MANPATH": "/usr/share/man"}),
        "manpath with a trailing colon": Case({"MANPATH": "/m:"}),
        "manpath with a leading colon": Case({"MANPATH": ":/m"}),
        "manpath holds the prefix": Case({"MANPATH": f"/m:{prefix}/share/man"}),
        "scratch set": Case({"SCRATCH": "/scratch/u"}),
        "scratch with spaces": Case({"SCRATCH": "/scratch/my group/u"}),
        "scratch empty": Case({"SCRATCH": ""}),
        "scratch with a line break": Case({"SCRATCH": "/scratch\n/touch"}),
        "home with spaces": Case({"HOME": "/home/a b"}),
        "home with unicode": Case({"HOME": "/home/zoë"}),
        "home unset": Case({"HOME": None}),
        "pythonpath set": Case({"PYTHONPATH": "/a:/b:/a"}),
        "pythonpath empty": Case({"PYTHONPATH": ""}),
        "pythonpath with a line break": Case({"PYTHONPATH": "/a\nfalse"}),
        "pythonhome and nousersite": Case({"PYTHONHOME": "/usr", "PYTHONNOUSERSITE": "x"}),
        "own conda environment": Case(
            {"CONDA_PREFIX": "/home/u/env", "CONDA_DEFAULT_ENV": "env", "CONDA_SHLVL": "1", "CONDA_EXE": "/c/bin/conda"}
        ),
        "condarc set": Case({"CONDARC": "/home/u/condarc", "PIP_CACHE_DIR": "/home/u/pip cache"}),
        "user paths empty": Case({"CONDARC": "", "PIP_CACHE_DIR": "", "UV_CACHE_DIR": ""}),
        "user paths quoted": Case({"PIP_CACHE_DIR": quoted, "CONDA_ENVS_PATH": quoted, "UV_CACHE_DIR": "a\nb"}),
        "flags quoted": Case({"CFLAGS": quoted, "OMP_NUM_THREADS": quoted}),
        "flags that look like a list": Case({"CFLAGS": "-g -I /x -I /y", "OMP_NUM_THREADS": ""}),
        "flags with a line break": Case({"CFLAGS": "-g\n-DX", "OMP_NUM_THREADS": "1\n2"}),
        "own functions and aliases": Case(own_names=True),
        "user paths changed while loaded": Case(
            {"PIP_CACHE_DIR": "/first"}, {"PIP_CACHE_DIR": "/mine", "CONDARC": "/my rc", "UV_CACHE_DIR": "/it's"}
        ),
        "borrowed ones changed while loaded": Case(
            {"OMP_NUM_THREADS": "8"}, {"OMP_NUM_THREADS": "2", "PYTHONPATH": "/hand", "CFLAGS": "-Os"}
        ),
        "user keeps duplicates": Case({"LMOD_DUPLICATE_PATHS": "yes", "PATH": "/usr/bin:/bin:/usr/bin"}),
        "strange variables of his own": Case(
            {"A_B": quoted, "EMPTY": "", "LINES_": "x\ny\n", "XDG_DATA_DIRS": "/d::/e/"}
        ),
    }


@dataclass(frozen=True)
class Bench:
    """A published stack of two versions and its controls, in two generations, for many cases."""

    root: Path
    yard: Yard
    first: BuildRecord
    second: BuildRecord
    control: Path


def bench(root: Path) -> Bench:
    """Publish the stack ``tools`` 1 and 2 and the stack ``other``, in two generations, and write the controls."""
    yard = Yard(root / "yard")
    first, second = (stackrecords.record(yard, "tools", version, change=CHANGE) for version in ("1", "2"))
    entries = [stackrecords.entry(first, "1"), stackrecords.entry(second, "2", default=True)]
    stackrecords.publish(yard, entries, [first, second])
    older = [stackrecords.entry(first, "1", default=True), stackrecords.entry(second, state="withdrawn")]
    stackrecords.publish(yard, older, [first, second], 2)
    control = root / "control"
    for record in (first, second):
        for name, text in control_texts(record).items():
            (control / "tools").mkdir(parents=True, exist_ok=True)
            (control / "tools" / f"{record.module.partition('/')[2]}{name}").write_text(text)
    return Bench(root, yard, first, second, control)


def control_texts(record: BuildRecord) -> dict[str, str]:
    """The control: one plain line per variable, in the words that a person would use."""
    lists = {"PATH": f"{record.prefix}/bin", "MANPATH": f"{record.prefix}/share/man", "XDG_DATA_DIRS": "/opt/data"}
    names = (*BORROWED, "CFLAGS")
    lua = [f'prepend_path("{k}", "{v}")' for k, v in lists.items()] + [f'pushenv("{n}", "1")' for n in names]
    tcl = ["#%Module", *(f"prepend-path {k} {v}" for k, v in lists.items()), *(f"pushenv {n} 1" for n in names)]
    for name in ("STRANGE", "PROJ_DATA"):
        lua.append(f'setenv("{name}", "1")')
        tcl.append(f"setenv {name} 1")
    lua.append('set_alias("gg", "echo")')
    tcl.append("set-alias gg echo")
    lua.append('if myShellType() ~= "csh" then set_shell_function("greet", "echo", "echo") end')
    tcl.append("if {[module-info shelltype] ne {csh}} { set-function greet echo }")
    return {".lua": "\n".join(lua) + "\n", "": "\n".join(tcl) + "\n"}


def export(shell: str, name: str, value: str) -> str:
    """The line that sets an exported variable."""
    if shell == "fish":
        return "set -gx {} '{}'".format(name, value.replace("\\", "\\\\").replace("'", "\\'"))
    quoted = "'" + value.replace("'", "'\\''") + "'"
    return f"setenv {name} {quoted}" if shell == "tcsh" else f"export {name}={quoted}"


def own_names(shell: str) -> str:
    """The user's own functions and aliases."""
    if shell == "tcsh":
        return "alias ll 'ls -l'; alias mine 'echo $HOME'"
    if shell == "fish":
        return "function mytool; echo mine $argv; end; function conda; echo own $argv; end; alias ll 'ls -l'"
    return "mytool() { echo mine \"$@\"; }; conda() { echo own \"$@\"; }; alias ll='ls -l' mine='echo $HOME'"


def script(system: str, shell: str, case: Case, scenario: str, place: Path, first: str, second: str) -> str:
    """What is typed in one scenario: state before, while loaded, and after, each in its own file."""
    shot = {name: modules.snapshot(shell, place / name) for name in ("before", "loaded", "after")}
    lines = [modules.initialise(system, shell), own_names(shell) if case.own_names else "", shot["before"]]
    lines += [f"module load {first}"]
    lines += [export(shell, name, value) for name, value in case.during.items()]
    lines += [shot["loaded"]]
    if scenario == "swap":
        lines += [f"module {'swap' if system == 'lmod' else 'switch'} {first} {second}", f"module unload {second}"]
    elif scenario == "purge after a rollback":
        lines += [f"command ln -sfn {place.parent / 'older'} {place / 'modules'}".removeprefix("command "
                  if shell == "tcsh" else ""), "module purge"]  # fmt: skip
    elif scenario == "nested":
        inner = place / f"inner.{shell}"
        inner.write_text("\n".join([modules.initialise(system, shell), f"module unload {first}", shot["after"], ""]))
        lines += [f"{shell} {' '.join(modules._QUIET[shell])} {inner}"]
    else:
        lines += [f"module unload {first}"]
    if scenario != "nested":
        lines.append(shot["after"])
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Outcome:
    """The three states of one run, and what the shell printed. None: the shell gave up before it got there."""

    before: modules.Shot
    loaded: modules.Shot | None
    after: modules.Shot | None
    output: str


def play(
    bench: Bench, system: str, shell: str, name: str, case: Case, scenario: str, tree: Path | None = None
) -> Outcome:
    """Run one scenario in one environment; `tree` is another module path than the stack's (a control)."""
    label = re.sub(r"\W+", "_", f"{name} {scenario} {tree.name if tree else 'stack'}")
    (bench.root / system / shell).mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{label}-", dir=bench.root / system / shell))
    older = place.parent / "older"
    if not older.is_symlink():
        with contextlib.suppress(FileExistsError):
            older.symlink_to(bench.yard.generation(2).modules)
    (place / "modules").symlink_to(tree or bench.yard.generation(1).modules)
    home = {"PATH": "/usr/bin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8", "TERM": "dumb"}
    variables = {**home, **case.variables, "MODULEPATH": str(place / "modules")}
    environ = {key: value for key, value in variables.items() if value is not None}
    text = script(system, shell, case, scenario, place, bench.first.module, bench.second.module)
    output = modules.run(shell, text, environ, place)
    before, loaded, after = (modules.take(place / shot) for shot in ("before", "loaded", "after"))
    assert before, f"{system} {shell} {name} {scenario}: no state was written\n{output}"
    return Outcome(before, loaded, after, output)


def judge(case: Case, got: Outcome, control: Outcome | None, *, names: bool = True) -> list[str]:
    """What is worse than it was before and than the control (None: not asked), one sentence each."""
    if got.after is None:
        gave_up = control is not None and control.after is None
        return [] if gave_up else [f"the shell gave up: {got.output[-300:]}"]
    if control is not None and control.after is None:
        return []
    found = []
    expected = {**got.before.environ, **{k: v for k, v in case.during.items() if k in OFFERED}}
    for key in sorted(expected.keys() | got.after.environ.keys()):
        now = got.after.environ.get(key)
        if _BOOKKEEPING.match(key) or expected.get(key) == now or (key in case.during and now == case.during[key]):
            continue  # bookkeeping; as before; or what the user said last
        if key in OFFERED or not _disturbed(control, "environ", key):
            found.append(f"{key} was {expected.get(key)!r} and is {now!r}")
    for kind in ("functions", "aliases") if names else ():
        before, after = getattr(got.before, kind), getattr(got.after, kind)
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key) and not _disturbed(control, kind, key):
                found.append(f"{kind}: {key} was {before.get(key)!r} and is {after.get(key)!r}")
    return found


def _disturbed(control: Outcome | None, kind: str, key: str) -> bool:
    """Whether the control, too, leaves this variable, function or alias otherwise than it was."""
    if control is None or control.after is None:
        return False
    before, after = getattr(control.before, kind), getattr(control.after, kind)
    return bool(before.get(key) != after.get(key))


def loaded_rightly(bench: Bench, system: str, shell: str, case: Case, got: Outcome) -> list[str]:
    """What is not as it should be while the stack is loaded."""
    if got.loaded is None:
        return [f"the shell gave up while loading: {got.output[-300:]}"]
    now, record = got.loaded.environ, bench.first
    barred = unquotable_in(STRANGE, "lua" if system == "lmod" else "tcl")
    wanted = {
        "PYTHONNOUSERSITE": "1", "CONDA_PREFIX": record.prefix, "OMP_NUM_THREADS": "4", "PYTHONPATH": None,
        "PYTHONHOME": None, "STRANGE": None if shell.removeprefix("t") in barred else STRANGE, **case.during,
    }  # fmt: skip
    found = [f"{k} is {now.get(k)!r} instead of {v!r}" for k, v in wanted.items() if now.get(k) != v]
    if not now.get("PATH", "").startswith(f"{record.prefix}/bin:"):
        found.append(f"PATH is {now.get('PATH')!r}")
    if not case.variables.get("MANPATH") and now.get("MANPATH") != f"{record.prefix}/share/man:":
        found.append(f"MANPATH hides the system's pages: {now.get('MANPATH')!r}")
    for name in OFFERED:
        own = case.during.get(name, case.variables.get(name))
        if own is not None and now.get(name) != own:
            found.append(f"{name} of the user was replaced by {now.get(name)!r}")
    scratch, home = case.variables.get("SCRATCH"), case.variables.get("HOME", "/home/user")
    if scratch and "\n" not in scratch and "PIP_CACHE_DIR" not in {**case.variables, **case.during}:
        found += [] if now.get("PIP_CACHE_DIR", "").startswith(scratch) else ["PIP_CACHE_DIR is not on the scratch"]
    elif home and "PIP_CACHE_DIR" not in {**case.variables, **case.during}:
        found += [] if now.get("PIP_CACHE_DIR") == f"{home}/.cache/pip" else [f"cache at {now.get('PIP_CACHE_DIR')!r}"]
    return found


SCENARIOS = ("unload", "swap", "purge after a rollback", "nested")


def chosen(number: int, shell: str) -> str:
    """The scenario of a case in a shell, so that the shells together try all with each case."""
    return SCENARIOS[(number + modules.SHELLS.index(shell)) % len(SCENARIOS)]


def examine(
    bench: Bench, system: str, shell: str, tree: Path | None = None, only: str | None = None, *,
    scenarios: tuple[str, ...] = (),
) -> list[str]:  # fmt: skip
    """Each case in these scenarios, or in the one `chosen` for it; the sentences of all that is wrong."""

    def one(item: tuple[int, tuple[str, Case]]) -> list[str]:
        number, (name, case) = item
        found = []
        controls: dict[str, Outcome] = {}
        for scenario in scenarios or (chosen(number, shell),):
            got = play(bench, system, shell, name, case, scenario, tree)
            wrong = judge(case, got, None, names=scenario != "nested")
            if wrong:  # only then the control is asked whether it does better
                kind = "swap" if scenario == "swap" else "unload"
                if kind not in controls:
                    controls[kind] = play(bench, system, shell, name, case, kind, bench.control)
                wrong = judge(case, got, controls[kind], names=scenario != "nested")
            if tree is None:
                wrong += loaded_rightly(bench, system, shell, case, got)
            found += [f"[{name}, {scenario}] {text}" for text in wrong]
        return found

    wanted = [(n, c) for n, c in cases(bench.first.prefix).items() if only is None or n == only]
    with ThreadPoolExecutor(2) as pool:
        return [text for found in pool.map(one, enumerate(wanted)) for text in found]
