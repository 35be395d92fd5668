"""Every byte that enters a build is checked against the lock's sha256 before it is used.

rattler checks conda packages from http(s) while it unpacks them, but not those of ``file://`` channels: these are
hashed here before they are unpacked. uv checks wheels. Source archives are fetched and checked here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from stackyard.build.indexes import pip_settings
from stackyard.build.job import Job, cores
from stackyard.errors import InputError, StackyardError
from stackyard.host import http, space, uv
from stackyard.host.hashing import local_path, sha256_file
from stackyard.host.secrets import redacted
from stackyard.lock.model import CondaPackage, PipPackage
from stackyard.yard.atomic import fault_point
from stackyard.yard.caches import searched
from stackyard.yard.permissions import file_mode

RELOCK = "restore the lock from the repository, or solve again with `stackyard lock`"
"""What to do about a package that is not what the lock says."""

_BLOCK = 1 << 20


def check_local_archives(packages: Iterable[CondaPackage]) -> None:
    """Hash the archives of ``file://`` channels, several at a time.

    Raises:
        StackyardError: one is missing, or its hash differs; the message names file, expected and found hash.
    """
    local = [(package, path) for package in packages if (path := local_path(package.url))]
    with ThreadPoolExecutor(cores()) as pool:
        for _ in pool.map(lambda item: require_hash(item[1], item[0].sha256, item[0].url), local):
            fault_point("fetch")


def require_hash(path: Path, expected: str, url: str) -> None:
    """Raise StackyardError unless the file has this sha256; `url` is its URL in the lock."""
    if not expected:
        raise StackyardError(f"missing sha256 in the lock: {url}", hint="run `stackyard lock` again")
    found = sha256_file(path)
    if found != expected:
        raise StackyardError(
            f"hash mismatch for {url}: expected sha256 {expected}, found {found}",
            hint="if the file was replaced on purpose, run `stackyard lock` again; else restore it",
        )


def source_archive(job: Job, package: PipPackage) -> Path:
    """A locked source archive, checked: from this yard's cache or a parent's, else downloaded into this yard's."""
    name = file_name(package.url)
    for yard in searched(job.yard):
        kept = yard.source(package.sha256, name)
        if os.access(kept, os.R_OK):  # also what another account keeps to itself is fetched
            if sha256_file(kept) == package.sha256:
                return kept
            job.progress.notice(f"damaged in the cache, so fetched again: {kept}")
    return _download(package, job.yard.source(package.sha256, name), uv.trust(package.url, pip_settings(job)))


def file_name(url: str) -> str:
    """The last part of a URL's path, unquoted: a name that stays in the directory in which it is put.

    Raises:
        InputError: it has none, e.g. ``https://host/%2f..``.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if name in ("", ".", "..") or "\0" in name:
        raise InputError(
            f"URL without a file name: {redacted(url)}", hint="name the archive itself, e.g. .../name-1.0.tar.gz"
        )
    return name


def _download(package: PipPackage, target: Path, trust: http.Trust) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            _copy(package.url, stream, trust)
        require_hash(part, package.sha256, package.url)
        part.chmod(file_mode())
        fault_point("cache")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _copy(url: str, stream: IO[bytes], trust: http.Trust = http.PLAIN) -> None:
    def kept(remote: IO[bytes]) -> None:
        if stream.tell():  # left by a previous attempt
            stream.seek(0)
            stream.truncate()
        shutil.copyfileobj(remote, stream, _BLOCK)

    path = local_path(url)
    source = url if path is None else path.as_uri()
    try:
        http.get(source, kept, timeout_s=60, trust=trust)
    except StackyardError as error:  # the cause may be a full disk, not the download
        if error.__cause__ is not None and space.is_full(error.__cause__):
            raise error.__cause__ from None
        raise
