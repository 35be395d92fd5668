"""``module load`` and ``module unload`` of a deployed stack against one setenv, and against activating at every load.

All modules are loaded and unloaded in turn, each time in a new subshell of one bash that has the same module path, and
the shell itself takes the time. After each pair the environment must be what it was (not asked of the last kind, which
leaves traces).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import Figure, figure_of
from benchmarks.tools import environment, scratch, stackyard

ONE_SETENV_TARGET = 1.15
ACTIVATE_TARGET = 2.0
REAL_CONDA = os.environ.get("STACKYARD_BENCH_CONDA", "")
"""A conda of one's own that activates at every load in the module to compare with; empty: the tests' stand-in."""
STACK, BASE, CONTROL, ACTIVATE = "numeric", "condabase", "one-setenv/1", "activating/1"
SCRIPTS = {
    "compilers": 'export TOOL_HOME="$CONDA_PREFIX"\nexport CFLAGS="${CFLAGS:-} -O2"\n',
    "geodata": 'export GEO_DATA="$CONDA_PREFIX/share/geo"\nexport GEO_NETWORK=OFF\n',
    "threads": 'export TOOL_THREADS=4\nexport TOOL_PATH="$CONDA_PREFIX/lib/tool:${TOOL_PATH:-}"\n',
}
"""What the three activation scripts of the stack do: an ordinary mixture."""


def measure(pairs: int = 25) -> list[Figure]:
    """Lmod, and Environment Modules where it can be had."""
    from support import modules

    figures: list[Figure] = []
    with scratch("load") as directory:
        _deploy(directory)
        for system, title in (("lmod", "Lmod"), ("em", "Environment Modules")):
            reason = modules.missing(system, "bash")
            if reason:
                print(f"  {title} is left out: {reason}")
                continue
            names = [CONTROL, STACK, *([ACTIVATE] if system == "lmod" else [])]
            times = _session(modules.initialise(system, "bash"), directory, names, pairs)
            figures += _figures(title, times)
    return figures


def _figures(title: str, times: Mapping[str, list[tuple[float, float]]]) -> list[Figure]:
    both = {name: [load + unload for load, unload in rows] for name, rows in times.items()}
    made = [
        figure_of(
            f"load and unload, {title}", "a modulefile with one setenv",
            list(zip(both[STACK], both[CONTROL], strict=True)), ONE_SETENV_TARGET,
        )
    ]  # fmt: skip
    if ACTIVATE in both:
        note = (
            f"conda is {REAL_CONDA}; the next line is what nothing can exceed"
            if REAL_CONDA
            else "conda is a small stand-in that starts much more quickly than conda itself; the next line is the limit"
        )
        for name, label, target in ((STACK, "how much faster", ACTIVATE_TARGET), (CONTROL, "of one setenv", None)):
            made.append(
                figure_of(
                    f"load and unload, {title}: {label}", "execute{source conda.sh; conda activate}",
                    list(zip(both[name], both[ACTIVATE], strict=True)), target, at_least=True,
                    note=note if name == STACK else "",
                )
            )  # fmt: skip
    return made


def _deploy(directory: Path) -> None:
    """The stack, a base with conda's stand-in, a module of one line, and one that activates at every load."""
    from support.channel import Package, make_channel
    from support.sitechannels import conda_package
    from support.testbed import real_channel

    tools = [
        Package(name, "1.0", files={f"etc/conda/activate.d/{name}.sh": text}) for name, text in sorted(SCRIPTS.items())
    ]
    channel = make_channel(directory / "channel", [*tools, conda_package("4.8.3", "3.11", "linux-64")])
    channels = f"channels: [{real_channel().as_uri()}, {channel.as_uri()}]"
    for name, packages in ((STACK, ["numpy", *SCRIPTS]), (BASE, ["conda"])):
        file = directory / f"{name}.yml"
        file.write_text(f"name: {name}\n{channels}\ndependencies: [{', '.join(['python=3.11', *packages])}]\n")
        stackyard(directory, "deploy", file, "--version", "1")
    paths = {row["stack"]: Path(row["path"]) / "prefix" for row in stackyard(directory, "list", "--json")}
    _write(directory / "others" / f"{CONTROL}.lua", 'setenv("ONE_VARIABLE", "1")\n')
    _write(directory / "others" / CONTROL, "#%Module1.0\nsetenv ONE_VARIABLE 1\n")
    _write(directory / "others" / f"{ACTIVATE}.lua", activating(paths[BASE], paths[STACK]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def activating(base: Path, prefix: Path) -> str:
    """A modulefile that sources conda and activates at every load, and takes itself back with shell code."""
    functions = "conda __conda_activate __conda_hashr __conda_reactivate __add_sys_prefix_to_path"
    program = f"export CONDA_EXE={shlex.quote(REAL_CONDA)}; " if REAL_CONDA else ""
    load = f"source {base}/etc/profile.d/conda.sh; {program}export -f {functions}; conda activate {prefix}"
    unload = (
        "for i in $(seq ${CONDA_SHLVL:=0}); do conda deactivate; done; "
        f"export PATH=$(echo ${{PATH}} | tr ':' '\\n' | grep . | grep -v {base} | tr '\\n' ':' | sed 's/:$//'); "
        f"unset -f {functions}; unset $(env | grep -o '[^=]*CONDA[^=]*')"
    )
    return f'execute{{cmd=[==[{load}]==], modeA={{"load"}}}}\nexecute{{cmd=[==[{unload}]==], modeA={{"unload"}}}}\n'


def _session(initialise: str, directory: Path, names: list[str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of load and of unload, per module and round; fails where a module does not load or leaves traces."""
    script = directory / "session.sh"
    script.write_text(_script(initialise, [directory / "others", directory / "yard" / "modules"], names, rounds))
    plain = ("HOME", "USER", "LANG", "TERM")  # a PATH with a duplicate would be changed by the module system itself
    env = {k: v for k, v in environment(directory).items() if k in plain} | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", script], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"the session failed\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for line in done.stdout.splitlines():
        name, load, unload = line.split()
        times[name].append((int(load) / 1e6, int(unload) / 1e6))
    return {name: rows[1:] for name, rows in times.items()}  # the first round warms up


def _script(initialise: str, paths: list[Path], names: list[str], rounds: int) -> str:
    uses = "\n".join(f"module use {shlex.quote(os.fspath(path))}" for path in paths)
    shown = "env | grep -v -E '^(_|_?_?LMOD|_ModuleTable|__LMOD|MODULES_|_LMFILES_|LOADEDMODULES|CONDA_SHLVL)' | sort"
    return f"""
{initialise}
{uses}
micro() {{ local t=$EPOCHREALTIME; now=${{t//[.,]/}}; }}
one() {{
    micro; a=$now; module load $1; b=$?; micro; c=$now
    [ $b = 0 ] || {{ echo "cannot load $1" >&2; exit 1; }}
    [ "$1" != {STACK} ] || case "$CONDA_PREFIX" in *{STACK}*) ;; *) echo "$1 set nothing" >&2; exit 1;; esac
    micro; d=$now; module unload $1; micro; e=$now
    echo "$1 $((c - a)) $((e - d))"
    [ $1 = {ACTIVATE} ] || [ "$before" = "$({shown})" ] || {{ echo "$1 leaves traces" >&2; exit 1; }}
}}
names=({" ".join(names)})
count=${{#names[@]}}
before="$({shown})"
for ((i = 0; i <= {rounds}; i++)); do
    for ((k = 0; k < count; k++)); do
        ( one "${{names[(i + k) % count]}}" ) || exit 1
    done
done
"""
