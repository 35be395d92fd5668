"""Fetches files for a build; every byte is verified against the lock's sha256 before use.

rattler checks conda packages from http(s) while it unpacks them, but not those of ``file://`` channels: these are
hashed here before they are unpacked. uv checks wheels. Source archives are fetched and checked here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import IO

from stackyard.core.errors import StackyardError
from stackyard.core.secrets import shown
from stackyard.host.files import space
from stackyard.host.files.hashing import local_path, sha256_file, sha256_text
from stackyard.host.net.trust import PLAIN, Trust
from stackyard.host.tools import uv
from stackyard.lock.conda.records import file_name
from stackyard.lock.lockfile.model import CondaPackage, PipPackage
from stackyard.make.job import Job, cores
from stackyard.make.wheels.indexes import pip_settings
from stackyard.yard.cache.caches import searched
from stackyard.yard.layout import Yard
from stackyard.yard.write import lease
from stackyard.yard.write.atomic import fault_point
from stackyard.yard.write.permissions import file_mode

RELOCK = "restore the lock from the repository, or solve again with `stackyard lock`"
"""What to do about a package that is not what the lock says."""

_BLOCK = 1 << 20


def check_local_archives(packages: Iterable[CondaPackage]) -> None:
    """Hash the archives of ``file://`` channels, several at a time.

    Raises:
        StackyardError: an archive is missing, or its hash differs; the message names file, expected and found hash.
    """
    local = [(package, path) for package in packages if (path := local_path(package.url))]
    with ThreadPoolExecutor(cores()) as pool:
        for _ in pool.map(lambda item: require_hash(item[1], item[0].sha256, item[0].url), local):
            fault_point("fetch")


def require_hash(path: Path, expected: str, url: str) -> None:
    """Raise StackyardError unless the file has this sha256; `url` is its URL in the lock."""
    if not expected:
        raise StackyardError(f"missing sha256 in the lock: {url}", hint="run `stackyard lock` again")
    digest = sha256_file(path)
    if digest != expected:
        raise StackyardError(
            f"hash mismatch for {url}: expected sha256 {expected}, found {digest}",
            hint="if the file was replaced on purpose, run `stackyard lock` again; else restore it",
        )


def source_archive(job: Job, package: PipPackage) -> Path:
    """A verified source archive: from this yard's cache or a parent's, else downloaded into this yard's."""
    package = job.mirror.pip(package) if job.mirror else package
    name = file_name(package.url)
    path = _kept(job, package, name, job.progress.notice)
    if path is not None:
        return path
    with fetching(job.yard, f"{package.sha256[:16]} {name}"):
        path = _kept(job, package, name, lambda _: None)  # another build may have fetched it meanwhile
        place = job.yard.source(package.sha256, name)
        return path or _download(package, place, uv.trust(package.url, pip_settings(job)))


def _kept(job: Job, package: PipPackage, name: str, tell: Callable[[str], None]) -> Path | None:
    """A source archive in a cache whose bytes match the lock."""
    for yard in searched(job.yard):
        path = yard.source(package.sha256, name)
        if os.access(path, os.R_OK):  # also what another account keeps to itself is fetched
            if sha256_file(path) == package.sha256:
                return path
            tell(f"damaged in the cache, so fetched again: {path}")
    return None


def fetching(yard: Yard, name: str, stop: Event | None = None) -> AbstractContextManager[lease.Lease]:
    """A lease to fetch a file of this name into a yard's cache; other builds wait for it, until `stop`.

    There are 64 of these leases, whose directories are kept.
    """
    slot = int(sha256_text(name)[:8], 16) % 64
    return lease.lease(yard.lease(f"fetch {slot}"), f"the right to fetch {name}", stop=stop)


def _download(package: PipPackage, target: Path, trust: Trust) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
    os.close(handle)
    download(package.url, package.sha256, Path(name), target, mode=file_mode(), trust=trust)
    return target


def download(url: str, sha256: str, part: Path, target: Path, *, mode: int, trust: Trust) -> None:
    """Download a URL to `target`, completely and with this hash, or not at all; `part` is the temporary name.

    Raises:
        StackyardError: it cannot be downloaded, or has another hash.
        OSError: the file cannot be written.
    """
    try:
        with part.open("wb") as stream:
            copy_from(url, stream, trust)
        require_hash(part, sha256, shown(url))
        part.chmod(mode)
        fault_point("cache")
        os.replace(part, target)  # noqa: TID251  of a temporary file beside it
    finally:
        part.unlink(missing_ok=True)


def copy_from(url: str, stream: IO[bytes], trust: Trust = PLAIN) -> None:
    """Copy a URL or a path to a seekable file. Raises as `http.get` does, and if the disk is full."""
    from stackyard.host.net import http  # with it ssl, which what is in the cache does not need

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
