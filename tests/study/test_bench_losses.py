"""Studies on a Slurm that loses nodes, preempts jobs and ends them at their time limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from study.slurm_bed import MEASURE, SHAPE, SPEED, done, points, submitted, table
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture
def work(slurm_exclusive: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm_exclusive, tmp_path, speed=SPEED) as made:
        yield made


def test_a_lost_node_costs_the_runs_of_its_job_only(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--nodes", "2", "--repeat", "2", "--warmup-runs", "0", "--lost-timeout", "5", *SHAPE, *MEASURE)
    follower = work.start("bench", "speed.py", *words, "--", "--sleep", "10")
    work.until(lambda: len(points(study)) == 2)
    (run,) = {study / attempts[-1]["run"] for name, attempts in points(study).items() if "a01" in name}
    work.until(lambda: work.status(run)["state"] == "running" and any(run.glob("logs/rank-*")))
    lost = work.cluster.run("squeue", "-h", "-o", "%N", "-n", "bench-n0002-a01").stdout.strip()
    last = work.cluster.run("scontrol", "show", "hostnames", lost).stdout.split()[-1]
    work.cluster.lose_node(last, "power")
    work.cluster.run("scontrol", "update", f"nodename={last}", "state=down", "reason=lost")
    _, err = follower.communicate(timeout=240)
    assert follower.returncode == 1, err
    states = {row["repeat"]: row["state"] for row in table(study)}
    assert "interrupted" in states.values(), err
    kept = {name: attempts for name, attempts in points(study).items() if attempts[-1]["state"] == "done"}
    work.cluster.restore_node(last)
    work.run("bench", "--continue", study)
    assert done(study) == 2 and all(points(study)[name] == attempts for name, attempts in kept.items())
    work.nothing_left()


def test_a_preempted_job_that_is_requeued_goes_on_where_it_was(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = (
        "--nodes",
        "3",
        "--repeat",
        "3",
        "--pack",
        "--requeue",
        "-r",
        "1",
        "-c",
        "1",
        "-g",
        "0",
        "-t",
        "3",
        *MEASURE,
    )
    follower = work.start("bench", "speed.py", *words, "--", "--sleep", "4")
    work.until(lambda: done(study) == 1, 60)
    before = {name: attempts for name, attempts in points(study).items() if attempts[-1]["state"] == "done"}
    urgent = work.cluster.submit("-N3", "--exclusive", "-p", "urgent", "--wrap", "true")
    work.cluster.wait_job(urgent, timeout_s=120)
    out, err = follower.communicate(timeout=400)
    assert follower.returncode == 0, err
    assert set(submitted(study).values()) == {1}, "the same job started again"
    after = points(study)
    assert done(study) == 3
    for name, attempts in before.items():
        assert name.endswith("w01") or after[name] == attempts, out


def test_a_job_that_runs_out_of_time_is_continued(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--nodes", "1", "--repeat", "2", "--pack", "--warmup-runs", "0", "-p", "short", *MEASURE)
    shape = ("-r", "1", "-c", "1", "-g", "0", "--shared", "--yes", "--scheduler-arg=--time=1")
    first = work.run("bench", "speed.py", *words, *shape, "--", "--sleep", "45", expect=1)
    assert "before all of its runs" in first.err
    assert [row["state"] for row in table(study)] == ["done", "interrupted"], first.err
    work.run("bench", "--continue", study)
    assert done(study) == 2 and set(submitted(study).values()) == {2}
