"""Selects the programs of an image to wrap: names on its PATH, paths in it, patterns, or all."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from stackyard.core.errors import InputError
from stackyard.core.findings import counted, some
from stackyard.core.hints import did_you_mean
from stackyard.images.inventory import Inventory

ALL = "all"
_NAME = re.compile(r"[A-Za-z0-9_.+\[-][A-Za-z0-9_.+:@~\[-]*")
"""A file name that a shell looks for in PATH without quoting."""


def chosen(inventory: Inventory, words: Sequence[str], path: Sequence[str]) -> dict[str, str]:
    """The path in the image of each wrapped command, by name; the first request for a name counts.

    Args:
        words: names, absolute paths, patterns of either, or `ALL`; ``NAME=PATH`` renames a command.
        path: the directories of the image's PATH.

    Raises:
        InputError: a command is not in the image, or a pattern matches no file.
    """
    commands: dict[str, str] = {}
    for word in words:
        label, _, inside = word.rpartition("=")
        matches = list(_matches(inventory, inside, path))
        if not matches:
            raise InputError(f"no command {inside} in the image", hint=_hint(inventory, inside, path))
        if label and len(matches) > 1:
            raise InputError(f"{word}: {counted(len(matches), 'program')} for one name", hint="write NAME=PATH")
        for place in matches:
            name = label or posixpath.basename(place)
            if _NAME.fullmatch(name):
                commands.setdefault(name, place)
    if not commands:
        raise InputError(f"no command with a plain name matches {' '.join(words)}")
    return dict(sorted(commands.items()))


def _matches(inventory: Inventory, word: str, path: Sequence[str]) -> Iterator[str]:
    pattern = "*" if word == ALL else word
    directories, name = list(path), pattern
    if pattern.startswith("/"):
        directories, name = [posixpath.dirname(pattern)], posixpath.basename(pattern)
    seen: set[str] = set()
    for directory in directories:
        if not set(name) & set("*?["):
            names = [name] if inventory.is_program(posixpath.join(directory, name)) else []
        else:
            names = [program for program in inventory.programs(directory) if fnmatchcase(program, name)]
        for program in names:
            if program not in seen:
                seen.add(program)
                yield posixpath.join(directory, program)


def _hint(inventory: Inventory, word: str, path: Sequence[str]) -> str:
    """The probable intention: the same name elsewhere, a similar name, or the directories searched."""
    name = posixpath.basename(word)
    elsewhere = sorted(
        entry for entry in inventory.entries if posixpath.basename(entry) == name and inventory.is_program(entry)
    )
    if elsewhere:
        return f"it is not on the image's PATH; write its path: {some(elsewhere, 3)}"
    known = {program for directory in path for program in inventory.programs(directory)}
    return did_you_mean(name, sorted(known), f"the image's PATH is {':'.join(path) or 'empty'}", count=3)
