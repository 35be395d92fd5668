"""Studies on a real Slurm of four nodes: planned, run, killed, continued."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from study.slurm_bed import MEASURE, SHAPE, SPEED, done, jobs_of, points, submitted, table
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
    assert last.code == 3, last.err  # three pairs have no verdict
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
    again = work.run("bench", "--continue", study, expect=3)
    assert points(study) == found, again.err
    work.nothing_left()


def test_each_repeat_of_a_size_is_a_job_of_its_own(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    shown = work.run("bench", "speed.py", "--nodes", "1,2", "--repeat", "2", *SHAPE, *MEASURE, "--dry-run")
    assert (
        "8 runs, 4 slurm jobs, at most 0.8 node-hours" in shown.out
    )  # (2 runs x 3 min + 2 min) x (1 + 1 + 2 + 2) nodes
    assert "#SBATCH --nodes=1" in shown.out and not study.exists()
    words = ("--nodes", "1,2", "--repeat", "2", *SHAPE, *MEASURE, "--", "--batch", "{ranks*16}")
    ran = work.run("bench", "speed.py", *words)
    assert submitted(study) == {f"n000{n}-a0{a}": 1 for n in (1, 2) for a in (1, 2)}
    assert len(set(jobs_of(work, study).values())) == 4
    used = re.search(r"used (\S+) node-hours", ran.err)
    assert used and 0 < float(used[1]) < 0.1
    rows = [row for row in table(study) if row["warmup"] == "0"]
    assert [(row["nodes"], row["repeat"], row["allocation"], row["value"]) for row in rows] == [
        ("1", "1", "1", "116.0"), ("1", "2", "2", "116.0"), ("2", "1", "1", "232.0"), ("2", "2", "2", "232.0"),
    ]  # fmt: skip
    assert all(len(row["hosts"].split()) == int(row["nodes"]) for row in rows)


def test_what_fails_is_tried_again_only_when_asked(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--nodes", "1,2", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    failed = work.run("bench", "speed.py", *words, "--", "--fail-on", "2", expect=1)
    assert "n0002-job-a01-r01: failed: rank 0 on" in failed.err
    assert [row["state"] for row in table(study)] == ["done", "failed"]
    assert "--retry-failed" in work.run("bench", "--continue", study, expect=1).err
    assert submitted(study) == {"n0001-a01": 1, "n0002-a01": 1}
    again = work.run("bench", "--continue", study, "--retry-failed", expect=1)
    assert submitted(study) == {"n0001-a01": 1, "n0002-a01": 2}, again.err
    assert len(points(study)["n0002-job-a01-r01"]) == 2


def test_what_the_queue_refuses_is_said_and_stays_missing(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    refused = work.run("bench", "speed.py", "--nodes", "1,9", "--repeat", "1", *SHAPE, *MEASURE, expect=2)
    assert "9 nodes requested, but partition debug has 4" in refused.err and not study.exists()
    words = ("--nodes", "1,2", "--repeat", "1", "-p", "nowhere", *SHAPE, *MEASURE)
    refused = work.run("bench", "speed.py", *words, expect=1)
    assert refused.err.count("not submitted") == 2 and "invalid partition" in refused.err
    assert {row["state"] for row in table(study)} == {"missing"}


def test_two_processes_do_not_measure_one_study(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--nodes", "1", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    first = work.start("bench", "speed.py", *words, "--", "--sleep", "20")
    work.until(lambda: bool(points(study)))
    second = work.run("bench", "--continue", study, expect=1)
    assert "is being measured by" in second.err and "hint: wait for it" in second.err
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130 and "submitted jobs go on" in err
    assert work.run("bench", "--continue", study).code == 0  # follows the job that went on
    assert {len(attempts) for attempts in points(study).values()} == {1}


def test_a_job_that_is_cancelled_leaves_runs_that_are_run_later(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--nodes", "2", "--repeat", "3", "--pack", "--warmup-runs", "0", *SHAPE, *MEASURE)
    follower = work.start("bench", "speed.py", *words, "--", "--sleep", "2")
    work.until(lambda: done(study) == 1)
    work.run("runs", "cancel", min((study / "runs").glob("*")))
    _, err = follower.communicate(timeout=120)
    assert follower.returncode == 1 and "the job ended (" in err and "bench --continue" in err
    work.nothing_left()
    before = points(study)
    work.run("bench", "--continue", study)
    after = points(study)
    assert done(study) == 3
    kept = [name for name, attempts in before.items() if attempts[-1]["state"] == "done"]
    assert kept and all(after[name] == before[name] for name in kept)


def test_a_job_that_was_never_submitted_and_starts_after_all_runs_nothing(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--nodes", "1", "--repeat", "1", "--warmup-runs", "0", *SHAPE, *MEASURE)
    work.run("bench", "speed.py", *words)
    ran = points(study)
    (script,) = (study / "runs").glob("*/job.sh")
    job = work.cluster.submit(script)
    work.cluster.wait_job(job)
    assert points(study) == ran
    assert "nothing is run" in min((study / "runs").glob("*/batch.log")).read_text(), "the log of the job"


def test_within_an_allocation_it_runs_there(work: Work) -> None:
    study = work.directory / "studies" / "speed"
    words = ("--repeat", "1", "-r", "1", "-c", "1", "-g", "0", *MEASURE)
    few = work.allocated("bench", "speed.py", "--nodes", "1,3", *words, expect=2)
    assert "3 nodes requested, but this allocation has 2" in few.err and not study.exists()
    work.allocated("bench", "speed.py", "--nodes", "1,2", *words)
    assert not submitted(study)
    rows = table(study)
    assert [(row["nodes"], len(row["hosts"].split()), row["warmup"], row["state"]) for row in rows] == [
        ("1", 1, "1", "done"), ("1", 1, "0", "done"), ("2", 2, "1", "done"), ("2", 2, "0", "done"),
    ]  # fmt: skip
    assert {attempts[-1]["place"] for attempts in points(study).values()} != {"n1"}, "the job, not the node"


def test_a_job_has_room_for_the_variant_that_needs_most(work: Work) -> None:
    (work.directory / "study.yaml").write_text(
        "format: 1\nname: most\njob: {program: [speed.py], ranks_per_node: 1, cores_per_rank: 1, gpus_per_rank: 0}\n"
        "variants: {one: {}, four: {ranks_per_node: 4, gpus_per_rank: 1}}\nrepeat: 1\nwarmup_runs: 0\n"
    )
    shown = work.run("bench", "study.yaml", "-t", "3", "--shared", *MEASURE, "--dry-run", "--json").value["script"]
    assert "gpus-per-node=4" in shown or "gres=gpu:4" in shown, shown
    work.run("bench", "study.yaml", "-t", "3", "--shared", *MEASURE, expect=3)  # one pair has no verdict
    rows = table(work.directory / "studies" / "most")
    assert {row["variant"]: (row["ranks"], row["state"]) for row in rows} == {
        "one": ("1", "done"),
        "four": ("4", "done"),
    }
