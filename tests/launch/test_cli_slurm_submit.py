"""``stackyard submit`` and ``runs`` on a real Slurm, as a person types them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from support.slurm import SlurmCluster
from support.slurmcli import SHAPE, Work, working

pytestmark = pytest.mark.real


def test_the_script_of_a_dry_run_is_the_one_that_is_submitted(work: Work) -> None:
    shown = work.run("submit", *SHAPE, "-t", "5", "--dry-run", "exit.py", "0")
    assert not (work.directory / "runs").exists()
    assert "$ sbatch --parsable" in shown.err
    done = work.run("submit", *SHAPE, "-t", "5", "exit.py", "0")
    assert (work.last / "job.sh").read_text() == shown.out
    known = ("queued", "nodes", "waiting for the first output", "running")
    # a job that starts at once is never seen in the queue
    phases = [word for line in done.err.splitlines() for word in known if f"] {word}" in line]
    assert phases == sorted(phases, key=known.index)
    assert phases[-1] == "running"
    assert done.out == f"rank 0 of 2 on {work.status()['hosts'][0]}\n"
    assert "placement" in (work.last / "batch.log").read_text()
    assert work.status()["state"] == "done"


@pytest.mark.parametrize(("asked", "code", "said"), [
    ("3", 3, "rank 1 on n2 exited with status 3"), ("-9", 137, "signal 9 (SIGKILL)"),
])  # fmt: skip
def test_the_exit_code_is_that_of_the_first_rank_that_failed(work: Work, asked: str, code: int, said: str) -> None:
    words = ("--stream", "all", "--scheduler-arg=--nodelist=n1,n2")
    done = work.run("submit", *SHAPE, *words, "exit.py", asked, "block", expect=code)
    assert said in done.err
    assert "[1] rank 1 of 2 on n2\n" in done.out and done.out.replace("[1] rank 1 of 2 on n2\n", "") in (
        "", "[0] rank 0 of 2 on n1\n"  # which may be ended before it begins
    )  # fmt: skip
    assert work.run("runs", "attach", "--stream", "none", expect=code).out == ""
    job = work.status()["job"]
    assert work.cluster.wait_job(job)["ExitCode"].startswith(f"{code}:")
    work.nothing_left()


def test_what_slurm_refuses_is_a_run_that_failed(work: Work) -> None:
    done = work.run("submit", *SHAPE, "-p", "nowhere", "exit.py", "0", expect=1)
    assert "invalid partition" in done.err
    assert "hint: change what it names, such as -p" in done.err
    assert work.run("runs", "--json").value[0]["state"] == "failed"


def test_a_job_is_left_attached_to_and_cancelled(work: Work) -> None:
    made = work.run("submit", *SHAPE, "--no-follow", "--json", "block.py").value
    work.up()
    follower = work.start("runs", "attach")
    assert follower.stdout is not None
    assert follower.stdout.readline().startswith("up 0")
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=240)
    assert follower.returncode == 130
    assert "the job is running" in err
    rows = work.run("runs", "--json").value
    assert (rows[0]["state"], rows[0]["job"]) == ("running", made["job"])
    assert f"cancelled slurm job {made['job']}" in work.run("runs", "cancel", "last").out
    ended = work.run("runs", "attach", "--json", expect=143)
    assert ended.value["state"] == "cancelled"
    assert work.run("runs", "cancel", "last", expect=2).err.count("has already ended") == 1
    work.nothing_left()


def test_a_follower_of_submit_may_leave(work: Work) -> None:
    follower = work.start("submit", *SHAPE, "block.py")
    assert follower.stdout is not None
    assert follower.stdout.readline().startswith("up 0")
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=240)
    assert follower.returncode == 130
    assert "`stackyard runs attach" in err and "`stackyard runs cancel" in err
    assert work.status()["state"] == "running"
    work.run("runs", "cancel", "last")
    work.until(lambda: work.status()["state"] == "cancelled")
    work.nothing_left()


def test_a_job_that_never_began_is_cancelled_too(work: Work) -> None:
    work.run("submit", *SHAPE, "--no-follow", "--scheduler-arg=--hold", "exit.py", "0")
    assert work.run("runs", "--json").value[0]["state"] == "queued"
    work.run("runs", "cancel", "last")
    work.until(lambda: work.run("runs", "--json").value[0]["state"] == "cancelled")


def test_a_run_is_read_compared_and_repeated(work: Work) -> None:
    work.run("submit", *SHAPE, "exit.py", "0")
    first = work.last.name
    assert work.run("runs", "logs", "-r", "1").out.startswith("rank 1 of 2")
    assert str(work.last) in work.run("runs", "logs", "--where").out
    shown = work.run("runs", "show", first).out
    assert "exit.py 0" in shown
    assert f"slurm {work.status()['job']}" in shown
    assert set(work.run("runs", "show", "--json").value) >= {"record", "status", "placement"}

    work.run("submit", "--again", first, "-r", "2", "--env", "COLOUR=red")
    assert len(list(work.last.glob("logs/rank-*.log"))) == 4
    differences = {row["what"]: (row["a"], row["b"]) for row in work.run("runs", "diff", first, "last", "--json").value}
    assert differences["intent.ranks_per_node"] == ("1", "2")
    assert differences["intent.variables.COLOUR"] == ("", "red")
    assert "-n 2" in differences["command line"][0]
    assert "code.program_sha256" not in differences

    again = work.run("launch", "--again", first, "--", "exit.py", "5", expect=5)
    assert "rank 1 on" in again.err
    record = json.loads((work.last / "record.json").read_text())
    assert record["again_of"].endswith(first)
    assert record["how"] == "launch"


def test_the_tasks_of_an_array_and_the_array_as_a_whole(work: Work) -> None:
    (work.directory / "task.py").write_text(
        "import os, sys; sys.exit(int(os.environ['SLURM_ARRAY_TASK_ID']) % 2 * 4)\n"
    )
    done = work.run("submit", "-N", "1", *SHAPE[2:], "-a", "0-2", "task.py", expect=4)
    assert "task 1 failed" in done.err
    assert "2 done, 1 failed of 3 tasks" in done.err
    row = work.run("runs", "--json").value[0]
    assert (row["state"], row["code"], row["tasks"]) == ("failed", 4, {"done": 2, "failed": 1})
    assert "2 of 3 done" in work.run("runs").out
    told = work.run("runs", "show", "--json").value["tasks"]
    assert {index: task["state"] for index, task in told.items()} == {"0": "done", "1": "failed", "2": "done"}
    assert work.run("runs", "show", "last.1", "--json").value["status"]["code"] == 4
    assert work.run("runs", "attach", "last.2", "--json").value["state"] == "done"
    assert work.run("runs", "logs", "last", expect=2).err.count("is an array")
    assert sorted(path.name for path in work.last.glob("batch-*.log")) == ["batch-0.log", "batch-1.log", "batch-2.log"]
    job = work.status()["job"]
    assert work.status(work.last / "array" / "2")["job"] == f"{job}_2"


def test_one_task_of_an_array_is_cancelled_and_then_all(work: Work) -> None:
    work.run("submit", "-N", "1", *SHAPE[2:], "-a", "0-2", "--no-follow", "block.py")
    logs = "array/*/logs/rank-00000.log"
    work.until(lambda: sum("up" in log.read_text() for log in work.last.glob(logs)) == 3)
    row = work.run("runs", "--json").value[0]
    assert (row["state"], row["tasks"]) == ("running", {"running": 3})
    work.run("runs", "cancel", "last.2")  # in Slurm the last task's number is that of the whole array
    work.until(lambda: work.run("runs", "--json").value[0]["tasks"] == {"running": 2, "cancelled": 1})
    work.run("runs", "cancel", "last")
    assert work.run("runs", "attach", "--json", expect=143).value["tasks"] == {"cancelled": 3}
    work.nothing_left()


@pytest.mark.slow
def test_a_preempted_job_goes_on_where_it_was(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    with working(slurm_exclusive, tmp_path) as work:
        follower = work.start("submit", *SHAPE, "-N", "3", "--requeue", "--signal", "30", "checkpoint.py")
        work.up(3, "begins at 0")
        time.sleep(0.5)
        slurm_exclusive.run("srun", "--partition=urgent", "-N3", "--exclusive", "hostname")
        out, err = follower.communicate(timeout=240)
        assert follower.returncode == 0, err
        _went_on(work, out, err)


AT_SIGTERM = """\
import pathlib, signal, sys, time
saved = pathlib.Path("saved")

def save(*_):
    saved.write_text("1")
    print("saved", flush=True)
    sys.exit(75)

signal.signal(signal.SIGTERM, save)
print("went on" if saved.exists() else "begins", flush=True)
while not saved.exists():
    time.sleep(0.1)
"""


@pytest.mark.long
def test_a_preempted_job_that_saves_at_sigterm_goes_on(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    """The job was told to leave: it is queued again, with whatever status its program left."""
    with working(slurm_exclusive, tmp_path, at_sigterm=AT_SIGTERM) as work:
        follower = work.start("submit", "-N", "3", *SHAPE[2:], "--requeue", "at_sigterm.py")
        work.up(3, "begins")
        slurm_exclusive.run("srun", "--partition=urgent", "-N3", "--exclusive", "hostname")
        out, err = follower.communicate(timeout=240)
        assert follower.returncode == 0, err
        assert "begins\nsaved\n" in out and "went on" in out
        assert (work.status()["state"], work.status()["attempts"]) == ("done", 2)


@pytest.mark.slow
def test_a_job_out_of_time_is_queued_again_and_goes_on(slurm: SlurmCluster, tmp_path: Path) -> None:
    with working(slurm, tmp_path) as work:  # Slurm looks every 30 s, and may be 30 s early: not before the script traps
        done = work.run("submit", *SHAPE, "-t", "1", "--requeue", "--signal", "25", "checkpoint.py")
        _went_on(work, done.out, done.err)


def _went_on(work: Work, out: str, err: str) -> None:
    """Both ranks were told, saved, and began where they were; both attempts are kept."""
    assert "begins at 0\nsaved" in out
    assert "went on from" in out.splitlines()[-1]
    assert "queued" in err.partition("running")[2]
    status = work.status()
    assert (status["state"], status["attempts"]) == ("done", 2)
    first = [path.read_text() for path in sorted((work.last / "attempts" / "1" / "logs").glob("rank-*.log"))]
    assert len(first) >= 2
    for before, path in zip(first, sorted((work.last / "logs").glob("rank-*.log")), strict=True):
        saved = before.split()[-1]
        assert f"saved {saved}" in before
        assert f"begins at {saved}\n" in path.read_text()


@pytest.mark.slow
def test_without_a_signal_a_preempted_job_is_not_over(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    with working(slurm_exclusive, tmp_path) as work:
        work.run("submit", "-N", "3", *SHAPE[2:], "--requeue", "--no-follow", "block.py")
        work.up(3)
        slurm_exclusive.run("srun", "--partition=urgent", "-N3", "--exclusive", "hostname")
        work.until(lambda: work.run("runs", "--json").value[0]["state"] == "queued")
        work.until(lambda: work.status()["attempts"] == 2 and work.status()["state"] == "running")
        work.run("runs", "cancel", "last")
        work.until(lambda: work.run("runs", "--json").value[0]["state"] == "cancelled")
        work.nothing_left()
