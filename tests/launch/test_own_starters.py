"""Programs that start ranks themselves: torchrun and accelerate run once per node, others are refused with a line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.launch.plan.backends import BackendContext, choose, get, settled
from stackyard.launch.plan.model import RankProgram
from stackyard.launch.request.intent import Intent
from stackyard.launch.request.starters import find
from support import watched
from support.cli import stackyard

OURS = (
    "--nnodes=2 --nproc-per-node=4 --node-rank=${NODE_RANK} --master-addr=${MASTER_ADDR} --master-port=${MASTER_PORT}"
)
MACHINES = (
    "--num_machines=2 --num_processes=8 --machine_rank=${NODE_RANK} --main_process_ip=${MASTER_ADDR} "
    "--main_process_port=${MASTER_PORT} --same_network"
)


def made(text: str, cwd: Path, nodes: int = 2, ranks: int = 4, **more: object) -> RankProgram:
    intent = settled(Intent.model_validate({"program": shlex.split(text), "nodes": nodes, "cwd": str(cwd), **more}))
    name, _ = choose(intent)
    return get(name).program(intent, watched.layout(nodes, intent.ranks_per_node or ranks), BackendContext())


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


ONCE_PER_NODE = {
    "torchrun train.py --epochs 3": f"torchrun {OURS} --max-restarts=0 train.py --epochs 3",
    "torchrun --standalone --nproc_per_node 4 --tee 3 train.py": f"torchrun --tee=3 {OURS} --max-restarts=0 train.py",
    "torchrun --nnodes $N --rdzv-backend=c10d --rdzv-endpoint=n1:1 --max-restarts 2 -m pkg.t":
        f"torchrun --max-restarts=2 -m {OURS} pkg.t",
    "numactl -N 0 torchrun train.py": f"numactl -N 0 torchrun {OURS} --max-restarts=0 train.py",
    "python -m torch.distributed.run --log-dir=x train.py":
        f"python -m torch.distributed.run --log-dir=x {OURS} --max-restarts=0 train.py",
    "-m torch.distributed.run train.py": f"python -m torch.distributed.run {OURS} --max-restarts=0 train.py",
    "accelerate launch train.py": f"accelerate launch --multi_gpu {MACHINES} train.py",
    "accelerate launch --mixed_precision bf16 --use_fsdp --num_processes 8 --num_machines 2 --machine_rank 0 t.py -m x":
        f"accelerate launch --mixed_precision=bf16 --use_fsdp {MACHINES} t.py -m x",
    "accelerate launch --use_deepspeed --zero_stage 2 t.py":
        f"accelerate launch --use_deepspeed --zero_stage=2 {MACHINES} --deepspeed_multinode_launcher=standard t.py",
}  # fmt: skip


@pytest.mark.parametrize("typed", ONCE_PER_NODE)
def test_once_per_node_with_its_own_options(tmp_path: Path, typed: str) -> None:
    program = made(typed.replace("$N", "2"), tmp_path)
    assert " ".join(program.argv) == ONCE_PER_NODE[typed]
    assert (program.layout.ranks, program.ranks_per_task) == (2, 4)
    assert not program.findings
    assert program.variables["ACCELERATE_USE_CPU"] == "true"


def test_its_own_number_of_ranks_is_that_of_the_job(tmp_path: Path) -> None:
    assert made("torchrun --nproc-per-node=3 t.py", tmp_path).ranks_per_task == 3
    assert made("accelerate launch --num_processes 6 t.py", tmp_path).ranks_per_task == 3
    assert made("torchrun --nproc-per-node=gpu t.py", tmp_path).ranks_per_task == 4


@pytest.mark.parametrize(
    ("kind", "words"),
    [("FSDP", ()), ("MULTI_GPU", ()), ("NO", ("--multi_gpu",)), ("MULTI_CPU", ("--multi_gpu",)),
     ("DEEPSPEED", ("--deepspeed_multinode_launcher=standard",))],
)  # fmt: skip
@pytest.mark.parametrize("named", [True, False])
def test_the_configuration_of_accelerate_decides_the_kind(
    tmp_path: Path, kind: str, words: tuple[str, ...], named: bool
) -> None:
    file = tmp_path / ("own.yaml" if named else "hf/accelerate/default_config.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_machines: 1\n")
    argv = made(f"accelerate launch {'--config_file own.yaml' * named} t.py", tmp_path).argv
    assert tuple(word for word in argv if word.startswith(("--multi_gpu", "--deepspeed"))) == words


REFUSED = {
    "torchrun --nnodes=3 t.py": ("is to start on 3 nodes, but the job has 2", "leave out --nnodes"),
    "torchrun --nnodes=1:2 t.py": ("is to start on 1:2 nodes", "-N MIN:MAX"),
    "torchrun --frobnicate 3 t.py": ("--frobnicate is not a known option", "--frobnicate=VALUE"),
    "torchrun": ("no program given", ""),
    "accelerate launch --num_processes 5 t.py": ("cannot start 5 ranks evenly on 2 nodes", "use -r"),
    "accelerate launch --cpu t.py --x 1": (
        "one rank per node", "type: stackyard launch --env ACCELERATE_USE_CPU=true -N 2 -r 4 t.py --x 1"),
}  # fmt: skip


@pytest.mark.parametrize("typed", REFUSED)
def test_what_contradicts_the_job_is_refused(tmp_path: Path, typed: str) -> None:
    message, hint = REFUSED[typed]
    with pytest.raises(InputError, match=message) as caught:
        made(typed, tmp_path)
    assert hint in (caught.value.hint or "")


def test_two_numbers_of_ranks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="to start 3 ranks per node, but the job has 2"):
        made("torchrun --nproc-per-node=3 t.py", tmp_path, ranks_per_node=2)


LINES = {
    "mpirun -np 8 -x A=1 --bind-to core ./solver in": "mpi -N 2 -r 4 --env A=1 ./solver in (without -bind-to core)",
    "mpiexec -ppn 2 -genv A=b ./solver": "mpi -N 2 -r 2 --env A=b ./solver",
    "mpiexec.hydra -n 2 ./a : -n 2 ./b": "mpi -N NODES -r RANKS-PER-NODE PROGRAM",
    "horovodrun -np 4 -H n1:2,n2:2 python t.py": "horovod -N 2 -r 2 python t.py (without -H n1:2,n2:2)",
    "deepspeed --num_nodes 2 --num_gpus 4 t.py --x": "deepspeed -N 2 -r 4 t.py --x",
    "ray symmetric-run --address n1:1 --min-nodes 2 --num-gpus=4 -- python t.py":
        "ray -N 2 -r 4 python t.py (without --address=n1:1 --min-nodes=2 --num-gpus=4)",
    "env A=b deepspeed --module pkg.t": "deepspeed -N 2 -r 4 -m pkg.t",
}  # fmt: skip


@pytest.mark.parametrize("typed", LINES)
def test_others_are_refused_with_the_line_to_type(tmp_path: Path, typed: str) -> None:
    (finding,) = made(typed, tmp_path).findings
    assert (finding.rule, finding.severity) == ("launcher-in-launch", "refused")
    assert finding.remedy.startswith(f"type: stackyard launch --backend {LINES[typed]}; or")
    (finding,) = made(typed, tmp_path, backend="any").findings
    assert finding.severity == "warning"


def test_a_starter_in_the_text_of_a_shell_is_refused(tmp_path: Path) -> None:
    (finding,) = made("bash -c 'module load x && torchrun --nproc-per-node 2 t.py'", tmp_path).findings
    assert (finding.severity, finding.message) == ("refused", "the program is torchrun, which starts ranks itself")
    assert not made("bash -c 'python t.py'", tmp_path).findings


@pytest.mark.parametrize("typed", ["python t.py mpirun", "./solver torchrun", "accelerate config", "t.py -m torchrun"])
def test_what_starts_none(typed: str) -> None:
    assert find(shlex.split(typed)) is None


def test_the_command_line_takes_its_ranks(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("name: t\nnodes: {n: {cores: 4}}\nscheduler: {kind: slurm}\n")
    done = stackyard("--site", site, "launch", "-N", "2", "--dry-run", "torchrun", "--nproc-per-node=2", "t.py",
                     cwd=tmp_path, expect=0, timeout_s=240)  # fmt: skip
    assert "torchrun --nnodes=2 --nproc-per-node=2" in done.out
    assert "--ntasks-per-node=1" in done.out
