"""Lock files of other programs: out of readers' reach, and waited for in words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.host.files import filelocks
from stackyard.host.files.filelocks import holders, secure
from stackyard.host.run.identity import this_process
from support.accounts import Accounts

HOLD = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""
SHARED, EXCLUSIVE = "1", "2"


@contextmanager
def held(path: Path, kind: str = EXCLUSIVE) -> Iterator[int]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, path, kind], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process.pid
        process.kill()


def test_who_holds_it_is_named_after_a_while_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelocks, "PATIENCE_S", 0.1)
    path, told = tmp_path / "cache/.lock", []
    secure(path, told.append)
    assert told == [] and holders(path) == []
    with held(path, SHARED) as pid, pytest.raises(StackyardError, match=r"timed out after 1 s waiting") as caught:
        secure(path, told.append, limit_s=1)
    assert len(told) == 1 and f"held by {this_process().user}, process {pid} (python" in told[0]
    assert f"process {pid}" in str(caught.value)
    with held(path, SHARED):
        secure(path, told.append, shared=True, limit_s=0)
    with held(path), pytest.raises(StackyardError):
        secure(path, told.append, shared=True, limit_s=0)


def test_a_lock_file_that_is_removed_while_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filelocks, "PATIENCE_S", 0)
    path = tmp_path / ".lock"
    path.touch()
    with held(path):
        secure(path, lambda _: path.unlink(), limit_s=120)
    assert path.exists() and holders(tmp_path / "missing") == []


def test_a_reader_cannot_hold_it(common: Path, accounts: Accounts) -> None:
    path = common / "cache" / ".lock"
    path.parent.mkdir()
    path.touch(0o666)
    secure(path, lambda _: None)
    reader = accounts.user("rita")
    done = reader.python(HOLD, path, SHARED, expect=None)
    assert done.code and "Permission denied" in done.err
