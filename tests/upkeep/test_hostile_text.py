"""Names that another account chose are shown as text at a terminal: of processes, files, notes, leases and records."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.host.files import filelocks
from stackyard.host.files.hashing import sha256_text
from stackyard.host.run import processes
from stackyard.host.run.identity import Identity, this_process
from stackyard.make.seal import PARTS
from stackyard.yard.layout import Yard
from stackyard.yard.others import uses
from stackyard.yard.revision import contents, revisions
from stackyard.yard.revision.record import read_record
from support import atterminal, smallyard
from support.accounts import Account, Accounts
from support.cli import STACKYARD, inside

OLD = "tool/1.0-py311-1"
NAME = "\x1b[2J\nerror: a"
"""Clears the screen, and begins a line that looks like one of ours. A process name has 15 bytes."""
ARGV = "\x1b]0;b\x07\u202ecod.exe"
CODE = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(15, os.fsencode(sys.argv[1]), 0, 0, 0)\n"
    "os.chdir(sys.argv[2]); print('there', flush=True); sys.stdin.read()\n"
)
SHOWN = r"\x1b[2J\nerror: a"
_OURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def yard(common: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(common)))
    monkeypatch.setenv("STACKYARD_HOME", str(common / "yard"))
    return smallyard.make(common / "yard", "1.0", "2.0")


@pytest.fixture
def mallory(accounts: Accounts) -> Account:
    return accounts.user("mallory")


@pytest.fixture
def process(yard: Yard, mallory: Account) -> Iterator[subprocess.Popen[str]]:
    """Of another account: its working directory is a revision, and it has a hostile name and command line."""
    words = [mallory.bin / "python", "-c", CODE, NAME, smallyard.revision(yard, "1.0").root, ARGV]
    with mallory.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout and started.stdout.readline() == "there\n"
        yield started
        started.kill()


def at_terminal(*words: str | Path) -> str:
    """What is seen at a terminal, without the colours that are ours; nothing else in it may be obeyed."""

    def start(terminal: int) -> subprocess.Popen[bytes]:
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
        return subprocess.Popen(
            [STACKYARD, *map(str, words)], stdin=terminal, stdout=terminal, stderr=terminal, env=env
        )

    shown = _OURS.sub("", atterminal.answered(start, ""))
    assert not any(text in shown for text in ("\x1b[2J", "\x1b]0", "\x1b[8m", "\u202e", "\x07", "\x9b")), shown
    assert not any(line.startswith(("error: a", "error: b")) for line in shown.splitlines()), shown
    return shown


@pytest.mark.parametrize("words", [("remove", OLD), ("remove", OLD, "--dry-run"), ("remove", OLD, "--json")])
def test_a_process_that_keeps_a_revision(words: tuple[str, ...], process: subprocess.Popen[str]) -> None:
    shown = at_terminal(*words)
    assert f"process {process.pid} of " in shown and SHOWN.replace("\\", "\\" * (1 + ("--json" in words))) in shown


def test_what_gc_keeps_because_of_it(yard: Yard, process: subprocess.Popen[str]) -> None:
    inside("retire", OLD, "--on", "2020-01-01")
    for words in (("gc", "--dry-run"), ("gc",)):
        assert SHOWN in at_terminal(*words)
    assert smallyard.revision(yard, "1.0").root.exists()


def test_a_name_that_is_not_utf_8(mallory: Account, common: Path) -> None:
    """Of a process that names a path, and of one that holds a lock."""
    code = "import ctypes, fcntl, sys\nctypes.CDLL(None).prctl(15, b'\\xff\\x1bz', 0, 0, 0)\n"
    code += "file = open(sys.argv[1], 'a'); fcntl.flock(file, 2); print('there', flush=True); sys.stdin.read()"
    lock = common / "lock"
    lock.touch()
    lock.chmod(0o666)
    with mallory.popen(
        mallory.bin / "python", "-c", code, lock, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout and other.stdout.readline() == "there\n"
        assert filelocks.holders(lock) == [f"{mallory.name}, process {other.pid} (\\xff\\x1bz)"]
        found, _ = processes.naming(re.compile(re.escape(os.fsencode(lock))))
        assert [str(each) for each in found if each.pid == other.pid] == [
            f"process {other.pid} of {mallory.name} (\\xff\\x1bz)"
        ]
        other.kill()


def test_names_of_files_in_a_prefix_and_in_the_yard(yard: Yard) -> None:
    """fsck names what was added."""
    record = read_record(smallyard.revision(yard, "1.0").record)
    noted = contents.note(Path(record.path), contents.scan(Path(record.path), PARTS)).to_text()
    smallyard.revision(yard, "1.0").files.write_text(noted)
    revisions.mark(replace(record, files_sha256=sha256_text(noted)))
    directory = smallyard.revision(yard, "1.0").prefix / "share"
    directory.chmod(0o755)
    for name in (NAME, "\x9b2J", ARGV, "x" * 250):
        (directory / name).touch()
    directory.chmod(0o555)
    shown = at_terminal("fsck")
    assert f"share/{SHOWN}: was added" in shown and r"share/\x9b2J: was added" in shown
    at_terminal("fsck", "--json")


def test_notes_and_leases_and_records(yard: Yard) -> None:
    """The text of a note of a use, of the owner of a lease, and of a run record is that of whoever wrote it."""
    me = this_process()
    evil = replace(me, user=f"{NAME}{'u' * 999}", host=ARGV, since="\x1b[8m")
    shown = str(Identity.from_json(evil.to_json()))
    assert shown.isprintable() and len(shown) < 300
    note = uses.hold(smallyard.revision(yard, "1.0").root, None, "run")
    assert note is not None
    value = json.loads(note.read_text())
    note.write_text(json.dumps({**value, "host": "h" * 9000, "job": "7" * 5000, "scheduler": "s"}))
    (use,) = uses.found(yard.uses)
    assert len(str(use)) < 400
    note.write_text(json.dumps({**value, "host": ARGV}))
    assert list(uses.found(yard.uses)) == []


def test_what_the_records_of_a_yard_say(yard: Yard) -> None:
    """A yard of another account, which you look at."""
    record = read_record(smallyard.revision(yard, "1.0").record)
    revisions.mark(replace(record, summary=f"{ARGV}{NAME}", notices=(NAME,)))
    for words in (("show", OLD), ("show", OLD, "--json"), ("list",), ("list", "--all"), ("history",)):
        at_terminal(*words)
