"""Studies on a real Slurm of four nodes: planned, run, killed, continued."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from study.slurm_bed import MEASURE, SHAPE, SPEED, done, points, submitted, table
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path, speed=SPEED) as made:
        yield made


def test_a_study_that_is_killed_three_times_repeats_and_loses_nothing(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ["bench", "speed.py", "--nodes", "1,2,4", "--repeat", "3", "--vary", "add=0,1000", *SHAPE, *MEASURE]
    for number, moment in enumerate((1, 7, 12)):
        run = work.start(*(words if not number else ["bench", "--continue", str(study)]))
        work.until(lambda least=moment: done(study) >= least, 240)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=60)
    last = work.run("bench", "--continue", study, expect=None)
    assert last.code == 0, last.err
    found = points(study)
    assert len(found) == 3 * 2 * 4  # sizes, variants, three runs that count and a warm-up
    assert {len(attempts) for attempts in found.values()} == {1}, "nothing ran twice"
    assert {attempts[-1]["state"] for attempts in found.values()} == {"done"}, "nothing was lost"
    assert set(submitted(study).values()) == {1}
    rows = table(study)
    assert len(rows) == 24 and sum(row["warmup"] == "1" for row in rows) == 6
    assert {(row["nodes"], row["variant"], row["value"]) for row in rows} == {
        (str(n), f"add={add}", f"{100 * n + 16 + add:.1f}") for n in (1, 2, 4) for add in (0, 1000)
    }
    again = work.run("bench", "--continue", study, expect=0)
    assert points(study) == found, again.err
    work.nothing_left()
