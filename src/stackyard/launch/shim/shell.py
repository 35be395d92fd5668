"""Shell text that sets an environment, and command lines with variables to fill in.

The text is plain POSIX sh except for `array`, which needs bash. Every value is quoted exactly once, so that quotes,
newlines and ``$`` arrive unchanged. Pure, and cheap to import.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from stackyard.change import (
    Alias,
    Default,
    EnvironmentChange,
    Flags,
    Function,
    Notice,
    OnUnload,
    Prepend,
    Rules,
    SaveValue,
    Set,
    SetRestorable,
    UserPath,
    left_out,
    rendered,
)

FILLED = re.compile(
    r"\$\{((?:RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|MASTER_ADDR|MASTER_PORT)"
    r"|STACKYARD_[A-Z0-9_]+)\}"
)
"""Variables that are filled in at run time in commands and values: a rank's own, and no others."""


def change_text(change: EnvironmentChange) -> str:
    """Shell lines after which a child process has the environment of `EnvironmentChange.apply`."""
    return "".join(f"{line}\n" for line in rendered(change, RULES))


def _prepend(operation: Prepend) -> list[str]:
    variable = operation.variable
    rest = f'":${{{variable}-}}"' if operation.keep_system else f'"${{{variable}:+:${variable}}}"'
    return [f"export {variable}={shlex.quote(operation.directory)}{rest}"]


def _set(operation: Set) -> list[str]:
    return [export(operation.variable, operation.value)]


def _set_restorable(operation: SetRestorable) -> list[str]:
    if operation.value is None:
        return [f"unset {operation.variable}"]
    return [export(operation.variable, operation.value)]


def _default(operation: Default) -> list[str]:
    return [f'[ -n "${{{operation.variable}+set}}" ] || {export(operation.variable, operation.value)}']


def _save_value(operation: SaveValue) -> list[str]:
    return [f'export {operation.variable}="${{{operation.source}-}}"']


def _flags(operation: Flags) -> list[str]:
    variable = operation.variable
    return [f'export {variable}="${{{variable}:+${variable} }}"{shlex.quote(operation.text)}']


def _user_path(path: UserPath) -> list[str]:
    """The first base that is set and not empty, else the directory below HOME; a value of the user's own is kept."""
    lines = [f'if [ -z "${{{path.variable}+set}}" ]; then', f"  {path.variable}="]
    for base in path.bases:
        lines.append(f'  [ -n "${path.variable}" ] || {path.variable}="${{{base}:+${base}/}}"')
    lines.append(f'  if [ -n "${path.variable}" ]; then {path.variable}="${path.variable}"{shlex.quote(path.suffix)}')
    lines.append(f'  else {path.variable}="${{HOME-}}/"{shlex.quote(path.fallback)}; fi')
    return [*lines, f'  export {path.variable}="${path.variable}"{shlex.quote(path.rest)}', "fi"]


RULES: Rules = {
    Prepend: _prepend,
    Set: _set,
    SetRestorable: _set_restorable,
    Default: _default,
    SaveValue: _save_value,
    Flags: _flags,
    UserPath: _user_path,
    **dict.fromkeys((Function, Alias, OnUnload, Notice), left_out),
}
"""Operation to POSIX sh. A child process has no functions, aliases or notices, and nothing is unloaded from it."""


def export(name: str, value: str) -> str:
    """One variable with exactly this value."""
    return f"export {name}={shlex.quote(value)}"


def filled(word: str) -> str:
    """A word in which ``${RANK}`` and the like (`FILLED`) are replaced by the shell, and nothing else is."""
    parts = FILLED.split(word)
    texts = [f'"${{{part}-}}"' if index % 2 else shlex.quote(part) if part else "" for index, part in enumerate(parts)]
    return "".join(texts) or "''"


def exports(variables: Mapping[str, str]) -> str:
    """Variables whose values may hold ``${RANK}`` and the like."""
    return "".join(f"export {name}={filled(value)}\n" for name, value in variables.items())


def array(name: str, words: Iterable[str], tail: str = "") -> str:
    """A bash array of words that may hold ``${RANK}`` and the like; `tail` is shell text put after them."""
    inside = " ".join((*(filled(word) for word in words), *((tail,) if tail else ())))
    return f"{name}=({inside})\n"


_SITE_HOLES = re.compile(r"\{(local_rank|node|run|user)\}")


def site_variables(variables: Mapping[str, str], run: str) -> str:
    """The plan's variables; {local_rank}, {node}, {run} and {user} are replaced, other braces stay."""
    shown = {
        "local_rank": '"$sy_in"', "node": '"$sy_node"', "run": shlex.quote(run),
        "user": '"${USER:-${LOGNAME:-$UID}}"',
    }  # fmt: skip
    lines = []
    for name, value in variables.items():
        parts = _SITE_HOLES.split(value)
        text = "".join(shown[p] if i % 2 else shlex.quote(p) if p else "" for i, p in enumerate(parts))
        lines.append(f"export {name}={text or chr(39) * 2}\n")
    return "".join(lines)


_GLOBBED = re.compile(r"[\w./+*-]+", re.ASCII)


def lists(variables: Mapping[str, Iterable[str]]) -> str:
    """Variables that hold names of files, joined by commas; bash expands a ``*``, and leaves out what matches none."""
    text = ""
    for name, words in variables.items():
        inside = " ".join(word if "*" in word and _GLOBBED.fullmatch(word) else filled(word) for word in words)
        text += f"shopt -s nullglob; sy_list=({inside}); shopt -u nullglob\n"
        text += f'printf -v {name} \'%s,\' "${{sy_list[@]}}"; export {name}="${{{name}%,}}"\n'
    return text


def needed(paths: tuple[str, ...]) -> str:
    """Stop the launch if a node lacks a file that the container's runtime is told to bind: it would not start."""
    if not paths:
        return ""
    words = " ".join(map(shlex.quote, paths))
    return (
        f"for sy_path in {words}; do\n"
        '  [[ -e $sy_path ]] || sy_unfit "cannot bind $sy_path into the image: it does not exist on this node." \\\n'
        '    "Compare launch.container in site.yaml with this node: stackyard bindings show"\n'
        "done\n"
    )
