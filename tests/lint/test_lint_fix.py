"""`lint --fix`: what `stackyard submit` then asks for is what the script asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.launch.request.job_file import job_text
from stackyard.lint.api import lint_text, parse_script, to_intent
from stackyard.lint.rules.base import Case
from stackyard.lint.rules.schedulers.jsrun import sets_of
from stackyard.lint.rules.torch import ranks_per_agent
from stackyard.lint.script import Script
from support.cli import stackyard

SITES = Path(__file__).parents[2] / "examples"
SLURM, LSF, PBS = "perlmutter", "summit-open-ce", "polaris"
HEAD = "#!/bin/bash\n#SBATCH -A proj\n#SBATCH --time=1:30:00\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
JSRUN = "#!/bin/bash\n#BSUB -P ABC123\n#BSUB -W 2:00\n#BSUB -q batch\n#BSUB -nnodes 4\nmodule load cuda\n"
QSUB = "#!/bin/bash\n#PBS -A proj\n#PBS -q preemptable\n#PBS -l walltime=00:30:00\n#PBS -l filesystems=home\n"
HOST = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"

SCRIPTS = {
    "srun": (
        SLURM,
        HEAD + "#SBATCH --ntasks-per-node=4 --cpus-per-task=16\nmodule load python\nsrun -c 16 python a.py",
    ),
    "srun-n": (SLURM, HEAD + "srun -n 8 -c 16 --cpu-bind=cores ./solver in.nml"),
    "torchrun": (
        SLURM,
        HEAD + "#SBATCH --ntasks-per-node=1 -c 64\n" + HOST + "srun -c 64 torchrun --nnodes=2 --nproc_per_node=4 "
        "--rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:0 train.py --lr 0.1",
    ),
    "accelerate": (
        SLURM,
        HEAD + "#SBATCH --ntasks-per-node=1 -c 64\n" + HOST + "srun -c 64 bash -c 'accelerate launch --num_machines 2 "
        "--num_processes 8 --machine_rank $SLURM_NODEID --main_process_ip $MASTER_ADDR train.py'",
    ),
    "container": (
        "frontier",
        HEAD.replace("=4", "=8") + "#SBATCH --ntasks-per-node=8 -c 7\n"
        "srun -c 7 apptainer exec --rocm torch.sif python train.py",
    ),
    "mpirun": (SLURM, HEAD + "#SBATCH --ntasks-per-node=4 -c 16\nsource env.sh\nmpirun -np 8 ./solver"),
    "horovodrun": (SLURM, HEAD + "#SBATCH --ntasks-per-node=4 -c 16\nhorovodrun -np 8 -H a:4,b:4 python train.py"),
    "jsrun-6": (LSF, JSRUN + "jsrun -n4 -r1 -g6 -a6 -c42 -bpacked:7 python train.py --epochs 3"),
    "jsrun-sets": (LSF, JSRUN + "jsrun --nrs 24 --rs_per_host 6 -a 1 -c 7 -g 1 -b packed:7 ./solver"),
    "jsrun-sockets": (LSF, JSRUN + "jsrun -n8 -r2 -g3 -a3 -c21 -bpacked:7 python train.py"),
    "jsrun-variables": (
        LSF,
        JSRUN + "N=4\nexport OMP_NUM_THREADS=7\njsrun -n $((N * 6)) -r 6 -a 1 -c $OMP_NUM_THREADS -g 1 -brs ./solver",
    ),
    "mpiexec": (PBS, QSUB + "#PBS -l select=2:system=polaris\ncd $PBS_O_WORKDIR\nmpiexec -n 8 --ppn 4 --depth=8 ./a"),
    "mpiexec-chunk": (
        PBS,
        QSUB + "#PBS -l select=4:ncpus=32:mpiprocs=4:ngpus=4\ncd $PBS_O_WORKDIR\nmpiexec -n 16 --ppn 4 python train.py",
    ),
}


@dataclass(frozen=True)
class Asked:
    """What a script asks for and starts; None where it leaves that to its site."""

    nodes: int | None
    time_min: float | None
    account: str
    queue: str
    ranks: int | None
    cores: int | None
    gpus: int | None


def asked(script: Script) -> Asked:
    """Nodes, time and names of the head; ranks of a node, their cores and the node's GPUs of the last launch line."""
    request, case = script.request, Case(script)
    launch = [each for each in script.launches if not each.via][-1]
    sets, step = sets_of(launch), case.step(launch)
    inner = next((each for each in script.launches if launch in each.via and ranks_per_agent_of(each)), None)
    if sets:
        host = sets.host or (sets.count or 0) // (request.nodes or 1)
        ranks, cores, gpus = host * sets.ranks, (sets.cores or 0) // sets.ranks, host * (sets.gpus or 0)
    else:
        count = launch.count("np") if launch.kind == "horovodrun" else None
        ranks = count // (request.nodes or 1) if count else step.per_node
        cores, gpus = (step.cpus if launch.kind == "srun" else request.cpus_per_task), request.node_gpus
        cores = launch.count("depth") or cores
    if inner:
        ranks = ranks_per_agent_of(inner)
        cores = cores // ranks if cores and ranks else None
    return Asked(request.nodes, request.time_min, request.account, request.queue, ranks, cores, gpus)


def ranks_per_agent_of(launch: object) -> int | None:
    kind = getattr(launch, "kind", "")
    return ranks_per_agent(launch) if kind in ("torchrun", "accelerate", "deepspeed") else None  # type: ignore[arg-type]


def submitted(tmp_path: Path, site: str, text: str) -> tuple[str, Script]:
    """The batch script that the job file leads to, and the same with its launch line as a command."""
    job = tmp_path / "job.yaml"
    job.write_text(job_text(*to_intent(lint_text(text, name="job.sh").script)))
    done = stackyard("--site", SITES / site / "site.yaml", "submit", "--job", job, "--dry-run")
    shown = done.out.partition("\n$ ")[0]
    comment = re.search(r"# starts the ranks with:\n((?:#   .*\n)+)", shown)
    assert comment
    command = " ".join(row.lstrip("# ") for row in comment[1].splitlines())
    before, _, _ = shown.rpartition("\nexec ")
    return shown, parse_script(f"{before}\n{command}\n")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_job_file_asks_for_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch.sif").touch()
    site, text = SCRIPTS[name]
    wanted = asked(parse_script(text))
    shown, script = submitted(tmp_path, site, text)
    got = asked(script)
    for field, value in vars(wanted).items():
        if field == "gpus" and site == PBS:
            continue  # whole nodes with all their GPUs: the select statement need not say so
        if value not in (None, ""):
            assert getattr(got, field) == value, (field, shown)
    for row in text.splitlines():
        if row.startswith(("module ", "source ")):
            assert f"\n{row}\n" in shown


def intent_of(text: str):  # type: ignore[no-untyped-def]
    return to_intent(lint_text(text, name="job.sh").script)


def test_what_prepares_the_run_is_carried_over_in_its_order() -> None:
    text = HEAD + (
        "set -e\nmodule purge; module load cuda/12 \\\n  python\nsource $HOME/env/bin/activate\nENV=/p/env\n"
        "conda activate $ENV\n"
        "export PATH=$ENV/bin:$PATH MASTER_PORT=29500\nexport RANK=$SLURM_PROCID\nulimit -s unlimited\n"
        "mkdir -p out/$SLURM_JOB_ID\n"
        'cat > cfg.yaml <<EOF\nlr: 1\nname: x\nEOF\necho start\nif [ -n "$X" ]; then\n  module load extra\nfi\n'
        "cd /scratch/me\n"
        "srun -n 8 -c 16 python train.py\nrm -rf out\n"
    )
    intent, notes = intent_of(text)
    assert intent.prologue == (
        "module purge", "module load cuda/12 python", "source $HOME/env/bin/activate", "ENV=/p/env",
        "conda activate $ENV",
        "export PATH=$ENV/bin:$PATH", "ulimit -s unlimited", "mkdir -p out/$SLURM_JOB_ID",
        "cat > cfg.yaml <<EOF", "lr: 1", "name: x", "EOF", "cd /scratch/me",
    )  # fmt: skip
    assert intent.cwd == "/scratch/me"
    for part in ("MASTER_PORT, which Stackyard sets", "RANK, which Stackyard sets", "conditional: module load extra"):
        assert any(part in note for note in notes), part


def test_ray_recipe_becomes_the_driver() -> None:
    text = HEAD + (
        "#SBATCH --ntasks-per-node=1 -c 32\nmodule load ray\nhead=$(hostname)\nDATA=/d\nexport IN=$DATA/x\n"
        "srun -N1 -n1 -w $head ray start --head --block &\nsleep 20\n"
        "srun -N1 -n1 --exclude $head ray start --address $head:6379 --block &\nsleep 20\n"
        "python tune.py --samples 8\nray stop\n"
    )
    intent, notes = intent_of(text)
    assert (intent.backend, intent.program, intent.nodes) == ("ray", ("tune.py", "--samples", "8"), 2)
    assert intent.prologue == (
        "module load ray",
        "DATA=/d",
        "export IN=$DATA/x",
    )  # `head` is used by no line that is kept
    assert any("Ray" in note for note in notes)


@pytest.mark.parametrize(
    ("line", "backend", "program"),
    [
        ("deepspeed --hostfile h train.py --deepspeed ds.json", "deepspeed", ("train.py", "--deepspeed", "ds.json")),
        ("horovodrun -np 8 python train.py -e 1", "horovod", ("train.py", "-e", "1")),
        ("torchrun --standalone --nproc_per_node=4 -m pkg.train x", "torchrun", ("python", "-m", "pkg.train", "x")),
        ("srun python -m torch.distributed.run --nproc_per_node=4 a.py", "torchrun", ("a.py",)),
        ("srun accelerate launch --num_processes 8 --num_machines 2 a.py", "torchrun", ("a.py",)),
    ],
)
def test_launchers_become_backends(line: str, backend: str, program: tuple[str, ...]) -> None:
    intent, _ = intent_of(HEAD + line)
    assert (intent.backend, intent.program) == (backend, program)


def test_variables_of_the_launch_line() -> None:
    intent, _ = intent_of(HEAD + "A=1 srun -n 8 --export=ALL,B=2,MASTER_PORT=1 ./a")
    assert intent.variables == {"A": "1", "B": "2"}


def test_the_indices_of_an_lsf_array_are_not_a_part_of_the_name() -> None:
    intent, _ = to_intent(parse_script(JSRUN + '#BSUB -J "sweep[1-10]%4"\njsrun -n 4 ./solver\n', "job.sh"))
    assert (intent.batch.name, intent.batch.array) == ("sweep", "1-10%4")
