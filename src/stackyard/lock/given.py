"""What conda or the base of an extension provides to pip: passed to uv as given, so that it is never installed twice.

uv receives a constraint ``name @ file:///.../name-version-py3-none-any.whl`` for each: a wheel of metadata only,
without requirements, since those are resolved; but for those of extras, which a requirement may name. A requirement
that does not accept the given version has no solution then, whatever an index offers; and the wheel, recognised by its
directory, never gets into the lock.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.version import Version

from stackyard.host.names import canonical, distributions
from stackyard.late import dataclass
from stackyard.lock.model import CondaPackage
from stackyard.yard import formats
from stackyard.yard.layout import Yard


@dataclass(frozen=True)
class Given:
    """One distribution that a conda package installs, or that a base has.

    `extras`: the lines of its metadata about extras.
    """

    name: str
    version: str
    conda: str = ""
    base: str = ""
    extras: tuple[str, ...] = ()

    @property
    def provided(self) -> str:
        """Who provides it, as a sentence."""
        if self.base:
            return f"the base {self.base} has {self.name} {self.version}"
        return f"conda provides {self.name} {self.version} (package {self.conda})"

    @property
    def remedy(self) -> str:
        """What to do about a requirement that does not accept it."""
        relax = f"relax the pip requirements on {self.name}"
        if self.base:
            return f"{relax}; or build a full revision with another {self.name}, by `stackyard extend --full`"
        return f"{self.conda} comes from conda: request another version of it there, or {relax}"


def given(packages: Iterable[CondaPackage], yards: Iterable[Yard] = ()) -> tuple[tuple[Given, ...], tuple[str, ...]]:
    """The distributions that conda packages install, and notices about those that pip cannot compare.

    Args:
        yards: where unpacked packages may be; the ``dist-info`` directories of one give exact names and versions.
    """
    found: dict[str, Given] = {}
    notices = []
    places = tuple(yards)
    for package in packages:
        label = f"{package.name} {package.version}"
        for name, version in _provided(package, places):
            try:
                found[name] = Given(name, str(Version(version)), label)
            except ValueError:
                notices.append(f"conda's {label} has a version that pip cannot compare; it is hidden from pip")
    return tuple(found[name] for name in sorted(found)), tuple(notices)


def _provided(package: CondaPackage, yards: Iterable[Yard]) -> Iterator[tuple[str, str]]:
    if not package.purls:
        exact = [pair for yard in yards for pair in _dist_infos(yard, package)]
        if exact:
            yield from exact
            return
    for name in distributions(package.name, package.purls, package.depends):
        yield name, package.version


def _dist_infos(yard: Yard, package: CondaPackage) -> list[tuple[str, str]]:
    """Names and versions of the ``dist-info`` folders in an extracted package; none where it is not extracted."""
    paths = yard.package(package.stem) / "info" / "paths.json"
    try:
        entries = formats.content(paths.read_text(encoding="utf-8"))["paths"]
    except (OSError, ValueError, KeyError):
        return []
    found = (re.search(r"(?:^|/)site-packages/([^/]+)\.dist-info/", e["_path"]) for e in entries)
    folders = {match.group(1) for match in found if match}
    pairs = (folder.rsplit("-", 1) for folder in sorted(folders))
    return [(canonical(pair[0]), pair[1]) for pair in pairs if len(pair) == 2]


def write_constraints(items: Iterable[Given], folder: Path) -> list[str]:
    """Write the metadata wheels into a directory and return the constraint lines that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    return [f"{item.name} @ {_write_wheel(item, folder).as_uri()}" for item in items]


def _write_wheel(item: Given, folder: Path) -> Path:
    stem = f"{item.name.replace('-', '_')}-{item.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    files: Mapping[str, str] = {
        f"{stem}.dist-info/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {item.name}", f"Version: {item.version}", *item.extras, ""]
        ),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: stackyard\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return path
