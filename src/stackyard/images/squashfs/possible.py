"""Whether this machine can pack images and mount them: asked before the work whose result needs it, in 0.2 s."""

from __future__ import annotations

import os

from stackyard.core.errors import MissingError
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import mounts
from stackyard.yard.revision.record import BuildRecord

ELSEWHERE = "`stackyard image status` shows the ways to mount an image; do it on a machine that has one"
"""The hint for work that needs a mounted image."""


def require_packing() -> None:
    """Raise MissingError unless this machine can pack an image."""
    squashfs.require_program()


def lacking() -> list[str]:
    """What each way of mounting an image for a command lacks on this machine; empty: one of them works."""
    possible = mounts.ways()[1:]  # the first one is of images that are mounted already
    return [] if any(way.works for way in possible) else [f"{way.name}: {way.detail}" for way in possible]


def require_mounting(what: str, hint: str = ELSEWHERE) -> None:
    """Raise unless this machine can mount an image.

    Args:
        what: the operation that is impossible: "cannot deploy demo as an image".

    Raises:
        MissingError: it cannot; the detail has what each way lacks.
    """
    if why := lacking():
        raise MissingError(f"{what}: this machine cannot mount images", hint=hint, detail="\n".join(why))


def require_readable(record: BuildRecord, what: str) -> None:
    """Raise MissingError unless the files of a revision can be read here, in its image where it has one."""
    if record.payload.is_packed and not _is_mounted(record):
        require_mounting(f"{what}: {record.module} is an image", f"let root mount it, or: {ELSEWHERE}")


def _is_mounted(record: BuildRecord) -> bool:
    return os.path.ismount(record.prefix) and record.payload.is_visible
