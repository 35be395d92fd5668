"""The doors of rooms: modules that name what other rooms may use, and import each thing when it is asked for.

A door, such as `yard.api`, is nothing but imports for type checkers, one name a line, and this behind them:

    else:
        __getattr__, __dir__ = door(__file__, __name__)

At run time the same lines say where a name is. So ``from stackyard.yard.api import Yard`` imports the module of that
name and no other, which keeps commands that only read fast, and each name is written once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^    from (\S+) import (\w+) as (\w+)$", re.MULTILINE)


def names_of(file: str | Path) -> dict[str, tuple[str, str]]:
    """What a door names: by name, the module that has it and what it is called there."""
    return {name: (module, own) for module, own, name in _LINE.findall(Path(file).read_text(encoding="utf-8"))}


def door(file: str, module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of the module of a door, which has this file."""
    names = names_of(file)

    def found(name: str) -> Any:
        if name == "__all__":
            return sorted(names)
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, own = names[name]
        return getattr(__import__(place, fromlist=[own]), own)  # shown by -X importtime, as an import statement is

    return found, lambda: sorted(names)
