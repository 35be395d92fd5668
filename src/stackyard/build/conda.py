"""The conda part of a prefix: fetched, unpacked and linked by py-rattler, the engine of pixi.

The package cache is the yard's, with links to what its parents unpacked. Link scripts (``bin/.<name>-post-link.sh``)
are run, as conda does: packages rely on it, and a locked package is trusted entirely.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.build.fetch import check_local_archives, file_name
from stackyard.build.job import Job
from stackyard.errors import StackyardError
from stackyard.host.secrets import revealed
from stackyard.lock.model import CondaPackage
from stackyard.yard import disk
from stackyard.yard.atomic import fault_point

if TYPE_CHECKING:
    from rattler import PackageCache, RepoDataRecord

# About files only; symbolic links stay links. With `allow-symbolic-links = false` rattler would copy their targets,
# fail where one is a directory, and silently leave out links into another package.
_COPY = "allow-hard-links = false\nallow-ref-links = true\n"
_NOTE_BYTES = 40


def install(job: Job) -> None:
    """Put the locked conda packages into the prefix.

    Raises:
        StackyardError: a package cannot be downloaded, its hash differs, or its link script failed.
    """
    asyncio.run(_install(job))
    (job.prefix / "CACHEDIR.TAG").unlink(missing_ok=True)  # it would make backups leave the prefix out


async def _install(job: Job) -> None:
    from rattler import Client, Config, Subdir, install
    from rattler.exceptions import InstallerError
    from rattler.networking import AuthenticationMiddleware, RetryMiddleware

    records = [repodata_record(package) for package in job.locked.conda]
    cache = package_cache(job)
    check_local_archives(await _not_cached(cache, job.locked.conda, records))
    try:
        await install(
            records,
            job.prefix,
            package_cache=cache,
            platform=Subdir(job.locked.platform),
            execute_link_scripts=True,
            show_progress=False,
            client=Client([AuthenticationMiddleware(), RetryMiddleware(2)]),
            requested_specs=_requested(job),
            reporter=_Reporter(job, len(records)),
            config=Config.from_toml(_COPY) if job.private_files else Config(),
            installed_packages=[],
        )
    except (InstallerError, OSError) as error:
        if disk.says_full(str(error)):
            raise disk.no_space(f"installing the conda packages of {job.module}") from error
        raise StackyardError(
            f"installing the conda packages of {job.module} failed: {error}",
            hint="see the package or channel named above",
        ) from error


def package_cache(job: Job) -> PackageCache:
    """The yard's package cache, in which what the parents have unpacked is known too."""
    from rattler import PackageCache

    folder = job.yard.cache / "conda"
    folder.mkdir(parents=True, exist_ok=True)
    for parent in job.yard.lineage()[1:]:
        for package in job.locked.conda:
            _adopt(package, parent.cache / "conda", folder)
    return PackageCache(folder)


def _adopt(package: CondaPackage, theirs: Path, ours: Path) -> None:
    """Make a parent's unpacked package available in this yard's cache by a symlink; its files are not copied.

    rattler's own cache layers are unsuitable: it treats a directory as writable if any user may write to it, and then
    writes to it. Its note next to a package has a revision (8 bytes) and the archive's sha256; a package whose note
    lacks the locked hash is not used.
    """
    name = f"{package.name}-{package.version}-{package.build}"
    place = ours / name
    if place.is_symlink() and (not place.exists() or _noted(ours / f"{name}.lock") != package.sha256):
        place.unlink()  # the parent removed it, or another build of that name is required now
    known = _noted(theirs / f"{name}.lock") == package.sha256 and (theirs / name / "info" / "index.json").is_file()
    if known and not place.exists():
        (ours / f"{name}.lock").write_bytes((theirs / f"{name}.lock").read_bytes()[:_NOTE_BYTES])
        place.symlink_to((theirs / name).resolve())


def _noted(note: Path) -> str:
    """The sha256 that rattler noted next to an unpacked package; empty if there is none."""
    try:
        return note.read_bytes()[8:_NOTE_BYTES].hex()
    except OSError:
        return ""


async def _not_cached(
    cache: PackageCache, packages: Sequence[CondaPackage], records: Sequence[RepoDataRecord]
) -> list[CondaPackage]:
    index = await cache.index()
    return [p for p, record in zip(packages, records, strict=True) if not index.contains_record(record)]


def repodata_record(package: CondaPackage) -> RepoDataRecord:
    """A locked package as a rattler record; fields that the lock lacks are read from the package."""
    from rattler import BuildString, PackageRecord, RepoDataRecord

    record = PackageRecord(
        name=package.name,
        version=package.version,
        build=BuildString(package.build),
        build_number=package.build_number,
        subdir=package.subdir,
        noarch=_noarch(package.noarch),
        depends=list(package.depends),
        constrains=list(package.constrains),
        sha256=bytes.fromhex(package.sha256) if package.sha256 else None,
        md5=bytes.fromhex(package.md5) if package.md5 else None,
        size=package.size or None,
        license=package.license or None,
        python_site_packages_path=package.python_site_packages_path or None,
    )
    if package.timestamp_ms:
        record.timestamp = datetime.fromtimestamp(package.timestamp_ms / 1000, tz=timezone.utc)
    url = revealed(package.url, os.environ) if "://" in package.url else Path(package.url).as_uri()
    return RepoDataRecord(record, file_name(package.url), url, package.channel)


def _noarch(kind: str) -> Any:
    return kind if kind in ("python", "generic") else None


def _requested(job: Job) -> list[Any]:
    """The requested specs, for conda-meta; py-rattler 0.28 requires the inner objects here."""
    from rattler import MatchSpec
    from rattler.exceptions import InvalidMatchSpecError

    names = {package.name for package in job.locked.conda}
    found = []
    for text in job.locked.requested:
        try:
            spec = MatchSpec(text)
        except InvalidMatchSpecError:
            continue  # a pip requirement
        if spec.name is not None and spec.name.normalized in names:
            found.append(spec._match_spec)
    return found


class _Reporter:
    """Reports how many packages are linked, and passes the fault points. Called from rattler's threads."""

    def __init__(self, job: Job, total: int) -> None:
        self._job, self._total = job, total
        self._done = 0
        self._guard = threading.Lock()

    def on_populate_cache_start(self, _operation: int, _package_name: str) -> int:
        return 0

    def on_download_progress(self, _index: int, _done: int, _total: int | None) -> None:
        fault_point("extract")

    def on_populate_cache_complete(self, _entry: int) -> None:
        fault_point("extract")

    def on_link_start(self, _operation: int, _package_name: str) -> int:
        fault_point("link")
        return 0

    def on_link_complete(self, _index: int) -> None:
        with self._guard:
            self._done += 1
            self._job.progress.advance(self._job.module, self._done, self._total)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_arguments: 0
