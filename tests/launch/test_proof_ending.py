"""A launch is ended at any moment, also where its srun no longer answers: no process and no job is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from support.slurmcli import SHAPE, Work

pytestmark = [pytest.mark.real, pytest.mark.slow]

UNEVEN = """\
import os, time
time.sleep(4 * int(os.environ["RANK"]))
print("finished", flush=True)
"""
BEFORE = (130, 143, 1, -signal.SIGINT, -signal.SIGTERM)
"""Also the codes of a Python that a signal ends before it has read the command line; salloc makes 1 of its death."""


MOMENTS = [
    pytest.param(*how, after_s, marks=() if after_s in often else pytest.mark.long)
    for how, often in (((signal.SIGINT, None), (0.3, 0.9)), ((signal.SIGTERM, ("-N2",)), (0.6, 1.4)))
    for after_s in (0.3, 0.6, 0.9, 1.4)
]


@pytest.mark.parametrize(("number", "allocation", "after_s"), MOMENTS)
def test_at_any_moment(work: Work, number: signal.Signals, allocation: tuple[str, ...] | None, after_s: float) -> None:
    before = _jobs(work)
    started = work.start("launch", *SHAPE[2:] if allocation else SHAPE, "block.py", salloc=allocation)
    if allocation:
        work.until(lambda: bool(_children(started.pid, "launch")))
    time.sleep(after_s)
    os.kill(_children(started.pid, "launch")[0] if allocation else started.pid, number)
    _, err = started.communicate(timeout=240)
    assert started.returncode in BEFORE, err
    work.nothing_left()
    work.until(lambda: _jobs(work) <= before)


def test_ranks_may_take_different_times(work: Work) -> None:
    """Neither srun's own patience nor the site's ends ranks that work longer than the first."""
    (work.directory / "uneven.py").write_text(UNEVEN)
    done = work.run("launch", *SHAPE, "--stream", "all", "uneven.py", SLURM_WAIT="1")
    assert "[1] finished" in done.out
    command = json.loads((work.last / "record.json").read_text())["plan"]["command"]
    assert "--wait=0" in command


def test_when_srun_does_not_answer(work: Work) -> None:
    """It is killed in the end, but not with the process of its that gives the allocation back."""
    before = _jobs(work)
    started = work.start("launch", *SHAPE, "block.py")
    work.up()
    (srun,) = _children(started.pid, "srun")
    os.kill(srun, signal.SIGSTOP)
    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=240)
    print(f"ended after {time.monotonic() - began:.1f} s")
    assert started.returncode == 130, err
    work.nothing_left()
    work.until(lambda: _jobs(work) <= before)


def _children(pid: int, word: str) -> list[int]:
    """Children of a process with a word in their command line."""
    with contextlib.suppress(OSError):
        found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [one for one in found if word in Path(f"/proc/{one}/cmdline").read_text(errors="replace")]
    return []


def _jobs(work: Work) -> set[str]:
    """The jobs of this test's programs."""
    shown = work.cluster.run("squeue", "--noheader", "--format=%A %Z").stdout.splitlines()
    return {line.split()[0] for line in shown if work.mark in line}
