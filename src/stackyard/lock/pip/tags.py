"""Selects the wheel of a release for any platform and Python, by PEP 425 tags, best first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from stackyard.host.machine.platforms import machine_of

_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_UV_GLIBC = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)


def uv_platform(platform: str, glibc: str) -> str:
    """uv's name of a conda platform: the newest ``manylinux`` that uv supports and the nodes' glibc satisfies.

    For POWER uv has one name only, without a glibc; `wheel_tags` excludes wheels that are too new.
    """
    if platform == "linux-ppc64le":
        return "powerpc64le-unknown-linux-gnu"
    minor = _minor(glibc)
    known = max((m for m in _UV_GLIBC if m <= minor), default=17)
    return f"{machine_of(platform)}-manylinux_2_{known}"


@lru_cache(maxsize=64)
def wheel_tags(platform: str, glibc: str, python: str) -> dict[Tag, int]:
    """Every tag that a platform accepts, with its rank; 0 is the best.

    Args:
        platform: a conda platform such as ``linux-64``.
        glibc: the oldest glibc of the nodes, e.g. ``2.28``.
        python: the interpreter's version, e.g. ``3.11.7``.
    """
    major, minor = (int(n) for n in python.split(".")[:2])
    platforms = list(_platforms(machine_of(platform), _minor(glibc)))
    tags = [*cpython_tags((major, minor), platforms=platforms)]
    tags += compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=platforms)
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def best_wheel(names: Iterable[str], tags: dict[Tag, int]) -> str | None:
    """The wheel file to install, or None if none fits; of equal tags the higher build number, as in pip."""
    ranked = []
    for name in names:
        try:
            _, _, build, tags_of_wheel = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        ranks = [tags[tag] for tag in tags_of_wheel if tag in tags]
        if ranks:
            ranked.append((-min(ranks), build or (), name))
    return max(ranked)[2] if ranked else None


def _minor(glibc: str) -> int:
    match = re.match(r"2\.(\d+)", glibc)
    return int(match.group(1)) if match else 17


def _platforms(arch: str, minor: int) -> Iterable[str]:
    oldest = 5 if arch == "x86_64" else 17
    for n in range(minor, oldest - 1, -1):
        yield f"manylinux_2_{n}_{arch}"
        if (2, n) in _LEGACY:
            yield f"{_LEGACY[2, n]}_{arch}"
    yield f"linux_{arch}"
