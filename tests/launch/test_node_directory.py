"""The agent's directory on a node's own disk: nothing of it stays, whoever kills the agent."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.launch.plan.model import Plan
from support import programs
from support.watched import Running, local_line, make_plan, mentions

WHOSE = f"stackyard-{os.getuid()}-"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "disk"
    made.mkdir()
    monkeypatch.setenv("STACKYARD_TMP", str(made))
    return made


def contained(plan: Plan) -> Plan:
    """Its launcher takes all processes with it, as Slurm does: here by the kernel, with a PID namespace."""
    programs.need("mount")
    first = ("sh", "-c", 'trap "exit 1" TERM; "$@" & wait $!', "sh")
    words = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *first, *plan.line.words)
    return replace(plan, line=replace(plan.line, words=words))


@pytest.mark.real
@pytest.mark.parametrize("code", [0, 7])
def test_an_agent_may_be_killed_with_the_last_task(disk: Path, tmp_path: Path, code: int) -> None:
    plan = contained(make_plan(local_line(1, 2), 1, 2, "sh", "-c", f"echo said; exit {code}"))
    result = Running(tmp_path / "step", plan).end()
    assert result.code == code, (result.first, result.launcher_output)
    assert list(disk.iterdir()) == []


@pytest.mark.real
def test_the_launcher_is_not_ended_before_the_other_nodes_have_left(disk: Path, tmp_path: Path) -> None:
    """One of two nodes is lost, and the ranks of the other one end with SIGKILL only."""
    code = "trap '' TERM; echo ready; while :; do sleep 0.2; done"
    run = Running(tmp_path / "step", contained(make_plan(local_line(2, 1), 2, 1, "sh", "-c", code)), grace_s=1.0)
    run.until("ready", 2)
    (agent,) = [pid for pid in mentions("STACKYARD_NODE=1") if pid in mentions(f"{tmp_path}/step/agent.py")]
    os.kill(agent, signal.SIGKILL)
    assert run.end().state == "node-lost"
    assert not list((disk / "0").iterdir())
    assert list((disk / "1").iterdir()), "that of the lost node"


def test_what_killed_agents_have_left_is_removed_by_the_next_one(disk: Path, tmp_path: Path) -> None:
    """Not that of a running one, of one that has just begun, of another host or another user."""
    names = [f"{WHOSE}{kind}{number}-{socket.gethostname()}" for number, kind in enumerate(("aa", "bb", "cc"))]
    old, used, fresh = (disk / name for name in names)
    other = disk / f"{WHOSE}aa-{socket.gethostname()}x"
    open_to_all = disk / f"{WHOSE}ab-{socket.gethostname()}.1"
    for directory in (old, used, fresh, other, open_to_all):
        directory.mkdir(mode=0o700)
        (directory / "lock").touch()
        os.mkfifo(directory / "pipe")
        if directory != fresh:
            os.utime(directory, (0, 0))
    open_to_all.chmod(0o755)
    with (used / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = Running(tmp_path / "step", make_plan(local_line(1, 1), 1, 1, "sleep", "1")).end()
        assert result.code == 0, result.launcher_output
        assert set(disk.iterdir()) == {used, fresh, other, open_to_all}
