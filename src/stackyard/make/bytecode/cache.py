"""Bytecode, compiled once per package and Python version, kept in the cache and linked into every prefix.

The files carry an unchecked source hash (PEP 552): Python uses them without comparing the source's time stamp, so they
are valid under every hard link and copy, and immutable like the prefix itself. They do not contain the prefix: a file
whose text was changed for the prefix, that two packages bring, or that a post script wrote, is compiled in place.

    cache/bytecode/<cache tag>-<magic>/<2 digits>/<sha256 of the package>/{files.json, lib/.../__pycache__/*.pyc}

`files.json` is written before the directory gets its final name, so a directory with its final name is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files.scratch import scratch
from stackyard.make import programs
from stackyard.make.bytecode.pyfiles import InstalledFiles, Unit
from stackyard.make.cache_adoption import adopt
from stackyard.make.job import Job, cores
from stackyard.make.layer import ground
from stackyard.make.wheels.install import Wheel
from stackyard.yard import checksum, disk, formats
from stackyard.yard.cache.caches import BYTECODE, content_hash, may_look_into, searched
from stackyard.yard.write.atomic import fault_point, rename_directory, temporary, write_json

_WORKER = Path(__file__).with_name("bytecode_worker.py")
_BATCH = 2000  # files per run of the worker: what a kill can cost
_OLDEST = (3, 7)  # PEP 552


@dataclass(frozen=True)
class _Place:
    """A package and the path of its bytecode in a cache; `ready`: the bytecode exists."""

    unit: Unit
    store: Path
    ready: bool


def add(job: Job, wheels: Sequence[Wheel], touched: Iterable[str] = ()) -> list[str]:
    """Give every Python file of the prefix its bytecode.

    Args:
        wheels: the installed wheels.
        touched: Python files, relative to the prefix, that a post script wrote.

    Returns:
        The files that cannot be compiled: Python 2, templates, dangling links.
    """
    if not job.python_version:
        return []
    if tuple(int(n) for n in job.python_version.split(".")[:2]) < _OLDEST:
        job.progress.notice(f"{job.module}: no bytecode compiled: Python {job.python_version} lacks PEP 552")
        return []
    tag, magic = _identity(job)
    places = list(_places(job, f"{tag}-{magic}", wheels))
    own = _claimed_twice(place.unit for place in places) | set(touched)
    places = _compile_missing(job, tag, places, own)
    for place in places:
        _link(job, tag, place, own)
    private = sorted({p for place in places for p in place.unit.private} | own)
    return [*(name for place in places for name in place.unit.failed), *_in_place(job, tag, private)]


def pyc(name: str, tag: str) -> str:
    """The bytecode file of a source file: ``a/b.py`` has ``a/__pycache__/b.cpython-311.pyc``."""
    directory, _, file = name.rpartition("/")
    return f"{directory}/__pycache__/{file[:-3]}.{tag}.pyc".lstrip("/")


def _identity(job: Job) -> tuple[str, str]:
    """The interpreter's cache tag and magic number, e.g. ``cpython-311`` and ``a70d0d0a``; a layer has its base's."""
    if inherited := ground(job).bytecode:
        return inherited
    code = "import sys,importlib.util as u;print(sys.implementation.cache_tag,u.MAGIC_NUMBER.hex())"
    argv: programs.Argv = [job.python, "-I", "-S", "-c", code]
    result = programs.run(argv, what="reading Python's bytecode version", log=job.paths.log, timeout_s=50)
    tag, magic = result.stdout.split()
    return tag, magic


def _places(job: Job, version: str, wheels: Sequence[Wheel]) -> Iterator[_Place]:
    """Every package with its bytecode: from the cache of this yard or of a parent, else to be compiled."""
    installed = InstalledFiles(job.prefix, job.site_packages)
    for package in job.locked.conda:
        yield _cached(job, version, package.sha256) or _new(job, version, installed.conda(package.stem, package.sha256))
    for wheel in wheels:
        yield _cached(job, version, wheel.sha256) or _new(job, version, installed.wheel(wheel.name, wheel.sha256))


def _new(job: Job, version: str, unit: Unit) -> _Place:
    return _Place(unit, job.yard.bytecode_of(version, unit.sha256), False)


def _cached(job: Job, version: str, sha256: str) -> _Place | None:
    for yard in searched(job.yard):
        store = yard.bytecode_of(version, sha256)
        if not may_look_into(store):
            continue
        value = _listing(store) if job.entries.is_good(BYTECODE, store, yard) else None
        if value is not None:
            unit = _unit(sha256, value)
            own = job.yard.bytecode_of(version, sha256)
            if yard == job.yard or job.private_files or disk.can_link(store / "files.json", job.work):
                return _Place(unit, store, True)
            if adopt(job, BYTECODE, store, own):
                job.entries.added(BYTECODE, [own])
                return _Place(unit, own, True)
        if yard == job.yard:
            BYTECODE.discard(store, job.yard)
    return None


def _listing(store: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = formats.content(checksum.read(store / "files.json"))
    except (OSError, ValueError):
        return None
    return value


def _unit(sha256: str, listing: Mapping[str, Any]) -> Unit:
    return Unit(sha256, *(tuple(listing[key]) for key in ("shared", "failed", "private")))


def _claimed_twice(units: Iterable[Unit]) -> set[str]:
    """Files that more than one package installs."""
    count = Counter(name for unit in units for name in (*unit.shared, *unit.failed, *unit.private))
    return {name for name, number in count.items() if number > 1}


# --------------------------------------------------------------------------- compiling


def _compile_missing(job: Job, tag: str, places: Sequence[_Place], own: set[str]) -> list[_Place]:
    """Compile missing bytecode, in batches; returns all places, now ready."""
    done = [place for place in places if place.ready]
    missing = [place for place in places if not place.ready]
    total, count = sum(len(p.unit.shared) for p in missing), 0

    def tell(more: int) -> None:
        job.progress.advance(job.module, count + more, total, "files compiled")

    for batch in _batches(missing):
        fault_point("bytecode")
        done += [_finish(job, place, tag, failed, own) for place, failed in _run_worker(job, tag, batch, own, tell)]
        count += sum(len(p.unit.shared) for p in batch)
        tell(0)
    return done


def _batches(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    batch: list[_Place] = []
    files = 0
    for place in places:
        batch.append(place)
        files += len(place.unit.shared)
        if files >= _BATCH:
            yield batch
            batch, files = [], 0
    if batch:
        yield batch


def _run_worker(
    job: Job, tag: str, batch: Sequence[_Place], own: set[str], tell: Callable[[int], None]
) -> list[tuple[_Place, set[str]]]:
    """Compile a batch beside its final places; return each with the files that failed."""
    tasks = []
    for place in batch:
        directory = temporary(place.store)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        tasks += [(str(directory / pyc(n, tag)), str(job.prefix / n), n) for n in place.unit.shared if n not in own]
    failed = set(compile_files(job, tasks, tell))
    return [(place, failed.intersection(place.unit.shared)) for place in batch]


def compile_files(
    job: Job, tasks: Sequence[tuple[str, str, str]], tell: Callable[[int], object] = lambda _: None
) -> list[str]:
    """Compile (target, source, name) triples with the prefix's Python; return the names that cannot be compiled.

    Args:
        tell: is called with the number of files that are finished, several times a second.
    """
    if not tasks:
        return []
    argv: programs.Argv = [job.python, "-I", "-S", "-B", _WORKER]
    with scratch("bytecode") as directory:
        count = directory / "count"
        count.touch()
        order = json.dumps({"workers": min(cores(), 1 + len(tasks) // 64), "count": str(count), "tasks": tasks})
        result = programs.run(
            argv, what=f"compiling the bytecode of {job.module}", log=job.paths.log, stdin=order,
            watch=lambda: tell(int(count.read_text() or 0)),
        )  # fmt: skip
    names: list[str] = json.loads(result.stdout.splitlines()[-1])
    return names


def _finish(job: Job, place: _Place, tag: str, failed: set[str], own: set[str]) -> _Place:
    """Move a compiled package to its place in the cache, unless another process was faster."""
    shared = set(place.unit.shared) - failed - own
    private = {*place.unit.private, *(own.intersection(place.unit.shared))}
    unit = Unit(place.unit.sha256, *(tuple(sorted(names)) for names in (shared, failed, private)))
    path = temporary(place.store)
    files = [pyc(name, tag) for name in unit.shared]
    value = {"sha256": unit.sha256, "shared": unit.shared, "failed": unit.failed, "private": unit.private}
    listing = {**value, "files": files, "content": content_hash(path, files)}
    write_json(path / "files.json", listing, checked=True)
    fault_point("cache")
    try:
        rename_directory(path, place.store)
    except OSError:
        shutil.rmtree(path)
        present = _listing(place.store)
        if present is None:
            raise
        unit = _unit(unit.sha256, present)
    job.entries.added(BYTECODE, [place.store])
    return _Place(unit, place.store, True)


def _in_place(job: Job, tag: str, names: Sequence[str]) -> list[str]:
    """Compile files whose bytecode is valid for this prefix only."""
    there = [name for name in names if (job.prefix / name).is_file()]
    for directory in {pyc(name, tag).rpartition("/")[0] for name in there}:
        _require_inside(job.prefix, directory)
    for name in there:
        (job.prefix / pyc(name, tag)).unlink(missing_ok=True)
    return compile_files(job, [(str(job.prefix / pyc(n, tag)), str(job.prefix / n), n) for n in there])


# --------------------------------------------------------------------------- linking


def _link(job: Job, tag: str, place: _Place, own: set[str]) -> None:
    """Link one package's bytecode into the prefix."""
    prefix, store = os.fspath(job.prefix), os.fspath(place.store)
    directories: set[str] = set()
    for name in place.unit.shared:
        if name in own:
            continue
        file = pyc(name, tag)
        directory = file.rpartition("/")[0]
        if directory not in directories:
            _require_inside(job.prefix, directory)
            Path(prefix, directory).mkdir(parents=True, exist_ok=True)
            directories.add(directory)
        _replace(f"{store}/{file}", f"{prefix}/{file}", link=not job.private_files)
    fault_point("link")


def _require_inside(prefix: Path, directory: str) -> None:
    """Raise StackyardError if a package has a link in place of a bytecode directory."""
    place = prefix / directory
    if not place.resolve().is_relative_to(prefix.resolve()):
        raise StackyardError(
            f"{place} is a symbolic link that leads out of the prefix: {place.resolve()}",
            hint="leave out the package that brings it",
        )


def _replace(source: str, target: str, *, link: bool) -> None:
    try:
        disk.link_or_copy(source, target, link=link)
    except FileExistsError:  # written by an import while something was compiled
        Path(target).unlink()
        disk.link_or_copy(source, target, link=link)
