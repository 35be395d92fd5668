"""A TAB in bash, zsh, fish and tcsh with 500 published revisions, against 30 ms; no Python is started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.measure import Figure, figure_of
from benchmarks.tools import REPOSITORY, environment, scratch

REVISIONS = 500
TARGET_S = 0.03
SCRIPTS = REPOSITORY / "src" / "stackyard" / "completions"
LINE, WORD = f"stackyard show torch/2.{REVISIONS - 1}", f"torch/2.{REVISIONS - 1}-py313-1"
BASH = """. {scripts}/stackyard.bash; COMP_WORDS=({line}); COMP_CWORD=2
for i in {{1..{count}}}; do a=$EPOCHREALTIME; _shtab_stackyard; b=$EPOCHREALTIME
echo $(( ${{b/./}} - ${{a/./}} )); done
[ "${{COMPREPLY[0]}}" = {word} ]"""
FISH = """source {scripts}/stackyard.fish
for i in (seq {count}); set a (date +%s%N); complete -C '{line}' >/dev/null; set b (date +%s%N)
math "($b - $a) / 1000"; end; string match -q '{word}*' (complete -C '{line}')"""
ZSH = "fpath=({scripts} $fpath); autoload -Uz compinit; compinit -u -D; bindkey '^I' complete-word; stty cols 200"


def measure(pairs: int = 15) -> list[Figure]:
    """bash and fish measure their own function; zsh and tcsh from the key to the word on a terminal."""
    from support.terminals import typed

    with scratch("complete") as directory:
        (directory / "names").write_text("".join(f"r torch/2.{n}-py313-1\n" for n in range(REVISIONS)) + "s torch\n")
        env = {**environment(directory), "STACKYARD_HOME": str(directory), "TERM": "xterm"}
        lines = [(LINE, WORD)] * pairs
        tcsh = typed(["tcsh", "-f"], env, directory, f"source {SCRIPTS}/stackyard.tcsh", lines)
        zsh = typed(["zsh", "-f"], env, directory, ZSH.format(scripts=SCRIPTS), lines)
        return [
            _figure("bash", _own(["bash", "--norc"], BASH, env, directory, pairs)),
            _figure("zsh", [seconds for _, seconds in zsh]),
            _figure("fish", _own(["fish", "--no-config"], FISH, env, directory, pairs)),
            _figure("tcsh", [seconds for _, seconds in tcsh]),
        ]


def _own(argv: list[str], script: str, env: dict[str, str], cwd: Path, count: int) -> list[float]:
    text = script.format(scripts=SCRIPTS, line=LINE, word=WORD, count=count)
    done = subprocess.run(argv, input=text, env=env, cwd=cwd, capture_output=True, text=True, check=True)
    return [float(line) / 1e6 for line in done.stdout.split()]


def _figure(shell: str, seconds: list[float]) -> Figure:
    note = f"at a load of {os.getloadavg()[0]:.0f}"
    name = f"TAB in {shell}, {REVISIONS} revisions"
    return figure_of(name, "30 ms", [(s, TARGET_S) for s in seconds[1:]], 1.0, note=note)  # the first loads functions
