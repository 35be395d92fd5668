"""The conda part of a prefix: fetched, unpacked and linked by py-rattler, the engine of pixi.

The package cache is the yard's, with links to what its parents unpacked. Link scripts (``bin/.<name>-post-link.sh``)
are run, as conda does: packages rely on it, and a locked package is trusted completely.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core import secrets
from stackyard.core.errors import StackyardError
from stackyard.host.files import filelocks, space
from stackyard.host.tools.rattler import client
from stackyard.lock.conda.records import repodata_record
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.cache_adoption import adopt
from stackyard.make.conda.forconda import mark_cache
from stackyard.make.conda.placeholder import too_long
from stackyard.make.conda.unpack import unpack, write_note
from stackyard.make.fetch import check_local_archives
from stackyard.make.job import Job
from stackyard.make.layer import ground
from stackyard.yard import disk
from stackyard.yard.cache import notes
from stackyard.yard.cache.caches import CONDA, searched, unpacked_from
from stackyard.yard.layout import Yard
from stackyard.yard.write.atomic import fault_point, replace_symlink

if TYPE_CHECKING:
    from rattler import Client, PackageCache, PrefixRecord, RepoDataRecord

# For files only; symlinks stay links. With `allow-symbolic-links = false` rattler would copy their targets,
# fail if one is a directory, and leave out links into another package silently.
_COPY = "allow-hard-links = false\nallow-ref-links = true\n"


def install(job: Job) -> None:
    """Put the locked conda packages into the prefix.

    Raises:
        StackyardError: a package cannot be read, its hash does not match the lock, or its link script failed.
    """
    asyncio.run(_install(job))
    _note(job)
    (job.prefix / "CACHEDIR.TAG").unlink(missing_ok=True)  # backups would skip the prefix


def fetch(job: Job) -> None:
    """Put the locked conda packages into the cache of the job's yard, and nothing anywhere else.

    Raises:
        StackyardError: as for `install`.
    """
    asyncio.run(_fetched(job))
    _note(job)


def _note(job: Job) -> None:
    """Note the packages of the lock that are in this account's cache."""
    places = (job.yard.package(package.stem) for package in job.locked.conda)
    job.entries.added(CONDA, (place for place in places if not place.is_symlink()))


def _discard_others(job: Job) -> None:
    """Remove unpacked packages that differ from the lock or are damaged: they are fetched again."""
    for package in job.locked.conda:
        place = job.yard.package(package.stem)
        if place.is_symlink() or not place.is_dir():
            continue
        if unpacked_from(job.yard, package.stem) != package.sha256 or not job.entries.is_good(CONDA, place):
            CONDA.discard(place, job.yard)
            notes.place(job.yard, CONDA, place).unlink(missing_ok=True)


async def _fetched(job: Job) -> tuple[PackageCache, list[RepoDataRecord], Client]:
    """Fetch and unpack the packages that the cache lacks; the cache, rattler's records, and the connection used."""
    records = [repodata_record(package) for package in job.locked.conda]
    cache = package_cache(job)
    missing = await _not_cached(job, cache, job.locked.conda, records)
    if job.mirror:
        missing = [job.mirror.conda(package) for package in missing]
    connection = client({package.url.rsplit("/", 1)[0] for package in (*job.locked.conda, *missing)})
    check_local_archives(missing)
    await unpack(job, missing, connection)
    return cache, records, connection


async def _install(job: Job) -> None:
    from rattler import Config, Subdir, install
    from rattler.exceptions import InstallerError

    cache, records, connection = await _fetched(job)
    try:
        with _as_installed(_python_of_base(job), job.prefix) as python:
            await install(
                [*records, *python],
                job.prefix,
                package_cache=cache,
                platform=Subdir(job.locked.platform),
                execute_link_scripts=True,
                show_progress=False,
                client=connection,
                requested_specs=_requested(job),
                reporter=_Reporter(job, len(records)),
                config=Config.from_toml(_COPY) if job.private_files else Config(),
                installed_packages=python,
            )
    except (InstallerError, OSError) as error:
        # on a full disk rattler may also leave half of a record, and report that it cannot read it
        if space.says_full(str(error)) or space.is_used_up(job.paths.root):
            raise disk.no_space(f"installing the conda packages of {job.module}") from error
        if refused := too_long(job, str(error)):
            raise refused from error
        raise StackyardError(
            f"installing the conda packages of {job.module} failed: {secrets.redacted(str(error))}",
            hint="see the package or channel named above",
        ) from error


def install_alone(job: Job, package: CondaPackage, directory: Path) -> None:
    """Install one package of the prefix into a separate directory, with the same files.

    Raises:
        StackyardError: it cannot be linked.
    """
    from rattler import Config, PackageCache, Subdir, install
    from rattler.exceptions import InstallerError

    async def linked() -> None:
        own = next(
            (candidate for candidate in job.locked.conda if candidate.name == "python"), None
        ) or _python_of_base(job)
        with _as_installed(None if package.name == "python" else own, directory) as python:
            await install(
                [repodata_record(package), *python],
                directory,
                package_cache=PackageCache(job.yard.conda),
                platform=Subdir(job.locked.platform),
                execute_link_scripts=False,
                show_progress=False,
                config=Config.from_toml(_COPY) if job.private_files else Config(),
                installed_packages=python,
                alternative_target_prefix=job.prefix,
            )

    try:
        asyncio.run(linked())
    except (InstallerError, OSError) as error:
        if space.says_full(str(error)) or space.is_used_up(job.paths.root):
            raise disk.no_space(f"linking {package.name} for {job.module}") from error
        raise StackyardError(
            f"linking {package.name} for {job.module} failed: {secrets.redacted(str(error))}", hint="deploy again"
        ) from error


def _python_of_base(job: Job) -> CondaPackage | None:
    """The conda package of the Python that an extension inherits from its base."""
    below = (package for lock in ground(job).locks for package in lock.conda)
    return next((package for package in below if package.name == "python"), None)


@contextmanager
def _as_installed(python: CondaPackage | None, prefix: Path) -> Iterator[list[PrefixRecord]]:
    """Make a Python of another prefix look installed in this one: rattler determines noarch paths from it."""
    if python is None:
        yield []
        return
    from rattler import PrefixPaths, PrefixRecord

    record = PrefixRecord(repodata_record(python), PrefixPaths())
    place = prefix / "conda-meta" / f"{python.stem}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    record.write_to_path(place, pretty=False)
    try:
        yield [record]
    finally:
        place.unlink(missing_ok=True)


def package_cache(job: Job) -> PackageCache:
    """This account's package cache, layered over the yard's other caches and the parents'."""
    from rattler import PackageCache

    filelocks.secure(job.yard.package_note(".cache"), job.progress.notice)  # rattler holds it while it installs
    mark_cache(job.yard)
    _discard_others(job)
    others = searched(job.yard)[1:]
    for package in job.locked.conda:
        place = job.yard.package(package.stem)
        if not place.is_symlink() and place.is_dir():
            continue
        if not any(_adopt(package, other, job) for other in others) and place.is_symlink():
            place.unlink(missing_ok=True)  # the parent removed it, or has another build of that name
    return PackageCache(job.yard.conda)


def _adopt(package: CondaPackage, theirs: Yard, job: Job) -> bool:
    """Adopt an unpacked package from another cache: by a symlink if its files can be linked, else as a copy.

    Other builds may do the same, or link from it already, so a symlink is only ever replaced by another one.

    rattler's own cache layers do not work here: rattler treats a directory as writable if any user may write to it,
    and then writes to it. A package whose note does not have the locked hash is not taken.

    Returns:
        Whether it is in our cache now.
    """
    ours, stem, sha256 = job.yard, package.stem, package.sha256
    place = ours.package(stem)
    source = theirs.package(stem)
    index = source / "info" / "index.json"
    if unpacked_from(theirs, stem) != sha256 or not os.access(index, os.R_OK):
        return False
    if not job.entries.is_good(CONDA, source, theirs):
        return False
    if unpacked_from(ours, stem) != sha256:
        write_note(ours, package)
    if not job.private_files and not disk.can_link(index, ours.conda):
        return adopt(job, CONDA, source.resolve(), place)
    if not place.is_symlink() or place.resolve() != source.resolve():
        notes.place(ours, CONDA, place).unlink(missing_ok=True)  # of what had this name before
        replace_symlink(place, str(source.resolve()))
    return True


async def _not_cached(
    job: Job, cache: PackageCache, packages: Sequence[CondaPackage], records: Sequence[RepoDataRecord]
) -> list[CondaPackage]:
    """The packages to fetch: neither in this cache nor linked into it from a parent's."""
    index = await cache.index()
    pairs = zip(packages, records, strict=True)
    return [p for p, r in pairs if not index.contains_record(r) and not job.yard.package(p.stem).is_symlink()]


def _requested(job: Job) -> list[Any]:
    """The requested specs, for conda-meta; py-rattler 0.28 requires the inner objects."""
    from rattler import MatchSpec
    from rattler.exceptions import InvalidMatchSpecError

    names = {package.name for package in job.locked.conda}
    specs = []
    for text in job.locked.requested:
        try:
            spec = MatchSpec(text)
        except InvalidMatchSpecError:
            continue  # a pip requirement
        if spec.name is not None and spec.name.normalized in names:
            specs.append(spec._match_spec)
    return specs


class _Reporter:
    """Reports the number of linked packages, and passes the fault points. Called from rattler's threads."""

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
            self._job.progress.advance(self._job.module, self._done, self._total, "packages linked")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_arguments: 0
