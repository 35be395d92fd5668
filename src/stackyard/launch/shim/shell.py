"""Shell text that sets an environment, and command lines with variables to fill in.

The text is plain POSIX sh except for `array`, which needs bash. Every value is quoted exactly once, so that quotes,
newlines and ``$`` arrive unchanged. Pure, and cheap to import.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

FILLED = re.compile(
    r"\$\{((?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|MASTER_ADDR|MASTER_PORT)"
    r"|STACKYARD_[A-Z0-9_]+)\}"
)
"""Variables that are filled in at run time in commands and values: a rank's own, and no others."""


def filled(word: str) -> str:
    """A word in which the shell replaces ``${RANK}`` and the like (`FILLED`), and nothing else."""
    parts = FILLED.split(word)
    texts = [f'"${{{part}-}}"' if index % 2 else shlex.quote(part) if part else "" for index, part in enumerate(parts)]
    return "".join(texts) or "''"


def exports(variables: Mapping[str, str]) -> str:
    """Export statements for variables whose values may contain ``${RANK}`` and the like."""
    return "".join(f"export {name}={filled(value)}\n" for name, value in variables.items())


def array(name: str, words: Iterable[str], tail: str = "") -> str:
    """A bash array of words that may contain ``${RANK}`` and the like, followed by `tail`."""
    inside = " ".join((*(filled(word) for word in words), *((tail,) if tail else ())))
    return f"{name}=({inside})\n"


def parameters(words: Iterable[str], tail: str = "") -> str:
    """The same as the positional parameters, for a POSIX sh."""
    return " ".join(("set --", *(filled(word) for word in words), *((tail,) if tail else ()))) + "\n"


_SITE_HOLES = re.compile(r"\{(local_rank|node|run|user)\}")


def site_variables(variables: Mapping[str, str], run: str) -> str:
    """The plan's variables; {local_rank}, {node}, {run} and {user} are replaced, other braces stay."""
    shown = {
        "local_rank": '"$sy_in"', "node": '"$sy_node"', "run": shlex.quote(run),
        "user": '"${USER:-${LOGNAME:-$sy_uid}}"',
    }  # fmt: skip
    lines = []
    for name, value in variables.items():
        parts = _SITE_HOLES.split(value)
        text = "".join(shown[p] if i % 2 else shlex.quote(p) if p else "" for i, p in enumerate(parts))
        lines.append(f"export {name}={text or chr(39) * 2}\n")
    return "".join(lines)


_GLOBBED = re.compile(r"[\w./+*-]+", re.ASCII)


def lists(variables: Mapping[str, Iterable[str]]) -> str:
    """Variables with comma-separated file names; bash expands a ``*``, and drops patterns without a match."""
    text = ""
    for name, words in variables.items():
        inside = " ".join(word if "*" in word and _GLOBBED.fullmatch(word) else filled(word) for word in words)
        text += f"shopt -s nullglob; sy_list=({inside}); shopt -u nullglob\n"
        text += f'printf -v {name} \'%s,\' "${{sy_list[@]}}"; export {name}="${{{name}%,}}"\n'
    return text


LOOK = r"""  # FORMAT PATH...: note the first path that this node lacks, or that does not answer. They are looked at
  # in a child: a mount whose server is stopped blocks every process that looks, until it is killed.
  sy_look() {
    sy_format=$1
    shift
    exec {sy_asked}< <(for sy_path; do [[ -e $sy_path ]]; printf '%d\n' $?; done </dev/null 2>/dev/null)
    sy_child=$!
    for sy_path; do
      read -r -t "$(( sy_start_s / 2 )).$(( sy_start_s % 2 * 5 ))" -u "$sy_asked" sy_line || sy_line=
      case $sy_line in
        0) continue ;;
        1) printf -v sy_text "$sy_format" "$sy_path" && sy_lack "$sy_text" ;;
        *) sy_silent && kill -KILL "$sy_child" 2>/dev/null ;;
      esac
      break
    done
    exec {sy_asked}<&-
  }
  sy_silent() {
    sy_text="its file system: see what hangs (df $sy_path)"
    mapfile -t sy_lines < /proc/self/mountinfo
    for sy_line in "${sy_lines[@]}"; do
      [[ $sy_line == *" ${sy_path// /\\040} "*" - fuse"* ]] || continue
      sy_text="the file system server of its mount (squashfuse_ll): see whether it is stopped on this node"
      sy_text+=" (ps -C squashfuse_ll -o pid,stat,args: T) and let it go on (kill -CONT PID), or remove the mount:"
      sy_text+=" stackyard image unmount"
    done
    sy_lack "$sy_path does not answer: timed out after $(( sy_start_s / 2 )) s waiting for $sy_text"
  }
"""
"""Bash functions for what `needed` makes; a limit of half of the time in which all nodes have to start."""


def needed(site: Iterable[str], shared: Iterable[str]) -> str:
    """Shell text that records missing files of this node: those bound into an image by the site, and the job's own."""
    what = "cannot bind %s into the image: it does not exist on this node; compare launch.container in site.yaml"
    own = "%s does not exist on this node, and the program needs it: keep it where all nodes see it"
    return _each(site, f"{what} with the node (stackyard bindings show)") + _each(shared, own)


def _each(paths: Iterable[str], lack: str) -> str:
    words = " ".join(shlex.quote(path) for path in dict.fromkeys(paths))
    return f"sy_look {shlex.quote(lack)} {words}\n" if words else ""
