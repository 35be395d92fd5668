"""The shared conda channel of the tests: this machine's CPython and some thirty packages, made once and kept.

It is kept in ``.cache/testbed`` (or ``$STACKYARD_TESTBED``) under a name that holds the hash of everything it is made
from, and put there by a rename; so several test processes and later runs share it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from stackyard.core.errors import MissingError
from stackyard.host.run.command import CommandError, run
from support.channel import JANUARY_2024_MS, Package, make_channel
from support.pythonpkg import FULL_VERSION, python_package
from support.wheelpkg import package_from_wheel

HERE = Path(__file__).parent
DAY_MS = 86_400_000


def cache_directory() -> Path:
    """Where made things are kept between runs."""
    directory = Path(os.environ.get("STACKYARD_TESTBED") or HERE.parents[1] / ".cache" / "testbed")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def kept(name: str, inputs: list[Path], make: Callable[[Path], object]) -> Path:
    """A directory that `make` fills once for these inputs; later calls, also in other processes, return it at once.

    Args:
        name: what it is called in the cache.
        inputs: files whose content decides whether it must be made again.
        make: called with an empty directory.
    """
    digest = hashlib.sha256(f"{sys.base_prefix} {sys.version}".encode())
    for path in inputs:
        digest.update(path.read_bytes())
    directory = cache_directory() / f"{name}-{digest.hexdigest()[:12]}"
    if directory.is_dir():
        return directory
    with FileLock(f"{directory}.lock"):
        if not directory.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache_directory()))
            try:
                make(scratch)
                scratch.chmod(0o755)
                scratch.rename(directory)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return directory


def real_channel() -> Path:
    """The shared channel: ``python`` and the distributions of ``wheels.txt``, real and installable.

    Raises:
        MissingError: the interpreter cannot be moved, or the package index cannot be reached.
    """
    own = [HERE / f"{stem}.py" for stem in ("archive", "channel", "pythonpkg", "testbed", "wheelpkg")]
    return kept("channel", [*own, HERE / "wheels.txt", HERE / "wheels-older.txt"], _make_real_channel)


def wheels(requirements: Path) -> Path:
    """A directory with the wheels of a requirements file, fetched by pip with the machine's own configuration.

    Raises:
        MissingError: pip could not fetch one; its own words are in the detail.
    """
    return kept(requirements.stem, [requirements], lambda directory: _download(requirements, directory))


def python_packages() -> Iterator[Package]:
    """The packages of the shared channel apart from ``python``; older releases are a year older."""
    for name, timestamp in (("wheels.txt", JANUARY_2024_MS), ("wheels-older.txt", JANUARY_2024_MS - 365 * DAY_MS)):
        for wheel in sorted(wheels(HERE / name).glob("*.whl")):
            yield package_from_wheel(wheel, timestamp)


def _make_real_channel(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        make_channel(directory, [python_package(Path(work)), *python_packages()])


def _download(requirements: Path, directory: Path) -> None:
    argv = [sys.executable, "-m", "pip", "--no-input", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        run([*argv, "--dest", directory, "--requirement", requirements], timeout_s=600)
    except CommandError as error:
        raise MissingError(
            f"the wheels of {requirements.name} for Python {FULL_VERSION} could not be fetched",
            hint="the tests need a package index; pip's configuration (pip.conf, PIP_*) is used",
            detail=error.detail,
        ) from error
