"""Rules on how ranks find each other: what must be found, and the near miss that must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.lint.api import lint_file, lint_text

HEAD = "#!/bin/bash\n#SBATCH --time=10 --nodes=2 --ntasks-per-node=4 -c 8 --gpus-per-node=4\n"
AGENT = (
    HEAD.replace("per-node=4 -c 8", "per-node=1 -c 32") + "srun -c 32 torchrun --nnodes=2 --nproc_per_node=4 {} a.py\n"
)
JOIN = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
SET = "import os\nos.environ['RANK'] = os.environ['SLURM_PROCID']\nos.environ['WORLD_SIZE'] = '2'\n"
ADDRESS = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
EACH = "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec python train.py"


def found(directory: Path, lines: str, source: str = JOIN, head: str = HEAD) -> list[str]:
    """The messages of `group-without-variables` for a script beside a program."""
    (directory / "train.py").write_text(source)
    (directory / "job.sh").write_text(head + lines)
    findings = lint_file(directory / "job.sh").findings
    return [f"{each.severity}: {each.message}" for each in findings if each.rule == "group-without-variables"]


@pytest.mark.parametrize(
    "line",
    [
        "srun -c 8 python train.py", "srun -c 8 bash -c 'python -u train.py --lr 1'", "srun -c 8 ./worker.sh",
        "mpirun -np 8 python train.py",
        "srun -c 8 python -m train --lr 1", "srun -c 8 apptainer exec --nv i.sif python train.py",
    ],
)  # fmt: skip
def test_nothing_sets_what_the_program_reads(tmp_path: Path, line: str) -> None:
    (tmp_path / "worker.sh").write_text("#!/bin/bash\nexec python train.py\n")
    assert found(tmp_path, line) == [
        "refused: train.py:2 joins a process group, but nothing sets MASTER_ADDR, RANK, WORLD_SIZE"
    ]


def test_only_what_is_missing_is_named(tmp_path: Path) -> None:
    assert found(tmp_path, ADDRESS + "srun -c 8 python train.py") == [
        "refused: train.py:2 joins a process group, but nothing sets RANK, WORLD_SIZE"
    ]
    unexported = ADDRESS.replace("export ", "") + f"srun -c 8 bash -c '{EACH}'"
    assert "nothing sets MASTER_ADDR" in found(tmp_path, unexported)[0]


@pytest.mark.parametrize(
    "lines",
    [
        ADDRESS + f"srun -c 8 bash -c '{EACH}'", ADDRESS + "srun -c 8 ./worker.sh", "source env.sh\nsrun ./worker.sh",
        "srun -c 8 torchrun --nproc_per_node=1 train.py", "srun -c 8 hostname",
    ],
)  # fmt: skip
def test_variables_that_the_script_sets(tmp_path: Path, lines: str) -> None:
    (tmp_path / "worker.sh").write_text("export RANK=$SLURM_PROCID\nexport WORLD_SIZE=$SLURM_NTASKS\npython train.py\n")
    (tmp_path / "env.sh").write_text(ADDRESS)
    assert not found(tmp_path, lines)


@pytest.mark.parametrize(
    "source",
    [
        SET + "os.environ.setdefault('MASTER_ADDR', 'x')\n" + JOIN,
        "from helper import join\njoin()\n",
        "import torch.distributed as d\nd.init_process_group('nccl', init_method='tcp://a:1', rank=0, world_size=2)\n",
        "import torch.distributed as d\nd.init_process_group('mpi')\n",
        "import os\nfor name in wanted:\n    os.environ[name] = '1'\n" + JOIN,
        "import idr_torch\n" + JOIN,
        "print('alone')\n",
    ],
)
def test_programs_that_need_nothing(tmp_path: Path, source: str) -> None:
    (tmp_path / "helper.py").write_text(SET + "os.environ['MASTER_ADDR'] = 'x'\ndef join():\n    import x\n" + JOIN)
    assert not found(tmp_path, "srun -c 8 python train.py", source)


def test_the_module_beside_the_program_is_read(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(JOIN)
    assert "helper.py:2" in found(tmp_path, "srun -c 8 python train.py", "import helper\n")[0]


def test_a_program_that_then_runs_alone(tmp_path: Path) -> None:
    source = (
        "import os\nif 'RANK' in os.environ:\n    import torch.distributed as d\n    d.init_process_group('gloo')\n"
    )
    assert found(tmp_path, "srun -c 8 python train.py", source)[0].endswith("every task runs alone")
    assert not found(tmp_path, "srun -n 1 -c 8 python train.py", source)


def test_the_program_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "join.py").write_text(JOIN)
    assert "join.py:2 joins" in found(tmp_path, f"srun -c 8 python {tmp_path}/elsewhere/join.py")[0]


def test_a_file_that_is_not_found_may_set_them(tmp_path: Path) -> None:
    assert found(tmp_path, "source /opt/site/env.sh\nsrun -c 8 python train.py")[0].startswith("note: ")
    assert found(tmp_path, "source venv/bin/activate\nsrun -c 8 python train.py")[0].startswith("refused: ")


def rendezvous(options: str, script: str = AGENT) -> list[str]:
    findings = lint_text(script.format(options), name="job.sh").findings
    return [each.message for each in findings if each.rule == "torchrun-no-rendezvous"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "no --rdzv_endpoint"), ("--rdzv_backend=c10d", "no --rdzv_endpoint"),
        ("--rdzv_id=$SLURM_JOB_ID", "no --rdzv_endpoint"), ("--master_addr=$HEAD", "nor --node_rank"),
        ("--rdzv-endpoint=$HEAD:1", "nor --node_rank"),
    ],
)  # fmt: skip
def test_agents_that_never_meet(options: str, message: str) -> None:
    assert message in rendezvous(options)[0]


@pytest.mark.parametrize(
    "options",
    [
        "--rdzv_backend=c10d --rdzv_endpoint=$HEAD:1", "--rdzv-backend c10d --rdzv-endpoint $HEAD:1",
        "--master_addr=$HEAD --node_rank=$SLURM_NODEID", "$OPTIONS",
    ],
)  # fmt: skip
def test_agents_that_meet(options: str) -> None:
    assert not rendezvous(options)
    assert not rendezvous("", AGENT.replace("--nnodes=2", "--nnodes=1").replace("nodes=2", "nodes=1"))
    assert not rendezvous("", "export PET_RDZV_ENDPOINT=$HEAD:1 PET_RDZV_BACKEND=c10d\n" + AGENT)


def test_accelerate_meets_by_its_own_options() -> None:
    script = AGENT.replace(
        "torchrun --nnodes=2 --nproc_per_node=4", "accelerate launch --num_machines=2 --num_processes=8"
    )
    assert "no --main_process_ip" in rendezvous("", script)[0]
    assert "no --machine_rank" in rendezvous("--main_process_ip=$HEAD", script)[0]
    assert not rendezvous("--main_process_ip=$HEAD --machine_rank=$SLURM_NODEID", script)
    assert not rendezvous("--config_file=x.yaml", script)


def test_modules_above_and_below_the_program_are_read(tmp_path: Path) -> None:
    for name, text in (("run/__init__.py", ""), ("run/train.py", "from ..common.join import start\n")):
        (tmp_path / "package" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "package" / name).write_text(text)
    (tmp_path / "package" / "common").mkdir()
    (tmp_path / "package" / "common" / "join.py").write_text(JOIN)
    (said,) = found(tmp_path, "srun -c 8 python -m package.run.train")
    assert "package/common/join.py:2 joins a process group" in said


@pytest.mark.parametrize(
    "first", [b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\nNAME = 'Andr\xe9'\n"], ids=["BOM", "latin-1"]
)
def test_a_program_is_read_as_python_reads_it(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "train.py").write_bytes(first + JOIN.encode())
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 2 -t 10 --ntasks-per-node=2\nsrun python train.py\n")
    said = [each.message for each in lint_file(tmp_path / "job.sh").findings]
    assert any("joins a process group" in each for each in said)


def test_a_module_is_found_as_a_launch_finds_it(tmp_path: Path) -> None:
    """The package's ``__main__`` before a file of its name, and its modules from where the module is started."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("import common\n")
    (tmp_path / "pkg" / "common.py").write_text("")
    (tmp_path / "pkg.py").write_text("")
    (tmp_path / "common.py").write_text(JOIN)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 2 -t 10 --ntasks-per-node=2\nsrun python -m pkg\n")
    said = [each.message for each in lint_file(tmp_path / "job.sh").findings]
    assert any(each.startswith("common.py:2 joins a process group") for each in said)


PART = "#!/bin/bash\n#SBATCH -t 10 -N 1 --gpus-per-node=1 --mem=32G -c 4\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("srun python a.py --master_port=29500 --lr 1", "--master_port is always 29500"),
        ("python -u a.py --dist.port 29500", "--dist.port is always 29500"),
        ("python a.py --dist-url tcp://localhost:10001", "tcp:// is always 10001"),
        ("torchrun --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 a.py", "--rdzv_endpoint is always 29500"),
        ("./env.sh torchrun --rdzv_endpoint $HEAD:29500 a.py", "--rdzv_endpoint is always 29500"),
        ("./worker --rdzv_endpoint=$HEAD:29500", ""),
        ("srun python a.py --master_port=$((20000 + SLURM_JOB_ID))", ""),
        ("python a.py --dist-url tcp://localhost:$PORT --port 8080", ""),
        ("export MASTER_PORT=1234\nsrun python a.py --master_port=$MASTER_PORT", "MASTER_PORT is always 1234"),
    ],
)
def test_a_port_among_the_words_of_a_program(line: str, said: str) -> None:
    found = [each for each in lint_text(f"{PART}{line}\n").findings if each.rule == "fixed-port"]
    assert [each.message for each in found] == [said][: bool(said)] and all(
        each.severity == "warning" for each in found
    )
