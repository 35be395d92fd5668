"""What builds of one yard that run at the same time do to each other: nothing. Each case is one moment of the race."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from buildbed import build

from stackyard.core.progress import SilentProgress
from stackyard.host.files.hashing import sha256_file
from stackyard.inputs.models import Site, Variant
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.make import builder, fetch
from stackyard.make import cache_adoption as adopt
from stackyard.make.bytecode import cache as bytecode
from stackyard.make.bytecode.pyfiles import Unit
from stackyard.make.conda import install as conda
from stackyard.make.conda import unpack
from stackyard.make.job import Job
from stackyard.make.wheels import cached, uvcache
from stackyard.make.wheels import install as pip
from stackyard.yard.cache.caches import CONDA
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import lease


@pytest.fixture
def job(built: Yard, small: LockedVariant, tmp_path: Path) -> Callable[[], Job]:
    """A build in a yard below the parent's."""
    yard = Yard(tmp_path / "own", built)
    variant = Variant(stack="demo", version="1.0", name="py311")
    return lambda: Job(
        Site(), yard, variant, small, RevisionPaths(yard.root / "stacks/demo/1"), "demo/1", SilentProgress()
    )


def test_a_link_that_another_build_uses_stays(job: Callable[[], Job]) -> None:
    first, second = job(), job()
    conda.package_cache(first)
    place = first.yard.package("tool-1.0-0")
    before = place.lstat().st_ctime_ns
    conda.package_cache(second)
    assert place.is_symlink() and place.lstat().st_ctime_ns == before


@pytest.mark.parametrize("target", ["/nowhere", "."])
def test_a_link_that_leads_elsewhere_is_replaced(job: Callable[[], Job], built: Yard, target: str) -> None:
    first = job()
    place = first.yard.package("tool-1.0-0")
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    conda.package_cache(first)
    assert place.resolve() == built.package("tool-1.0-0").resolve()


def test_a_link_to_what_the_parent_lost_is_removed(job: Callable[[], Job], small: LockedVariant) -> None:
    first = job()
    place = first.yard.package("tool-1.0-0")
    place.parent.mkdir(parents=True)
    place.symlink_to("/nowhere")
    unpack.write_note(first.yard, small.conda[0])
    conda.package_cache(Job(**{**vars(first), "yard": Yard(first.yard.root)}))
    assert not os.path.lexists(place)


def test_a_package_that_another_build_unpacked_first_stays(
    job: Callable[[], Job], small: LockedVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    first = Job(**{**vars(job()), "yard": Yard(job().yard.root)})
    place = first.yard.package("tool-1.0-0")
    place.parent.mkdir(parents=True)

    def other(point: str) -> None:
        if point != "cache":
            return
        place.mkdir()
        unpack.write_note(first.yard, small.conda[0])

    monkeypatch.setattr(unpack.atomic, "fault_point", other)
    asyncio.run(unpack.unpack(first, small.conda, None))  # type: ignore[arg-type]
    assert list(place.iterdir()) == [] and sorted(os.listdir(place.parent)) == ["tool-1.0-0", "tool-1.0-0.lock"]


def test_a_build_that_fails_waits_for_no_other(
    job: Callable[[], Job], small: LockedVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two whose disk is full would wait for each other's packages for ever."""
    import asyncio

    first = job()
    mine, theirs = small.conda[0], replace(small.conda[0], name="other")
    others = fetch.fetching(first.yard, theirs.stem)

    async def fails(_: object, package: CondaPackage, *__: object) -> None:
        assert package is mine
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(unpack, "_unpack", fails)
    with others, pytest.raises(OSError, match="No space left"):
        asyncio.run(unpack.unpack(first, [theirs, mine], None))  # type: ignore[arg-type]
    with fetch.fetching(first.yard, mine.stem):
        pass  # it was given back


def test_a_wheel_that_another_build_took_first(job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch) -> None:
    first = job()
    wheels_of = [pip.Wheel.of(package) for package in first.locked.pip]

    def other(_: str) -> None:
        monkeypatch.undo()
        uvcache.take_from_parents(job(), wheels_of)

    monkeypatch.setattr(uvcache, "fault_point", other)
    uvcache.take_from_parents(first, wheels_of)
    assert uvcache.held(first.uv_cache, wheels_of) == set(wheels_of)


def test_bytecode_that_another_build_compiled_first_is_what_is_linked(tmp_path: Path) -> None:
    unit = Unit("ab" * 32, ("a.py", "b.py"), (), ())
    place = bytecode._Place(unit, tmp_path / "store", False)
    for store, private in ((place.store, ["b.py"]), (bytecode.temporary(place.store), [])):
        (store / "__pycache__").mkdir(parents=True)
        listing = {"shared": ["a.py"], "failed": [], "private": private}
        (store / "files.json").write_text(json.dumps(listing))
    job: Any = SimpleNamespace(entries=SimpleNamespace(added=lambda *_: None))
    done = bytecode._finish(job, place, "cpython-311", set(), set())
    assert done.unit == Unit(unit.sha256, ("a.py",), (), ("b.py",))
    shutil.rmtree(place.store)


def test_a_wheel_that_another_account_compiled_is_found(tmp_path: Path) -> None:
    yard = Yard(tmp_path, account="4711")
    directory = yard.wheel("abcdef" + "0" * 58)
    directory.mkdir(parents=True)
    (directory / "x-1.0-py3-none-any.whl").write_bytes(b"x")
    digest = sha256_file(directory / "x-1.0-py3-none-any.whl")
    meta = {"wheel": "x-1.0-py3-none-any.whl", "sha256": digest, "prefix": ""}
    (directory / "meta.json").write_text(json.dumps(meta))
    package = PipPackage("x", "1.0", "sdist", "https://h/x-1.0.tar.gz", "cd" * 32)
    found = cached.kept(Yard(tmp_path), package, "abcdef000000", "/p")
    assert found is not None and found.sha256 == digest


@pytest.mark.parametrize(("number", "raises"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_what_cannot_be_copied_leaves_nothing(
    job: Callable[[], Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raises: bool
) -> None:
    def fail(_: Path, target: Path, *__: object, **___: object) -> None:
        target.mkdir()
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(adopt.disk, "copy_tree", fail)
    building = job()
    entries = building.yard.root / "entries"
    entries.mkdir(parents=True)
    with pytest.raises(OSError) if raises else nullcontext():
        assert not adopt.adopt(building, CONDA, tmp_path, entries / "one")
    assert list(entries.iterdir()) == []


def test_a_failed_build_gives_its_lease_back_where_nothing_can_be_removed(
    small: LockedVariant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Job) -> None:
        raise OSError(errno.EIO, "not now")

    def full(_: object) -> None:
        monkeypatch.setattr(builder, "_clear", refuse)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(builder._Steps, "run", full)
    yard = Yard(tmp_path / "yard")
    with pytest.raises(OSError, match="full"):
        build(yard, small)
    assert lease.latest(yard.revision("demo", "1.0-py311-1").building).is_free
