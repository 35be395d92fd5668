"""How a step's end is told: a rank that left before the others, and a job that its scheduler ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.causes.verdict import TaskEnd, left_early
from stackyard.launch.run.seen import StepFacts, result
from support.watched import Heard, Running, local_line, make_plan

LOST = "RuntimeError: Connection closed by peer [10.0.0.3]:1234"
LEAVE = f"""cd "$0"
if [ "$RANK" = 1 ]; then echo $$ > left; exit 0; fi
until [ -s left ] && ! kill -0 $(cat left) 2> /dev/null; do sleep 0.1; done
sleep 1
echo '[rank'$RANK']: {LOST}'
exit 1
"""


def test_a_rank_that_left_before_the_others_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    plan = make_plan(local_line(1, 3), 1, 3, "/bin/sh", "-c", LEAVE, str(tmp_path))
    first = Running(tmp_path / "step", plan, grace_s=2.0, start_s=120.0).end().first
    assert first is not None
    assert first.code == 1
    assert "rank 1 on" in first.message.partition(" exited with status 0 while others still worked")[0]
    assert first.message.endswith("exited with status 1")
    assert first.cause is not None
    assert first.cause.rule == "left-early"


@pytest.mark.parametrize(
    ("codes", "code", "tail", "early"),
    [
        ({1: 0, 0: 1}, 1, LOST, (1,)),
        ({1: 0, 2: 0, 0: 134}, 134, "Watchdog caught collective operation timeout", (1, 2)),
        ({0: 1, 1: 0}, 1, LOST, ()),  # ended later
        ({1: 0, 0: 1}, 1, "ValueError: no", ()),  # a failure of its own
        ({1: 0, 0: 143}, 143, LOST, ()),  # ended by the launcher
    ],
)
def test_who_left_early(codes: dict[int, int], code: int, tail: str, early: tuple[int, ...]) -> None:
    assert left_early(codes, TaskEnd(1, 0, "n0", code, (tail,))) == early


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("slurmstepd: error: *** STEP 12.0 ON d1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***", "time-limit"),
        ("slurmstepd: error: *** STEP 12.0 ON d1 CANCELLED AT 2026-11-21T10:00:00 ***", ""),
    ],
)
def test_a_time_limit_has_its_remedy(tmp_path: Path, said: str, rule: str) -> None:
    """Slurm terminates the batch script too, which ends the run as cancelled."""
    launcher: Any = SimpleNamespace(output=lambda: said)
    file: Any = SimpleNamespace(tasks=2, nodes=1, family="slurm", ranks_per_task=1, roles=(), py_spy="", probe_signal=0)
    seen = StepFacts(StepPaths(tmp_path), file, launcher)
    seen.state, seen.cancelled = "cancelled", 15
    ended: StepResult = result(seen, make_plan(local_line(1, 2), 1, 2, "true"), Heard())
    assert (ended.state, ended.code) == ("cancelled", 143)
    cause = ended.first.cause if ended.first else None
    assert (cause.rule if cause else "") == rule
