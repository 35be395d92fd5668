"""LSF, PBS and Flux through their client programs, which executables stand in for; and which scheduler is meant."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batchbed import CSM, FLUX, LSF, PBS, POLARIS, REQUESTS, SUMMIT, TUOLUMNE, request

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.host.run.command import CommandError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Node
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.model import Allocation, JobState
from stackyard.launch.plan.schedulers import Batch
from stackyard.launch.plan.schedulers.pbs import ended
from support.standins import Family, standins

CASES: dict[str, tuple[Family, Node, Scheduler, dict[str, Any]]] = {
    "csm-easy": ("lsf", SUMMIT, CSM, {"account": "ABC123", "time_min": 10}),
    "csm-racks": ("lsf", SUMMIT, CSM, {"account": "ABC123", "time_min": 10, "pack": "racks"}),
    "lsf": ("lsf", SUMMIT, LSF, {"time_min": 10}),
    "pbs": ("pbs", POLARIS, PBS, {"time_min": 10}),
    "flux": ("flux", TUOLUMNE, FLUX, {"time_min": 10}),
}
UNKNOWN = {"lsf": "999", "pbs": "999.pbs", "flux": "ƒ9999"}
ENDED = ("done", "failed", "cancelled", "timeout", "node-fail")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Bed:
    """One scheduler, in an environment where its programs are found."""

    def __init__(self, case: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.family, self.node, self.site, self.options = CASES[case]
        self.directory = directory
        for name, value in standins(directory, self.family).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOME", str(directory))
        self.scheduler: Batch = schedulers.get(self.family, self.site)

    def submit(self, body: str, **more: Any) -> str:
        options = {**self.options, "output": str(self.directory / "out"), **more}
        head = self.scheduler.head(request(self.node, self.site, **options))
        script = self.directory / "job.sh"
        script.write_text("#!/bin/bash\n" + self.scheduler.head_text(head) + body + "\n")
        with script.open() as stream:
            done = subprocess.run(
                self.scheduler.submit_argv(str(script)), cwd=self.directory, capture_output=True, text=True,
                timeout=240, stdin=stream if self.scheduler.submit_stdin else subprocess.DEVNULL, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return self.scheduler.job_id(done.stdout)

    def wait(self, job: str, good: Callable[[JobState], bool]) -> JobState:
        until = time.monotonic() + 120
        state = self.scheduler.state(job)
        while not good(state):
            assert time.monotonic() < until, state
            time.sleep(0.1)
            state = self.scheduler.state(job)
        return state

    def end(self, job: str) -> JobState:
        return self.wait(job, lambda state: state.phase in ENDED)


@pytest.fixture
def bed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(case, tmp_path, monkeypatch)


@pytest.mark.parametrize(("body", "phase", "code"), [("exit 0", "done", 0), ("exit 7", "failed", 7)])
def test_a_job_runs_and_its_exit_code_is_known(bed: Bed, body: str, phase: str, code: int) -> None:
    state = bed.end(bed.submit(body))
    assert (state.phase, state.exit_code) == (phase, code)
    assert len(state.hosts) == 2


def test_a_job_that_a_signal_ended(bed: Bed) -> None:
    state = bed.end(bed.submit("kill -9 $$"))
    assert (state.phase, state.exit_code) == ("failed", 137)


def test_a_running_job_is_cancelled_once_or_twice(bed: Bed) -> None:
    job = bed.submit("sleep 300")
    running = bed.wait(job, lambda state: state.phase == "running")
    assert running.exit_code is None
    assert len(running.hosts) == 2
    bed.scheduler.cancel(job)
    assert bed.end(job).phase == "cancelled"
    bed.scheduler.cancel(job)


def test_a_job_that_runs_out_of_time(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_MINUTE", "0.05")
    assert bed.end(bed.submit("sleep 300")).phase == "timeout"


def test_a_job_that_nobody_knows(bed: Bed) -> None:
    assert bed.scheduler.state(UNKNOWN[bed.family]).phase == "unknown"


def test_waiting_for_another_job(bed: Bed) -> None:
    first = bed.submit("sleep 300")
    dependency = {"lsf": f"ended({first})", "pbs": f"afterany:{first}", "flux": f"afterany:{first}"}[bed.family]
    second = bed.submit("exit 0", dependency=dependency)
    waiting = bed.scheduler.state(second)
    assert (waiting.phase, waiting.hosts) == ("queued", ())
    assert waiting.reason
    bed.scheduler.cancel(first)
    assert bed.end(second).phase == "done"


def test_the_allocation_as_the_script_sees_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "env -0 > told; mv told environment; sleep 300"
    job = bed.submit(told if bed.family != "pbs" else f"cd $PBS_O_WORKDIR; {told}")
    hosts = bed.wait(job, lambda state: state.phase == "running" and (bed.directory / "environment").exists()).hosts
    environ = dict(item.split("=", 1) for item in (bed.directory / "environment").read_text().split("\0") if item)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert schedulers.detect(environ) == bed.family
    assert bed.scheduler.allocation(environ) == Allocation(bed.family, job, hosts)
    assert all("batch1" not in host for host in hosts)
    bed.scheduler.cancel(job)


def test_a_job_starts_again_under_the_same_id(bed: Bed) -> None:
    if bed.family == "flux":
        assert bed.scheduler.requeue_argv("f1") == ()
        return
    job = bed.submit(f"echo start >> {bed.directory}/starts; sleep 300", requeue=True)
    starts = bed.directory / "starts"
    bed.wait(job, lambda state: state.phase == "running" and starts.exists())
    subprocess.run(bed.scheduler.requeue_argv(job), check=True, capture_output=True)
    bed.wait(job, lambda state: state.phase == "running" and starts.read_text().count("start") == 2)
    bed.scheduler.cancel(job)
    assert bed.end(job).phase == "cancelled"


def test_the_signal_before_the_end(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    if bed.family == "pbs":
        return  # PBS has none; test_batch_heads has that it says so
    monkeypatch.setenv("STANDIN_MINUTE", "1")
    job = bed.submit("trap 'echo got it; exit 5' USR1\nwhile true; do sleep 0.1; done", time_min=60, signal_s=3480)
    state = bed.end(job)
    assert (state.phase, state.exit_code) == ("failed", 5)
    assert "got it" in (bed.directory / "out").read_text()


@pytest.mark.parametrize("name", [name for name in REQUESTS if not name.startswith("slurm")])
def test_every_golden_head_is_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = REQUESTS[name]
    machine: dict[str, Any] = {
        "hosts": [f"n{i:03d}" for i in range(160)], "launch": "batch1", "all_cores": asked.layout.node.all_cores,
        "domains": [{"socket": d.socket, "cores": d.cores, "gpus": d.gpus} for d in asked.layout.node.domains],
        "smt": asked.layout.node.smt, "numbering": "split", "vendor": "nvidia", "rack_nodes": 18,
        "queues": ["batch", "debug", "pbatch"],
    }  # fmt: skip
    family: Family = asked.scheduler.kind  # type: ignore[assignment]
    for variable, value in standins(tmp_path, family, machine=machine).items():
        monkeypatch.setenv(variable, value)
    small = {"lsf": "bsub -n 1 true", "pbs": "echo true | qsub", "flux": "flux batch -N1 --wrap true"}[family]
    for _ in range(2):  # jobs 101 and 102, for which some of them wait
        subprocess.run(small, shell=True, check=True, capture_output=True, cwd=tmp_path)
    scheduler = schedulers.get(family, asked.scheduler)
    text = scheduler.head_text(scheduler.head(asked)).replace("/runs/1", str(tmp_path)).replace("/ccs/home/user", ".")
    for old, new in (("(12)", "(101)"), ("(13)", "(102)"), (":12.pbs:13.pbs", ":101.pbs:102.pbs"), ("ƒ2Tz1", "ƒ2k")):
        text = text.replace(old, new)
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n" + text + "true\n")
    with script.open() as stream:
        done = subprocess.run(scheduler.submit_argv(str(script)), stdin=stream, cwd=tmp_path, capture_output=True,
                              text=True, timeout=240, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr + text
    assert scheduler.job_id(done.stdout)


@pytest.mark.parametrize(("name", "output", "job"), [
    ("slurm", "1234\n", "1234"), ("slurm", "1234;cluster\n", "1234"), ("slurm", "Submitted batch job 12\n", "12"),
    ("slurm", "sbatch: charged to PROJ\n99\n", "99"),
    ("lsf", "Job <123> is submitted to default queue <batch>.\n", "123"),
    ("pbs", "1234.pbs01.example.org\n", "1234.pbs01.example.org"), ("pbs", "1234[].pbs\n", "1234[].pbs"),
    ("pbs", "Job routed to queue prod\n7.pbs\n", "7.pbs"),
    ("flux", "ƒ2Tz1\n", "ƒ2Tz1"), ("flux", "f2Tz1\n", "f2Tz1"),
])  # fmt: skip
def test_the_id_is_found_in_the_answer(name: str, output: str, job: str) -> None:
    assert schedulers.get(name).job_id(output) == job


@pytest.mark.parametrize("name", schedulers.TABLE)
def test_no_id_is_an_error_that_shows_the_answer(name: str) -> None:
    with pytest.raises(StackyardError, match="printed no job ID") as caught:
        schedulers.get(name).job_id("Something is wrong here\n")
    assert caught.value.detail == "Something is wrong here\n"


@pytest.mark.parametrize("name", schedulers.TABLE)
def test_without_the_programs_it_says_what_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingError, match="not found on PATH") as caught:
        schedulers.get(name).state("1")
    assert caught.value.hint


def _programs(directory: Path, *names: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text("#!/bin/sh\nexit 1\n")
        (directory / name).chmod(0o755)
    return {"PATH": str(directory)}


def test_the_only_scheduler_is_meant(tmp_path: Path) -> None:
    assert schedulers.detect(_programs(tmp_path / "a")) == "none"
    assert schedulers.detect(_programs(tmp_path / "b", "sbatch")) == "slurm"
    assert schedulers.detect(_programs(tmp_path / "c", "qsub")) == "pbs"


def test_of_several_the_one_of_the_allocation_is_meant(tmp_path: Path) -> None:
    both = _programs(tmp_path, "sbatch", "qsub")
    assert schedulers.detect(both | {"PBS_JOBID": "1.pbs"}) == "pbs"
    assert schedulers.detect(both | {"SLURM_JOB_ID": "1"}) == "slurm"
    assert schedulers.detect(both | {"SLURM_JOB_ID": "1", "FLUX_URI": "local:///x"}) == "flux"
    with pytest.raises(InputError, match="several schedulers found: slurm, pbs") as caught:
        schedulers.detect(both)
    assert "scheduler.kind" in str(caught.value.hint)


def test_no_allocation_outside_of_a_job() -> None:
    environ = {"PATH": "/usr/bin", "LSB_MCPU_HOSTS": "a 1"}
    assert [each.allocation(environ) for each in schedulers.TABLE.values()] == [None] * 4
    assert schedulers.get("none").allocation(environ) is None


@pytest.mark.parametrize(("environ", "hosts"), [
    ({"LSB_MCPU_HOSTS": "batch1 1 h41n01 42 h41n02 42"}, ("h41n01", "h41n02")),
    ({"LSB_MCPU_HOSTS": "h1 16 h2 16"}, ("h1", "h2")),
    ({"LSB_MCPU_HOSTS": "h1 1 h2 1"}, ("h1", "h2")),
    ({"LSB_MCPU_HOSTS": "h1 1"}, ("h1",)),
    ({"LSB_HOSTS": "b1 h2 h2 h1 h1"}, ("h2", "h1")),
])  # fmt: skip
def test_hosts_of_an_lsf_job(environ: dict[str, str], hosts: tuple[str, ...]) -> None:
    assert schedulers.get("lsf").allocation({"LSB_JOBID": "7", **environ}) == Allocation("lsf", "7", hosts)


def test_hosts_of_an_lsf_job_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "ranks").write_text("batch5\n" + "h02\n" * 42 + "h01\n" * 42)
    environ = {"LSB_JOBID": "7", "LSB_DJOB_RANKFILE": str(tmp_path / "ranks")}
    assert schedulers.get("lsf").allocation(environ) == Allocation("lsf", "7", ("h02", "h01"))
    with pytest.raises(StackyardError, match="cannot read this job's host file"):
        schedulers.get("lsf").allocation({"LSB_JOBID": "7", "LSB_DJOB_RANKFILE": str(tmp_path / "none")})


def test_a_scheduler_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", _programs(tmp_path, "bjobs", "qstat", "flux", "scontrol", "scancel", "bkill")["PATH"])
    for name in schedulers.TABLE:
        with pytest.raises(CommandError, match="cannot read the state of job 1"):
            schedulers.get(name).state("1")
    for name in ("slurm", "lsf"):
        with pytest.raises(CommandError, match="failed to cancel job 1"):
            schedulers.get(name).cancel("1")


@pytest.mark.parametrize(("status", "comment", "phase", "code"), [
    (0, "", "done", 0), (3, "", "failed", 3), (137, "", "failed", 137), (256 + 11, "", "failed", 139),
    (-29, "", "timeout", 143), (-27, "", "failed", 143), (-20, "", "node-fail", 143), (-3, "", "failed", 1),
    (256 + 15, "Job run and terminated", "cancelled", 143), (271, "walltime 70 exceeded limit 60", "timeout", 143),
])  # fmt: skip
def test_exit_statuses_of_pbs(status: int, comment: str, phase: str, code: int) -> None:
    found, _, number = ended(status, comment)
    assert (found, number) == (phase, code)
