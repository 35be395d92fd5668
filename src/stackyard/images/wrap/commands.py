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


def chosen(inventory: Inventory, wanted: Sequence[str], path: Sequence[str]) -> dict[str, str]:
    """The path in the image of each wrapped command, by name; the first request for a name counts.

    Args:
        wanted: names, absolute paths, patterns of either, or `ALL`; ``NAME=PATH`` renames a command.
        path: the directories of the image's PATH.

    Raises:
        InputError: a command is not in the image, or a pattern matches no file.
    """
    found: dict[str, str] = {}
    for word in wanted:
        given, _, inside = word.rpartition("=")
        matches = list(_matches(inventory, inside, path))
        if not matches:
            raise InputError(f"no command {inside} in the image", hint=_hint(inventory, inside, path))
        if given and len(matches) > 1:
            raise InputError(f"{word}: {counted(len(matches), 'program')} for one name", hint="write NAME=PATH")
        for place in matches:
            name = given or posixpath.basename(place)
            if _NAME.fullmatch(name):
                found.setdefault(name, place)
    if not found:
        raise InputError(f"no command with a plain name matches {' '.join(wanted)}")
    return dict(sorted(found.items()))


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
            names = [each for each in inventory.programs(directory) if fnmatchcase(each, name)]
        for each in names:
            if each not in seen:
                seen.add(each)
                yield posixpath.join(directory, each)


def _hint(inventory: Inventory, word: str, path: Sequence[str]) -> str:
    """The probable intention: the same name elsewhere, a similar name, or the directories searched."""
    name = posixpath.basename(word)
    elsewhere = sorted(
        each for each in inventory.entries if posixpath.basename(each) == name and inventory.is_program(each)
    )
    if elsewhere:
        return f"it is not on the image's PATH; write its path: {some(elsewhere, 3)}"
    known = {each for directory in path for each in inventory.programs(directory)}
    return did_you_mean(name, sorted(known), f"the image's PATH is {':'.join(path) or 'empty'}", count=3)
