"""Claims: the paths that each package of a prefix installs, by its own list after installation.

The list of a wheel is its RECORD, which has its console scripts and the files of its ``.data`` at their places (that in
the archive has not). uv writes it anew: it lists exactly what was installed. The list of a conda package is its record
in ``conda-meta``. A path outside the prefix that a wheel names belongs to no package.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.core.quoting import LONG, plain
from stackyard.make.collisions.listings import MADE, is_in_order
from stackyard.yard import formats

Read = Callable[[Path], bytes]
_ODD = ("../", "./", "/")


@dataclass(frozen=True)
class Owner:
    """A package that is installed in a prefix.

    Attributes:
        name: its name in the lock.
        rank: its position in the order of installation; the last one wins.
        listing: the file in which its paths are listed.
    """

    kind: Literal["conda", "pip", "base"]
    name: str
    rank: int
    listing: Path


class Claim(NamedTuple):
    """One package's entry for a path: the name in its list, and the hash there, in conda's or RECORD's format.

    The hash is empty if the list has none. `made`: the installer wrote the file itself.
    """

    owner: Owner
    row: str
    digest: str
    made: bool = False


def shared(claims: Iterable[tuple[str, Claim]]) -> dict[str, list[Claim]]:
    """The paths that more than one package installs, sorted; the claims in the order of installation."""
    first: dict[str, Claim] = {}
    by_path: dict[str, list[Claim]] = {}
    for path, claim in claims:
        other = first.setdefault(path, claim)
        if other.owner is not claim.owner:
            by_path.setdefault(path, [other]).append(claim)
    return {path: _once(by_path[path]) for path in sorted(by_path)}


def _once(claims: Sequence[Claim]) -> list[Claim]:
    """One claim for each package: a list may name a path twice."""
    by_rank = {claim.owner.rank: claim for claim in reversed(claims)}
    return [by_rank[rank] for rank in sorted(by_rank)]


def require_plain(claims: Collection[tuple[str, Claim]]) -> None:
    """Raise StackyardError if one package has a file where another has a directory: no order can resolve this."""
    files = {path for path, _ in claims}
    directories = {path.rpartition("/")[0] for path in files}
    for directory in list(directories):
        while directory := directory.rpartition("/")[0]:
            directories.add(directory)
    for place in sorted(files & directories):
        there = [claim.owner for path, claim in claims if path == place]
        below = [claim.owner for path, claim in claims if path.startswith(f"{place}/")]
        others = [(one, two) for one in there for two in below if one is not two]
        if others:
            one, two = others[0]
            text = f"{plain(place, LONG)} is a file of the one, and a directory of the other"
            raise StackyardError(
                f"cannot install {one.name} and {two.name}: {text}",
                hint="leave one of them out",
            )


class Listings:
    """The lists of the packages of one prefix.

    Args:
        read: reads a file; a third-party prefix requires checks.

    Attributes:
        unordered: conda packages whose list has console scripts in a random order.
    """

    def __init__(self, prefix: Path, read: Read = Path.read_bytes) -> None:
        self.prefix = prefix
        self._read = read
        self._real = os.path.realpath(prefix)
        self._directories: dict[str, str] = {}
        self.unordered: set[Owner] = set()

    def all(self, owners: Iterable[Owner]) -> Iterator[tuple[str, Claim]]:
        """Every path of these packages, relative to the prefix, with the package's claim.

        Raises:
            StackyardError: a list cannot be read, or names a path that a symbolic link leads out of the prefix.
        """
        links: set[str] = set()
        for owner in owners:
            if owner.kind == "conda":
                yield from self._conda(owner, links)
            else:
                yield from self._wheel(owner, links)

    def value(self, owner: Owner) -> dict[str, Any]:
        """The record of a conda package."""
        return _values(self._read(owner.listing), owner.listing)

    def _conda(self, owner: Owner, links: set[str]) -> Iterator[tuple[str, Claim]]:
        entries = self.value(owner)["paths_data"]["paths"]
        if not is_in_order(entries):
            self.unordered.add(owner)
        for entry in entries:
            path, kind = entry["_path"], entry.get("path_type")
            if path.startswith(_ODD) or "/../" in path:
                continue
            if kind == "softlink":
                links.add(path)
                yield path, Claim(owner, path, "")
            else:
                digest = entry.get("sha256_in_prefix") or entry.get("sha256") or ""
                yield path, Claim(owner, path, digest, kind == MADE)

    def _wheel(self, owner: Owner, links: set[str]) -> Iterator[tuple[str, Claim]]:
        top = owner.listing.parent.parent
        inside = f"{self._inner(os.fspath(top), owner)}/"
        aliased = any(link.startswith(inside) for link in links)
        for row, digest in rows(self._read(owner.listing), owner.listing):
            if row.startswith(_ODD) or "//" in row or "/." in row or aliased:
                place = os.path.normpath(f"{top}/{row}" if row[:1] != "/" else row)
                if not place.startswith(f"{self.prefix}/"):
                    continue
                directory, _, file = place.rpartition("/")
                yield f"{self._inner(directory, owner)}/{file}".removeprefix("./"), Claim(owner, row, digest)
            else:
                yield inside + row, Claim(owner, row, digest)

    def _inner(self, directory: str, owner: Owner) -> str:
        """A directory relative to the prefix, by its real path: ``lib64`` may be a link to ``lib``."""
        if directory not in self._directories:
            real = os.path.realpath(directory)
            if real != self._real and not real.startswith(f"{self._real}/"):
                raise StackyardError(
                    f"{owner.name} installs into {directory}, which a symbolic link leads out of the prefix: {real}",
                    hint="leave out the package that brings the link",
                )
            self._directories[directory] = os.path.relpath(real, self._real)
        return self._directories[directory]


def rows(data: bytes, listing: Path) -> Iterator[tuple[str, str]]:
    """The paths of a RECORD and their hashes.

    Raises:
        StackyardError: it is not a valid RECORD.
    """
    try:
        text = data.decode("utf-8")
        if '"' in text:
            result = [(row[0], row[1] if len(row) > 1 else "") for row in csv.reader(text.splitlines(True)) if row]
        else:
            result = [_parted(line) for line in text.split("\n") if line.strip()]
    except (ValueError, csv.Error) as error:
        raise StackyardError(f"cannot read {listing}: {error}", hint="see the wheel that it is from") from error
    return iter(result)


def _parted(line: str) -> tuple[str, str]:
    """A line without quotes: a path without a comma, a hash, a size."""
    path, _, rest = line.rstrip("\r").partition(",")
    return path, rest.partition(",")[0]


def _values(data: bytes, listing: Path) -> dict[str, Any]:
    try:
        value = formats.content(data)
        for entry in value["paths_data"]["paths"]:
            _require_text(
                entry["_path"], *(entry.get(key) or "" for key in ("path_type", "sha256", "sha256_in_prefix"))
            )
        _require_text(value["name"], *value["files"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StackyardError(f"cannot read {listing}: it is not a record of conda ({error})") from error
    return dict(value)


def _require_text(*values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a name or a hash is not a text")
