"""The launcher of a job whose site names none."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.plan.choosing import launcher_name
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.make import make_plan
from stackyard.launch.plan.model import Allocation
from stackyard.launch.request.intent import Intent

VERSIONS = {"mpirun": "mpiexec (OpenRTE) 4.1.4", "mpich": "HYDRA build details:\n Version: 4.0", "pals": "mpiexec 1.4"}
WORDS = {"mpirun": "mpirun", "mpich": "mpiexec.hydra", "pals": "mpiexec"}


def pbs(directory: Path) -> PlanContext:
    """A job of PBS on two nodes, with the programs of a directory."""
    allocation = Allocation("pbs", "7", ("n1", "n2"))
    return PlanContext("pbs", allocation, environ={"PATH": f"{directory}:/usr/bin:/bin", "PBS_JOBID": "7"})


def mpiexec(directory: Path, says: str) -> Path:
    directory.mkdir(parents=True)
    program = directory / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize(("directory", "name"), [
    ("openmpi/bin", "mpirun"), ("mpich/bin", "mpich"), ("opt/cray/pals/1.4/bin", "pals"),
])  # fmt: skip
def test_pbs_starts_ranks_as_the_mpi_in_use_does(tmp_path: Path, directory: str, name: str) -> None:
    """Options of PALS end the mpiexec of any other MPI."""
    context = pbs(mpiexec(tmp_path / directory, VERSIONS[name]))
    plan = make_plan(Intent(program=("a",), nodes=2, ranks_per_node=1), Site(), context)
    assert plan.line.words[0] == WORDS[name]
    assert ("--envall" in plan.line.words) == (name == "pals")


def test_pals_is_found_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").symlink_to(mpiexec(tmp_path / "pals" / "1.8", "mpiexec 1.8") / "mpiexec")
    assert launcher_name(Intent(program=("a",)), Scheduler(kind="pbs"), pbs(tmp_path / "bin")) == "pals"


def test_without_an_mpiexec_the_site_says_it(tmp_path: Path) -> None:
    context = pbs(tmp_path)
    context = PlanContext("pbs", context.allocation, environ={"PATH": str(tmp_path)})
    with pytest.raises(MissingError, match="cannot tell what starts the ranks") as raised:
        launcher_name(Intent(program=("a",)), Scheduler(kind="pbs"), context)
    assert "set scheduler.launcher in site.yaml" in str(raised.value.hint)
    assert launcher_name(Intent(program=("a",)), Scheduler(kind="pbs", launcher="pals"), context) == "pals"
    assert launcher_name(Intent(program=("a",), launcher="mpich"), Scheduler(kind="pbs"), context) == "mpich"


def test_pals_starts_nothing_without_a_job(tmp_path: Path) -> None:
    """On a login node of a Cray, for a program that uses MPI."""
    context = PlanContext("none", environ={"PATH": str(mpiexec(tmp_path / "pals", "mpiexec 1.4"))})
    with pytest.raises(MissingError, match="Open MPI or MPICH was not found"):
        launcher_name(Intent(program=("a",), backend="mpi"), Scheduler(), context)
