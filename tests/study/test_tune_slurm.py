"""Searches on a real Slurm: over several allocations, with a lost node, and trials of several nodes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from study.tunebed import SPACE, TRAIN, events, results, rungs
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = [pytest.mark.real, pytest.mark.slow]
SHAPE = ("--slots", "2", "--gpus-per-trial", "0", "--cores-per-trial", "1", "--shared", "-t", "5", "--seed", "5")


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path, train=TRAIN) as made:
        (made.directory / "space.yaml").write_text(SPACE)
        yield made


def test_a_search_goes_on_in_the_allocation_that_it_submits_itself(work: Work) -> None:
    """Four trials of 18 s on two slots; an allocation of a minute has half of it for them, before its margin."""
    study = work.directory / "studies" / "train"
    shape = ("--slots", "2", "--gpus-per-trial", "0", "--shared", "-t", "1", "--seed", "5", "--allocations", "3")
    shown = work.run("tune", "space.yaml", "train.py", *shape, "-N", "1", "--trials", "4", "--dry-run")
    assert "up to 3 slurm jobs, at most 0.05 node-hours" in shown.out and "--ntasks-per-node=2" in shown.out
    done = work.run("tune", "space.yaml", "train.py", *shape, "-N", "1", "--trials", "4", "--", "--sleep", "2")
    assert set(results(study).values()) == {1} and len(results(study)) == 4
    assert "the allocation ends" in "".join(log.read_text() for log in (study / "runs").glob("*/batch.log"))
    stopped = [event for event in events(study, "ended") if event["state"] == "interrupted"]
    assert stopped and "allocation 2: job" in "".join(log.read_text() for log in (study / "runs").glob("*/batch.log"))
    assert "4 of 4 trials have a result" in done.out
    for trial in {event["trial"] for event in stopped}:
        log = (study / f"trials/000{trial}/log").read_text()
        assert any(f'"from": {epoch}' in log for epoch in range(1, 9)), "it went on from its checkpoint"
    work.nothing_left()


def test_what_was_submitted_goes_on_without_its_follower(work: Work) -> None:
    study = work.directory / "studies" / "train"
    follower = work.start("tune", "space.yaml", "train.py", *SHAPE, "-N", "2", "--trials", "6", "--", "--sleep", "0.5")
    work.until(lambda: len(events(study, "started")) == 4)
    hosts = {event["slot"] for event in events(study, "started")}
    assert hosts == {f"{host}/{slot}" for host in {name.partition("/")[0] for name in hosts} for slot in (0, 1)}
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=60)
    assert follower.returncode == 130 and "submitted jobs go on" in err
    work.run("tune", "--continue", study)
    assert set(results(study).values()) == {1} and len(results(study)) == 6
    assert len(list((study / "allocations").glob("[0-9]*"))) == 1
    work.nothing_left()


@pytest.mark.long
def test_a_node_is_lost_and_the_allocation_ends_and_each_result_is_there_once(
    slurm_exclusive: SlurmCluster, tmp_path: Path
) -> None:
    with working(slurm_exclusive, tmp_path, train=TRAIN) as work:
        (work.directory / "space.yaml").write_text(SPACE)
        study = work.directory / "studies" / "train"
        words = ("--scheduler", "halving", "--trials", "12", "--lost-timeout", "5")
        follower = work.start("tune", "space.yaml", "train.py", *SHAPE, "-N", "2", *words, "--", "--sleep", "2")
        work.until(lambda: len(results(study)) >= 2)
        hosts = sorted({event["host"] for event in events(study, "started")})
        batch = next((study / "runs").glob("*/job.sh")).parent
        first = work.status(batch)["host"]
        lost = next(host for host in hosts if host != first)
        slurm_exclusive.lose_node(lost, "kill")
        work.until(lambda: any(event.get("lost") for event in events(study, "ended")), 180)
        before = len(results(study))
        work.until(lambda: len(results(study)) > before + 1, 180)
        assert {event["host"] for event in events(study)[-3:] if "host" in event} <= {first}
        slurm_exclusive.run("scancel", work.status(batch)["job"])
        out, err = follower.communicate(timeout=240)
        assert follower.returncode == 1 and "--continue" in err, out + err
        slurm_exclusive.restore_node(lost)
        work.run("tune", "--continue", study)
        assert [len(rungs(study)[rung]) for rung in range(3)] == [12, 4, 1]
        assert set(results(study).values()) == {1}
        assert {event["state"] for event in events(study, "ended")} == {"done", "interrupted"}
        assert "all the same" in work.run("tune", "--verify", study).out
        work.nothing_left()


def test_trials_of_two_nodes_are_steps_of_their_own(work: Work) -> None:
    study = work.directory / "studies" / "train"
    (work.directory / "pair.py").write_text(
        "import os\nprint('rank', os.environ['RANK'], 'on', os.uname().nodename, flush=True)\n"
        "if os.environ['RANK'] == '0':\n"
        "    print('{\"epoch\": 9, \"loss\": %s}' % os.environ['WORLD_SIZE'], flush=True)\n"
    )
    words = ("--nodes-per-trial", "2", "--ranks-per-trial", "1", "--cores-per-trial", "1", "--gpus-per-trial", "0")
    began = time.monotonic()
    work.run("tune", "space.yaml", "pair.py", *words, "-N", "4", "--shared", "-t", "5", "--trials", "4",
             "--directory", str(study))  # fmt: skip
    seconds = time.monotonic() - began
    assert results(study) == {(trial, 0): 1 for trial in range(4)}, events(study)
    slots = {event["slot"] for event in events(study, "started")}
    assert len(slots) == 2 and len({host for slot in slots for host in re.split(r"\+", slot)}) == 4
    each = [event["seconds"] for event in events(study, "ended")]
    print(f"4 trials of 2 nodes: {seconds:.1f} s, each {each}, load {os.getloadavg()[0]:.1f}")
    work.nothing_left()


def test_what_every_allocation_would_meet_ends_the_search_and_the_next_job(work: Work) -> None:
    study = work.directory / "studies" / "silent"
    (work.directory / "silent.py").write_text("print('training')\n")
    words = ("-N", "1", "--trials", "6", "--allocations", "3")
    failed = work.run("tune", "space.yaml", "silent.py", *SHAPE, *words, expect=3)
    assert "the first 4 trials ended without a value" in failed.err and "1" in failed.out
    states = [work.status(run)["state"] for run in sorted((study / "runs").glob("*")) if (run / "job.sh").exists()]
    assert states[0] == "failed" and len(states) == 2 and states[1] == "cancelled", states
    within = work.allocated("tune", "--continue", str(study), "--retry-failed", expect=1, salloc=("-N1", "-n2"))
    assert "ended without a value" in within.err and len(list((study / "allocations").glob("[0-9]*"))) == 2
    work.nothing_left()
