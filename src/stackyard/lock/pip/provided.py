"""Passes the distributions from conda or an extension's base to uv as given, so that they are not installed twice.

uv receives a constraint ``name @ file:///.../name-version-py3-none-any.whl`` for each: a wheel of metadata only. It has
no requirements, since those are resolved already, except those of extras, which a requirement may name. A requirement
that does not accept the given version has no solution then, whatever an index offers; and the wheel, recognised by its
directory, never gets into the lock.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.version import Version

from stackyard.core.late import dataclass
from stackyard.core.names import of_purls
from stackyard.lock.lockfile.model import CondaPackage


@dataclass(frozen=True)
class ProvidedDistribution:
    """A distribution that a conda package installs, or that a base has.

    `extras`: the lines of its metadata about extras.
    """

    name: str
    version: str
    conda: str = ""
    base: str = ""
    extras: tuple[str, ...] = ()

    @property
    def provided(self) -> str:
        """Who provides it, as a sentence for messages."""
        if self.base:
            return f"the base {self.base} has {self.name} {self.version}"
        return f"conda provides {self.name} {self.version} (package {self.conda})"

    @property
    def remedy(self) -> str:
        """The hint for a requirement that does not accept it."""
        relax = f"relax the pip requirements on {self.name}"
        if self.base:
            return f"{relax}; or build a full revision with another {self.name}, by `stackyard extend --full`"
        return f"{self.conda} comes from conda: request another version of it there, or {relax}"


def given(packages: Iterable[CondaPackage]) -> tuple[tuple[ProvidedDistribution, ...], tuple[str, ...]]:
    """The distributions in conda packages (their purls), and notices about those whose versions pip cannot compare."""
    result: dict[str, ProvidedDistribution] = {}
    notices = []
    for package in packages:
        label = f"{package.name} {package.version}"
        for name, version in of_purls(package.purls):
            try:
                result[name] = ProvidedDistribution(name, str(Version(version or package.version)), label)
            except ValueError:
                notices.append(f"conda's {label} has a version that pip cannot compare; it is hidden from pip")
    return tuple(result[name] for name in sorted(result)), tuple(notices)


def write_constraints(items: Iterable[ProvidedDistribution], directory: Path) -> list[str]:
    """Write the metadata wheels into a directory and return the constraint lines that name them."""
    directory.mkdir(parents=True, exist_ok=True)
    return [f"{item.name} @ {_write_wheel(item, directory).as_uri()}" for item in items]


def _write_wheel(item: ProvidedDistribution, directory: Path) -> Path:
    stem = f"{item.name.replace('-', '_')}-{item.version}"
    path = directory / f"{stem}-py3-none-any.whl"
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
