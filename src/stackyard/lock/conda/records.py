"""Converts locked conda packages to rattler's records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from stackyard.core import secrets
from stackyard.core.errors import InputError
from stackyard.core.secrets import redacted
from stackyard.lock.lockfile.model import CondaPackage

if TYPE_CHECKING:
    from rattler import PackageRecord, RepoDataRecord

_NOARCH: Mapping[str, Literal["python", "generic"]] = {"python": "python", "generic": "generic"}


def package_record(package: CondaPackage) -> PackageRecord:
    """A locked package as a rattler record, without timestamp and URL."""
    from rattler import BuildString, PackageRecord

    return PackageRecord(
        name=package.name,
        version=package.version,
        build=BuildString(package.build),
        build_number=package.build_number,
        subdir=package.subdir,
        noarch=_NOARCH.get(package.noarch),
        depends=list(package.depends),
        constrains=list(package.constrains),
        sha256=bytes.fromhex(package.sha256) if package.sha256 else None,
        md5=bytes.fromhex(package.md5) if package.md5 else None,
        size=package.size or None,
        license=package.license or None,
        python_site_packages_path=package.python_site_packages_path or None,
    )


def repodata_record(package: CondaPackage) -> RepoDataRecord:
    """The record with timestamp and URL; fields that the lock does not keep are read from the package by rattler."""
    from rattler import RepoDataRecord

    record = package_record(package)
    if package.timestamp_ms:
        record.timestamp = datetime.fromtimestamp(package.timestamp_ms / 1000, tz=timezone.utc)
    url = secrets.seen(package.url) if package.url[:1] != "/" else Path(package.url).as_uri()
    return RepoDataRecord(record, file_name(package.url), url, secrets.seen(package.channel))


def file_name(url: str) -> str:
    """The last part of a URL's path, unquoted, checked to be a plain file name.

    Raises:
        InputError: it has none, e.g. ``https://host/%2f..``.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name:
        raise InputError(
            f"URL without a file name: {redacted(url)}", hint="name the archive itself, e.g. .../name-1.0.tar.gz"
        )
    return name
