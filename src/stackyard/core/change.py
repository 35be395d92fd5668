"""`EnvironmentChange`: the list of operations that describes what a stack does to a user's environment.

Activation is captured into it once, at build time. Modulefiles in Lua and in Tcl, ``stackyard run``, wrappers and batch
scripts are renderings of the same list; nothing else in the program writes shell. The operations are few, and each
states its *meaning*, so that a renderer can choose the construct of its module system that restores the user's value.

Names have a strict grammar and values hold no null character (`stackyard.core.grammar`): an operation that a shell
could misinterpret cannot be created, not even from a record on disk. Errors for names from files have their place.

This module is pure: standard library only, no I/O, cheap to import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any, ClassVar, get_args

from stackyard.core.grammar import COMMAND, LABEL, VALUE, VARIABLE
from stackyard.core.late import dataclass


class _Operation:
    """The base of all operations: rejects invalid names and values."""

    def __post_init__(self) -> None:
        """Check every field by its name.

        Raises:
            GrammarError: a name or a value violates its grammar.
            TypeError: a field is not text.
        """
        for name, value in vars(self).items():
            rule = _NAMES.get(name, VALUE)
            for text in _texts(value):
                rule(text)


_NAMES = {"variable": VARIABLE, "source": VARIABLE, "bases": VARIABLE, "carry": VARIABLE, "name": COMMAND,
          "label": LABEL}  # fmt: skip
"""The grammars of fields that hold names; all others hold values."""


def _texts(value: Any) -> Iterable[str]:
    """The texts in a field's value."""
    if value is None or isinstance(value, bool):
        return ()
    if isinstance(value, Mapping):
        return (*map(COMMAND, value), *value.values())
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True)
class Prepend(_Operation):
    """Put a directory of the stack in front of a path list such as PATH or MANPATH.

    `keep_system`: where the list is not set, an empty last entry keeps the system's own search (MANPATH, INFOPATH).
    """

    op: ClassVar[str] = "prepend"
    variable: str
    directory: str
    keep_system: bool = False


@dataclass(frozen=True)
class Append(_Operation):
    """Put a directory of the stack at the end of a path list: the user's own directories are found first."""

    op: ClassVar[str] = "append"
    variable: str
    directory: str


@dataclass(frozen=True)
class Join(_Operation):
    """Extend a user's text in front and at its end, with a separator; it is never split.

    For lists that no module system can split: separated by blanks or semicolons, or with a different value if the user
    has none (`otherwise`).
    """

    op: ClassVar[str] = "join"
    variable: str
    front: str
    back: str
    separator: str
    otherwise: str = ""

    def __post_init__(self) -> None:
        """Check every field. Raises ValueError: another separator than those of `SEPARATORS`."""
        _Operation.__post_init__(self)  # `late.dataclass` makes another class, which super() does not know
        if self.separator not in SEPARATORS:
            raise ValueError(f"not a separator: {self.separator!r}")

    def joined(self, old: str) -> str:
        """The extended text, from the user's text, which may be empty."""
        return self.separator.join(part for part in (self.front, old or self.otherwise, self.back) if part)


SEPARATORS = (" ", ":", ";", ",")


@dataclass(frozen=True)
class Set(_Operation):
    """Set a variable that only the stack uses; it is unset afterwards.

    It is no longer produced, but modules published by earlier versions contain it.
    """

    op: ClassVar[str] = "set"
    variable: str
    value: str


@dataclass(frozen=True)
class SetRestorable(_Operation):
    """Set a user's variable and restore the previous value on unload; `value` None: unset while loaded."""

    op: ClassVar[str] = "set_restorable"
    variable: str
    value: str | None


@dataclass(frozen=True)
class Default(_Operation):
    """Set a variable unless the user has set it."""

    op: ClassVar[str] = "default"
    variable: str
    value: str


@dataclass(frozen=True)
class SaveValue(_Operation):
    """Save in `variable` the value that `source` has when the stack is loaded (empty if unset), for `OnUnload`."""

    op: ClassVar[str] = "save_value"
    variable: str
    source: str


@dataclass(frozen=True)
class Flags(_Operation):
    """Extend a flag string such as CFLAGS by `text` at its end. It is never split as a list."""

    op: ClassVar[str] = "flags"
    variable: str
    text: str


@dataclass(frozen=True)
class UserPath(_Operation):
    """A user's own path, with a fallback if the preferred variable is not set.

    The value is ``$base/suffix`` for the first of `bases` (variable names, e.g. SCRATCH) that is set and not empty,
    else ``$HOME/fallback``; entries of `tail` (absolute paths, e.g. the site's own envs) follow, joined by `separator`.
    A value that the user has set is kept: the operation then does nothing.
    """

    op: ClassVar[str] = "user_path"
    variable: str
    bases: tuple[str, ...]
    suffix: str
    fallback: str
    tail: tuple[str, ...] = ()
    separator: str = ":"

    @property
    def rest(self) -> str:
        """The part after the user's own path: the entries of `tail`, each after a separator."""
        return "".join(self.separator + entry for entry in self.tail)


@dataclass(frozen=True)
class Function(_Operation):
    """A shell function with a body per shell (``sh`` serves bash, zsh and ksh; ``fish``, ``csh`` their own).

    A body is the text between the braces. csh has no functions: its body is an alias that may use ``$*``.
    """

    op: ClassVar[str] = "function"
    name: str
    bodies: Mapping[str, str]


@dataclass(frozen=True)
class Alias(_Operation):
    """A shell alias."""

    op: ClassVar[str] = "alias"
    name: str
    value: str


@dataclass(frozen=True)
class OnUnload(_Operation):
    """Commands run when the stack is unloaded, per shell. Nothing else runs at an unload. They carry their own
    definitions and absolute paths, because module systems undo variables and functions first.

    `carry` names variables set by `SaveValue`; the commands get their values in shell variables of the same names.
    """

    op: ClassVar[str] = "on_unload"
    bodies: Mapping[str, str]
    carry: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prompt(_Operation):
    """Show ``(label)`` and a blank in front of the prompt of an interactive shell, and remove them on unload.

    A shell without a prompt, as that of a script, has none afterwards either.
    """

    op: ClassVar[str] = "prompt"
    label: str

    @property
    def text(self) -> str:
        """The text in front of the prompt, as conda writes it."""
        return f"({self.label}) "


@dataclass(frozen=True)
class Complete(_Operation):
    """Let an interactive shell complete the words of a command, by the script for it that packages install.

    `share` has the places below a prefix that bash-completion, zsh and fish know, and one for tcsh. Empty: no shell can
    read the scripts, since they are in an image. What a script defines is expected to begin with ``_NAME`` (or, as
    shtab writes it, ``_shtab_NAME``), by which unloading finds it.
    """

    op: ClassVar[str] = "complete"
    name: str
    share: str

    @property
    def scripts(self) -> tuple[Path, ...]:
        """Where the scripts for bash (two names), zsh, fish and tcsh may be."""
        places = (f"bash-completion/completions/{self.name}", f"bash-completion/completions/{self.name}.bash",
                  f"zsh/site-functions/_{self.name}", f"fish/vendor_completions.d/{self.name}.fish",
                  f"tcsh/completions/{self.name}.tcsh")  # fmt: skip
        return tuple(Path(self.share, place) for place in places)

    @property
    def stem(self) -> str:
        """The name as a part of the names of functions and variables."""
        return re.sub(r"\W", "_", self.name)


@dataclass(frozen=True)
class Notice(_Operation):
    """A message shown when the stack is loaded."""

    op: ClassVar[str] = "notice"
    text: str


Operation = (
    Prepend | Append | Set | SetRestorable | Default | SaveValue | Flags | Join | UserPath | Function | Alias | OnUnload
    | Prompt | Complete | Notice
)  # fmt: skip
OPERATIONS: tuple[type[Any], ...] = get_args(Operation)
"""Every class of operation. A renderer is a table with a rule for each (`Rules`)."""
_OPERATIONS = {kind.op: kind for kind in OPERATIONS}

_FORMER_NAMES = {"borrow": SetRestorable.op, "remember": SaveValue.op}
"""Names of operations in files of earlier versions, which are read for ever."""


@dataclass(frozen=True)
class EnvironmentChange:
    """An ordered list of operations. Immutable; `+` concatenates."""

    operations: tuple[Operation, ...] = field(default=())

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def __add__(self, other: EnvironmentChange) -> EnvironmentChange:
        return EnvironmentChange(self.operations + other.operations)

    def to_json(self) -> list[dict[str, Any]]:
        """The list as plain JSON values, in order, each with its ``op``."""
        return [{"op": operation.op, **asdict(operation)} for operation in self.operations]

    @classmethod
    def from_json(cls, items: Iterable[Mapping[str, Any]]) -> EnvironmentChange:
        """Parse the output of `to_json`, of this version or an earlier one.

        Raises:
            KeyError: an operation has no ``op``.
            TypeError: an operation lacks a key.
            ValueError: an operation or one of its keys is unknown.
        """
        return cls(tuple(_operation(item) for item in items))

    def apply(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a child process after this change (functions, aliases and notices have no effect)."""
        result = dict(environ)
        for operation in self.operations:
            _apply(operation, result)
        return result


def _operation(item: Mapping[str, Any]) -> Operation:
    op = _FORMER_NAMES.get(item["op"], item["op"])
    if op not in _OPERATIONS:
        raise ValueError(f"unknown operation {op!r}")
    cls, values = _OPERATIONS[op], {key: value for key, value in item.items() if key != "op"}
    unknown = sorted(set(values) - {f.name for f in fields(cls)})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in an operation {op!r}")
    operation: Operation = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    return operation


def _apply(operation: Operation, environ: dict[str, str]) -> None:
    match operation:
        case Prepend(variable, directory):
            old = environ.get(variable)
            alone = f"{directory}:" if operation.keep_system else directory
            environ[variable] = f"{directory}:{old}" if old else alone
        case Append(variable, directory):
            environ[variable] = f"{environ[variable]}:{directory}" if environ.get(variable) else directory
        case Set(variable, value):
            environ[variable] = value
        case SetRestorable(variable, None):
            environ.pop(variable, None)
        case SetRestorable(variable, str() as value):
            environ[variable] = value
        case Default(variable, value):
            environ.setdefault(variable, value)
        case SaveValue(variable, source):
            environ[variable] = environ.get(source, "")
        case Flags(variable, text):
            environ[variable] = f"{environ[variable]} {text}" if environ.get(variable) else text
        case Join(variable):
            environ[variable] = operation.joined(environ.get(variable, ""))
        case UserPath():
            environ.setdefault(operation.variable, user_path(operation, environ))
        case Function() | Alias() | OnUnload() | Prompt() | Complete() | Notice():
            pass  # a child process has none of them
        case _:
            raise TypeError(f"no rule for {operation!r}")


def user_path(operation: UserPath, environ: Mapping[str, str]) -> str:
    """The value of a `UserPath` in a given environment."""
    base = next((environ[name] for name in operation.bases if environ.get(name)), None)
    first = f"{base}/{operation.suffix}" if base else f"{environ.get('HOME', '')}/{operation.fallback}"
    return first + operation.rest


# --------------------------------------------------------------------------- renderers

Rules = Mapping[type[Any], Callable[[Any], list[str]]]
"""A renderer: for every class in `OPERATIONS` the function that makes lines of such an operation."""


def rendered(operations: Iterable[Operation], rules: Rules) -> list[str]:
    """The lines of a renderer for operations, in order."""
    return [line for operation in operations for line in rules[type(operation)](operation)]


def left_out(_operation: Operation) -> list[str]:
    """The rule for an operation without a meaning in this context."""
    return []
