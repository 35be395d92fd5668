"""Scripts and client programs of Slurm, on a real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batchbed import request

from stackyard.host.run.command import CommandError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.model import JobState
from stackyard.launch.plan.schedulers.slurm_state import state_of, together
from support.slurm import SlurmCluster

NODE = Node("test", (NodeDomain(0, tuple(range(16)), (0, 1)), NodeDomain(1, tuple(range(16, 32)), (2, 3))), 32)
SLURM = Scheduler(kind="slurm", exclusive=False)
SMALL = {"ranks_per_node": 2, "cores_per_rank": 1}
SCHEDULER = schedulers.get("slurm")
ENDED = ("done", "failed", "cancelled", "timeout", "node-fail")


def submit(cluster: SlurmCluster, directory: Path, body: str, scheduler: Scheduler = SLURM, **options: Any) -> str:
    options = {"output": str(directory / "out"), **options}
    asked = request(NODE, scheduler, options.pop("nodes", 2), options.pop("intent", SMALL), **options)
    script = directory / "job.sh"
    script.write_text("#!/bin/bash\n" + SCHEDULER.head_text(SCHEDULER.head(asked)) + body + "\n")
    answer = cluster.run(*SCHEDULER.submit_argv(str(script)))
    return SCHEDULER.job_id(answer.stdout)


def wait(job: str, good: Callable[[JobState], bool], patience_s: float = 120) -> JobState:
    until = time.monotonic() + patience_s
    state = SCHEDULER.state(job)
    while not good(state) and time.monotonic() < until:
        time.sleep(0.2)
        state = SCHEDULER.state(job)
    assert good(state), state
    return state


def end(job: str) -> JobState:
    return wait(job, lambda state: state.phase in ENDED)


def test_a_script_of_everything_is_read_as_it_was_meant(slurm: SlurmCluster, tmp_path: Path) -> None:
    name = 'it\'s "a" #job \\ $HOME `x`'
    job = submit(slurm, tmp_path, "srun hostname", name=name, time_min=1.5, memory_gib=0.25, signal_s=30, requeue=True,
                 mail="nobody@localhost", mail_events=("begin", "end", "fail"), array="", queue="debug",
                 scheduler_args=("--comment='plain#x'",))  # fmt: skip
    told = slurm.run("scontrol", "-o", "show", "job", job).stdout
    assert f"JobName={name} UserId" in told
    assert "TimeLimit=00:01:30" in told or "TimeLimit=00:02:00" in told
    assert "Comment=plain#x" in told
    assert "NumNodes=2" in told
    assert "MinMemoryNode=256M" in told
    assert "Requeue=1" in told
    assert end(job) == JobState("done", "", 0, SCHEDULER.state(job).hosts, 0)
    assert len(SCHEDULER.state(job).hosts) == 2
    lines = (tmp_path / "out").read_text().split()
    assert sorted(lines) == sorted(SCHEDULER.state(job).hosts * 2)


def test_gpus_are_given_as_asked(slurm: SlurmCluster, tmp_path: Path) -> None:
    for how in ("gpus-per-node", "gres"):
        scheduler = SLURM.model_copy(update={"gpu_request": how})
        job = submit(slurm, tmp_path, "echo $SLURM_GPUS_ON_NODE", scheduler, intent={**SMALL, "gpus_per_rank": 1})
        assert end(job).phase == "done"
        assert (tmp_path / "out").read_text().strip() == "2"


@pytest.mark.parametrize(("body", "phase", "code"), [
    ("exit 7", "failed", 7), ("true", "done", 0), ("kill -9 $$", "failed", 137), ("srun false", "failed", 1),
])  # fmt: skip
def test_the_exit_code_is_the_scripts(slurm: SlurmCluster, tmp_path: Path, body: str, phase: str, code: int) -> None:
    state = end(submit(slurm, tmp_path, body))
    assert (state.phase, state.exit_code) == (phase, code)


def test_cancel_ends_a_job_and_may_be_repeated(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "sleep 300")
    running = wait(job, lambda state: state.phase == "running")
    assert len(running.hosts) == 2
    assert running.exit_code is None
    SCHEDULER.cancel(job)
    assert end(job).phase == "cancelled"
    SCHEDULER.cancel(job)


def test_a_job_that_waits_says_why(slurm: SlurmCluster, tmp_path: Path) -> None:
    first = submit(slurm, tmp_path, "sleep 300")
    second = submit(slurm, tmp_path, "true", dependency=f"afterok:{first}")
    waiting = wait(second, lambda state: state.reason != "")
    assert (waiting.phase, waiting.reason, waiting.exit_code) == ("queued", "Dependency", None)
    SCHEDULER.cancel(second)
    SCHEDULER.cancel(first)
    assert end(second).phase == "cancelled"


def test_an_array_is_as_its_worst_task(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "exit $SLURM_ARRAY_TASK_ID", array="0-2%2", nodes=1)
    assert end(job).phase == "failed"
    assert SCHEDULER.state(f"{job}_0") == JobState("done", "", 0, SCHEDULER.state(f"{job}_0").hosts, 0)
    assert SCHEDULER.state(f"{job}_2").exit_code == 2


@pytest.mark.long
def test_the_script_gets_the_signal_and_then_runs_out_of_time(slurm: SlurmCluster, tmp_path: Path) -> None:
    body = "trap 'echo got it' USR1\nwhile true; do sleep 0.2; done"
    job = submit(slurm, tmp_path, body, time_min=1, signal_s=50, queue="short")
    assert wait(job, lambda state: state.phase in ENDED, 300).phase == "timeout"
    assert "got it" in (tmp_path / "out").read_text()


def test_a_requeued_job_counts_its_starts(slurm: SlurmCluster, tmp_path: Path) -> None:
    body = "echo start $SLURM_RESTART_COUNT; sleep 300"
    job = submit(slurm, tmp_path, body, requeue=True, nodes=1)
    wait(job, lambda state: state.phase == "running")
    wait(job, lambda state: (tmp_path / "out").exists() and "start" in (tmp_path / "out").read_text())
    slurm.run(*SCHEDULER.requeue_argv(job))  # type: ignore[attr-defined]
    again = wait(job, lambda state: state.restarts == 1)
    assert again.phase in ("queued", "running")
    SCHEDULER.cancel(job)
    assert end(job).phase == "cancelled"


def test_a_job_that_nobody_knows(slurm: SlurmCluster) -> None:
    assert SCHEDULER.state("99999999").phase == "unknown"


def test_the_allocation_inside_a_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, "env | grep ^SLURM")
    assert end(job).phase == "done"
    environ = dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines() if "=" in line)
    found = SCHEDULER.allocation(environ)
    assert found is not None
    assert (found.scheduler, found.job, found.hosts) == ("slurm", job, SCHEDULER.state(job).hosts)
    assert schedulers.detect({**environ, "PATH": ""}) == "slurm"


def test_no_controller_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text("ThisIs=NoConfiguration\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    with pytest.raises(CommandError, match="cannot read the state of job 1 from Slurm"):
        SCHEDULER.state("1")


@pytest.mark.parametrize(("word", "code", "phase", "exit_code"), [
    ("CANCELLED by 0", "0:15", "cancelled", 143), ("OUT_OF_MEMORY", "0:125", "failed", 253),
    ("NODE_FAIL", "1:0", "node-fail", 1), ("PREEMPTED", "0:0", "cancelled", 0), ("TIMEOUT", "0:0", "timeout", 0),
    ("REQUEUED", "0:0", "queued", None), ("CONFIGURING", "0:0", "starting", None), ("BOOT_FAIL", "0:0", "node-fail", 0),
    ("DEADLINE", "0:0", "timeout", 0), ("CANCELLED+", "0:0", "cancelled", 0), ("NEW_WORD", "0:0", "unknown", None),
])  # fmt: skip
def test_words_of_slurm(word: str, code: str, phase: str, exit_code: int | None) -> None:
    state = state_of(word, code)
    assert (state.phase, state.exit_code) == (phase, exit_code)


def test_an_array_goes_on_while_one_task_does() -> None:
    states = [JobState("done"), JobState("failed"), JobState("running"), JobState("queued")]
    assert together(states).phase == "running"
    assert together([JobState("done"), JobState("failed")]).phase == "failed"
    assert together([]).phase == "unknown"


@pytest.mark.long
def test_a_preempted_job_starts_again(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    body = f"trap 'echo asked >> {tmp_path}/asked; exit 1' TERM\nsleep 300 & wait"
    whole = SLURM.model_copy(update={"exclusive": True})
    job = submit(slurm_exclusive, tmp_path, body, whole, nodes=3, requeue=True)
    wait(job, lambda state: state.phase == "running")
    urgent = submit(slurm_exclusive, tmp_path, "true", whole, nodes=3, queue="urgent")
    assert wait(job, lambda state: state.restarts == 1, 240).phase in ("queued", "running")
    assert end(urgent).phase == "done"
    SCHEDULER.cancel(job)
    assert end(job).phase == "cancelled"


def test_a_lost_node_ends_a_job_that_may_not_start_again(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    job = submit(slurm_exclusive, tmp_path, "srun sleep 300; sleep 300", nodes=2)  # srun may see it before Slurm does
    hosts = wait(job, lambda state: state.phase == "running").hosts
    slurm_exclusive.lose_node(hosts[1], "kill")
    slurm_exclusive.run("scontrol", "update", f"nodename={hosts[1]}", "state=down", "reason=lost")
    state = wait(job, lambda state: state.phase in ENDED, 240)
    assert state.phase == "node-fail"
    assert state.hosts == hosts


def test_a_range_of_nodes_gets_as_many_as_are_free(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    """With a number of tasks per node Slurm grants its minimum, or little more."""
    asked = replace(request(NODE, Scheduler(kind="slurm", exclusive=False), 3, SMALL), least_nodes=1,
                    output=str(tmp_path / "out"))  # fmt: skip
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n" + SCHEDULER.head_text(SCHEDULER.head(asked)) + "srun -n 3 -N 3 -c 1 hostname\n")
    job = SCHEDULER.job_id(slurm_exclusive.run(*SCHEDULER.submit_argv(str(script))).stdout)
    done = end(job)
    assert (done.phase, len(done.hosts)) == ("done", 3)
    assert len(set((tmp_path / "out").read_text().split())) == 3
