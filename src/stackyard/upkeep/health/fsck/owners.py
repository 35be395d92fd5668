"""Finds the package that a file of a prefix belongs to, by conda's records and wheels' RECORD files, or by its path."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from stackyard.host.files import at
from stackyard.make.bytecode.pyfiles import source_of
from stackyard.yard import formats

_INSIDE = "prefix/"


class Owners:
    """The packages of a prefix and their files, read on first use."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix

    def of(self, name: str) -> str:
        """The package of a file, by its path in the revision's directory; empty: the build itself created it."""
        if not name.startswith(_INSIDE):
            return ""
        inside = name.removeprefix(_INSIDE)
        return self._files.get(source_of(inside) or inside, "") or _by_directory(inside)

    @cached_property
    def _files(self) -> dict[str, str]:
        lists = (self._conda(), *map(self._wheel, self._prefix.glob("lib/python*/site-packages/*.dist-info/RECORD")))
        return {file: label for pairs in lists for file, label in pairs}

    def _conda(self) -> Iterator[tuple[str, str]]:
        for path in self._prefix.glob("conda-meta/*.json"):
            label = _label(path.stem.rsplit("-", 2)[:2])
            yield f"conda-meta/{path.name}", label
            try:
                yield from ((str(file), label) for file in formats.content(at.read_regular(path))["files"])
            except (OSError, ValueError, KeyError, TypeError):  # damaged itself, and reported
                continue

    def _wheel(self, listing: Path) -> Iterator[tuple[str, str]]:
        label = _label(listing.parent.name.removesuffix(".dist-info").rsplit("-", 1))
        base = os.path.relpath(listing.parents[1], self._prefix)
        try:
            lines = at.read_regular(listing).decode("utf-8").splitlines(keepends=True)
            yield from ((os.path.normpath(f"{base}/{row[0]}"), label) for row in csv.reader(lines) if row)
        except (OSError, ValueError, csv.Error):
            return


def _label(parts: list[str]) -> str:
    return " ".join(parts)


def _by_directory(inside: str) -> str:
    """The package of an unlisted file in a package's own metadata directory."""
    metadata = next((part for part in inside.split("/") if part.endswith(".dist-info")), "")
    if inside.startswith("conda-meta/") and inside.count("-") >= 3:
        return _label(inside.removeprefix("conda-meta/").removesuffix(".json").rsplit("-", 2)[:2])
    return _label(metadata.removesuffix(".dist-info").rsplit("-", 1)) if metadata else ""
