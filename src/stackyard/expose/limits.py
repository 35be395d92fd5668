"""What a module system cannot express, said beforehand: a deploy shows these sentences with the revision."""

from __future__ import annotations

from typing import Literal

from stackyard.change import Alias, Borrow, EnvironmentChange, Flags, Function, OnUnload, Operation, Set

Format = Literal["lua", "tcl"]
Shell = Literal["sh", "bash", "zsh", "csh", "tcsh", "fish"]
_FAMILY = {"bash": "sh", "zsh": "sh", "tcsh": "csh"}


def limits(change: EnvironmentChange, format: Format, shell: Shell = "bash") -> list[str]:
    """The sentences for one format and one shell, each naming its variable or function; empty: all is expressed.

    Lmod 8.6.19 and Environment Modules 5.2.0 were measured; `docs/explanation/modules.md` has the whole table.
    """
    found = [text for operation in change for text in _limits(operation, format, shell)]
    return list(dict.fromkeys(found))


def _limits(operation: Operation, format: Format, shell: Shell) -> list[str]:
    body = _FAMILY.get(shell, shell)
    match operation:
        case Function(name, bodies):
            return _function(name, body in bodies, body, shell)
        case OnUnload(bodies) if body not in bodies:
            return [f"what must happen before an unload is not done in {shell}: no commands for it exist"]
        case Alias(name, value) if "\n" in value or (body != "sh" and "'" in value):
            return [f"the alias {name} cannot be written for {shell}"]
        case Set(variable, value) | Borrow(variable, str() as value) | Flags(variable, value) if _broken(value):
            if format == "lua" or body == "csh":
                return [f"{variable}: line breaks in its value become spaces (the module system cannot quote them)"]
        case _:
            pass
    if format == "lua" and isinstance(operation, Borrow | Flags):
        return [f"{operation.variable}: an empty value or one with a line break is not given back by Lmod"]
    return []


def _function(name: str, has_body: bool, body: str, shell: Shell) -> list[str]:
    if not has_body:
        kind = "alias" if body == "csh" else "function"
        return [f"{name} is not there in {shell}: it has no {kind} for it"]
    if body == "csh":
        return [f"{name} is an alias in {shell}, and not there in its scripts"]
    if shell in ("fish", "zsh"):
        return [f"{name} is not there in child shells of {shell}: {shell} cannot export functions"]
    return []


def _broken(value: str) -> bool:
    return "\n" in value or "\r" in value
