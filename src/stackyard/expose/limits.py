"""The limits of module systems: a deploy and ``show`` print those that are `notable`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from stackyard.core import change as ops

Format = Literal["lua", "tcl"]
Shell = Literal["sh", "bash", "zsh", "csh", "tcsh", "fish"]
_FAMILY = {"bash": "sh", "zsh": "sh", "tcsh": "csh"}


_NOT_IN_FISH = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|^(?![ \t\r\n])\s|(?![ \t\r\n])\s$")


_OPEN_BRACKET = re.compile(r"\[[^\[\]]*(\[|$)")


def unquotable_in(value: str, format: Format) -> tuple[str, ...]:
    """The shells in which setting this value would fail, abort the load or lose a part of it.

    Lmod does not quote braces for csh; Environment Modules brackets for csh, an open one for fish, and a leading ``~``
    for csh and zsh; neither quotes a leading ``=`` for zsh, and for fish control characters or Unicode's own blanks at
    an end.
    """
    home = format == "tcl" and value.startswith("~")
    open_bracket = format == "tcl" and _OPEN_BRACKET.search(value)
    matches = {
        "csh": home or set(value) & set("{}" if format == "lua" else "[]"),
        "zsh": home or value.startswith("="),
        "fish": open_bracket or _NOT_IN_FISH.search(value),
    }
    return tuple(shell for shell, barred in matches.items() if barred)


def quoted(operation: ops.Set | ops.SetRestorable | ops.Flags | ops.Join | ops.Default | ops.UserPath) -> str:
    """The part of an operation that the module system quotes for the shell; for a user's path list, the added part."""
    match operation:
        case ops.Flags():
            return operation.text
        case ops.Join(_, front, back, separator, otherwise):
            return f"{front}{separator}{otherwise}{separator}{back}".strip(separator)
        case ops.UserPath():
            return f"/{operation.suffix}{operation.rest}/{operation.fallback}{operation.rest}"
        case _:
            return operation.value or ""


def limits(change: ops.EnvironmentChange, format: Format, shell: Shell = "bash") -> list[str]:
    """The limits for one format and one shell, one sentence each with its variable or function; empty: none.

    Measured with Lmod 8.6.19 and Environment Modules 5.2.0; `docs/explanation/modules.md` has the whole table.
    """
    texts = [text for operation in change for text in _limits(operation, format, shell)]
    return list(dict.fromkeys(texts))


def notable(change: ops.EnvironmentChange, formats: Iterable[Format]) -> list[str]:
    """The limits to report, for all formats and interactive shells, each once.

    Not included are those of every module (`docs/explanation/modules.md` has them) and those of a function's helpers,
    whose names start with two underscores.
    """
    own = ops.EnvironmentChange(tuple(op for op in change if not getattr(op, "name", "").startswith("__")))
    shells: tuple[Shell, ...] = ("bash", "zsh", "tcsh", "fish")
    texts = [text for format in formats for shell in shells for text in limits(own, format, shell)]
    usual = {_not_given_back(op.variable) for op in own if isinstance(op, ops.SetRestorable | ops.Flags | ops.Join)}
    return [text for text in dict.fromkeys(texts) if text not in usual]


def _not_given_back(variable: str) -> str:
    return f"{variable}: Lmod does not restore an empty value or one with a line break"


def _limits(operation: ops.Operation, format: Format, shell: Shell) -> list[str]:
    body = _FAMILY.get(shell, shell)
    match operation:
        case ops.Function(name, bodies):
            return _function(name, body in bodies, body, shell)
        case ops.Prompt() if body == "fish":
            return ["the prompt is not changed in fish: it is a function there"]
        case ops.Complete(name, "") if shell in ("bash", "zsh", "tcsh", "fish"):
            return [f"TAB does not complete {name}: its scripts are in the image, where no shell can read them"]
        case ops.OnUnload(bodies) if body not in bodies:
            return [f"nothing is done before an unload in {shell}: no commands for it"]
        case ops.Alias(name, value) if "\n" in value or (body != "sh" and "'" in value):
            return [f"the alias {name} cannot be quoted for {shell}"]
        case ops.Set() | ops.SetRestorable() | ops.Flags() | ops.Join() | ops.Default() | ops.UserPath():
            told = _of_value(operation.variable, quoted(operation), format, shell, body)
            if told:
                return [told]
        case _:
            pass
    if format == "lua" and isinstance(operation, ops.SetRestorable | ops.Flags | ops.Join):
        return [_not_given_back(operation.variable)]
    return []


def _of_value(variable: str, value: str, format: Format, shell: Shell, body: str) -> str:
    if "\n" in value or "\r" in value:
        return f"{variable}: line breaks in its value become spaces: the module system cannot quote them"
    if {shell, body}.intersection(unquotable_in(value, format)):
        return f"{variable} is not set in {shell}: the module system cannot quote its value there"
    if _changed(value, format, body):
        return f"{variable} has another value in {shell}: the module system does not quote all of it"
    return ""


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
    if format == "tcl":
        return value.startswith("~") or max(value, default="") > "\uffff"  # Tcl 8.6 may split such a character
    return body == "csh" and ("!" in value or "\t" in value)
