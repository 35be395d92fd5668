"""Links followed as inside an image, whatever keeps its files: a directory, a listing, or layers."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

_MOST_LINKS = 40
"""How many links the kernel follows in one path (path_resolution(7))."""


def way(path: str, target: Callable[[str], str | None]) -> list[str]:
    """All paths on the way to where a path leads, links among them; none where it leads nowhere.

    Args:
        target: where the link at a path leads; empty: it is not a link; None: nothing is there.
    """
    left, way, links = _steps(path), ["/"], 0
    while left:
        part = left.pop()
        if part == "..":
            way.append(posixpath.dirname(way[-1]))
            continue
        place = posixpath.join(way[-1], part)
        link = target(place)
        way.append(place)
        links += bool(link)
        if link is None or links > _MOST_LINKS:
            return []
        if link:
            left += _steps(link)
            way.append("/" if link.startswith("/") else posixpath.dirname(place))
    return way


def end(path: str, target: Callable[[str], str | None]) -> str:
    """The path without links; empty where it leads nowhere. Arguments as for `way`."""
    return next(reversed(way(path, target)), "")


def _steps(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
