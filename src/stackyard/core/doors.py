"""Doors of rooms: modules that list the names for other rooms, and import each one on first use.

A door, such as `yard.api`, consists of imports for type checkers, one name a line, followed by:

    else:
        __getattr__, __dir__ = door(__file__, __name__)

At run time the same lines are parsed to find a name's module. So ``from stackyard.yard.api import Yard`` imports only
that module, which keeps read-only commands fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^    from (\S+) import (\w+) as (\w+)$", re.MULTILINE)


def names_of(file: str | Path) -> dict[str, tuple[str, str]]:
    """The names in a door, each with its module and its name there."""
    return {name: (module, own) for module, own, name in _LINE.findall(Path(file).read_text(encoding="utf-8"))}


def door(file: str, module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for the module of a door, given its file."""
    names = names_of(file)

    def found(name: str) -> Any:
        if name == "__all__":
            return sorted(names)
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, own = names[name]
        return getattr(__import__(place, fromlist=[own]), own)  # shown by -X importtime, as an import statement is

    return found, lambda: sorted(names)
