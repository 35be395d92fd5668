"""Several programs in one job on a real Slurm: nodes with different ranks, by every launcher that is there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_launchers_mpi import compiled

from support import programs
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = pytest.mark.real

SHOW = """\
import json, os, pathlib, sys, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "STACKYARD_TASK", "STACKYARD_HOST",
         "STACKYARD_ROLE", "STACKYARD_ADDR_SERVER", "STACKYARD_ADDR_WORKERS", "CUDA_VISIBLE_DEVICES")
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
if sys.argv[1:] == ["serve"]:
    pathlib.Path("up").touch()
    time.sleep(300)
while not pathlib.Path("up").exists():
    time.sleep(0.02)
if sys.argv[1:] and os.environ["RANK"] == "1":
    sys.exit(int(sys.argv[1]))
if sys.argv[1:]:
    time.sleep(300)
"""
JOB = """\
format: 1
launcher: {launcher}
roles:
  server: {{program: [show.py, serve], serves: true, ranks_per_node: 1, cores_per_rank: 1, gpus_per_rank: 0}}
  workers: {{program: [{workers}], nodes: 2, ranks_per_node: 2, cores_per_rank: 1, gpus_per_rank: 1}}
straddle: true
oversubscribe: true
"""


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    with working(slurm, tmp_path, show=SHOW) as made:
        yield made


def whole(work: Work, launcher: str) -> tuple[str, ...]:
    """Whole nodes; MPICH's mpiexec is first on PATH where it is the launcher."""
    if launcher != "mpich":
        return ("--exclusive", "--gpus-per-node=4")
    (work.directory / "bin").mkdir()
    (work.directory / "bin" / "mpiexec").symlink_to(programs.need("mpiexec.hydra"))
    path = f"PATH={work.directory / 'bin'}:{os.environ['PATH']}"
    return ("--exclusive", "--gpus-per-node=4", "env", path)


def told(work: Work) -> list[dict[str, str]]:
    """What the ranks print of themselves."""
    logs = sorted((work.last / "logs").glob("rank-*.log"))
    return [json.loads(log.read_text().splitlines()[0]) for log in logs]


@pytest.mark.parametrize(
    "launcher", ["srun", *(pytest.param(one, marks=pytest.mark.long) for one in ("mpirun", "mpich"))]
)
def test_a_server_and_workers_on_nodes_of_their_own(work: Work, launcher: str) -> None:
    (work.directory / "job.yaml").write_text(JOB.format(launcher=launcher, workers="show.py"))
    done = work.allocated("launch", "--job", "job.yaml", salloc=("-N3", *whole(work, launcher)))
    server, *workers = told(work)
    assert [rank["STACKYARD_TASK"] for rank in (server, *workers)] == list("01234")
    assert [(rank["RANK"], rank["LOCAL_RANK"], rank["NODE_RANK"]) for rank in workers] == [
        ("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1"), ("3", "1", "1"),
    ]  # fmt: skip
    assert {rank["WORLD_SIZE"] for rank in workers} == {"4"}
    hosts = [rank["STACKYARD_HOST"] for rank in (server, *workers)]
    assert hosts == [hosts[0], hosts[1], hosts[1], hosts[3], hosts[3]]
    assert len(set(hosts)) == 3
    assert server["MASTER_ADDR"] == workers[0]["STACKYARD_ADDR_SERVER"] != workers[0]["MASTER_ADDR"]
    assert {rank["MASTER_ADDR"] for rank in workers} == {server["STACKYARD_ADDR_WORKERS"]}
    assert work.status()["state"] == "done"
    assert "[workers 0] " in done.out
    report = json.loads((work.last / "placement.json").read_text())
    assert (report["differing"], report["missing"]) == (0, 0)
    work.nothing_left()


def test_a_worker_that_fails_is_named_in_a_batch_job(work: Work) -> None:
    (work.directory / "job.yaml").write_text(JOB.format(launcher="srun", workers="show.py, '7'"))
    done = work.run("submit", "--job", "job.yaml", expect=7)
    assert "error: rank 1 of workers (task 2) on" in done.err
    assert "#SBATCH --nodes=3" in (work.last / "job.sh").read_text()
    assert "[server 0] " in done.out
    work.nothing_left()


@pytest.mark.parametrize(
    ("launcher", "mpi", "compiler"),
    [("srun", "pmix", "mpicc.openmpi"), ("mpirun", "", "mpicc.openmpi"), ("mpich", "", "mpicc.mpich")],
)  # fmt: skip
def test_all_roles_share_mpi_comm_world(work: Work, launcher: str, mpi: str, compiler: str) -> None:
    program = compiled(compiler, work.directory)
    site = work.directory.parent / "site.yaml"
    site.write_text(site.read_text().replace("kind: slurm,", f"kind: slurm, mpi: '{mpi}',"))
    (work.directory / "job.yaml").write_text(f"""\
format: 1
launcher: {launcher}
backend: mpi
cores_per_rank: 1
gpus_per_rank: 1
roles:
  simulation: {{program: ["{program}"], ranks_per_node: 2}}
  training: {{program: ["{program}"], ranks_per_node: 1}}
""")
    work.allocated("launch", "--job", "job.yaml", salloc=("-N2", *whole(work, launcher)))
    logs = sorted((work.last / "logs").glob("rank-*.log"))
    assert [log.read_text() for log in logs] == [f"{rank} of 3: 3\n" for rank in range(3)]
