"""An entry of a cache that is not what it was is discarded with a notice, and made again from what is locked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from buildbed import PROJECT, build, conda_packages, locked, sdist

from stackyard.core.errors import StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.yard.cache.audit import audit
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from support.channel import Package, make_channel

FILES = {
    "conda": ("conda/tool-1.0-0/share/tool.txt", "share/tool.txt"),
    "listing": ("conda/tool-1.0-0/info/paths.json", "share/tool.txt"),
    "uv": ("uv/archive-v*/*/plain.py", "lib/python*/site-packages/plain.py"),
    "RECORD": ("uv/archive-v*/*/plain-1.0.dist-info/RECORD", "lib/python*/site-packages/plain-1.0.dist-info/RECORD"),
    "bytecode": ("bytecode/*/*/*/**/plain.*.pyc", "lib/python*/site-packages/__pycache__/plain.*.pyc"),
    "bytecode's listing": ("bytecode/*/*/*/**/plain.*.pyc", "lib/python*/site-packages/__pycache__/plain.*.pyc"),
}


@pytest.fixture
def yard(built: Yard, tmp_path: Path) -> Yard:
    os.system(f"cp -a {built.root} {tmp_path}/yard")
    return Yard(tmp_path / "yard")


def only(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def again(yard: Yard, small: LockedVariant) -> tuple[BuildRecord, list[str]]:
    progress = SilentProgress()
    return build(yard, small, directory="1.0-py311-2", progress=progress), progress.notices


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_entry_is_made_again(
    yard: Yard, built: Yard, small: LockedVariant, name: str, damage: Callable[[Path], None]
) -> None:
    cached, installed = FILES[name]
    path = only(yard.cache, cached)
    if name == "bytecode's listing":
        path = next(directory / "files.json" for directory in path.parents if (directory / "files.json").exists())
    damage(path)
    assert audit(yard)
    record, notices = again(yard, small)
    assert any(notice.startswith("damaged in the cache") and str(yard.cache) in notice for notice in notices)
    right = only(built.root, f"stacks/demo/1.0-py311-1/prefix/{installed}").read_bytes()
    assert only(Path(record.prefix), installed).read_bytes() == right
    assert audit(yard) == []


@pytest.mark.parametrize("damage", [flip, truncate])
def test_what_uv_notes_of_an_entry_is_forgotten_where_it_is_damaged(
    yard: Yard, small: LockedVariant, damage: Callable[[Path], None]
) -> None:
    for path in yard.uv.glob("wheels-v*/**/*.rev"):
        damage(path)
    record, notices = again(yard, small)
    assert only(Path(record.prefix), FILES["uv"][1]).read_text() == "value = 1\n"
    assert [notice.partition(",")[0] for notice in notices] == ["damaged in the cache"]


@pytest.mark.parametrize("name", ["conda", "uv", "bytecode"])
def test_one_that_an_earlier_version_made_is_compared_with_its_own_listing(
    yard: Yard, small: LockedVariant, name: str
) -> None:
    shutil.rmtree(yard.notes)
    flip(only(yard.cache, FILES[name][0]))
    assert len(again(yard, small)[1]) == 1
    assert audit(yard) == [] and sorted(child.name for child in yard.notes.iterdir()) == ["bytecode", "conda", "uv"]


def test_what_is_whole_is_not_read_again(yard: Yard, small: LockedVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("stackyard.yard.revision.contents.sha256_file", lambda path: read.append(str(path)) or "0")
    assert again(yard, small)[1] == []
    linked = ("share/tool.txt", "plain.py", "METADATA", ".pyc")
    assert read and not [name for name in read if name.endswith(linked)]


def test_cached_files_and_the_prefix_are_read_only(yard: Yard) -> None:
    files = [path for path in (*yard.conda.rglob("*"), *yard.bytecode.rglob("*")) if path.is_file()]
    files += [path for path in yard.uv.glob("archive-v*/*/**/*") if path.is_file() and path.name != "RECORD"]
    prefix = yard.revision("demo", "1.0-py311-1").prefix
    files += [prefix, *(path for path in prefix.rglob("*") if not path.is_symlink())]
    writable = {path.relative_to(yard.root).as_posix() for path in files if path.stat().st_mode & 0o222}
    assert len(files) > 20 and {Path(name).suffix for name in writable} == {".lock"}


@pytest.mark.parametrize("cached", [False, True])
def test_a_link_script_that_writes_into_a_shared_file_fails_the_build(tmp_path: Path, cached: bool) -> None:
    """Root ignores modes, so the script can."""
    script = 'echo more >> "$PREFIX/share/tool.txt"\n'
    plain = Package("tool", "1.0", files={"share/tool.txt": "one\n"})
    bad = Package("bad", "1.0", files={"bin/.bad-post-link.sh": (script, 0o755)}, depends=("tool",))
    packages = conda_packages(make_channel(tmp_path / "channel", [plain, bad]))
    yard = Yard(tmp_path / "yard")
    if cached:
        build(yard, locked(p for p in packages if p.name == "tool"))
    with pytest.raises(StackyardError, match=r"wrote into a file .*/tool-1.0-0/share/tool.txt has"):
        build(yard, locked(packages), directory="1.0-py311-2")
    progress = SilentProgress()
    record = build(yard, locked(p for p in packages if p.name == "tool"), directory="1.0-py311-3", progress=progress)
    assert len(progress.notices) == 1
    assert Path(record.prefix, "share/tool.txt").read_text() == "one\n"


def test_a_damaged_wheel_is_compiled_again_and_a_source_fetched_again(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    variant = locked(pip=[sdist(tmp_path / "s", PROJECT)])
    build(yard, variant)
    for pattern in ("wheels/*/*/*.whl", "sources/*/*"):
        truncate(only(yard.cache, pattern))
    progress = SilentProgress()
    build(yard, variant, directory="1.0-py311-2", progress=progress)
    assert [notice.partition(":")[0] for notice in progress.notices] == [
        "damaged in the cache, so compiled again",
        "damaged in the cache, so fetched again",
    ]
    flip(only(yard.cache, "wheels/*/*/meta.json"))
    build(yard, variant, directory="1.0-py311-3", progress=progress)
    assert len(progress.notices) == 3 and audit(yard) == []


def test_a_post_script_can_write_into_the_files_of_the_prefix(tmp_path: Path, small: LockedVariant) -> None:
    from stackyard.inputs.models import Variant

    yard, script = Yard(tmp_path / "yard"), tmp_path / "post.sh"
    script.write_text('test -w "$PREFIX/share/tool.txt" && echo two >> "$PREFIX/share/tool.txt"\n')
    build(yard, small)
    variant = Variant(stack="demo", version="1.0", name="py311", post=str(script))
    record = build(yard, small, variant, directory="1.0-py311-2")
    path = Path(record.prefix, "share/tool.txt")
    assert path.read_text() == "one\ntwo\n" and not path.stat().st_mode & 0o222
    assert audit(yard) == []
    value = json.loads(Path(record.path, "files.json").read_text())
    assert value["files"]["prefix/share"]["tool.txt"][1] == 8


def test_a_build_in_another_yard_takes_nobodys_right_to_read(yard: Yard, small: LockedVariant, tmp_path: Path) -> None:
    """Files of the same account are linked, so their modes are those of the yard that they were made in."""
    os.system(f"chmod -R o+rX {yard.root}")
    before = {path: path.lstat().st_mode for path in yard.root.rglob("*")}
    own = Yard(tmp_path / "own", yard)
    own.root.mkdir(mode=0o750)
    record = build(own, small, directory="1.0-py311-2")
    path = only(Path(record.prefix), FILES["uv"][1])
    assert path.stat().st_ino == only(yard.root, f"stacks/*/*/prefix/{FILES['uv'][1]}").stat().st_ino
    assert {path: path.lstat().st_mode for path in before} == before
    assert Path(record.prefix).stat().st_mode & 0o007 == 0
    assert audit(own) == []
