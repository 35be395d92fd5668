"""Follows links inside an image, in any representation: a directory, a listing, or layers."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

_MOST_LINKS = 40
"""How many links the kernel follows in one path (path_resolution(7))."""


def way(path: str, target: Callable[[str], str | None]) -> list[str]:
    """All paths on the way to the target of a path, including links; none for a dangling link.

    Args:
        target: returns the target of the link at a path; empty: it is not a link; None: it does not exist.
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
    """The real path; empty for a dangling link. Arguments as for `way`."""
    return next(reversed(way(path, target)), "")


def above(path: str) -> list[str]:
    """The directories above a path, without the root."""
    return [path[:place] for place in range(1, len(path)) if path[place] == "/"]


def _steps(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
