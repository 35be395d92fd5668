"""Packages that were installed in a loaded extension after it was recorded, found in its drift directory."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.names import canonical
from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.kinds.extension import Layer
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic

_INFO = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)\.(?:dist|egg)-info")


@dataclass(frozen=True)
class DriftedDistribution:
    """One distribution in a drift directory.

    Attributes:
        recorded: the version in the record; empty: it is not recorded.
        requested: whether a command line named it; the others are dependencies.
        origin: the URL of its source (also of a directory); empty for an index.
    """

    name: str
    version: str
    recorded: str = ""
    requested: bool = True
    origin: str = ""

    @property
    def line(self) -> str:
        """The requirement that records this distribution in the extension's file."""
        return f"{self.name} @ {self.origin}" if self.origin else f"{self.name}=={self.version}"

    @property
    def shown(self) -> str:
        """A line for `status`, in the format of `diff`."""
        if not self.recorded:
            return f"+ {self.name} {self.version} (pip)"
        return f"~ {self.name} {self.recorded} -> {self.version} (pip)"


def packages_of(record: BuildRecord) -> Path | None:
    """The drift directory of an extension; None for any other revision."""
    payload = record.payload
    if not isinstance(payload, Layer):
        return None
    return payload.drift.site_packages(str(record.interpreter["version"]))


def drifted(record: BuildRecord) -> tuple[DriftedDistribution, ...]:
    """The distributions that are installed in an extension but not in its record, sorted by name."""
    directory = packages_of(record)
    versions = {canonical(p.name): p.version for p in record.packages}
    distributions = (_one(directory / name, versions) for name in disk.names(directory)) if directory else ()
    return tuple(
        sorted((one for one in distributions if one and one.recorded != one.version), key=lambda one: one.name)
    )


def _one(info: Path, recorded: dict[str, str]) -> DriftedDistribution | None:
    match = _INFO.fullmatch(info.name)
    if match is None:
        return None
    name = canonical(match["name"])
    return DriftedDistribution(
        name,
        match["version"],
        recorded.get(name, ""),
        disk.is_there(info / "REQUESTED"),
        _origin(info / "direct_url.json"),
    )


def _origin(note: Path) -> str:
    """The URL from which a distribution was installed (PEP 610); empty for an index."""
    try:
        value = json.loads(at.read_regular(note))
        vcs = value.get("vcs_info") or {}
        if vcs:
            return f"{vcs['vcs']}+{value['url']}@{vcs['commit_id']}"
        return str(value["url"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def reset(record: BuildRecord) -> tuple[DriftedDistribution, ...]:
    """Remove the drifted distributions and return them. Programs that use them may fail; the revision is unchanged.

    Raises:
        StackyardError: it cannot be removed.
    """
    from stackyard.make.layer import pth_of_drift  # late: `status` only compares

    gone = drifted(record)
    directory = packages_of(record)
    payload = record.payload
    if directory is None or not isinstance(payload, Layer):
        return ()
    link, top = directory / "_stackyard_layer.pth", RevisionPaths.of(record.path).yard
    hint = "the revision itself is unchanged; run `stackyard update --reset` again"
    with disk.during(f"removing what was installed in {record.module}", hint):
        packages = payload.site_packages(str(record.interpreter["version"]))
        for path in disk.entries(payload.drift.root):
            if path.name not in ("pyvenv.cfg", "python"):
                _remove(path, link, top)
        if not disk.is_there(link):
            atomic.write_text(link, pth_of_drift(packages), top=top)
    return gone


def _remove(path: Path, link: Path, top: Path) -> None:
    """Remove a tree or a file, except for one file that must be kept."""
    if path == link:
        return
    if link.is_relative_to(path):
        for entry in disk.entries(path):
            _remove(entry, link, top)
    else:
        disk.remove_tree(path, top)
