"""A flipped byte in any kind of file of a deployed yard is found: by `verify`, by `verify --deep`, or by its reader."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.verify.checks.content import check_files, look
from stackyard.verify.checks.yardfiles import check_yard
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record
from support.cli import stackyard
from support.plainwheel import write_wheel

STACK = """
name: demo
version: "1"
environment:
  channels: [{channel}]
  dependencies: [python=3.11, six, setuptools, wheel, {{pip: ["plain @ {wheel}", ./native]}}]
"""
PREFIX = {
    "a Python file of conda": "lib/python3.11/site-packages/six.py",
    "a Python file of a wheel": "lib/python3.11/site-packages/plain/__init__.py",
    "a Python file that was compiled from source": "lib/python3.11/site-packages/native.py",
    "a shared library": "lib/python3.11/lib-dynload/_json*.so",
    "the interpreter": "bin/python3.11",
    "a script": "bin/plain-script",
    "a file with the prefix in it": "lib/python3.11/_sysconfigdata__linux_x86_64-linux-gnu.py",
    "bytecode": "lib/python3.11/site-packages/__pycache__/six.cpython-311.pyc",
    "bytecode of this prefix": "lib/python3.11/__pycache__/_sysconfigdata__linux_x86_64-linux-gnu.cpython-311.pyc",
    "RECORD": "lib/python3.11/site-packages/plain-1.0.dist-info/RECORD",
    "METADATA": "lib/python3.11/site-packages/plain-1.0.dist-info/METADATA",
    "a record of conda": "conda-meta/six-*.json",
    "conda's mark": "conda-meta/frozen",
    "pip's mark": "lib/python3.11/EXTERNALLY-MANAGED",
    "a C header": "include/python3.11/Python.h",
}
REVISION = {
    "the lock of a revision": "lock/stack.lock",
    "the recipe of a revision": "recipe/stack.yaml",
    "the note of its files": "files.json",
    "its condarc": "condarc",
}
YARD = {
    "the record": "stacks/demo/*/record.json",
    "the copy of the record": "stacks/demo/*/record.spare.json",
    "the report": "stacks/demo/*/report.json",
    "the manifest": "generations/1/manifest.json",
    "a modulefile for Lmod": "generations/1/modules/demo/*-1.lua",
    "a modulefile for both": "generations/1/modules/demo/1-py311-1",
    "the short names for Lmod": "generations/1/modules/demo/.modulerc.lua",
    "the spider cache": "generations/1/modules/**/spiderT.lua",
    "a lock that the yard keeps": "locks/*.lock",
}
CACHES = {
    "an unpacked conda package": "conda/six-*/site-packages/six.py",
    "the listing of a conda package": "conda/six-*/info/paths.json",
    "an unpacked wheel": "uv/archive-v*/*/plain/__init__.py",
    "RECORD of an unpacked wheel": "uv/archive-v*/*/plain-1.0.dist-info/RECORD",
    "a compiled wheel": "wheels/*/*/*.whl",
    "the inputs of a compiled wheel": "wheels/*/*/meta.json",
    "cached bytecode": "bytecode/*/*/*/**/six.cpython-311.pyc",
    "the listing of bytecode": "bytecode/*/*/*/files.json",
    "a note on an entry": "notes/conda/six-*.json",
}


@dataclass(frozen=True)
class Scene:
    yard: Yard
    file: Path
    record: BuildRecord

    @property
    def paths(self) -> RevisionPaths:
        return RevisionPaths.of(self.record.path)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Scene:
    directory = tmp_path_factory.mktemp("bytes")
    (directory / "native").mkdir()
    (directory / "native/native.py").write_text("value = 1\n")
    (directory / "native/setup.py").write_text(
        "from setuptools import setup\nsetup(name='native', version='1.0', py_modules=['native'])\n"
    )
    source = "value = 1\n\n\ndef main():\n    print(value)\n"
    wheel = write_wheel(directory, "plain", source, "plain-script = plain:main")
    file = directory / "stack.yaml"
    file.write_text(STACK.format(channel=real_channel.as_uri(), wheel=wheel.as_uri()))
    yard = Yard(directory / "yard")
    stackyard("--yard", yard.root, "deploy", file, HOME=str(directory))
    (path,) = yard.stacks.glob("demo/*/record.json")
    return Scene(yard, file, read_record(path))


@contextmanager
def flipped(directory: Path, pattern: str, *, same_time: bool) -> Iterator[Path]:
    """One file with one other byte; as it was at the end."""
    path = min(directory.glob(pattern))
    before, data = path.stat(), path.read_bytes()
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    path.write_bytes(changed)
    if same_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    try:
        yield path
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def of_revision(scene: Scene, deep: bool) -> list[str]:
    checks = check_files(scene.record, look(scene.record), deep=deep)
    return [check.detail for check in checks if check.status == "failed"]


def of_yard(scene: Scene, deep: bool) -> list[str]:
    return [check.detail for check in check_yard(scene.yard, deep=deep).checks if check.status == "failed"]


Finder = Callable[[Scene, bool], list[str]]
KINDS: dict[str, tuple[str, Finder, bool]] = {
    **{name: (f"stacks/demo/*/prefix/{pattern}", of_revision, False) for name, pattern in PREFIX.items()},
    **{name: (f"stacks/demo/*/{pattern}", of_revision, False) for name, pattern in REVISION.items()},
    **{name: (pattern, of_yard, False) for name, pattern in YARD.items()},
    **{name: (f"cache/{pattern}", of_yard, True) for name, pattern in CACHES.items()},
}


def test_nothing_is_found_in_a_yard_that_is_whole(scene: Scene) -> None:
    for deep in (False, True):
        assert of_revision(scene, deep) == [] and of_yard(scene, deep) == []


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_byte_is_found(scene: Scene, name: str) -> None:
    pattern, find, only_deep = KINDS[name]
    with flipped(scene.yard.root, pattern, same_time=False) as path:
        (found,) = find(scene, only_deep)
        assert path.name in found or (find is of_yard and path.parent.name in found)
    with flipped(scene.yard.root, pattern, same_time=True):
        assert len(find(scene, True)) == 1  # so what was flipped before is as it was


def damage(path: Path) -> None:
    """One other byte, written into the file itself: in all its hard links."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def state(scene: Scene) -> dict[str, tuple[int, int, bytes | str]]:
    """Every file of the revision: mode, time and bytes; without the time of what is beside the prefix."""
    found = {}
    for path in scene.paths.root.rglob("*"):
        name, status = path.relative_to(scene.paths.root).as_posix(), path.lstat()
        if path.is_symlink():
            found[name] = (0, 0, str(path.readlink()))
        elif path.is_file() and not name.startswith(("report.", "build.log")):
            found[name] = (status.st_mode, status.st_mtime_ns if "/" in name else 0, path.read_bytes())
        elif path.is_dir():
            found[name] = (status.st_mode, 0, "")
    return found


def test_damaged_files_become_what_they_were(scene: Scene) -> None:
    """Of every kind at once, with lost, added and changed ones; shared files are damaged in the caches too."""
    before = state(scene)
    prefix = scene.paths.prefix
    for pattern in PREFIX.values():
        damage(min(prefix.glob(pattern)))
    for name in ("lock/stack.lock", "recipe/stack.yaml"):
        damage(scene.paths.root / name)
    (prefix / "lib/python3.11/abc.py").unlink()
    (prefix / "lib/python3.11/site-packages/added.pth").write_text("import os\n")
    (prefix / "bin/python").unlink()
    (prefix / "bin/python").symlink_to("/bin/sh")
    (prefix / "bin/python3.11").chmod(0o644)
    inode = (prefix / "include/python3.11/Python.h").stat().st_ino
    os.truncate(min(prefix.glob("conda-meta/wheel-*.json")), 100)
    (prefix / "lib/added").mkdir()
    (prefix / os.fsdecode(b"lib/added/\xff")).write_text("not UTF-8")
    assert "prefix/bin/plain-script has changed" in stackyard("--yard", scene.yard.root, "verify", "demo", expect=3).out
    for path in (scene.paths.record, scene.paths.module):
        damage(path)
    scene.paths.condarc.unlink()
    assert "record.json" in stackyard("--yard", scene.yard.root, "verify", "demo", expect=3).out
    done = stackyard("--yard", scene.yard.root, "verify", "--repair", "demo", HOME=str(scene.file.parent))
    assert "demo/1-py311-1: restored" in done.err and "damaged in the cache" in done.err
    assert state(scene) == before
    assert (prefix / "include/python3.11/Python.h").stat().st_ino != inode, "nothing is written into a shared file"
    assert of_revision(scene, True) == [] and of_yard(scene, True) == []
    assert not list(scene.yard.stacks.glob("demo/.*"))


def test_modulefiles_are_restored_and_damaged_cache_entries_discarded(scene: Scene) -> None:
    for pattern in CACHES.values():
        damage(min(scene.yard.cache.glob(pattern)))
    found = stackyard("--yard", scene.yard.root, "verify", "--deep", expect=3, HOME=str(scene.file.parent)).out
    assert "failed: caches: " in found and "six.py has changed" in found
    manifest = generations.current(scene.yard)
    assert manifest is not None
    damage(min(scene.yard.modules.glob("demo/*-1.lua")))
    done = stackyard("--yard", scene.yard.root, "verify", "--repair", HOME=str(scene.file.parent))
    assert "discarded: " in done.err and "restored: " in done.err
    assert of_revision(scene, True) == [] and of_yard(scene, True) == []
    now = generations.current(scene.yard)
    past = [each.reason for each in generations.readable(scene.yard)]
    assert (
        now is not None
        and now.files == manifest.files
        and past[:2] == ["verified demo/1-py311-1", "modulefiles restored"]
    )


@pytest.mark.long
def test_what_cannot_be_made_again_becomes_the_next_revision(scene: Scene) -> None:
    """A compiled wheel that no cache has: another compilation may give other bytes."""
    shutil.rmtree(scene.yard.wheels)
    shutil.rmtree(scene.yard.uv)
    damage(scene.paths.prefix / PREFIX["a Python file that was compiled from source"])
    done = stackyard("--yard", scene.yard.root, "verify", "--repair", "demo", expect=3, HOME=str(scene.file.parent))
    assert "cannot make again as it was: prefix/lib/python3.11/site-packages/native.py" in done.err
    assert f"`stackyard deploy {scene.file}` builds the next revision" in done.err
    done = stackyard("--yard", scene.yard.root, "deploy", scene.file, HOME=str(scene.file.parent))
    assert "demo/1-py311-2" in done.out
    assert [
        row["module"] for row in stackyard("--yard", scene.yard.root, "list", "--json").value if row["default"]
    ] == ["demo/1-py311-2"]
