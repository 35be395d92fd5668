"""One writer per yard at a time, and no lease outlives its owner."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stackyard.errors import StackyardError
from stackyard.yard import lease as lease_module
from stackyard.yard.layout import Yard
from stackyard.yard.lease import lease


def test_it_is_there_while_held_and_gone_afterwards(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard")
    with lease(yard):
        assert json.loads(yard.lease.read_text())["pid"] == os.getpid()
    assert not yard.lease.exists()
    assert list(yard.root.iterdir()) == []


def test_threads_never_hold_it_together(tmp_path: Path) -> None:
    yard, inside, most = Yard(tmp_path), [0], [0]

    def work() -> None:
        for _ in range(3):
            with lease(yard):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_a_killed_owner_does_not_block(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from stackyard.yard.layout import Yard
from stackyard.yard.lease import lease
with lease(Yard(Path({str(tmp_path)!r}))):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert (tmp_path / "deploy.lease").exists()
    with lease(Yard(tmp_path), wait_s=2):
        pass


def test_a_living_owner_blocks_and_is_named(tmp_path: Path) -> None:
    yard, told = Yard(tmp_path), []
    with (
        lease(yard),
        pytest.raises(StackyardError, match=f"process {os.getpid()}"),
        lease(yard, wait_s=0.2, on_wait=told.append),
    ):
        pass
    assert len(told) == 1


def test_another_host_is_believed_until_it_stops_renewing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path)
    yard.lease.write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": "5", "since": 0, "user": "ann"}))
    with pytest.raises(StackyardError, match="ann on elsewhere"), lease(yard, wait_s=0.2):
        pass
    os.utime(yard.lease, (0, 0))
    with lease(yard, wait_s=2):
        assert json.loads(yard.lease.read_text())["host"] == socket.gethostname()


def test_it_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_EVERY_S", 0.02)
    yard = Yard(tmp_path)
    with lease(yard):
        os.utime(yard.lease, (0, 0))
        deadline = time.monotonic() + 5
        while yard.lease.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert yard.lease.stat().st_mtime > 0


def test_a_yard_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackyardError, match="cannot create the yard"), lease(Yard(tmp_path / "file" / "yard")):
        pass
