"""The files of a machine or an image as a process inside sees them: layers, mounts, links followed inside.

`Tree` answers for any root directory what the kernel answers for ``/``. So the loader's rules (`loader`) work alike for
this machine, for an image, and for an image with parts of the host bound into it.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from stackyard.images import links


@dataclass(frozen=True)
class TreePath:
    """A file or directory. `inside`: its path without links, as seen inside; `outside`: where it is on this machine."""

    inside: str
    outside: Path


@dataclass(frozen=True)
class Tree:
    """What a process sees below ``/``.

    Attributes:
        layers: root directories, the uppermost first: an image may have an overlay.
        mounts: paths inside and what is bound there, a file or a directory of this machine.
    """

    layers: tuple[Path, ...] = (Path("/"),)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    _known: dict[str, TreePath | None] = field(default_factory=dict, compare=False, repr=False)

    def bound(self, mounts: Mapping[str, Path]) -> Tree:
        """This tree with more of the machine bound into it."""
        return replace(self, mounts={**self.mounts, **mounts}, _known={})

    def find(self, path: str) -> TreePath | None:
        """What is at an absolute path, links followed as inside; None if it does not exist."""
        if path not in self._known:
            self._known[path] = self._walk(path)
        return self._known[path]

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; empty if there is none. Those of all layers, and of mount points."""
        found = self.find(path)
        if found is None:
            return []
        places = [found.outside]
        if self._mounted(found.inside) is None:
            places = [Path(f"{layer}{found.inside}") for layer in self.layers]
        names = {name for place in places for name in _listed(place)}
        below = {point for point in self._points if posixpath.dirname(point) == found.inside}
        return sorted(names | {posixpath.basename(point) for point in below})

    @cached_property
    def _points(self) -> tuple[str, ...]:
        """The mount points, and the directories above them, which the runtime makes."""
        above = (str(parent) for point in self.mounts for parent in Path(point).parents)
        return tuple({*self.mounts, *above})

    def _walk(self, path: str) -> TreePath | None:
        here = links.end(path, self._target)
        outside = self._locate(here) if here else None
        return TreePath(here, outside) if outside is not None else None

    def _target(self, path: str) -> str | None:
        """Where the link at a path leads; empty: it is not a link; None: nothing is there."""
        outside = self._locate(path)
        return None if outside is None else "" if path in self.mounts else _link(outside)

    def _locate(self, path: str) -> Path | None:
        """The file behind a path whose directories are no links; the last part may be one."""
        mounted = self._mounted(path)
        if mounted is not None:
            return mounted if os.path.lexists(mounted) else None
        for layer in self.layers:
            place = Path(f"{layer}{path}" if path != "/" else layer)
            try:
                mode = place.lstat()
            except OSError:
                continue
            if stat.S_ISCHR(mode.st_mode) and mode.st_rdev == 0:
                return None  # a whiteout: an upper layer has removed it
            return place
        return self.layers[0] if path in self._points else None

    def _mounted(self, path: str) -> Path | None:
        """Where a path lies if it is at or below a mount point; the deepest point counts."""
        point = path
        while point != "/":
            if point in self.mounts:
                return Path(f"{os.path.realpath(self.mounts[point])}{path.removeprefix(point)}")
            point = posixpath.dirname(point)
        return None


def _link(place: Path) -> str:
    try:
        return os.readlink(place)  # noqa: PTH115
    except OSError:
        return ""


def _listed(place: Path) -> list[str]:
    try:
        return os.listdir(place)  # noqa: PTH208
    except OSError:
        return []
