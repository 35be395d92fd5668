"""The pip part of a prefix: exactly the locked wheels, by uv, each with its hash.

uv gets a ``pylock.toml`` (PEP 751) with one wheel per package: nothing is resolved, no index is queried, every file is
checked against its sha256, and packages from an index are recorded as such (no ``direct_url.json``).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.core.secrets import shown
from stackyard.host.files import filelocks
from stackyard.host.run.written import written_bytes
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.conda.records import file_name
from stackyard.lock.lockfile.model import PipPackage
from stackyard.make import programs
from stackyard.make.fetch import RELOCK
from stackyard.make.job import Job
from stackyard.make.wheels import indexes, uvcache
from stackyard.yard import disk
from stackyard.yard.write.atomic import fault_point, write_text

_UV_NOTE = "uv_cache.json"
_DAMAGED = ("Failed to deserialize cache entry", "Hash mismatch")
"""What uv says of a damaged note in its cache; the second also of a wheel that is not the locked one."""


@dataclass(frozen=True)
class Wheel:
    """A wheel to install: locked, or compiled here."""

    name: str
    version: str
    url: str
    sha256: str

    @classmethod
    def of(cls, package: PipPackage) -> Wheel:
        """The wheel in a lock."""
        return cls(package.name, package.version, package.url, package.sha256)


def locked_wheels(job: Job) -> list[Wheel]:
    """The wheels in the lock of a job, at their present URLs."""
    packages = (package for package in job.locked.pip if package.kind == "wheel")
    return [Wheel.of(job.mirror.pip(package) if job.mirror else package) for package in packages]


def pylock(wheels: Sequence[Wheel], settings: PipSettings | None = None) -> str:
    """The wheels as a PEP 751 lock file."""
    blocks = [_block(wheel, settings or PipSettings()) for wheel in sorted(wheels, key=lambda w: w.name)]
    return "\n".join(['lock-version = "1.0"', 'created-by = "stackyard"', *blocks]) + "\n"


def _block(wheel: Wheel, settings: PipSettings) -> str:
    url = Path(wheel.url).as_uri() if wheel.url.startswith("/") else uv.place_for_uv(wheel.url, settings)
    where = f"{{ url = {json.dumps(url)}, hashes = {{ sha256 = {json.dumps(wheel.sha256)} }} }}"
    lines = ["[[packages]]", f"name = {json.dumps(wheel.name)}", f"version = {json.dumps(wheel.version)}"]
    return "\n".join(["", *lines, f"wheels = [{where}]"])


def install(job: Job, wheels: Sequence[Wheel]) -> None:
    """Install these wheels, and nothing else, into the prefix.

    What is in uv's cache of this yard or of a parent is not fetched again: the first attempt runs offline, and then
    only what is missing is fetched. (uv alone would query the index for all of them, and download them again from an
    index that sends no cache lifetime: a second copy of each on disk.)

    Raises:
        StackyardError: a wheel cannot be downloaded or its hash differs; uv's output is the detail.
    """
    if not wheels:
        return
    _take_cached(job, wheels)
    fault_point("link")
    if not _uv_install(job, wheels, offline=True):
        fault_point("fetch")
        archives = uvcache.held(job.uv_cache, wheels)
        missing = [wheel for wheel in wheels if wheel not in archives]
        if 0 < len(missing) < len(wheels):
            _fetch(job, missing)
        if len(missing) == len(wheels) or not _uv_install(job, wheels, offline=True):
            _fetch(job, wheels)
    uvcache.settle(job, wheels)
    uvcache.note(job, wheels)
    forget_times(job.site_packages)
    fault_point("link")


def _take_cached(job: Job, wheels: Sequence[Wheel]) -> None:
    """Put what the parents have of these wheels into uv's cache, once each is known to be the locked one."""
    for wheel in wheels:
        require_as_locked(file_name(wheel.url), wheel.name, wheel.version, shown(wheel.url))
    uvcache.discard_damaged(job, wheels)
    uvcache.take_from_parents(job, wheels)


def fetch(job: Job, wheels: Sequence[Wheel], directory: Path) -> None:
    """Put wheels into uv's cache: uv installs what that lacks into a directory, which is not used any further.

    Raises:
        StackyardError: as for `install`.
    """
    if not wheels:
        return
    _take_cached(job, wheels)
    there = uvcache.held(job.uv_cache, wheels)
    if missing := [wheel for wheel in wheels if wheel not in there]:
        _uv_install(job, missing, ["--target", directory, "--python-version", job.python_version], Path(sys.executable))
    uvcache.settle(job, wheels)
    uvcache.note(job, wheels)


def _fetch(job: Job, wheels: Sequence[Wheel]) -> None:
    """Download and install wheels. If uv cannot read its own cache, that is cleared once."""
    try:
        _uv_install(job, wheels)
    except StackyardError as error:
        if not uvcache.held(job.uv_cache, wheels) or not any(text in (error.detail or "") for text in _DAMAGED):
            raise
        uvcache.forget(job, wheels)
        job.progress.notice(f"damaged in the cache, so fetched again: what uv notes in {job.uv_cache}")
        _uv_install(job, wheels)


def require_as_locked(file: str, name: str, version: str, origin: str) -> None:
    """Raise StackyardError if a wheel's package or version differs from the lock: the lock was altered.

    uv compares a wheel's metadata with its file name.

    Args:
        file: the wheel's file name.
        origin: its source, for the message.
    """
    try:
        project, found_version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise StackyardError(f"{origin} is not a wheel: {error}", hint=RELOCK) from error
    if project != canonical(name) or (version and found_version != Version(version)):
        raise StackyardError(
            f"{origin} is not what is locked: it is {project} {found_version}, the lock says {name} {version}",
            hint=RELOCK,
        )


def install_alone(job: Job, wheel: Wheel, directory: Path) -> None:
    """Install a wheel of the prefix into a separate directory, with the same files.

    Raises:
        StackyardError: uv cannot install it; its output is the detail.
    """
    _uv_install(job, [wheel], ["--prefix", directory])


def _uv_install(
    job: Job,
    wheels: Sequence[Wheel],
    more: Sequence[str | Path] = (),
    python: Path | None = None,
    *,
    offline: bool = False,
) -> bool:
    """Install wheels with uv; False if it is `offline` and a wheel is not in its cache. Other failures raise.

    Args:
        more: further options for uv.
        python: the interpreter to install for; None: that of the prefix.
    """
    filelocks.secure(job.uv_cache / ".lock", job.progress.notice, shared=True)  # by every uv command
    lock = job.work / "pylock.toml"
    settings = indexes.pip_settings(job)
    write_text(lock, pylock(wheels, settings))
    argv: programs.Argv = [
        uv.program(), "pip", "install", "--preview-features", "pylock", "--no-deps", "--break-system-packages",
        "--no-python-downloads", "--link-mode", _link_mode(job), "--python", python or job.python, "-r", lock,
        *uv.host_options(settings), *(["--offline"] if offline else []), *more,
    ]  # fmt: skip
    before = _installed(job)
    try:
        programs.run(
            argv,
            what=f"installing the pip packages of {job.module}",
            log=job.paths.log,
            env=indexes.environment(job),
            hint="see the wheel named above",
            watch=(_Installing if offline else _Fetching)(job, wheels, before),
        )
    except StackyardError as error:
        if not offline or not isinstance(error, programs.FailedError) or _installed(job) != before:
            raise  # anything but that something is missing in the cache: uv would take a half for the whole
        return False
    return True


def _installed(job: Job) -> set[str]:
    """The names of the metadata directories that pip has installed in the prefix."""
    return {path.name for path in job.site_packages.glob("*.dist-info")}


class _Installing:
    """Reports how many wheels uv has linked while it runs. Called several times a second.

    uv itself reports nothing to a program that reads its output. Looking takes a twentieth of the time at most: a cache
    may have thousands of directories on a shared file system.
    """

    items = "packages installed"

    def __init__(self, job: Job, wheels: Sequence[Wheel], before: set[str]) -> None:
        self._job, self._wheels, self._before = job, wheels, before
        self._written, self._next = written_bytes(), time.monotonic() + 0.5

    def __call__(self) -> None:
        started = time.monotonic()
        if started >= self._next:
            done, size = self._done(), written_bytes() - self._written
            self._job.progress.advance(self._job.module, done, len(self._wheels), self.items, max(size, 0))
            self._next = time.monotonic() + max(0.5, 20 * (time.monotonic() - started))

    def _done(self) -> int:
        return len(_installed(self._job) - self._before)


class _Fetching(_Installing):
    """Reports how many wheels uv has fetched and unpacked; then how many it has linked."""

    def _done(self) -> int:
        if installed := super()._done():
            self.items = _Installing.items
            return installed
        self.items = "packages fetched"
        return len(uvcache.held(self._job.uv_cache, self._wheels))


def forget_times(site_packages: Path) -> None:
    """Remove uv's note of a local wheel's time stamp, and its line in RECORD, so that a lock gives one prefix.

    The rest of RECORD is unchanged. Files are replaced, never written into, since they may be links into the cache.
    """
    for note in site_packages.glob(f"*.dist-info/{_UV_NOTE}"):
        record = note.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        for path in (note, record):
            path.unlink()
        line = f"{note.parent.name}/{_UV_NOTE},"
        record.write_text("".join(entry for entry in lines if not entry.startswith(line)), encoding="utf-8")


def _link_mode(job: Job) -> str:
    """uv's link mode: ``clone`` only if blocks can be shared, since it falls back to hard links."""
    if not job.private_files:
        return "hardlink"
    return "clone" if disk.can_reflink(job.paths.root) else "copy"
