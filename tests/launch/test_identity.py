"""Identity of a rank from the variables of every launcher, and the shell text that reads the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.launch.shim.identity import FAMILIES, Identity, detect, identity_text, tasks_per_node

SETS: dict[str, tuple[dict[str, str], Identity]] = {
    "torchrun": (
        {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"},
        Identity("torchrun", 5, 8, 1, 4, 1, None),
    ),
    "jsrun": (
        {
            "JSM_NAMESPACE_RANK": "7", "JSM_NAMESPACE_SIZE": "12", "JSM_NAMESPACE_LOCAL_RANK": "1",
            "JSM_NAMESPACE_LOCAL_SIZE": "6",
            "OMPI_COMM_WORLD_RANK": "7", "OMPI_COMM_WORLD_SIZE": "12", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "PMIX_RANK": "7",
        },
        Identity("jsrun", 7, 12, 1, 6),
    ),
    "openmpi": (
        {
            "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_NODE_RANK": "1",
            "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
        },
        Identity("openmpi", 3, 4, 1, 2),
    ),
    "flux": (
        {"FLUX_TASK_RANK": "5", "FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_NNODES": "2"},
        Identity("flux", 5, 8, 1, 4, None, 2),
    ),
    "pals": (
        {
            "PALS_RANKID": "13", "PMI_RANK": "13", "PMI_SIZE": "24", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "12",
            "PALS_NODEID": "1", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "12",
        },
        Identity("pals", 13, 24, 1, 12, 1),
    ),
    "mvapich": (
        {
            "MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2", "MV2_COMM_WORLD_LOCAL_RANK": "0",
            "MV2_COMM_WORLD_LOCAL_SIZE": "1",
        },
        Identity("mvapich", 1, 2, 0, 1),
    ),
    "hydra": (
        {
            "PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2",
            "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0",
            "SLURM_NODEID": "1",
        },
        Identity("hydra", 2, 4, 0, 2),
    ),
    "cray": (
        {"PMI_RANK": "2", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "0", "PMI_LOCAL_SIZE": "2"},
        Identity("cray", 2, 4, 0, 2),
    ),
    "stackyard": (
        {
            "STACKYARD_TASK": "1", "STACKYARD_TASKS": "2", "STACKYARD_LOCAL_TASK": "1", "STACKYARD_LOCAL_TASKS": "2",
            "STACKYARD_NODE": "0",
        },
        Identity("stackyard", 1, 2, 1, 2, 0),
    ),
    "slurm": (
        {
            "SLURM_PROCID": "6", "SLURM_STEP_NUM_TASKS": "7", "SLURM_NTASKS": "9", "SLURM_LOCALID": "0",
            "SLURM_NODEID": "3", "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
            "PMI_RANK": "6", "PMI_SIZE": "7",
        },
        Identity("slurm", 6, 7, 0, 1, 3, 4),
    ),
}  # fmt: skip


def test_every_family_has_an_example() -> None:
    assert set(SETS) == set(FAMILIES)


@pytest.mark.parametrize("family", SETS)
def test_complete_set(family: str) -> None:
    environ, expected = SETS[family]
    assert detect(environ) == expected


@pytest.mark.parametrize("family", SETS)
def test_shell_reads_the_same(family: str) -> None:
    environ, expected = SETS[family]
    text = identity_text(FAMILIES[expected.family]) + 'echo "$task|$tasks|$local|$node"'
    bash = shutil.which("bash") or "/bin/bash"
    done = subprocess.run([bash, "-eu", "-c", text], env=environ, capture_output=True, text=True, check=True)
    node = "" if expected.node is None else str(expected.node)
    assert done.stdout.strip() == f"{expected.rank}|{expected.size}|{expected.local_rank}|{node}"


def test_shell_starts_no_process() -> None:
    for family in FAMILIES:
        assert not set(identity_text(FAMILIES[family])) & set("`|&;<>(")


def test_half_a_set_names_what_is_missing() -> None:
    with pytest.raises(InputError, match="OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_LOCAL_RANK"):
        detect({"OMPI_COMM_WORLD_RANK": "0"})


def test_half_a_set_beside_a_whole_one() -> None:
    environ = {**SETS["slurm"][0], "FLUX_TASK_RANK": "3"}
    with pytest.raises(InputError, match="flux sets FLUX_TASK_RANK but not FLUX_JOB_SIZE"):
        detect(environ)


def test_exported_rank_without_local_rank() -> None:
    with pytest.raises(InputError, match="LOCAL_RANK"):
        detect({"RANK": "0", "WORLD_SIZE": "8"})


def test_a_copied_rank_disagrees_with_slurm() -> None:
    environ = {**SETS["slurm"][0], "RANK": "0", "WORLD_SIZE": "7", "LOCAL_RANK": "0"}
    with pytest.raises(InputError, match="0 of 7 by torchrun, 6 of 7 by slurm"):
        detect(environ)


def test_torchrun_inside_slurm() -> None:
    environ = {**SETS["slurm"][0], "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}
    assert detect(environ).rank == 9


def test_two_launchers_disagree() -> None:
    environ = {**SETS["openmpi"][0], **SETS["cray"][0]}
    with pytest.raises(InputError, match="3 of 4 by openmpi, 2 of 4 by cray"):
        detect(environ)


def test_nobody_started_it() -> None:
    with pytest.raises(InputError, match="not a rank"):
        detect({"PATH": "/bin", "HOME": str(Path.home())})


def test_not_a_number() -> None:
    with pytest.raises(InputError, match="SLURM_PROCID='x'"):
        detect({"SLURM_PROCID": "x"})


@pytest.mark.parametrize(("text", "counts"), [("2(x3),1", [2, 2, 2, 1]), ("4", [4]), ("1,2(x2)", [1, 2, 2])])
def test_tasks_per_node(text: str, counts: list[int]) -> None:
    assert tasks_per_node(text) == counts


def test_tasks_per_node_refuses() -> None:
    with pytest.raises(InputError, match="not a list"):
        tasks_per_node("2x3")
