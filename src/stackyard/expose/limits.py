"""What a module system cannot express: a deploy and ``show`` print what is `notable` before users find out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from stackyard.change import Alias, EnvironmentChange, Flags, Function, OnUnload, Operation, Set, SetRestorable

Format = Literal["lua", "tcl"]
Shell = Literal["sh", "bash", "zsh", "csh", "tcsh", "fish"]
_FAMILY = {"bash": "sh", "zsh": "sh", "tcsh": "csh"}


def unquotable_in(value: str, format: Format) -> str:
    """The shell in which setting this value would fail and abort the load; empty if there is none.

    Lmod does not quote braces for csh, Environment Modules brackets for csh; neither quotes a leading ``=`` for zsh.
    """
    if set(value) & set("{}" if format == "lua" else "[]"):
        return "csh"
    return "zsh" if value.startswith("=") else ""


def limits(change: EnvironmentChange, format: Format, shell: Shell = "bash") -> list[str]:
    """The limits for one format and one shell, one sentence each with its variable or function; empty: none.

    Measured with Lmod 8.6.19 and Environment Modules 5.2.0; `docs/explanation/modules.md` has the whole table.
    """
    found = [text for operation in change for text in _limits(operation, format, shell)]
    return list(dict.fromkeys(found))


def notable(change: EnvironmentChange, formats: Iterable[Format]) -> list[str]:
    """The limits to report, for all formats and interactive shells, each once.

    Not included are those of every module (`docs/explanation/modules.md` has them) and those of a function's helpers,
    whose names start with two underscores.
    """
    own = EnvironmentChange(tuple(op for op in change if not getattr(op, "name", "").startswith("__")))
    shells: tuple[Shell, ...] = ("bash", "zsh", "tcsh", "fish")
    found = [text for format in formats for shell in shells for text in limits(own, format, shell)]
    usual = {_not_given_back(op.variable) for op in own if isinstance(op, SetRestorable | Flags)}
    return [text for text in dict.fromkeys(found) if text not in usual]


def _not_given_back(variable: str) -> str:
    return f"{variable}: Lmod does not restore an empty value or one with a line break"


def _limits(operation: Operation, format: Format, shell: Shell) -> list[str]:
    body = _FAMILY.get(shell, shell)
    match operation:
        case Function(name, bodies):
            return _function(name, body in bodies, body, shell)
        case OnUnload(bodies) if body not in bodies:
            return [f"nothing is done before an unload in {shell}: no commands for it"]
        case Alias(name, value) if "\n" in value or (body != "sh" and "'" in value):
            return [f"the alias {name} cannot be quoted for {shell}"]
        case Set(variable, value) | SetRestorable(variable, str() as value) | Flags(variable, value) if _broken(value):
            return [f"{variable}: line breaks in its value become spaces: the module system cannot quote them"]
        case Set(variable, value) | SetRestorable(variable, str() as value) if unquotable_in(value, format) in (
            shell,
            body,
        ):
            return [f"{variable} is not set in {shell}: the module system cannot quote its value there"]
        case Set(variable, value) | SetRestorable(variable, str() as value) if _changed(value, format, body):
            return [f"{variable} has another value in {shell}: the module system does not quote all of it"]
        case _:
            pass
    if format == "lua" and isinstance(operation, SetRestorable | Flags):
        return [_not_given_back(operation.variable)]
    return []


def _function(name: str, has_body: bool, body: str, shell: Shell) -> list[str]:
    if not has_body:
        kind = "alias" if body == "csh" else "function"
        return [f"{name} is not defined in {shell}: no {kind} for it"]
    if body == "csh":
        return [f"{name} is an alias in {shell}: not defined in scripts"]
    if shell in ("fish", "zsh"):
        return [f"{name} is not defined in child shells of {shell}: {shell} cannot export functions"]
    return []


def _changed(value: str, format: Format, body: str) -> bool:
    return ("!" in value and body == "csh") if format == "lua" else value.startswith("~")


def _broken(value: str) -> bool:
    return "\n" in value or "\r" in value
