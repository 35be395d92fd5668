"""The test cluster is a real Slurm: what the tests of launching count on, shown with Slurm's own commands alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import programs
from support.processes import wait_for
from support.slurm import Loss, SlurmCluster
from support.slurmconf import port

pytestmark = pytest.mark.real


def script(directory: Path, *lines: str) -> Path:
    """A batch script."""
    path = directory / "job.sh"
    path.write_text("\n".join(["#!/bin/bash", f"#SBATCH --output={directory}/out.txt --open-mode=append", *lines, ""]))
    return path


def said(path: Path, text: str, timeout_s: float = 120) -> str:
    """Wait until a file holds a text."""
    wait_for(lambda: path.exists() and text in path.read_text(), timeout_s, lambda: f"no {text!r} in {path}")
    return path.read_text()


def test_every_task_has_its_own_host_and_address(slurm: SlurmCluster) -> None:
    program = "hostname; ip -brief address show eth0"
    lines = slurm.run("srun", "-N4", "--ntasks-per-node=1", "sh", "-c", program).stdout.split()
    assert sorted(word for word in lines if word in slurm.hosts) == slurm.hosts
    assert len({word for word in lines if word.startswith("10.197.")}) == 4


def test_nodes_reach_each_other_by_name(slurm: SlurmCluster) -> None:
    assert slurm.on("n1", "getent", "hosts", "n4").stdout.split()[0].endswith(".14")


def test_gpus_are_given_out(slurm: SlurmCluster) -> None:
    each = slurm.run("srun", "-N1", "-n2", "--gpus-per-task=1", "printenv", "CUDA_VISIBLE_DEVICES").stdout.split()
    assert len(set(each)) == 2
    whole = slurm.run("srun", "-N1", "-n1", "--gpus-per-node=4", "printenv", "CUDA_VISIBLE_DEVICES").stdout.strip()
    assert whole == "0,1,2,3"


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_a_job_is_that_of_its_script(slurm: SlurmCluster, tmp_path: Path, code: int) -> None:
    done = slurm.run("sbatch", "--wait", script(tmp_path, f"exit {code}"), check=False)
    assert done.returncode == code


def test_an_array_has_a_job_for_every_index(slurm: SlurmCluster, tmp_path: Path) -> None:
    body = script(tmp_path, f"echo $SLURM_ARRAY_TASK_ID > {tmp_path}/$SLURM_ARRAY_TASK_ID")
    slurm.run("sbatch", "--wait", "--array=1-3", body)
    assert [(tmp_path / str(i)).read_text().strip() for i in (1, 2, 3)] == ["1", "2", "3"]


def test_a_cancelled_job_is_over_and_leaves_no_process(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = slurm.submit("-N2", script(tmp_path, "echo begun", "srun sleep 3217"))
    said(tmp_path / "out.txt", "begun")
    slurm.run("scancel", job)
    assert slurm.wait_job(job)["JobState"] == "CANCELLED"
    wait_for(lambda: not [line for line in slurm.processes().values() if "3217" in line], said=slurm.processes)


@pytest.mark.long
def test_a_signal_comes_before_the_end_of_the_time(slurm: SlurmCluster, tmp_path: Path) -> None:
    body = ("trap 'echo told; exit 0' USR1", "sleep 60 & wait")
    job = slurm.submit("--time=1", "--signal=B:USR1@60", script(tmp_path, *body))  # a minute before the end: at once
    assert slurm.wait_job(job)["JobState"] == "COMPLETED"
    assert "told" in (tmp_path / "out.txt").read_text()


@pytest.mark.long
def test_a_preempted_job_is_told_and_starts_again(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    slurm = slurm_exclusive
    body = ("trap 'echo told $SLURM_RESTART_COUNT' USR1", "echo begun ${SLURM_RESTART_COUNT:-0}",
            "while [ -z $SLURM_RESTART_COUNT ]; do sleep 0.1; done")  # fmt: skip
    job = slurm.submit("-N3", "--requeue", "--signal=B:USR1@1", script(tmp_path, *body))
    said(tmp_path / "out.txt", "begun 0")
    slurm.run("srun", "--partition=urgent", "-N3", "hostname")
    assert "told" in said(tmp_path / "out.txt", "begun 1", 120)
    assert slurm.wait_job(job)["Restarts"] == "1"


def answers(slurm: SlurmCluster, node: str) -> bool:
    """Whether a node's daemon can be reached from another node."""
    words = ("timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{node}/{port(slurm.number) + 1}")
    return slurm.on("n1", *words, check=False).returncode == 0


def runs_on(slurm: SlurmCluster, node: str, mark: str) -> bool:
    """Whether a process with a word in its command line is there."""
    return any(mark in line for line in slurm.processes(node).values())


@pytest.mark.parametrize("how", ["cut", *(pytest.param(how, marks=pytest.mark.long) for how in ("kill", "power"))])
def test_a_node_is_lost_and_comes_back(slurm_exclusive: SlurmCluster, tmp_path: Path, how: Loss) -> None:
    slurm = slurm_exclusive
    job = slurm.submit("-N2", "--nodelist=n2,n3", script(tmp_path, "srun sleep 3218"))
    wait_for(lambda: runs_on(slurm, "n3", "sleep 3218"))
    assert answers(slurm, "n3")
    slurm.lose_node("n3", how)
    assert not answers(slurm, "n3")
    assert runs_on(slurm, "n3", "sleep 3218") is (how == "cut")
    if how != "kill":  # then the connections of its programs are closed, which srun sees
        time.sleep(2)
        assert slurm.job(job)["JobState"] == "RUNNING"  # Slurm alone notices late
    slurm.run("scancel", job)
    slurm.restore_node("n3")
    slurm.wait_idle()
    assert sorted(slurm.run("srun", "-N3", "hostname").stdout.split()) == slurm.hosts


def test_a_cluster_whose_users_were_killed_is_removed(slurm: SlurmCluster) -> None:
    program = (
        "import os; from support.slurm import Loss, SlurmCluster\n"
        "with SlurmCluster.own(1) as cluster:\n    print(cluster.number, flush=True); os.kill(os.getpid(), 9)"
    )
    directory = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=directory, text=True, capture_output=True, check=False)
    left = int(done.stdout)
    assert f"sy{left}-n1" in slurm.run("ip", "netns", "list").stdout
    with SlurmCluster.own(1) as cluster:
        assert cluster.number <= left
        assert cluster.number == left or f"sy{left}-n1" not in slurm.run("ip", "netns", "list").stdout
        assert list(cluster.states()) == ["n1"]


MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum; char host[MPI_MAX_PROCESSOR_NAME]; int length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s sum %d\n", rank, size, host, sum);
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.parametrize(("compiler", "wiring"), [("mpicc.openmpi", "pmix"), ("mpicc.mpich", "pmi2")])
def test_mpi_finds_its_ranks_through_slurm(slurm: SlurmCluster, tmp_path: Path, compiler: str, wiring: str) -> None:
    programs.need(compiler)
    (tmp_path / "hello.c").write_text(MPI_PROGRAM)
    subprocess.run([compiler, "-o", tmp_path / "hello", tmp_path / "hello.c"], check=True)
    done = slurm.run("srun", f"--mpi={wiring}", "-N2", "--ntasks-per-node=2", tmp_path / "hello", **as_root())
    lines = sorted(done.stdout.splitlines())
    assert [line.split(" on ")[0] for line in lines] == [f"rank {rank} of 4" for rank in range(4)]
    assert all(line.endswith("sum 6") for line in lines)
    assert len({line.split()[5] for line in lines}) == 2


def as_root() -> dict[str, str]:
    """What Open MPI wants to be told before it runs for root."""
    words = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(words, "1") if os.geteuid() == 0 else {}
