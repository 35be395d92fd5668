"""Finds the package of a file in a prefix: by conda's records, and by the RECORD of each distribution."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.names import canonical
from stackyard.make.bytecode.pyfiles import source_of

_INFO = ".dist-info"


def owners(tree: Path, names: Iterable[str]) -> dict[str, str]:
    """The package of each file, by path in the tree: files that pip replaced belong to pip's package.

    Raises:
        StackyardError: a record of an installer cannot be read.
    """
    there = set(names)
    result: dict[str, str] = {}
    for package, file in (*_conda(tree), *_distributions(tree, there)):
        if file in there:
            result[file] = package
    for name in there:
        source = source_of(name)
        if source in result and name not in result:
            result[name] = result[source]
    return result


def _conda(tree: Path) -> Iterator[tuple[str, str]]:
    directory = tree / "conda-meta"
    for note in sorted(directory.glob("*.json")) if directory.is_dir() else ():
        try:
            value = json.loads(note.read_bytes())
            name, files = str(value["name"]), value["files"]
        except (OSError, ValueError, KeyError) as error:
            raise StackyardError(f"cannot read {note}: {error}") from error
        yield name, f"conda-meta/{note.name}"
        yield from ((name, str(file)) for file in files)


def _distributions(tree: Path, names: set[str]) -> Iterator[tuple[str, str]]:
    for record in sorted(name for name in names if name.endswith(f"{_INFO}/RECORD")):
        directory, _, info = record.removesuffix("/RECORD").rpartition("/")
        package = canonical(info.removesuffix(_INFO).rsplit("-", 1)[0])
        yield package, record
        with (tree / record).open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            for row in csv.reader(stream):
                if row:
                    yield package, os.path.normpath(f"{directory}/{row[0]}")
        yield from ((package, name) for name in names if name.startswith(f"{directory}/{info}/"))
