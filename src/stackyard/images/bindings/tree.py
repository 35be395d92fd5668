"""The file tree that a process sees on a machine or in an image: layers, mounts, links followed inside.

`Tree` resolves paths below any root directory as the kernel does below ``/``. So the loader's rules (`loader`) apply
equally to this machine, to an image, and to an image with parts of the host bound into it.
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
    """A file or directory. `inside`: its real path inside; `outside`: its path on this machine."""

    inside: str
    outside: Path


@dataclass(frozen=True)
class Tree:
    """The files that a process sees below ``/``.

    Attributes:
        layers: root directories, the uppermost first: an image may have an overlay.
        mounts: files or directories of this machine, by the path at which they are bound.
    """

    layers: tuple[Path, ...] = (Path("/"),)
    mounts: Mapping[str, Path] = field(default_factory=dict)
    _known: dict[str, TreePath | None] = field(default_factory=dict, compare=False, repr=False)

    def bound(self, mounts: Mapping[str, Path]) -> Tree:
        """This tree with additional bind mounts."""
        return replace(self, mounts={**self.mounts, **mounts}, _known={})

    def find(self, path: str) -> TreePath | None:
        """The file at an absolute path, with links followed inside; None if it does not exist."""
        if path not in self._known:
            self._known[path] = self._walk(path)
        return self._known[path]

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory, over all layers and mount points; empty if it does not exist."""
        where = self.find(path)
        if where is None:
            return []
        places = [where.outside]
        if self._mounted(where.inside) is None:
            places = [Path(f"{layer}{where.inside}") for layer in self.layers]
        names = {name for place in places for name in _listed(place)}
        below = {point for point in self._points if posixpath.dirname(point) == where.inside}
        return sorted(names | {posixpath.basename(point) for point in below})

    @cached_property
    def _points(self) -> tuple[str, ...]:
        """The mount points, and the directories above them, which the runtime creates."""
        above = (str(parent) for point in self.mounts for parent in Path(point).parents)
        return tuple({*self.mounts, *above})

    def _walk(self, path: str) -> TreePath | None:
        here = links.end(path, self._target)
        outside = self._locate(here) if here else None
        return TreePath(here, outside) if outside is not None else None

    def _target(self, path: str) -> str | None:
        """The target of the link at a path; empty: it is not a link; None: it does not exist."""
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
        """The path on this machine for a path at or below a mount point; the deepest one counts."""
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
