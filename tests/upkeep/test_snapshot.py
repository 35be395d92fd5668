"""A snapshot of a file system: its yard has the same inode numbers and times, and is another one all the same."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.others import same
from stackyard.yard.revision import revisions
from support import programs
from support.bindfs import bindfs
from support.cli import inside, stackyard

pytestmark = pytest.mark.real


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a file system in a file here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["sync", "-f", place], check=True)  # mount namespaces of other tests may keep it mounted
        subprocess.run(["umount", "-l", place], check=True)


@dataclass
class Bed:
    """A yard, and a snapshot of it."""

    yard: Yard
    snapshot: Yard


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    for name in ("mkfs.ext4", "lmod"):
        programs.need(name)
    image, copy, file = tmp_path / "image", tmp_path / "copy", tmp_path / "stack.yaml"
    monkeypatch.setattr(same, "_told_apart", set())
    file.write_text("name: own\nversion: '1'\nmodules: {variables: {WORD: a}}\n")
    with image.open("wb") as stream:
        stream.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted(image, tmp_path / "fs") as place:
        inside("--yard", place / "yard", "deploy", file)
    shutil.copy(image, copy)
    with ExitStack() as stack:
        here, there = (stack.enter_context(mounted(i, tmp_path / n)) for i, n in ((image, "fs"), (copy, "snapshot")))
        made = Bed(Yard(here / "yard"), Yard(there / "yard"))
        assert same._published(made.yard.root) == same._published(made.snapshot.root)
        yield made


def test_a_snapshot_is_built_again_where_it_lies(bed: Bed) -> None:
    before = sorted(bed.yard.root.rglob("*"))
    assert "would build own/1-py3-1" in stackyard("--yard", bed.snapshot.root, "move", "--here", "--dry-run").out
    killed = stackyard("--yard", bed.snapshot.root, "move", "--here", expect=None, STACKYARD_FAULT="move-verified")
    assert killed.code == -9
    stackyard("--yard", bed.snapshot.root, "move", "--here")
    assert sorted(bed.yard.root.rglob("*")) == before
    (entry,) = generations.entries(bed.snapshot)
    assert entry.folder.startswith(f"{bed.snapshot.root}/") and not bed.snapshot.former().root.exists()
    assert not stackyard("--yard", bed.snapshot.root, "list").err
    stackyard("--yard", bed.snapshot.root, "fsck")


def test_a_verb_that_writes_refuses_a_snapshot_as_a_copy(bed: Bed) -> None:
    (directory,) = (paths.root for paths in revisions.directories(bed.yard))
    said = stackyard("--yard", bed.snapshot.root, "remove", "own/1-py3-1", expect=1).err
    assert f"{bed.snapshot.root} is a copy of the yard {bed.yard.root}" in said and "move --here" in said
    assert directory.exists()
    assert not stackyard("--yard", bed.snapshot.root, "list").err, (
        "who only reads finds all by the path of the original"
    )


def test_a_second_mount_is_still_the_yard_itself(bed: Bed, tmp_path: Path) -> None:
    programs.need("bindfs")
    with bindfs(bed.yard.root, tmp_path / "again"):
        again = tmp_path / "again"
        assert again.stat().st_dev != bed.yard.root.stat().st_dev
        same.tell_apart(again, bed.yard.root)
        assert same.is_same(again, bed.yard.root)
        assert "nothing to do" in stackyard("--yard", again, "move", "--here", expect=2).err
    same.tell_apart(bed.snapshot.root, bed.yard.root)
    assert not same.is_same(bed.yard.root, bed.snapshot.root)
    assert not list(bed.yard.leases.glob("copy-*")) and not list(bed.snapshot.leases.glob("copy-*"))
