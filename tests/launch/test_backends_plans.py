"""What each backend makes of an intent."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.plan.backends import BY_IMPORT, TABLE, BackendContext, choose, get
from stackyard.launch.plan.make import program_of
from stackyard.launch.plan.model import RankProgram
from stackyard.launch.request.intent import Intent

HERE = BackendContext()


def layout(ranks: int = 4, nodes: int = 2, gpus: int = 0) -> Layout:
    node = Node("n", (NodeDomain(0, tuple(range(ranks * 2)), tuple(range(ranks * gpus))),), ranks * 2)
    own = [tuple(range(n * gpus, (n + 1) * gpus)) for n in range(ranks)]
    slots = tuple(Slot(n, (2 * n, 2 * n + 1), own[n]) for n in range(ranks))
    return Layout(node, (Block(0, nodes, slots),))


def made(
    name: str, *program: str, where: Layout | None = None, context: BackendContext = HERE, **more: object
) -> RankProgram:
    intent = Intent.model_validate({"program": program or ("train.py", "--epochs", "3"), "nodes": 2, **more})
    return get(name).program(intent, where or layout(), context)


@pytest.mark.parametrize("name", TABLE)
def test_every_backend_runs_a_script_by_the_stacks_python(name: str) -> None:
    program = made(name)
    assert program.argv[-4:] == ("python", "train.py", "--epochs", "3")
    assert program.variables["PYTHONUNBUFFERED"] == "1"
    assert program.ports >= 1
    assert program.mpi == (name in ("mpi", "horovod", "any"))  # of `any` what train.py imports is not known


@pytest.mark.parametrize("name", TABLE)
def test_a_command_is_left_alone(name: str) -> None:
    assert made(name, "./solver", "-n", "a b").argv[-3:] == ("./solver", "-n", "a b")


def test_real_torchrun() -> None:
    program = made("torchrun", direct=False)
    assert program.argv == (
        "python", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=4", "--node-rank=${NODE_RANK}",
        "--master-addr=${MASTER_ADDR}", "--master-port=${MASTER_PORT}", "--max-restarts=0", "train.py", "--epochs", "3",
    )  # fmt: skip
    assert (program.layout.ranks_per_node, program.ranks_per_task) == (1, 4)
    assert program.layout.cores_per_rank == 8
    assert made("torchrun", "python", "t.py", direct=False).argv[-1:] == ("t.py",)
    assert made("torchrun", "./run.sh", "x", direct=False).argv[-3:] == ("--no-python", "./run.sh", "x")


def test_horovod_through_mpi() -> None:
    program = made("horovod")
    assert program.variables["HOROVOD_CONTROLLER"] == "mpi"
    assert (program.mpi, program.sidecar) == (True, ())


@pytest.mark.parametrize("how", [{"controller": "gloo"}, {"launcher": "local"}])
def test_horovod_through_gloo(how: dict[str, str]) -> None:
    program = made("horovod", **how)
    assert (program.mpi, program.ports) == (False, 2)
    assert program.variables["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "${STACKYARD_PORT_1}"
    assert program.variables["HOROVOD_CROSS_SIZE"] == "${STACKYARD_NODES}"
    assert Path(program.sidecar[1]).is_file()
    assert program.sidecar[2:] == ("${STACKYARD_PORT_1}", "2", "4", "block")


def test_deepspeed_gets_its_option_where_it_is_parsed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int)\n"
    )
    assert made("deepspeed", str(script)).argv == ("python", str(script), "--local_rank=${LOCAL_RANK}")
    assert made("deepspeed", str(script), "--local_rank=0").argv[2:] == ("--local_rank=0",)
    script.write_text("import deepspeed\n")
    assert made("deepspeed", str(script)).argv == ("python", str(script))


def test_jax() -> None:
    program = made("jax", where=layout(gpus=1))
    assert program.variables["JAX_COORDINATOR_ADDRESS"] == "${STACKYARD_MASTER}"
    assert program.variables["KERAS_DISTRIBUTION_JOB_ADDRESSES"] == "${STACKYARD_MASTER}"
    assert program.variables["JAX_LOCAL_DEVICE_IDS"] == "${STACKYARD_DEVICE}"
    assert "JAX_LOCAL_DEVICE_IDS" not in made("jax").variables
    assert program.variables["grpc_proxy"] == ""
    assert "grpc_proxy" not in made("jax", variables={"grpc_proxy": "http://own:1"}).variables
    assert made("jax", context=BackendContext(launcher="srun")).findings == ()
    assert [f.rule for f in made("jax", context=BackendContext(launcher="pals")).findings] == ["jax-undetected"]


def test_ray_has_a_task_per_node() -> None:
    program = made("ray", where=layout(4, 3, 1))
    assert (program.layout.ranks, program.ports) == (3, 2)
    assert program.argv[2:6] == ("--cpus=8", "--gpus=4", "--nodes=3", "--")
    assert Path(program.argv[1]).is_file()


@pytest.mark.parametrize("program", ["torchrun", "/usr/bin/mpirun", "deepspeed", "srun"])
def test_a_launcher_in_a_launch(program: str) -> None:
    assert [f.rule for f in made("any", program, "train.py").findings] == ["launcher-in-launch"]


def test_unknown_backend() -> None:
    with pytest.raises(InputError, match="no such backend: pytorch") as caught:
        get("pytorch")
    assert "torchrun" in (caught.value.hint or "")


CHOICES = {
    "import torch\nimport horovod.torch as hvd\n": "horovod",
    "import torch, deepspeed\n": "deepspeed",
    "def f():\n    import ray\n    import torch\n": "ray",
    "from jax import numpy\nfrom mpi4py import MPI\n": "jax",
    "from mpi4py import MPI\nimport torch\n": "mpi",
    "from torch import nn\n": "torchrun",
    "from transformers import Trainer\n": "torchrun",
    "import tensorflow as tf, torch\n": "torchrun",
    "import tensorflow as tf, jax\n": "jax",
    "from tensorflow import keras\n": "tensorflow",
    "import keras\n": "tensorflow",
    "import transformers, tensorflow\n": "tensorflow",
    "import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras\n": "jax",
    "import os\nos.environ.setdefault('KERAS_BACKEND', 'torch')\nimport keras\n": "torchrun",
    "import torchvision_nothing, os\n": "any",
    "from . import torch\n": "any",
    "# import torch\nx = 'import torch'\n": "any",
}


@pytest.mark.parametrize("text", CHOICES)
def test_choose_by_imports(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    name, reasons = choose(Intent(program=("train.py",), cwd=str(tmp_path)))
    assert name == CHOICES[text]
    assert len(reasons) == 1


def test_choose_says_where(tmp_path: Path) -> None:
    """Through modules beside the program, in a circle, and through a broken one."""
    (tmp_path / "train.py").write_text("import lib\nimport broken\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").write_text("import train\n\nimport torch\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    name, (reason,) = choose(Intent(program=("python", "-u", "train.py"), cwd=str(tmp_path)))
    assert name == "torchrun"
    assert reason.reason == f"{tmp_path}/lib/__init__.py:3 imports torch"


@pytest.mark.parametrize("program", [("./a.out",), ("python", "-c", "import torch"), ("missing.py",)])
def test_what_cannot_be_read_is_any(program: tuple[str, ...]) -> None:
    name, (reason,) = choose(Intent(program=program))
    assert name == "any"
    assert "read" in reason.reason or "*.py" in reason.reason


def test_the_program_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nimport torch\n")
    assert choose(Intent(program=("train.py",), cwd=str(tmp_path)))[0] == "torchrun"
    assert not (tmp_path / "ran").exists()


def test_asked_for() -> None:
    assert choose(Intent(program=("x",), backend="mpi")) == ("mpi", ())
    assert set(BY_IMPORT.values()) <= set(TABLE)


LOADERS = {
    "DataLoader(d, num_workers=4)": True,
    "torch.utils.data.DataLoader(d, 32, num_workers=args.workers)": True,
    "DataLoader(d, num_workers=4, multiprocessing_context='fork')": True,
    "DataLoader(d, num_workers=4, multiprocessing_context='forkserver')": False,
    "DataLoader(d, num_workers=4, multiprocessing_context=ctx)": False,
    "DataLoader(d, num_workers=0)": False,
    "DataLoader(d)": False,
    "multiprocessing.set_start_method('forkserver')\nDataLoader(d, num_workers=4)": False,
    "DataLoader(d, num_workers=4, **options)": False,
}


@pytest.mark.parametrize("text", LOADERS)
@pytest.mark.parametrize("name", ["mpi", "horovod", "torchrun", "verbs"])
def test_forked_workers_under_mpi_or_verbs(tmp_path: Path, name: str, text: str) -> None:
    script = tmp_path / "train.py"
    first = "import torch, ucxx" if name == "verbs" else "import torch"
    script.write_text(f"{first}\n\nloader = (\n{text})\n" if "\n" not in text else f"{first}\n\n\n{text}\n")
    asked = {"program": (str(script),), "nodes": 2, "backend": "torchrun" if name == "verbs" else name}
    findings = program_of(Intent.model_validate(asked), layout(), "srun", None).findings
    if not LOADERS[text] or name == "torchrun":
        assert findings == ()
        return
    other = Intent.model_validate({**asked, "start_method": "forkserver"})
    assert program_of(other, layout(), "srun", None).findings == ()
    assert ("ucxx" if name == "verbs" else "MPI") in findings[0].message
    (finding,) = findings
    assert (finding.rule, finding.severity) == ("dataloader-fork-mpi", "warning")
    assert str(finding.where) == f"{script}:4"
    assert "forkserver" in finding.remedy
