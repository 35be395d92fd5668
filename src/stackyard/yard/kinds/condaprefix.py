"""Which revisions have a prefix that conda can take for an environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackyard.yard.revision.record import BuildRecord


def conda_prefix(record: BuildRecord, own: Path) -> Path | None:
    """The conda prefix of a revision; None: it has none, or none that is complete on disk.

    An image is mounted only while its commands run, and a layer is complete only with its base. The record decides: an
    adopted prefix may be on a file system that does not answer.

    Args:
        own: the directory of the revision's own prefix.
    """
    if record.base is not None or record.payload.kind != "prefix":
        return None
    if record.adopted:
        return Path(record.prefix) if record.adopted.kind == "conda" else None
    return own if any(package.kind == "conda" for package in record.packages) else None
