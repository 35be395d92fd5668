"""Makes the yard's package cache readable for conda: its directory is a read-only package cache of users' conda.

conda unpacks a package to the same name as rattler, ``name-version-build``. It also requires ``urls.txt`` in the cache,
and in each package ``info/repodata_record.json``, which says from which URL it came. A package without this record is
downloaded again by users. conda takes a cache whose ``urls.txt`` it cannot open for writing as read-only.
"""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.lock.conda.records import file_name
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.yard import disk, formats
from stackyard.yard.cache.caches import trusted
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import file_mode


def mark_cache(yard: Yard) -> None:
    """Write ``urls.txt``, empty and read-only, unless the cache has it."""
    if not disk.is_there(yard.conda_marker):
        atomic.write_text(yard.conda_marker, "", mode=file_mode() & ~0o222, top=trusted(yard))


def write_record(directory: Path, package: CondaPackage) -> None:
    """Write conda's record of a package into its unpacked directory, which is not in the cache yet.

    It has the time of ``info/index.json``: a new file would look like one that a link script wrote (`make.entries`).

    Args:
        package: the package as locked, with its URL in the channel, also if it came from a mirror.
    """
    index = directory / "info" / "index.json"
    place = index.with_name("repodata_record.json")
    record = {**formats.content(index.read_text(encoding="utf-8")), **_locked(package)}
    atomic.write_json(place, record, synced=False, top=directory)  # an archive may have a link in its place
    status = index.stat()
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def _locked(package: CondaPackage) -> dict[str, object]:
    """What the lock says of a package; the channel's index may have corrected what is in the archive."""
    url = package.url if package.url[:1] != "/" else Path(package.url).as_uri()
    known = {
        "md5": package.md5,
        "sha256": package.sha256,
        "size": package.size,
        "noarch": package.noarch,
        "license": package.license,
    }
    return {
        "name": package.name,
        "version": package.version,
        "build": package.build,
        "build_number": package.build_number,
        "subdir": package.subdir,
        "channel": package.channel,
        "url": url,
        "fn": file_name(package.url),
        "depends": list(package.depends),
        "constrains": list(package.constrains),
        **{key: value for key, value in known.items() if value},
    }
