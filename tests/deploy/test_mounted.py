"""A yard on a file system that is full, or that this host mounts read-only: what is wrong, and what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import reserve
from support import smallyard
from support.accounts import Account, Accounts
from support.cli import Done

OLD = "tool/1.0-py311-1"


@pytest.fixture
def place(common: Path) -> Iterator[Path]:
    directory = common / "fs"
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"cannot mount a file system here: {made.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


@pytest.fixture
def anna(accounts: Accounts, place: Path) -> Account:
    """The owner of a yard there."""
    made = accounts.user("anna")
    smallyard.make(place / "yard", "1.0", "2.0")
    subprocess.run(["chown", "-R", f"{made.uid}:{made.gid}", place], check=True)
    return made


WRITING = (
    ("remove", OLD), ("gc",), ("rollback",), ("default", OLD), ("retire", OLD, "--on", "2030-01-01"), ("withdraw", OLD),
    ("fsck", "--repair"), ("share", OLD, "--with", "group:{own}"),
)  # fmt: skip


@pytest.mark.parametrize("words", WRITING, ids=lambda words: words[0])
def test_the_owner_is_told_that_it_is_mounted_read_only(anna: Account, place: Path, words: tuple[str, ...]) -> None:
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    own = [word.format(own=anna.name) for word in words]
    said = anna.stackyard("--yard", place / "yard", *own, expect=1).err
    assert "its file system is mounted read-only here\n  hint: use a host that may write there" in said
    assert "2.0" in anna.stackyard("--yard", place / "yard", "list").out


FILE_SYSTEMS = {
    "ext4": "truncate -s 8M {image} && mkfs.ext4 -q -m 0 -N 1024 {image} && mount -o loop {image} {place}",
    "tmpfs": "mount -t tmpfs -o size=4m,nr_inodes=1024 tmpfs {place}",
}


@pytest.fixture
def full(accounts: Accounts, common: Path, request: pytest.FixtureRequest) -> Iterator[Full]:
    """A small file system with a yard of anna's, to be filled."""
    kind, what = request.param
    directory = common / "fs"
    directory.mkdir()
    command = FILE_SYSTEMS[kind].format(image=common / "image", place=directory)
    made = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot make a file system here: {made.stderr.strip()}")
    smallyard.make(directory / "yard", "1.0", "2.0", "3.0")
    yield Full(accounts.user("anna"), directory, what)
    subprocess.run(["umount", "-l", directory], check=True)


@dataclass(frozen=True)
class Full:
    """A file system that is full of bytes, or of files."""

    owner: Account
    place: Path
    what: str

    @property
    def yard(self) -> Yard:
        """The yard on it."""
        return Yard(self.place / "yard")

    def fill(self, *, reserved: bool) -> None:
        """Fill it to the last byte or file."""
        shutil.rmtree(self.place / "fill", ignore_errors=True)
        reserve.keep(self.yard) if reserved else reserve.give_up(self.yard)
        (self.place / "fill").mkdir()
        with suppress(OSError):
            for number in range(10_000):
                (self.place / "fill" / str(number)).write_bytes(b"" if self.what == "files" else os.urandom(65536))
        with suppress(OSError), (self.place / "fill" / "0").open("ab", buffering=0) as stream:
            while self.what == "bytes":
                stream.write(b"x" * 512)
        subprocess.run(["chown", "-R", f"{self.owner.uid}:{self.owner.gid}", self.place], check=True)

    def run(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        """Run `stackyard WORDS...` for the yard as its owner."""
        site = {"STACKYARD_SITE": str(of_no_closed_homes(self.place.parent))}
        return self.owner.stackyard("--yard", self.yard.root, *words, expect=expect, **site, **variables)

    @property
    def files(self) -> int:
        """How many files and directories there is room for."""
        return os.statvfs(self.place).f_favail


def of_no_closed_homes(place: Path) -> Path:
    """A site where users' yards are not in homes: accounts of tests beside this one have closed ones."""
    file = place / "site.yaml"
    file.write_text(f"user_yard: {place}/users/$USER/yard\n")
    return file


on_full = pytest.mark.parametrize(
    "full", [("ext4", "bytes"), ("tmpfs", "files")], indirect=True, ids=["no bytes", "no files"]
)


@on_full
def test_removing_works_on_a_full_file_system(full: Full) -> None:
    """By the room that the yard has for it; killed while that is given up, it goes on."""
    full.fill(reserved=True)
    assert "nothing to collect" in full.run("gc", "--dry-run").out
    assert full.run("remove", OLD, expect=None, STACKYARD_FAULT="given-up:1").code == -signal.SIGKILL
    done = full.run("remove", OLD)
    assert f"removed {OLD}" in done.out
    full.fill(reserved=False)
    assert f"deleted {OLD}" in full.run("gc", "--now").out
    assert not list(full.yard.trash.iterdir()) and full.files > 0
    assert "1.0" not in full.run("list").out and "3.0" in full.run("list").out
    (full.place / "fill/0").unlink()
    assert "nothing is wrong" in full.run("fsck", "--deep").out


@on_full
@pytest.mark.parametrize("words", [("rollback",), ("withdraw", OLD), ("retire", OLD, "--on", "2030-01-01")],
                         ids=lambda words: words[0])  # fmt: skip
def test_a_step_back_works_on_a_full_file_system(full: Full, words: tuple[str, ...]) -> None:
    full.fill(reserved=True)
    done = full.run(*words)
    assert "generation 4" in done.out and "its reserve is used; `stackyard gc --now` deletes" in done.err
    assert generations.current_number(full.yard) == 4


def test_a_full_file_system_is_told_with_what_to_do(anna: Account, place: Path) -> None:
    """Where the yard has nothing to give up, or not enough; nothing is left of what was tried."""
    site = of_no_closed_homes(place)
    yard = Yard(place / "yard")
    with (place / "fill").open("wb", buffering=0) as stream:
        while space := os.statvfs(place).f_bavail:
            stream.write(bytes(min(space, 16) * os.statvfs(place).f_frsize))
    before = sorted(path.name for path in yard.generations.iterdir())
    for words in (("remove", OLD), ("rollback",), ("default", OLD), ("retire", OLD, "--on", "2030-01-01")):
        said = anna.stackyard("--site", site, "--yard", yard.root, *words, expect=1).err
        assert "error: no space left while " in said and "hint: `stackyard gc --now` deletes what is in the" in said
    assert sorted(path.name for path in yard.generations.iterdir()) == before
    said = anna.stackyard("--yard", yard.root, "verify", OLD, expect=1).err
    assert "No space left on device\n  hint: free some space and type the same again" in said
    (place / "fill").unlink()
    anna.stackyard("--site", site, "--yard", yard.root, "remove", OLD)
