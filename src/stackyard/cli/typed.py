"""Paths as they were typed: inside, files are absolute; a person who typed a relative path reads a relative path."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def as_typed(text: str, words: Iterable[str] | None = None) -> str:
    """A message with the folders of the files that the command line names written as there.

    Only whole paths are touched, no URLs, and only where the file was given by a relative path.

    Args:
        text: a message, a place or a path.
        words: the words of the command line; the program's own by default.
    """
    for folder, written in dict(_folders(sys.argv[1:] if words is None else words)).items():
        text = re.sub(rf"(?<![\w/.~-]){re.escape(folder)}/", lambda _, to=written: to, text)  # type: ignore[misc]
    return text


def _folders(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The absolute folder of every relative path among the words, and how it was written, with its slash."""
    for word in words:
        path = Path(word)
        if word.startswith("-") or path.is_absolute() or not path.exists():
            continue
        folder = path.absolute().parent
        if folder != Path(folder.anchor):
            yield str(folder), "" if str(path.parent) == "." else f"{path.parent}/"
