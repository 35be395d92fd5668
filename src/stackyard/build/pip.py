"""The pip part of a prefix: exactly the locked wheels, by uv, each with its hash.

uv receives a ``pylock.toml`` (PEP 751) with one wheel per package: nothing is resolved, no index is queried, every file
is checked against its sha256, and packages from an index are recorded as such (no ``direct_url.json``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stackyard.build import indexes, programs, uvcache
from stackyard.build.job import Job
from stackyard.host import uv
from stackyard.host.secrets import revealed
from stackyard.lock.model import PipPackage
from stackyard.yard import disk
from stackyard.yard.atomic import fault_point, write_text

_UV_NOTE = "uv_cache.json"


@dataclass(frozen=True)
class Wheel:
    """A wheel to install: a locked one, or one that was compiled here."""

    name: str
    version: str
    url: str
    sha256: str

    @classmethod
    def of(cls, package: PipPackage) -> Wheel:
        """The wheel that a lock names."""
        return cls(package.name, package.version, package.url, package.sha256)


def pylock(wheels: Sequence[Wheel]) -> str:
    """The wheels as a PEP 751 lock file."""
    blocks = [_block(wheel) for wheel in sorted(wheels, key=lambda w: w.name)]
    return "\n".join(['lock-version = "1.0"', 'created-by = "stackyard"', *blocks]) + "\n"


def _block(wheel: Wheel) -> str:
    url = revealed(wheel.url, os.environ) if "://" in wheel.url else Path(wheel.url).as_uri()
    where = f"{{ url = {json.dumps(url)}, hashes = {{ sha256 = {json.dumps(wheel.sha256)} }} }}"
    lines = ["[[packages]]", f"name = {json.dumps(wheel.name)}", f"version = {json.dumps(wheel.version)}"]
    return "\n".join(["", *lines, f"wheels = [{where}]"])


def install(job: Job, wheels: Sequence[Wheel]) -> None:
    """Install these wheels, and nothing else, into the prefix.

    Wheels in uv's cache of this yard or of a parent are not downloaded again: the first attempt is offline, and then
    only missing ones are downloaded. (uv itself revalidates all of them, and downloads them again from an index
    without cache headers: a second copy of each on disk.)

    Raises:
        StackyardError: a wheel cannot be downloaded or its hash differs; uv's output is the detail.
    """
    if not wheels:
        return
    uvcache.take_from_parents(job, wheels)
    fault_point("link")
    if not _uv_install(job, wheels, offline=True):
        fault_point("fetch")
        missing = [wheel for wheel in wheels if not uvcache.holds(job.uv_cache, wheel)]
        if 0 < len(missing) < len(wheels):
            _uv_install(job, missing)
        if len(missing) == len(wheels) or not _uv_install(job, wheels, offline=True):
            _uv_install(job, wheels)
    forget_times(job.site_packages)
    fault_point("link")


def _uv_install(job: Job, wheels: Sequence[Wheel], *, offline: bool = False) -> bool:
    """Have uv install wheels; False where it must stay `offline` and its cache lacks one, else a failure is raised."""
    lock = job.work / "pylock.toml"
    write_text(lock, pylock(wheels))
    argv: programs.Argv = [
        uv.program(), "pip", "install", "--preview-features", "pylock", "--no-deps", "--break-system-packages",
        "--no-python-downloads", "--link-mode", _link_mode(job), "--python", job.python, "-r", lock,
        *uv.host_options(indexes.pip_settings(job)), *(["--offline"] if offline else []),
    ]  # fmt: skip
    done = programs.run(
        argv,
        what=f"installing the pip packages of {job.module}",
        log=job.paths.log,
        env=indexes.environment(job),
        check=not offline,
        hint="see the wheel named above",
    )
    return done.returncode == 0


def forget_times(site_packages: Path) -> None:
    """Remove uv's note of when a local wheel was written, and its line in RECORD: the same lock makes the same prefix.

    The rest of RECORD stays as it is. Files are replaced, never written into, since they may be links into the cache.
    """
    for note in site_packages.glob(f"*.dist-info/{_UV_NOTE}"):
        record = note.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        for path in (note, record):
            path.unlink()
        line = f"{note.parent.name}/{_UV_NOTE},"
        record.write_text("".join(each for each in lines if not each.startswith(line)), encoding="utf-8")


def _link_mode(job: Job) -> str:
    """uv's ``clone`` falls back to hard links by itself, so it is named only where blocks can be shared."""
    if not job.private_files:
        return "hardlink"
    return "clone" if disk.can_reflink(job.paths.root) else "copy"
