"""Going on after a failure within the allocation: on this machine, and on a real Slurm that loses a node."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.host.run import process
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.launch.api import jobs
from stackyard.launch.jobs.carry_out import _plan
from stackyard.launch.jobs.restarts import Attempts
from stackyard.launch.node.step import PlannedStage, StepFile
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.model import Allocation
from stackyard.launch.records.outcome import Failure, State, StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.request.intent import Intent, made
from stackyard.launch.run.reports import Reports
from stackyard.launch.run.seen import StepFacts
from stackyard.launch.run.stage import StagingState
from stackyard.yard.layout import Yard
from support.cli import stackyard
from support.processes import wait_for
from support.slurm import SlurmCluster
from support.slurmcli import SHAPE, working
from support.watched import Heard

NODES = ("n1", "n2", "n3", "n4")
FLAKY = """\
import os, sys
attempt, rank = int(os.environ["STACKYARD_ATTEMPT"]), int(os.environ["RANK"])
print("attempt", attempt, "of", os.environ["WORLD_SIZE"], flush=True)
if attempt < 3 and rank == 1:
    sys.exit(attempt)
"""
COUNTS = """\
import os, pathlib, sys, time
saved = pathlib.Path("checkpoint")
step = int(saved.read_text()) if saved.exists() else 0
while step < 40:
    if step == 20 and os.environ["STACKYARD_ATTEMPT"] == "1":
        time.sleep(300)  # a node is lost, and that may be noticed late
    step += 1
    if os.environ["RANK"] == "0":
        part = pathlib.Path("checkpoint.part")
        part.write_text(str(step))
        part.rename(saved)
    print("step", step, "of", os.environ["WORLD_SIZE"], flush=True)
    time.sleep(0.25)
"""


def failed(state: str = "failed", host: str = "n1", hosts: tuple[str, ...] = NODES) -> StepResult:
    lost = (host,) if state == "node-lost" else ()
    return StepResult(state, 1, Failure(0, host, 1, message="x"), hosts=hosts, lost=lost)  # type: ignore[arg-type]


def attempts(restarts: int, wanted: int, least: int) -> Attempts:
    return Attempts(restarts, NODES, wanted, least)


def test_a_lost_node_is_replaced_by_a_spare_one() -> None:
    again = attempts(1, 3, 3)
    assert again.go_on(failed("node-lost", "n2.cluster"))
    assert again.chosen == ("n1", "n3", "n4")
    assert not again.go_on(failed("node-lost", "n1")), "no restart is left"


def test_it_goes_on_with_fewer_nodes_only_where_that_is_allowed() -> None:
    again = attempts(5, 4, 3)
    assert again.go_on(failed("node-lost", "n4"))
    assert again.chosen == ("n1", "n2", "n3")
    assert not again.go_on(failed("node-lost", "n3"))
    assert again.why_not.startswith("not restarted: 2 nodes left, 3 needed")


def test_two_nodes_that_are_lost_together_are_both_left_out() -> None:
    again = attempts(1, 4, 2)
    assert again.go_on(replace(failed("node-lost", "n4"), lost=("n4", "n2.cluster")))
    assert again.chosen == ("n1", "n3")


ENDS: tuple[tuple[State, str, tuple[str, ...], int], ...] = (
    ("done", "", (), 4), ("failed", "n1", (), 4), ("hung", "", (), 4), ("cancelled", "", (), 4),
    ("node-lost", "n2", ("n2",), 4), ("node-lost", "n2", ("n2", "n3"), 4),
    ("no-start", "n2", (), 4), ("no-start", "", (), 4), ("no-start", "", (), 3), ("no-start", "", (), 0),
)  # fmt: skip
"""State, to blame, lost, how many of four nodes have reported."""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("restarts", "least"), [(0, 3), (1, 3), (1, 4), (1, 2)])
@pytest.mark.parametrize("named", [True, False])
def test_nodes_keep_what_is_staged_where_another_attempt_follows(
    tmp_path: Path, end: tuple[State, str, tuple[str, ...], int], restarts: int, least: int, named: bool
) -> None:
    """And only there: else it would stay on their disks."""
    state, blamed, lost, reported = end
    hosts = NODES if named else ()
    again = Attempts(restarts, hosts, 4, least)
    stage = PlannedStage((("data", "/data"),), "key", again=again.may_lose >= 0)
    file = StepFile("r", "secret", "id", (), "stackyard", 4, 1, hosts=hosts, stage=stage)
    with closing_child() as child:
        seen = StepFacts(StepPaths(tmp_path), file, child)
        seen.state = state
        seen.hosts = dict(enumerate(NODES[:reported]))
        seen.lost = [(host, "") for host in lost]
        seen.blame(blamed, 1, "x", ())
        told = StagingState(file, Reports(Heard()), 300).leave(seen, again.may_lose)
    first = Failure(-1, blamed, 1, message="x")
    follows = again.go_on(StepResult(state, 1, first, hosts=NODES[:reported], lost=lost))
    assert told == ({"leave": follows} if restarts else {})


@contextmanager
def closing_child() -> Iterator[process.Child]:
    child = process.start(("true",), log=Path(os.devnull), env={}, cwd=None)
    try:
        yield child
    finally:
        child.end()


def test_nodes_that_did_not_report_are_left_out() -> None:
    again = attempts(2, 2, 2)
    assert again.go_on(replace(failed("no-start", ""), hosts=("n2",)))
    assert again.chosen == ("n2", "n3")
    assert not again.go_on(replace(failed("no-start", ""), hosts=())), "the launcher does not work at all"
    assert again.why_not == "not restarted: no node has reported"


def test_a_node_that_fails_twice_comes_last() -> None:
    again = attempts(3, 2, 2)
    assert again.go_on(failed(host="n1"))
    assert again.chosen == ("n1", "n2"), "a failure of the program says nothing about its node"
    assert again.go_on(failed(host="n1"))
    assert again.chosen == ("n2", "n3")


def test_nodes_are_used_in_the_order_of_the_allocation(tmp_path: Path) -> None:
    """srun numbers nodes and ranks in it, whatever order they are named in."""
    context = PlanContext("slurm", Allocation("slurm", "7", NODES))
    site = Site(scheduler=Scheduler(kind="slurm"), nodes={"cpu": NodeKind(cores=8)})
    place = jobs.Workspace(site, Yard(tmp_path / "yard"), None, tmp_path / "runs", {}, ("stackyard",))
    again = Attempts(3, NODES, 4, 4)
    job = jobs.Job(place, Intent(program=("a",), nodes=4), context)
    assert again.go_on(failed(host="n1")) and again.go_on(failed(host="n1"))
    assert again.chosen == ("n2", "n3", "n4", "n1")
    assert _plan(job, again).layout.hosts == NODES
    assert "-w" not in _plan(job, again).line.words, "it has all of them"
    named = replace(job, intent=Intent(program=("a",), nodes=2)).plan(hosts=("n3", "n1"))
    assert named.layout.hosts == ("n1", "n3")
    roles = Intent.model_validate({"roles": {"a": {"program": ["a"]}, "b": {"program": ["b"]}}})
    several = replace(job, intent=roles).plan(hosts=("n3", "n1"))
    assert several.layout.hosts == ("n1", "n3")
    assert several.roles[0].plan.layout.hosts == ("n1",)


@pytest.mark.parametrize("change", [{"state": "cancelled"}, {"warned": True}, {"state": "done"}])
def test_what_was_ended_on_purpose_does_not_start_again(change: dict[str, object]) -> None:
    assert not attempts(3, 2, 2).go_on(replace(failed(), **change))  # type: ignore[arg-type]


# on this machine


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    (tmp_path / "flaky.py").write_text(FLAKY)
    return tmp_path


def launch(directory: Path, *words: str, expect: int = 0) -> str:
    done = stackyard(
        "launch",
        "-r",
        "2",
        "-c",
        "1",
        "--oversubscribe",
        "--grace",
        "1",
        *words,
        "flaky.py",
        cwd=directory,
        expect=expect,
    )
    return done.out + done.err


def test_a_program_starts_again_and_each_attempt_is_kept(here: Path) -> None:
    said = launch(here, "--restarts", "3")
    assert "attempt 3 of 2" in said
    assert "attempt 2, after: rank 1 on" in said
    (run,) = (here / "runs").iterdir()
    assert [json.loads((run / f"attempts/{n}/result.json").read_text())["code"] for n in (1, 2)] == [1, 2]
    assert (run / "attempts/1/logs/rank-00000.log").read_text() == "attempt 1 of 2\n"
    assert (run / "logs/rank-00000.log").read_text() == "attempt 3 of 2\n"
    assert json.loads((run / "status.json").read_text())["attempts"] == 3
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["attempt"] for event in events if event["event"] == "restart"] == [2, 3]
    shown = stackyard("runs", "show", "last", cwd=here).out
    assert "attempt 1" in shown
    assert "exited with status 2; 1 node" in shown


class Fails(Heard):
    """A display that cannot show that an attempt begins."""

    def notice(self, text: str) -> None:
        if text.startswith("attempt"):
            raise RuntimeError(text)


def descriptors() -> list[str]:
    return [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]


@pytest.mark.parametrize("shown", [Heard, Fails])
def test_what_has_happened_is_kept_whatever_happens_next(
    here: Path, monkeypatch: pytest.MonkeyPatch, shown: type[Heard]
) -> None:
    """Before the next attempt starts, and where an error ends the run."""
    monkeypatch.chdir(here)
    place = jobs.Workspace(Site(), Yard(here / "yard"), None, here / "runs", os.environ, ("stackyard", "launch"))
    asked = Intent(program=("flaky.py",), ranks_per_node=2, cores_per_rank=1, launcher="local", oversubscribe=True,
                   restarts=1, grace_s=1)  # fmt: skip
    run = jobs.record_launch(jobs.launch_job(place, asked))
    events = list[str]()

    def announce(_: jobs.Plan) -> None:
        if run.paths.attempt(1).exists():
            events.append(run.paths.events.read_text())
            raise RuntimeError("attempt 2")

    with pytest.raises(RuntimeError, match="attempt 2"):
        jobs.carry_out(run.job, run.paths, shown(), announce)
    events = events or [run.paths.events.read_text()]
    assert '"event": "restart"' in events[0]
    assert str(run.paths.events) not in descriptors(), "it is closed"


def test_restarts_are_limited(here: Path) -> None:
    said = launch(here, "--restarts", "1", expect=2)
    assert "attempt 3" not in said
    assert "exited with status 2" in said


def test_a_range_of_nodes_is_read(here: Path) -> None:
    assert "the first number is larger than the second" in launch(here, "-N", "8:4", expect=2)
    assert "'x' is not a valid" in launch(here, "-N", "x", expect=2)


def test_the_least_is_not_more_than_what_is_requested(here: Path) -> None:
    with pytest.raises(InputError, match="least_nodes is 4, but nodes is 2"):
        made(Intent, {"nodes": 2, "least_nodes": 4})
    (here / "job.yaml").write_text("format: 1\nprogram: [flaky.py]\nnodes: 2\nleast_nodes: 4\n")
    assert "least_nodes is 4, but nodes is 2" in launch(here, "--job", "job.yaml", expect=2)
    (here / "job.yaml").write_text("format: 1\nprogram: [flaky.py]\nnodes: 2\nleast_nodes: 2\nrestarts: 3\n")
    launch(here, "--job", "job.yaml", "-N", "1")  # no range


def test_a_range_is_recorded_as_it_was_requested(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "n1 8 n2 8 n3 8"}
    site = Site(scheduler=Scheduler(kind="lsf", csm=True), nodes={"cpu": NodeKind(cores=8)})
    monkeypatch.chdir(here)
    place = jobs.Workspace(site, Yard(here / "yard"), None, here / "runs", environ, ("stackyard", "launch"))
    asked = Intent(program=("flaky.py",), nodes=4, least_nodes=2, launcher="jsrun")
    run = jobs.record_launch(jobs.launch_job(place, asked))
    assert run.job.intent.nodes == 3, "as many as there are"
    assert jobs.repeat(run.paths, environ).intent.nodes == 4
    assert "2:4" in stackyard("runs", "show", "last", cwd=here).out
    carried, _ = jobs.recorded_job(place, run.paths.root)
    assert (carried.intent.nodes, carried.asked.nodes) == (3, 4)


# on Slurm


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "lost"), [("2", "n2"), pytest.param("2:3", "n3", marks=pytest.mark.long)])
def test_a_job_goes_on_after_it_has_lost_a_node(
    slurm_exclusive: SlurmCluster, tmp_path: Path, nodes: str, lost: str
) -> None:
    """On a node of the allocation that was not in use, or on those that are left; from its checkpoint."""
    with working(slurm_exclusive, tmp_path, counts=COUNTS) as work:
        options = ("--restarts", "1", "--grace", "1", "--lost-timeout", "5")
        words = ("launch", "-N", nodes, *SHAPE[2:], *options, "counts.py")
        started = work.start(*words, salloc=("-N3", "--no-kill"))
        wait_for(lambda: "step 4" in log(work.directory) or started.poll() is not None, 120)
        assert started.poll() is None, started.communicate()
        slurm_exclusive.lose_node(lost, "cut")
        _, err = started.communicate(timeout=240)
        assert started.returncode == 0, err
        assert f"attempt 2, after: heartbeat timeout: {lost}" in err
        assert f"left out: {lost}" in err
        steps = [line.split() for line in log(work.directory).splitlines()]
        assert int(steps[0][1]) > 4, "it went on from its checkpoint"
        assert steps[-1][1:] == ["40", "of", "2"]
        assert lost not in work.status()["hosts"]


def log(directory: Path) -> str:
    found = sorted((directory / "runs").glob("*/logs/rank-00000.log"))
    return found[-1].read_text() if found else ""
