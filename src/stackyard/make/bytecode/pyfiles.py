"""Which Python files an installed package has: from conda-meta and from the RECORD files, read on demand."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.yard import formats


@dataclass(frozen=True)
class Unit:
    """One package's Python files, relative to the prefix, except those that come with their bytecode.

    Attributes:
        shared: compiled into the cache.
        failed: cannot be compiled (Python 2, templates).
        private: contain the prefix; compiled in place.
    """

    sha256: str
    shared: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


class InstalledFiles:
    """The files of packages installed in a prefix."""

    def __init__(self, prefix: Path, site_packages: Path) -> None:
        self._prefix = prefix
        self._site_packages = site_packages

    def conda(self, file_stem: str, sha256: str) -> Unit:
        """The files of the conda package `file_stem` (name-version-build)."""
        path = self._prefix / "conda-meta" / f"{file_stem}.json"
        value = formats.content(path.read_text(encoding="utf-8"))
        changed = {p["_path"] for p in value["paths_data"]["paths"] if p.get("prefix_placeholder")}
        brought = {source for name in value["files"] if (source := source_of(name))}
        return _unit(sha256, (n for n in value["files"] if n not in brought), changed)

    def wheel(self, name: str, sha256: str) -> Unit:
        """The files of an installed wheel."""
        with self.listing(name).open(encoding="utf-8", newline="") as stream:
            names = [row[0] for row in csv.reader(stream) if row and row[0].endswith(".py")]
        base = os.path.relpath(self._site_packages, self._prefix)
        return _unit(sha256, (os.path.normpath(f"{base}/{n}") for n in names), set())

    def listing(self, name: str) -> Path:
        """The list of the files of an installed wheel."""
        return self._distributions[canonical(name)] / "RECORD"

    @cached_property
    def _distributions(self) -> dict[str, Path]:
        directories = self._site_packages.glob("*.dist-info")
        return {
            canonical(directory.name.removesuffix(".dist-info").rsplit("-", 1)[0]): directory
            for directory in directories
        }


def _unit(sha256: str, names: Iterable[str], changed: set[str]) -> Unit:
    python = [n for n in names if is_python(n)]
    shared = tuple(sorted(n for n in python if n not in changed))
    return Unit(sha256, shared, (), tuple(sorted(n for n in python if n in changed)))


def is_python(name: str) -> bool:
    """Whether a file of a prefix is compiled to bytecode."""
    return name.endswith(".py") and name.startswith("lib/python")


def source_of(name: str) -> str:
    """The source of a bytecode file in a ``__pycache__``; empty for any other file."""
    directory, separator, file = name.partition("/__pycache__/")
    if not separator or not file.endswith(".pyc"):
        return ""
    return f"{directory}/{re.sub(r'(.opt-[^.]*)?.pyc$', '', file).rsplit('.', 1)[0]}.py"
