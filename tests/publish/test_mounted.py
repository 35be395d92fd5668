"""A yard on a file system that is full, or that this host mounts read-only: what is wrong, and what to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.yard.layout import Yard
from support import smallyard
from support.accounts import Account, Accounts

OLD = "tool/1.0-py311-1"


@pytest.fixture
def place(common: Path) -> Iterator[Path]:
    folder = common / "fs"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"cannot mount a file system here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


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


def test_a_full_file_system_is_told_with_what_to_do(anna: Account, place: Path) -> None:
    yard = Yard(place / "yard")
    with (place / "fill").open("wb", buffering=0) as stream:
        while space := os.statvfs(place).f_bavail:
            stream.write(bytes(min(space, 16) * os.statvfs(place).f_frsize))
    for words in (("remove", OLD), ("rollback",), ("default", OLD), ("retire", OLD, "--on", "2030-01-01")):
        said = anna.stackyard("--yard", yard.root, *words, expect=1).err
        assert "error: no space left while " in said and "hint: free some space and type the same again" in said
    said = anna.stackyard("--yard", yard.root, "verify", OLD, expect=1).err
    assert "No space left on device\n  hint: free some space and type the same again" in said
    (place / "fill").unlink()
    anna.stackyard("--yard", yard.root, "remove", OLD)
