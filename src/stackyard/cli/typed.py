"""Paths as you typed them: internally files are absolute; messages show relative paths if you typed relative paths."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def as_typed(text: str, words: Iterable[str] | None = None) -> str:
    """A message with the directories of files on the command line written as typed.

    Only whole paths are replaced, not URLs, and only for files given by a relative path.

    Args:
        text: a message, a place or a path.
        words: the words of the command line; the program's own by default.
    """
    for directory, written in dict(_directories(sys.argv[1:] if words is None else words)).items():
        text = re.sub(rf"(?<![\w/.~-]){re.escape(directory)}/", lambda _, to=written: to, text)  # type: ignore[misc]
    return text


def _directories(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The absolute directory of every relative path among the words, and the directory as written, with its slash."""
    for word in words:
        path = Path(word)
        if word.startswith("-") or path.is_absolute() or path.name in ("", "..") or not _exists(path):
            continue
        directory = path.absolute().parent
        if directory != Path(directory.anchor):
            yield str(directory), "" if str(path.parent) == "." else f"{path.parent}/"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a word that is too long for a path, or has a null byte
        return False
