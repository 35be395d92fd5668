"""The preflight on a real Slurm: healthy nodes pass, a slow one and a dead one are named and left out."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import ChecksFailed, MissingError, StackyardError
from stackyard.inputs.sites.sitemodels import Reference
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.model import LaunchLine, Plan, RankProgram
from stackyard.launch.preflight import PreflightOptions, PreflightReport, run_preflight
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import RunPaths, StepPaths
from stackyard.launch.run.start import WatchOptions
from stackyard.launch.run.step import run_step
from support import torchstack
from support.slurm import SlurmCluster, unavailable

QUICK = PreflightOptions(seconds=0.3, speed_seconds=0.1, start_s=60, connect_s=60, collective_s=120)
NODE = Node("node", (NodeDomain(0, tuple(range(8))),), 8)


class Told:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.notices: list[str] = []

    def phase(self, name: str, detail: str = "") -> None:
        self.phases.append(f"{name} {detail}")

    def nodes(self, there: int, expected: int) -> None: ...

    def output(self, task: int, text: str) -> None: ...

    def event(self, kind: str, data: dict[str, Any]) -> None: ...

    def notice(self, text: str) -> None:
        self.notices.append(text)


class Bed:
    """An allocation of all nodes of a cluster, in which the preflight runs with a Python of one's choice."""

    def __init__(self, cluster: SlurmCluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.run = RunPaths(directory / "run")
        self.told = Told()
        self.mpi = False
        said = cluster.run("salloc", "--no-shell", "-N", str(cluster.nodes), "--ntasks-per-node=2", "-t", "10").stderr
        self.job = next(word for word in said.split() if word.isdigit())

    def python(self, program: str | Path, dead: str = "") -> None:
        """What `python` is on the nodes; on the node `dead` it sleeps."""
        file = self.directory / "bin" / "python"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/bash\n[ "$(uname -n)" = "{dead}" ] && exec sleep 300\nexec {program} "$@"\n')
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def plan(self, hosts: tuple[str, ...], argv: tuple[str, ...], per_node: int = 1) -> Plan:
        slots = tuple(Slot(i, (i % NODE.cores,)) for i in range(per_node))
        layout = Layout(NODE, (Block(0, len(hosts), slots),), hosts=hosts)
        words = ("srun", f"--jobid={self.job}", "--overlap", "-N", str(len(hosts)), f"--ntasks-per-node={per_node}",
                 f"--nodelist={','.join(hosts)}", f"--mpi={'pmix' if self.mpi else 'none'}")  # fmt: skip
        path = f"{self.directory}/bin:/usr/bin:/bin"
        return Plan(
            layout, RankProgram(layout, argv, mpi=self.mpi), LaunchLine(words, "slurm"), variables={"PATH": path},
            cwd=str(self.directory),
        )  # fmt: skip

    def step(self, step: StepPaths, plan: Plan, listener: Any) -> StepResult:
        return run_step(step, plan, listener, run="run", options=WatchOptions(start_s=120, lost_s=60))

    def preflight(
        self, spare: int = 0, references: Sequence[Reference] = (), options: PreflightOptions = QUICK, per_node: int = 1
    ) -> PreflightReport:
        def make(hosts: tuple[str, ...], argv: tuple[str, ...]) -> Plan:
            return self.plan(hosts, argv, per_node)

        return run_preflight(self.run, make, self.cluster.hosts, spare=spare, references=references, run_step=self.step,
                        listener=self.told, options=options)  # fmt: skip


@pytest.fixture
def bed(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Bed]:
    made = Bed(slurm, tmp_path)
    made.python("/usr/bin/python3")
    yield made
    slurm.run("scancel", made.job, check=False)


@pytest.fixture
def own_bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """On a cluster of its own with four nodes, whose network may be spoiled."""
    why = unavailable()
    if why:
        pytest.skip(why)
    with SlurmCluster.own(4) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        made = Bed(cluster, tmp_path)
        made.python("/usr/bin/python3")
        yield made
        cluster.run("scancel", made.job, check=False)


@pytest.fixture(scope="session")
def torch_python() -> Path:
    try:
        return torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")


def slow_down(cluster: SlurmCluster, node: str) -> None:
    """10 Mbit/s out of this node, as a broken cable that fell back to an old standard."""
    cluster.on(node, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "10mbit", "burst", "32kbit",
               "latency", "400ms")  # fmt: skip


def expected(name: str) -> Reference:
    """4 MB/s at least: three times the slow link, a thirtieth of what nodes that share two cores reach.

    Against the median of such nodes a healthy pair can be slow: two processes on one core differ by more than 3.
    """
    return Reference(name=name, value=0.02, low=0.8, unit="GB/s")


def expected_speeds(unit: str = "GFLOP/s") -> tuple[Reference, ...]:
    """Speeds of cores and memory that every machine reaches: nodes that share two cores differ by any factor."""
    return Reference(name="cpu", value=0.01, unit=unit), Reference(name="memory", value=0.01, unit="GB/s")


def outcomes(report: PreflightReport) -> dict[str, str]:
    return {stage.name: stage.outcome for stage in report.stages}


def test_healthy_nodes_pass_without_torch_and_say_what_was_not_checked(bed: Bed) -> None:
    bed.python("/usr/bin/python3 -I")  # without what a person has installed for himself
    bed.mpi = True
    report = bed.preflight(spare=1, references=(expected("tcp"), *expected_speeds("Mop/s")), per_node=2)
    assert report.passed and len(report.hosts) == 3 and len(report.spare) == 1 and not report.bad
    told = outcomes(report)
    assert told["identity"] == told["hosts"] == "passed"
    assert told["gloo"] == told["all"] == "skipped" and told["tcp"] in ("passed", "odd")
    reasons = {stage.name: stage.reason for stage in report.stages}
    assert "torch not found in this environment" in reasons["gloo"]
    assert told["mpi"] == "skipped" and reasons["mpi"] == "mpi4py not found in this environment"
    kept = json.loads(bed.run.preflight.read_text())
    assert kept["passed"] and kept["hosts"] == list(report.hosts)
    assert any("identity: done" in phase for phase in bed.told.phases)


def test_a_node_that_never_answers_is_named_and_left_out(bed: Bed) -> None:
    bed.python("/usr/bin/python3", dead="n3")
    report = bed.preflight(spare=1, options=PreflightOptions(stages=("identity", "hosts"), start_s=8))
    assert report.hosts == ("n1", "n2", "n4")
    assert report.bad == {"n3": "rank 2 did not connect"}
    assert any("retrying without n3" in note for note in bed.told.notices)


@pytest.mark.long
def test_rank_0_that_never_answers_is_found_by_bisection(bed: Bed) -> None:
    bed.python("/usr/bin/python3", dead="n1")
    report = bed.preflight(spare=1, options=PreflightOptions(stages=("identity",), start_s=8))
    assert report.hosts == ("n2", "n3", "n4") and list(report.bad) == ["n1"]
    assert any("searched in" in note for note in report.notes)


def test_without_a_spare_node_the_preflight_does_not_pass_and_names_the_bad_one(bed: Bed) -> None:
    bed.python("/usr/bin/python3", dead="n2")
    with pytest.raises(ChecksFailed, match="n2") as caught:
        bed.preflight(options=PreflightOptions(stages=("identity",), start_s=8))
    assert caught.value.exit_code == 3 and caught.value.hint is not None and "--spare 1" in caught.value.hint
    assert json.loads(bed.run.preflight.read_text())["bad"] == {"n2": "rank 1 did not connect"}


@pytest.mark.long
def test_a_slow_link_of_a_node_is_seen_by_plain_tcp(own_bed: Bed) -> None:
    slow_down(own_bed.cluster, "n3")
    options = PreflightOptions(stages=("identity", "libraries", "tcp"), seconds=0.2, speed_seconds=0, start_s=60)
    report = own_bed.preflight(spare=1, references=(expected("tcp"),), options=options)
    assert list(report.bad) == ["n3"] and report.hosts == ("n1", "n2", "n4")


def test_a_request_that_the_launcher_refuses_accuses_no_node(bed: Bed) -> None:
    with pytest.raises(StackyardError, match="failed to start on any node") as caught:
        bed.preflight(per_node=500, options=PreflightOptions(stages=("identity",), start_s=8))
    assert caught.value.exit_code == 1 and "srun" in str(caught.value.detail)


@pytest.mark.slow
def test_gloo_and_mpi_pass_on_healthy_nodes(bed: Bed, torch_python: Path) -> None:
    bed.python(torch_python)
    bed.mpi = True
    report = bed.preflight(references=(expected("allreduce_pair"), *expected_speeds()))
    told = outcomes(report)
    assert report.passed
    for stage in ("gloo", "pairs", "all", "mpi"):
        assert told[stage] in ("passed", "odd"), report.summary()
    assert told["gpus"] == told["node"] == told["tcp"] == "skipped"
    everything = [m for stage in report.stages for m in stage.measurements]
    assert {"allreduce_pair", "allreduce_all", "mpi_allreduce_all", "cpu", "memory"} <= {m.name for m in everything}
    assert all(m.value > 0 for m in everything)


@pytest.mark.long
def test_a_slow_node_is_found_by_bisection_against_the_reference(own_bed: Bed, torch_python: Path) -> None:
    own_bed.python(torch_python)
    slow_down(own_bed.cluster, "n2")
    options = PreflightOptions(stages=("identity", "libraries", "all"), seconds=0.3, speed_seconds=0, bytes=1 << 18)
    report = own_bed.preflight(spare=1, references=(expected("allreduce_all"),), options=options)
    assert report.hosts == ("n1", "n3", "n4") and list(report.bad) == ["n2"]
    assert any(note.startswith("all: searched in") for note in report.notes)


@pytest.mark.long
def test_a_slow_node_is_seen_in_its_pairs(own_bed: Bed, torch_python: Path) -> None:
    own_bed.python(torch_python)
    slow_down(own_bed.cluster, "n4")
    options = PreflightOptions(stages=("identity", "libraries", "pairs"), seconds=0.3, speed_seconds=0, bytes=1 << 18)
    report = own_bed.preflight(spare=1, references=(expected("allreduce_pair"),), options=options)
    assert report.hosts == ("n1", "n2", "n3") and list(report.bad) == ["n4"]
