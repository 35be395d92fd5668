"""Without a site file the nodes are what Slurm says they are, not what the login node is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stackyard.host.machine import scontrol
from stackyard.launch.plan.schedulers import slurm_nodes
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real


@pytest.fixture
def bare(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """A person without any site file."""
    with working(slurm, tmp_path) as made:
        monkeypatch.delenv("STACKYARD_SITE")
        yield made


def layout(work: Work) -> dict[str, Any]:
    """What was planned for the last run."""
    found: dict[str, Any] = json.loads((work.last / "record.json").read_text())["plan"]["layout"]
    return found


@pytest.mark.parametrize(("salloc", "ranks", "cores", "gpus"), [
    (("-N2", "--exclusive"), 4, 8, 1),
    (("-N2", "-c32"), 1, 32, 0),
    (("-N2", "--ntasks-per-node=2", "-c3", "--gres=gpu:2"), 2, 3, 1),
])  # fmt: skip
def test_an_allocation_says_what_its_nodes_have(
    bare: Work, salloc: tuple[str, ...], ranks: int, cores: int, gpus: int
) -> None:
    done = bare.allocated("launch", "exit.py", "0", salloc=salloc)
    made = layout(bare)
    assert (made["ranks_per_node"], made["cores_per_rank"], made["gpus_per_rank"]) == (ranks, cores, gpus)
    assert f"rank 0 of {2 * ranks}" in done.out
    assert "note: a node of this allocation has" in done.err
    assert made["assumed"][0] in done.err


def test_a_job_is_planned_for_the_nodes_of_its_partition(bare: Work) -> None:
    done = bare.run("submit", "-N", "2", "exit.py", "0")
    made = layout(bare)
    assert (made["ranks_per_node"], made["cores_per_rank"], made["gpus_per_rank"]) == (4, 8, 1)
    assert "note: a node of partition debug has 32 cores, 4 GPUs, as reported by Slurm" in done.err
    assert "rank 0 of 8" in done.out
    outside = bare.run("launch", "-N", "2", "-g", "0", "-r", "1", "exit.py", "0")
    assert layout(bare)["cores_per_rank"] == 32
    assert "rank 0 of 2" in outside.out


@pytest.mark.parametrize(("asked", "words", "ranks", "cores", "gpus"), [
    (("--ntasks-per-node=2", "-c4"), (), 2, 4, 0),
    (("-n6", "-c4", "--exclusive"), (), 3, 4, 1),  # 4 GPUs for 3 ranks
    (("--ntasks-per-node=2", "-c4", "--gpus-per-node=2"), (), 2, 4, 1),
    (("--ntasks-per-node=4",), (), 4, 1, 0),
    (("--ntasks-per-node=2", "-c4"), ("-c", "2"), 2, 2, 0),
    (("--ntasks-per-node=2", "-c4"), ("-r", "4", "-g", "0", "-c", "2"), 4, 2, 0),
    (("-c8", "--gpus-per-node=4"), ("-c", "2"), 4, 2, 1),  # no number of tasks: one rank per GPU
])  # fmt: skip
@pytest.mark.parametrize("described", [True, False])
def test_the_tasks_of_ones_own_job_are_the_ranks(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...],
    words: tuple[str, ...], ranks: int, cores: int, gpus: int, described: bool,
) -> None:  # fmt: skip
    with working(slurm, tmp_path) as work:
        if not described:
            monkeypatch.delenv("STACKYARD_SITE")
        done = work.allocated("launch", *words, "--dry-run", "--json", "exit.py", "0", salloc=("-N2", *asked))
        made = done.value["layout"]
        assert (made["ranks_per_node"], made["cores_per_rank"], made["gpus_per_rank"]) == (ranks, cores, gpus)
        if not words:
            assert f"note: {ranks} ranks per node" in done.err


@pytest.mark.parametrize("words", [(), ("-r", "2", "-g", "0", "-p", "debug")])
def test_a_job_is_explained_for_the_nodes_that_it_is_submitted_for(bare: Work, words: tuple[str, ...]) -> None:
    told = bare.run("explain", "-N", "2", *words, "--as", "srun", "--json", "exit.py").value
    plan = bare.run("submit", "-N", "2", *words, "--dry-run", "--json", "exit.py").value
    script = [line.replace('"', "") for line in plan["script"].splitlines() if line.startswith("#SBATCH")]
    assert [line["line"].replace('"', "") for line in told["head"]] == script
    assert told["launchers"]["srun"]["command"].split()[:-2] == plan["command"].split()[:-1]
    assert (told["layout"]["node"]["kind"], told["layout"]["ranks"]) == ("partition debug", plan["layout"]["ranks"])


@pytest.mark.parametrize(("words", "salloc", "said", "hint"), [
    (("-r", "4", "-c", "8", "-g", "0"), ("-N2",), "need 32 CPUs per node, but this allocation has 1",
     "salloc -N 2 --exclusive, or salloc -N 2 --ntasks-per-node=4 --cpus-per-task=8"),
    (("-r", "1", "-c", "1", "-g", "1"), ("-N2",), "this allocation has none", "--gpus-per-node=1"),
    (("-r", "2", "-c", "1", "-g", "1"), ("-N2", "-c2", "--gpus-per-node=1"), "need 2 per node", "--gpus-per-node=2"),
])  # fmt: skip
def test_too_small_an_allocation_is_refused_before_anything_starts(
    slurm: SlurmCluster, tmp_path: Path, words: tuple[str, ...], salloc: tuple[str, ...], said: str, hint: str
) -> None:
    with working(slurm, tmp_path) as work:  # with a site file, which says what the nodes have but not what we have
        done = work.allocated("launch", *words, "exit.py", "0", salloc=salloc, expect=2)
        assert said in done.err
        assert hint in done.err
        assert not (work.directory / "runs").exists()


def test_a_small_allocation_without_a_site_is_refused_in_the_same_words(bare: Work) -> None:
    done = bare.allocated("launch", "-r", "2", "-g", "0", "exit.py", "0", salloc=("-N2",), expect=2)
    assert "this allocation has 1" in done.err
    assert "--ntasks-per-node=2" in done.err


LINE = "NodeName=x CPUTot={} CPUEfctv={} Sockets={} CoresPerSocket={} ThreadsPerCore={} Gres={} RealMemory=1024"


@pytest.mark.parametrize(("said", "cpus", "shape"), [
    ((128, 128, 2, 32, 2, "gpu:a100:4(S:0-1)"), 0, (64, 2, 2, 4)),
    ((64, 64, 2, 32, 2, "(null)"), 0, (64, 2, 1, 0)),  # CPUs are cores there, whatever a core could do
    ((128, 124, 2, 32, 2, "(null)"), 0, (62, 2, 2, 0)),  # two cores are kept for the system
    ((32, 32, 32, 1, 1, "gpu:4"), 0, (32, 1, 1, 4)),  # configured by CPUs= alone
    ((128, 128, 2, 32, 2, "gpu:mi250:8,shard:3"), 16, (8, 1, 2, 8)),
])  # fmt: skip
def test_what_a_line_of_scontrol_means(said: tuple[Any, ...], cpus: int, shape: tuple[int, int, int, int]) -> None:
    node = slurm_nodes._node(scontrol.record(LINE.format(*said)), "these", cpus, None)
    assert (node.cores, node.sockets, node.smt, node.gpus) == shape
    assert node.gpu_vendor == ("" if not node.gpus else "amd" if "mi250" in said[-1] else "nvidia")
    assert [core for domain in node.domains for core in domain.cores] == list(range(node.cores))


@pytest.mark.parametrize(("environ", "gpus"), [
    ({"SLURM_GPUS_ON_NODE": "4"}, 4), ({"SLURM_GPUS_PER_NODE": "a100:2"}, 2), ({"SLURM_GPUS_PER_NODE": "a100"}, 1),
    ({"SLURM_GPUS_PER_NODE": "a100:2,h100:1"}, 3), ({}, None),
])  # fmt: skip
def test_gpus_in_the_variables_of_an_allocation(environ: dict[str, str], gpus: int | None) -> None:
    assert slurm_nodes._gpus_given(environ) == gpus


@pytest.mark.parametrize(("text", "found"), [
    ("32(x4)", [32, 32, 32, 32]), ("3,1", [3, 1]), ("8(x2),4", [8, 8, 4]), ("", []),
])  # fmt: skip
def test_counts_of_nodes(text: str, found: list[int]) -> None:
    assert slurm_nodes.counts(text) == found
