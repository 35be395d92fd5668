"""Every backend with the real thing, on two nodes of a real Slurm: started, wired up, ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.core.errors import MissingError
from stackyard.inputs.sites.jobmodels import ContainerPolicy, LaunchPolicy
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.plan import containers
from stackyard.launch.plan.backends import BackendContext, choose, get
from stackyard.launch.plan.model import LaunchLine, Plan
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.request.intent import Intent
from stackyard.launch.run.start import WatchOptions
from stackyard.launch.run.step import run_step
from support import images, programs, torchstack, venvs, watched
from support.slurm import SlurmCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

HOROVOD = """
import os, torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum)
print("sum", total.item(), hvd.rank(), hvd.size(), hvd.local_rank(), os.environ["HOROVOD_CONTROLLER"], flush=True)
"""
MPI = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
print("sum", float(comm.allreduce(comm.rank)), comm.rank, comm.size, flush=True)
"""
JAX = """
import jax
jax.distributed.initialize()
print("jax", jax.process_index(), jax.process_count(), jax.device_count(), flush=True)
"""
RAY = """
import sys, ray
ray.init(logging_level="ERROR")
nodes = [node for node in ray.nodes() if node["Alive"]]

@ray.remote(num_cpus=1)
def square(x):
    return x * x

print("ray", len(nodes), ray.cluster_resources()["CPU"], sum(ray.get([square.remote(x) for x in range(4)])), flush=True)
sys.exit(7)
"""


def python_of(make: Callable[[], Path]) -> Path:
    try:
        return make()
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")


@pytest.fixture(scope="module")
def torch_python() -> Path:
    return python_of(lambda: torchstack.python(torchstack.torch_yard()))


@pytest.fixture(scope="module")
def horovod_python() -> Path:
    return python_of(lambda: torchstack.python(torchstack.horovod_yard()))


def run(
    directory: Path, python: Path, text: str, *, per_node: int = 2, mpi: str = "none", **options: object
) -> tuple[StepResult, list[str]]:
    """The program on two nodes through its backend, the shim, the agents and the hub; its logs by rank."""
    (directory / "train.py").write_text(text)
    intent = Intent.model_validate({"program": ("train.py",), "nodes": 2, "cwd": str(directory), **options})
    name, _ = choose(intent)
    program = get(name).program(intent, watched.layout(2, per_node), BackendContext(launcher="srun"))
    words = ("srun", "-N2", f"--ntasks-per-node={program.layout.ranks_per_node}", f"--mpi={mpi}", "--overcommit")
    path = EnvironmentChange((Prepend("PATH", str(python.parent)),))
    plan = Plan(program.layout, program, LaunchLine(words, "slurm"), change=path, cwd=str(directory))
    step = StepPaths(directory / "step")
    result = run_step(step, plan, watched.Heard(), run="test", options=WatchOptions(lost_s=30, start_s=90))
    logs = [step.rank_log(task).read_text() for task in range(program.layout.ranks)]
    return result, logs


@pytest.mark.parametrize("kind", ["sif", "folder"])
def test_mpi_in_an_image(
    slurm: SlurmCluster, tmp_path: Path, torch_python: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The launcher's PMIx reaches the ranks inside, the stack is bound, and the site's variables are set."""
    yard = torchstack.torch_yard()
    image = str(python_of(images.image_sif if kind == "sif" else images.image_directory))
    for name, value in images.environ().items():
        monkeypatch.setenv(name, value)
    base = Path(sys.base_prefix).resolve()
    (tmp_path / "train.py").write_text(MPI + "import os\nprint('inside', os.environ['A'], os.environ['RANK'])\n")
    intent = Intent(program=("train.py",), nodes=2, cwd=str(tmp_path), container=image)
    made = watched.layout(2, 2)
    program = get("mpi").program(intent, made, BackendContext())
    change = EnvironmentChange((Prepend("PATH", str(torch_python.parent)),))
    policy = ContainerPolicy(runtime="apptainer", binds=(str(slurm.directory), str(base)), variables={"A": "b c"})
    wrapper = containers.wrap(
        intent, Site(launch=LaunchPolicy(container=policy)), made, change, program=program, stack_root=str(yard)
    )
    words = ("srun", "-N2", "--ntasks-per-node=2", "--mpi=pmix", "--overcommit")
    plan = Plan(made, program, LaunchLine(words, "slurm"), wrappers=(wrapper,), change=change, cwd=str(tmp_path))
    step = StepPaths(tmp_path / "step")
    result = run_step(step, plan, watched.Heard(), run="test", options=WatchOptions(lost_s=30, start_s=90))
    logs = [step.rank_log(task).read_text() for task in range(4)]
    assert (result.state, result.code) == ("done", 0), logs
    assert lines(logs, "sum") == [f"sum 6.0 {rank} 4" for rank in range(4)]
    assert lines(logs, "inside") == [f"inside b c {rank}" for rank in range(4)]


def lines(logs: list[str], first: str) -> list[str]:
    """The lines that begin with a word, of all logs."""
    return sorted(line for text in logs for line in text.splitlines() if line.startswith(f"{first} "))


def test_mpi(slurm: SlurmCluster, tmp_path: Path, torch_python: Path) -> None:
    result, logs = run(tmp_path, torch_python, MPI, mpi="pmix")
    assert (result.state, result.code) == ("done", 0), logs
    assert lines(logs, "sum") == [f"sum 6.0 {rank} 4" for rank in range(4)]


ALLOCATION = ("salloc", "--quiet", "-N2", "--ntasks-per-node=2", "--overcommit")
WIRED: dict[str, tuple[tuple[str, ...], str]] = {
    "srun, PMI-2": (("srun", "-N2", "--ntasks-per-node=2", "--overcommit", "--mpi=pmi2"), "slurm"),
    "mpirun of Open MPI": ((*ALLOCATION, "mpirun.openmpi", "--oversubscribe", "-n", "4", "-N", "2"), "openmpi"),
    "mpiexec of MPICH": ((*ALLOCATION, "mpiexec.mpich", "-bootstrap", "slurm", "-n", "4", "-ppn", "2"), "hydra"),
}


@pytest.mark.parametrize("starter", WIRED)
def test_the_wire_up_survives_the_shim(
    slurm: SlurmCluster, tmp_path: Path, torch_python: Path, monkeypatch: pytest.MonkeyPatch, starter: str
) -> None:
    words, family = WIRED[starter]
    libraries = {"A": "1"}
    if family != "openmpi":
        (tmp_path / "libmpi.so.12").symlink_to(programs.need("libmpich.so.12"))
        libraries = {"LD_LIBRARY_PATH": str(tmp_path), "MPI4PY_MPIABI": "mpich"}
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(MPI)
    made = watched.layout(2, 2)
    program = get("mpi").program(Intent(program=("train.py",)), made, BackendContext())
    path = EnvironmentChange((Prepend("PATH", str(torch_python.parent)),))
    line = LaunchLine(words, family)  # type: ignore[arg-type]
    plan = Plan(made, program, line, change=path, variables=libraries, cwd=str(tmp_path))
    step = StepPaths(tmp_path / "step")
    result = run_step(step, plan, watched.Heard(), run="test", options=WatchOptions(lost_s=30, start_s=90))
    logs = [step.rank_log(task).read_text() if step.rank_log(task).exists() else "" for task in range(4)]
    assert (result.state, result.code) == ("done", 0), (logs, result.launcher_output)
    assert lines(logs, "sum") == [f"sum 6.0 {rank} 4" for rank in range(4)]


@pytest.mark.long
@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_horovod(slurm: SlurmCluster, tmp_path: Path, horovod_python: Path, controller: str) -> None:
    mpi = "pmix" if controller == "mpi" else "none"
    result, logs = run(tmp_path, horovod_python, HOROVOD, mpi=mpi, controller=controller)
    assert (result.state, result.code) == ("done", 0), logs
    assert lines(logs, "sum") == [f"sum 6.0 {rank} 4 {rank % 2} {controller}" for rank in range(4)]


@pytest.mark.long
def test_jax(slurm: SlurmCluster, tmp_path: Path) -> None:
    result, logs = run(tmp_path, python_of(venvs.frameworks), JAX)
    assert (result.state, result.code) == ("done", 0), logs
    assert lines(logs, "jax") == [f"jax {rank} 4 4" for rank in range(4)]


@pytest.mark.long
def test_ray(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The cluster spans both nodes, the code is the program's, and no process or directory is left."""
    result, logs = run(tmp_path, python_of(venvs.frameworks), RAY)
    assert (result.state, result.code) == ("failed", 7), logs
    assert result.first is not None
    assert result.first.task == 0
    assert lines(logs, "ray") == ["ray 2 4.0 14"]
    assert not _of_ray(str(tmp_path))


def _of_ray(step: str) -> list[str]:
    """Processes that still carry the mark of this test's Ray, after a moment for the kernel."""
    for _ in range(300):
        found = []
        for directory in Path("/proc").iterdir():
            try:
                environ = (directory / "environ").read_bytes() if directory.name.isdigit() else b""
            except OSError:
                continue
            if b"STACKYARD_RAY_NODE=" in environ and os.fsencode(step) in environ:
                found.append((directory / "cmdline").read_text(errors="replace"))
        if not found:
            break
        time.sleep(0.1)
    return found
