"""Renders an environment change as POSIX sh, for batch scripts, the shim of ranks and containers' start-up scripts.

Every value is quoted exactly once, so that quotes, newlines and ``$`` arrive unchanged. Names have a grammar
(`stackyard.core.change`). Pure, and cheap to import.
"""

from __future__ import annotations

import shlex

from stackyard.core import change as ops


def change_text(change: ops.EnvironmentChange) -> str:
    """Shell lines that give child processes the environment of `EnvironmentChange.apply`."""
    return "".join(f"{line}\n" for line in ops.rendered(change, RULES))


def _prepend(operation: ops.Prepend) -> list[str]:
    variable = operation.variable
    rest = f'":${{{variable}-}}"' if operation.keep_system else f'"${{{variable}:+:${variable}}}"'
    return [f"export {variable}={shlex.quote(operation.directory)}{rest}"]


def _append(operation: ops.Append) -> list[str]:
    variable = operation.variable
    return [f'export {variable}="${{{variable}:+${variable}:}}"{shlex.quote(operation.directory)}']


def _set(operation: ops.Set) -> list[str]:
    return [export(operation.variable, operation.value)]


def _set_restorable(operation: ops.SetRestorable) -> list[str]:
    if operation.value is None:
        return [f"unset {operation.variable}"]
    return [export(operation.variable, operation.value)]


def _default(operation: ops.Default) -> list[str]:
    return [f'[ -n "${{{operation.variable}+set}}" ] || {export(operation.variable, operation.value)}']


def _save_value(operation: ops.SaveValue) -> list[str]:
    return [f'export {operation.variable}="${{{operation.source}-}}"']


def _flags(operation: ops.Flags) -> list[str]:
    variable = operation.variable
    return [f'export {variable}="${{{variable}:+${variable} }}"{shlex.quote(operation.text)}']


def _join(operation: ops.Join) -> list[str]:
    """The user's text with a separator on each side that has a neighbour; the separators need no quoting in quotes."""
    name, between = operation.variable, operation.separator
    lines = [f'[ -n "${{{name}-}}" ] || {name}={shlex.quote(operation.otherwise)}'] if operation.otherwise else []
    front, back = (shlex.quote(text) if text else "" for text in (operation.front, operation.back))
    if front:
        value = f'{front}"${{{name}:+{between}${name}}}"' + (f'"{between}"{back}' if back else "")
    else:
        value = f'"${{{name}:+${name}{between}}}"{back}'
    return [*lines, f"export {name}={value}"]


def _user_path(path: ops.UserPath) -> list[str]:
    """The first base that is set and not empty, else the directory below HOME; a user's own value is kept."""
    lines = [f'if [ -z "${{{path.variable}+set}}" ]; then', f"  {path.variable}="]
    for base in path.bases:
        lines.append(f'  [ -n "${path.variable}" ] || {path.variable}="${{{base}:+${base}/}}"')
    lines.append(f'  if [ -n "${path.variable}" ]; then {path.variable}="${path.variable}"{shlex.quote(path.suffix)}')
    lines.append(f'  else {path.variable}="${{HOME-}}/"{shlex.quote(path.fallback)}; fi')
    return [*lines, f'  export {path.variable}="${path.variable}"{shlex.quote(path.rest)}', "fi"]


RULES: ops.Rules = {
    ops.Prepend: _prepend,
    ops.Append: _append,
    ops.Set: _set,
    ops.SetRestorable: _set_restorable,
    ops.Default: _default,
    ops.SaveValue: _save_value,
    ops.Flags: _flags,
    ops.Join: _join,
    ops.UserPath: _user_path,
    **dict.fromkeys((ops.Function, ops.Alias, ops.OnUnload, ops.Prompt, ops.Complete, ops.Notice), ops.left_out),
}
"""Operation to POSIX sh. A child process has no functions, aliases, prompt, completion or notices, and no unload."""


def export(name: str, value: str) -> str:
    """One variable with exactly this value."""
    return f"export {name}={shlex.quote(value)}"
