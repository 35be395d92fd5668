"""What a launch does not use of its allocation is named."""

from __future__ import annotations

import json

import pytest

from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.plan.model import Allocation
from stackyard.launch.request.intent import Intent
from support.slurmcli import Work

SLURM = Site(scheduler=Scheduler(kind="slurm"))


def found(rule: str, nodes: int = 2, **environ: str) -> list[str]:
    hosts = tuple(f"n{number}" for number in range(nodes))
    context = PlanContext("slurm", Allocation("slurm", "7", hosts), environ=environ)
    intent = Intent(program=("work",), nodes=nodes, ranks_per_node=1, cores_per_rank=1)
    return [each.message for each in make_plan(intent, SLURM, context).findings if each.rule == rule]


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ("4,1", "3 of the 5 CPUs of this allocation are not used"),
        ("1(x2)", None),
        ("8(x2)", None),  # the placement report of even nodes says it
    ],
)
def test_uneven_nodes(cpus: str, message: str | None) -> None:
    assert found("uneven-allocation", SLURM_JOB_CPUS_PER_NODE=cpus) == ([message] if message else [])


def test_a_heterogeneous_job() -> None:
    (message,) = found("one-component", SLURM_HET_SIZE="3")
    assert message == "this job has 3 components; the launch uses the first one only"
    assert found("one-component", SLURM_HET_SIZE="1") == []


def test_threads_of_the_shell_that_are_replaced() -> None:
    assert found("threads-replaced", OMP_NUM_THREADS="7") == ["OMP_NUM_THREADS=7 of your shell is replaced by 1"]
    assert found("threads-replaced", OMP_NUM_THREADS="1") == []


@pytest.mark.real
def test_five_tasks_on_two_nodes_of_a_real_slurm(work: Work) -> None:
    (work.directory / "hello.py").write_text("print('hello')\n")
    done = work.allocated("launch", "-r", "1", "-c", "1", "-g", "0", "hello.py", salloc=("-N2", "-n5"))
    assert "CPUs of this allocation are not used" in done.err + done.out, json.dumps(done.err)


@pytest.mark.real
def test_the_first_component_of_a_heterogeneous_allocation_is_used(work: Work) -> None:
    """salloc names the nodes of its components by variables of their own; srun starts on the first one alone."""
    (work.directory / "hello.py").write_text("print('hello')\n")
    done = work.allocated("launch", "-r", "1", "-c", "1", "-g", "0", "hello.py",
                          salloc=("-N2", "--ntasks-per-node=1", ":", "--partition=debug", "-N1", "-n1"))  # fmt: skip
    assert "this job has 2 components" in done.err and "nodes 2 of 2" in done.err
    assert "queued" not in done.err, "it is in the allocation"
