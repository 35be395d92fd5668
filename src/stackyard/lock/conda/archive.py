"""The list of files in a conda archive, read without unpacking it and, if the server allows, without a full download.

A ``.conda`` archive has the list in a member of its own at its end, which rattler fetches by range requests. A
``.tar.bz2`` has it at its beginning: the transfer is ended once it has arrived. Archives are untrusted, so reading has
limits of size and time.
"""

from __future__ import annotations

import asyncio
import bz2
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from stackyard.core import secrets
from stackyard.core.errors import StackyardError
from stackyard.core.quoting import quoted
from stackyard.host.files.hashing import local_path
from stackyard.host.net import http
from stackyard.host.tools.rattler import client
from stackyard.lock.conda.filelist import LISTS, MOST_BYTES, metadata_directories, paths_of
from stackyard.lock.lockfile.model import CondaPackage

if sys.version_info >= (3, 12):
    import tarfile
else:
    from backports import tarfile

if TYPE_CHECKING:
    from rattler import Client

LIMIT_S = 60.0
_SILENCE_S = 20.0
_AT_ONCE = 16
_MOST_BEFORE = 256 << 20
"""Bytes before a list."""
_MOST_FETCHED = 4 << 30
"""Of an archive on a server that gives out whole files only."""


def metadata(packages: Sequence[CondaPackage]) -> dict[str, tuple[str, ...] | str]:
    """The metadata directories in each archive, by its hash; or the reason why they are unknown.

    After a failed request, a server gets no further ones.
    """
    return asyncio.run(_metadata(packages))


async def _metadata(packages: Sequence[CondaPackage]) -> dict[str, tuple[str, ...] | str]:
    connection = client({package.url.rsplit("/", 1)[0] for package in packages})
    limit, silent = asyncio.Semaphore(_AT_ONCE), dict[str, str]()

    async def one(package: CondaPackage) -> tuple[str, ...] | str:
        server = secrets.host_of(package.url)
        async with limit:
            if server in silent:
                return silent[server]
            try:
                return metadata_directories(await file_list(package.url, connection))
            except TimeoutError:
                silent[server] = f"{server or 'its file system'} timed out after {LIMIT_S:g} s"
                return silent[server]
            except (StackyardError, ValueError) as error:
                return str(error)

    listings = await asyncio.gather(*map(one, packages))
    return {package.sha256: listing for package, listing in zip(packages, listings, strict=True)}


async def file_list(url: str, client: Client) -> list[str]:
    """The paths of an archive's files, below the prefix.

    Args:
        client: a client of `host.tools.rattler` for this URL's channel.

    Raises:
        StackyardError: it cannot be read; the message is the cause.
        ValueError: the content is not a list of files.
        TimeoutError: not within `LIMIT_S`.
    """
    try:
        return await asyncio.wait_for(_file_list(url, client), LIMIT_S)
    except asyncio.TimeoutError as error:  # the built-in one from Python 3.11 on
        raise TimeoutError from error


async def _file_list(url: str, client: Client) -> list[str]:
    if url.endswith(".tar.bz2") and local_path(url) is None:
        try:
            return await asyncio.to_thread(_streamed, url)
        except http.FAILURES:  # it may need a login of rattler's own; a dead server is one for both
            pass
    return await _by_rattler(url, client)


# --------------------------------------------------------------------------- .tar.bz2 on a server


def _streamed(url: str) -> list[str]:
    """The list in a ``.tar.bz2``, read from the start of the download."""
    until = time.monotonic() + LIMIT_S
    with http.open_url(url, "GET", _SILENCE_S) as answer:
        plain = bz2.BZ2File(cast(IO[bytes], _LimitedStream(answer.read, sys.maxsize, until)))
        stream = cast(IO[bytes], _LimitedStream(plain.read, _MOST_BEFORE, until))
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                return _found(tar)
        except (tarfile.TarError, EOFError) as error:
            raise ValueError(f"damaged archive: {error}") from error


def _found(tar: tarfile.TarFile) -> list[str]:
    for member in tar:
        if member.isreg() and member.name in LISTS:
            if member.size > MOST_BYTES:
                break
            opened = tar.extractfile(member)
            return paths_of(member.name, opened.read() if opened else b"")
    raise ValueError("no list of its files in it")


class _LimitedStream:
    """A stream that raises an error after a number of bytes, or after a time."""

    def __init__(self, read: Callable[[int], bytes], most: int, until: float) -> None:
        self._read, self._left, self._until = read, most, until

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if time.monotonic() > self._until:
            raise TimeoutError(f"timed out after {LIMIT_S:g} s")
        data = self._read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("its list of files does not come first")
        return data

    def readable(self) -> bool:
        """Always true; `bz2` calls it."""
        return True


# --------------------------------------------------------------------------- everything else


async def _by_rattler(url: str, client: Client) -> list[str]:
    from rattler.package_streaming import PackageArchive

    path = local_path(url)
    try:
        if path is not None:
            archive = await PackageArchive.from_path(path)
        else:
            archive = await PackageArchive.from_url(client, secrets.seen(url), max_spool_size=_MOST_FETCHED)
        return await _listed(archive)
    except Exception as error:  # rattler has one for each kind of failure
        lines = secrets.redacted(str(error)).splitlines()
        raise StackyardError(quoted(lines[0])[1:-1] if lines else "damaged archive") from error


async def _listed(archive: Any) -> list[str]:
    before = 0
    async for entry in archive.stream("info"):
        before += entry.size
        if before > _MOST_BEFORE or (entry.name in LISTS and entry.size > MOST_BYTES):
            break
        if entry.is_file and entry.name in LISTS:
            return paths_of(entry.name, await entry.read())
    raise ValueError("no list of its files in it")
