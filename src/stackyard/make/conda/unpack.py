"""Fetches and unpacks conda packages into the yard's cache, and verifies each before it is linked.

rattler could fetch them while it links. But then a package that differs from the lock would be in the prefix before it
is detected, and a path that leads out of the prefix would abort the whole process. So an archive is unpacked beside its
place in the cache, compared with the lock, and renamed; rattler then finds it there.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from stackyard.core import secrets
from stackyard.core.errors import StackyardError
from stackyard.core.grammar import shown
from stackyard.host.files import at, space
from stackyard.host.files.hashing import local_path
from stackyard.host.net import http
from stackyard.host.net.trust import LOGIN_HINT
from stackyard.host.run.written import written_bytes
from stackyard.host.tools import uv
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.conda.forconda import write_record
from stackyard.make.fetch import RELOCK, fetching
from stackyard.make.job import Job
from stackyard.yard import disk, formats
from stackyard.yard.cache.caches import NOTE_REVISION, unpacked_from
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import settle

if TYPE_CHECKING:
    from rattler import Client

_AT_ONCE = 8
_FINAL = re.compile(r"HTTP status|after \d+ retries|hash", re.IGNORECASE)
"""What rattler's client has tried again itself, or what would be the same once more."""


async def unpack(job: Job, packages: Sequence[CondaPackage], client: Client) -> None:
    """Unpack packages into the cache of the job's yard, several at a time.

    Raises:
        StackyardError: a package cannot be fetched or unpacked, its hash or its name differs from the lock's, or it has
            a path that leads out of a prefix.
    """
    limit, stop = asyncio.Semaphore(_AT_ONCE), Event()
    waiting = ThreadPoolExecutor(_AT_ONCE)  # of its own: what waits for another build keeps no work of this one back

    locked = {package.stem: package for package in job.locked.conda}

    async def one(package: CondaPackage) -> None:
        async with limit, _alone(fetching(job.yard, package.stem, stop), stop, waiting):
            await _unpack(job, package, locked.get(package.stem, package), client)

    tasks = [asyncio.create_task(one(package)) for package in packages]
    telling = asyncio.create_task(_tell(job, tasks))
    try:
        await asyncio.gather(*tasks)
    finally:  # others may wait for what a failed build held
        stop.set()
        telling.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        waiting.shutdown()


async def _tell(job: Job, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Report how many packages are unpacked, and the bytes written for them, until this is cancelled."""
    before = written_bytes()
    while tasks:
        done = sum(task.done() for task in tasks)
        job.progress.advance(job.module, done, len(tasks), "packages fetched", written_bytes() - before)
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _alone(held: AbstractContextManager[Any], stop: Event, waiting: Executor) -> AsyncIterator[None]:
    """Hold a lease, waiting in a thread; builds that wait for the same package then find it in the cache."""
    taken = asyncio.get_running_loop().run_in_executor(waiting, held.__enter__)
    try:
        await asyncio.shield(taken)
    except asyncio.CancelledError:
        stop.set()  # who cancels this task waits for its end
        with suppress(StackyardError):
            await taken
            held.__exit__(None, None, None)
        raise
    try:
        yield
    finally:
        held.__exit__(None, None, None)


async def _unpack(job: Job, package: CondaPackage, locked: CondaPackage, client: Client) -> None:
    """Unpack a package into the cache; `locked` is the same with its URL in the channel, not that of a mirror."""
    place = job.yard.package(package.stem)
    if place.is_dir() and unpacked_from(job.yard, package.stem) == package.sha256:
        return  # another build fetched it
    temporary = atomic.temporary(place)
    disk.remove_tree(temporary)
    try:
        await _extract(package, temporary, client)
        require_as_locked(temporary, package)
        write_record(temporary, locked)
        settle(temporary, job.policy)
        atomic.fault_point("cache")
        if place.is_dir() and unpacked_from(job.yard, package.stem) == package.sha256:
            return  # of a build that did not wait, and may be linking from it
        disk.remove_tree(place)  # without a note: left by an interrupted build
        write_note(job.yard, package)
        os.rename(temporary, place)  # noqa: TID251  into the cache, under its lease
    finally:
        disk.remove_tree(temporary)


def write_note(yard: Yard, package: CondaPackage) -> None:
    """Write rattler's note beside an unpacked package: a revision and the archive's sha256."""
    note = yard.package_note(package.stem)
    part = atomic.temporary(note)
    try:
        part.write_bytes(NOTE_REVISION + bytes.fromhex(package.sha256))
        os.replace(part, note)  # noqa: TID251  into the cache, under its lease
    finally:
        part.unlink(missing_ok=True)


async def _extract(package: CondaPackage, target: Path, client: Client) -> None:
    """Unpack an archive; that of a ``file://`` channel was hashed before (`fetch.check_local_archives`)."""
    from rattler.package_streaming import download_and_extract, extract

    archive = local_path(package.url)
    for attempt in range(1, http.TRIES + 1):
        try:
            if archive is not None:
                await asyncio.to_thread(extract, archive, target)
            else:
                await download_and_extract(client, secrets.seen(package.url), target, bytes.fromhex(package.sha256))
            return
        except Exception as error:  # rattler has an exception of its own for each step
            disk.remove_tree(target)
            _require_another_try(package, error, archive is None and attempt < http.TRIES)
            await asyncio.sleep(http.PAUSE_S * 2**attempt)


def _require_another_try(package: CondaPackage, error: Exception, more: bool) -> None:
    """Raise the StackyardError of a failed attempt, unless a broken download can be tried once more."""
    text = secrets.redacted(str(error))
    if space.says_full(text):
        raise disk.no_space(f"unpacking {package.stem}") from error
    if not more or _FINAL.search(text):
        raise StackyardError(
            f"cannot fetch and unpack {secrets.shown(package.url)}: {text}",
            hint=LOGIN_HINT if uv.refused(text) else "check the channel, then deploy again",
        ) from error


def require_as_locked(directory: Path, package: CondaPackage) -> None:
    """Raise StackyardError unless an unpacked package matches the lock, and all its paths stay in the prefix."""
    index, url = _index(directory, package), secrets.shown(package.url)
    for key, locked in (("name", package.name), ("version", package.version), ("build", package.build)):
        if str(index.get(key)) != locked:
            raise StackyardError(
                f"{url} is not what is locked: its {key} is {index.get(key)}, the lock says {locked}",
                hint=RELOCK,
            )
    for path in filter(None, _paths(directory)):
        try:
            at.parts(path)
        except ValueError as error:
            raise StackyardError(
                f"{url} has a path that leads out of the prefix: {shown(path)}",
                hint="leave this package out",
            ) from error


def _index(directory: Path, package: CondaPackage) -> dict[str, Any]:
    try:
        index = formats.content((directory / "info" / "index.json").read_text(encoding="utf-8"))
        return dict(index)
    except (OSError, ValueError, TypeError) as error:
        raise StackyardError(
            f"{secrets.shown(package.url)} is not a conda package: info/index.json: {error}",
            hint="leave this package out",
        ) from error


def _paths(directory: Path) -> Iterator[str]:
    """The paths that a package installs: from paths.json, or from the list of older packages."""
    try:
        listed = formats.content((directory / "info" / "paths.json").read_text(encoding="utf-8"))
        yield from (str(entry["_path"]) for entry in listed["paths"])
    except FileNotFoundError:
        yield from (directory / "info" / "files").read_text(encoding="utf-8").splitlines()
    except (ValueError, TypeError, KeyError) as error:
        message = f"cannot read info/paths.json of {directory.name}: {error}"
        raise StackyardError(message, hint="leave this package out") from error
