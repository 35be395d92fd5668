"""What a job asks for and does not use, and heads with options that do not exist: findings and near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.inputs.sites.jobmodels import ContainerPolicy, LaunchPolicy, Scheduler
from stackyard.inputs.sites.sitemodels import Gpu, NodeKind, Site
from stackyard.lint.api import lint_file, lint_text

ONE = "#!/bin/bash\n#SBATCH --time=10 --nodes=1 --gpus-per-node=4 {}\n"


def hits(text: str, rule: str, directory: Path | None = None, site: Site | None = None) -> list[str]:
    """``severity: message`` of one rule's findings."""
    report = lint_text(text, site, name="job.sh", directories=(directory,) if directory else ())
    return [f"{each.severity}: {each.message}" for each in report.findings if each.rule == rule]


@pytest.mark.parametrize(
    ("head", "line", "found"),
    [
        ("", "torchrun --nproc_per_node=4 a.py", "warning: torchrun starts 4 ranks in a task with 1 core"),
        ("--ntasks-per-node=1", "srun torchrun --nproc_per_node=4 a.py", "warning: torchrun starts 4 ranks in a"),
        ("-c 2", "torchrun --nproc_per_node=4 a.py", "warning: torchrun starts 4 ranks in a task with 2 cores"),
        ("-c 32", "torchrun --nproc_per_node=4 a.py", ""),
        ("", "srun -n 1 -c 32 torchrun --nproc_per_node=4 a.py", ""),
        ("--ntasks-per-node=4", "torchrun --nproc_per_node=4 a.py", ""),
        ("--exclusive", "torchrun --nproc_per_node=4 a.py", ""),
        ("--cpus-per-gpu=8", "torchrun --nproc_per_node=4 a.py", ""),
        ("", "torchrun --nproc_per_node=1 a.py", ""),
    ],
)
def test_ranks_that_share_a_core(head: str, line: str, found: str) -> None:
    said = hits(ONE.format(head) + line, "ranks-share-a-core")
    assert said[0].startswith(found) if found else not said


@pytest.mark.parametrize(
    ("head", "line", "found"),
    [
        ("-n 1", "srun python a.py", True), ("-n 4", "srun python a.py", False),
        ("-n 2", "srun python a.py", True),
        ("-n 1", "srun torchrun --nproc_per_node=4 a.py", False), ("-n 1", "srun hostname", False),
    ],
)  # fmt: skip
def test_a_world_size_that_is_not_the_tasks(head: str, line: str, found: bool) -> None:
    assert bool(hits(ONE.format(head) + f"export WORLD_SIZE=4\n{line}", "world-size")) == found
    assert not hits(ONE.format(head) + f"export WORLD_SIZE=$SLURM_NTASKS\n{line}", "world-size")


@pytest.mark.parametrize(
    ("head", "trainer", "found"),
    [
        ("-n 1", "devices=4", True), ("--ntasks-per-node=4", "devices=4", False), ("-n 1", "devices='auto'", False),
        ("-n 1", "devices=1", False), ("-n 1", "devices=True", False),
    ],
)  # fmt: skip
def test_devices_of_lightning(tmp_path: Path, head: str, trainer: str, found: bool) -> None:
    (tmp_path / "a.py").write_text(f"import pytorch_lightning as pl\npl.Trainer({trainer})\n")
    assert bool(hits(ONE.format(head) + "srun python a.py", "lightning-devices", tmp_path)) == found
    assert not hits(ONE.format(head) + "python a.py", "lightning-devices", tmp_path)


@pytest.mark.parametrize(
    ("line", "source", "found"),
    [
        ("srun -n 1 python a.py", "import torch\n", "warning"),
        ("python a.py", "import tensorflow as tf\n", "warning"),
        ("srun -n 1 python a.py", "import torch.distributed as d\nd.init_process_group()\n", "warning"),
        ("srun -n 1 bash -c 'python a.py'", "import torch\n", "warning"),
        ("srun -n 1 python b.py", "", "note"),
        ("srun -n 4 python a.py", "import torch\n", ""),
        ("python a.py", "import torch\nmodel = torch.nn.DataParallel(model)\n", ""),
        ("python a.py", "import torch\nm = load(device_map='auto')\n", ""),
        ("python a.py --gpus 4", "import torch\n", ""),
        ("python a.py &\npython a.py &\nwait", "import torch\n", ""),
        ("CUDA_VISIBLE_DEVICES=0 python a.py", "import torch\n", ""),
        ("torchrun --nproc_per_node=4 a.py", "import torch\n", ""),
    ],
)
def test_gpus_that_no_rank_uses(tmp_path: Path, line: str, source: str, found: str) -> None:
    (tmp_path / "a.py").write_text(source)
    said = hits(ONE.format("-c 32") + line, "gpus-without-ranks", tmp_path)
    assert said[0].startswith(found) if found else not said
    assert not hits(ONE.format("-c 32").replace("node=4", "node=1") + line, "gpus-without-ranks", tmp_path)


def test_whole_nodes_of_the_site_count() -> None:
    site = Site(nodes={"g": NodeKind(cores=64, gpu=Gpu(count=4))}, scheduler=Scheduler(kind="slurm", exclusive=True))
    text = "#!/bin/bash\n#SBATCH --time=10 --nodes=1 -c 64\nsrun -n 1 -c 64 --gpus=1 python a.py\n"
    assert hits(text, "gpus-without-ranks", site=site) == ["warning: srun uses 1 of the 4 GPUs of each node"]
    shared = site.model_copy(update={"scheduler": Scheduler(kind="slurm", exclusive=False)})
    assert not hits(text, "gpus-without-ranks", site=shared)


@pytest.mark.parametrize(
    ("sets", "found"),
    [("-n1 -g1", True), ("-n6 -g1", False), ("-n1 -g6", False), ("-n $N -r1 -g1", True), ("-n $N -g1", False)],
)
def test_one_gpu_of_a_whole_summit_node(sets: str, found: bool) -> None:
    assert bool(hits(f"#BSUB -nnodes 1\n#BSUB -W 9\njsrun {sets} -a1 -c7 ./a", "jsrun-one-gpu")) == found


def test_isolated_gpus_behind_a_shell(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.set_device(local_rank)\n")
    head = "#!/bin/bash\n#SBATCH --time=10 --nodes=1 --ntasks-per-node=4 -c 8 --gpus-per-task=1\n"
    for line in ("srun -c 8 bash -c 'export X=1; python a.py'", "srun -c 8 python a.py"):
        assert hits(head + line, "isolated-gpu-by-local-rank", tmp_path)[0].startswith("warning")
        assert not hits(head.replace("task=1", "task=4") + line, "isolated-gpu-by-local-rank", tmp_path)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("torch.cuda.set_device(local_rank)", True),
        ("torch.cuda.set_device(int(os.environ['SLURM_LOCALID']))", True),
        ("device = torch.device(f'cuda:{local_rank}')", True),
        ("if torch.cuda.is_available():\n    torch.cuda.set_device(local_rank)", True),
        ("if torch.cuda.device_count() > 0:\n    torch.cuda.set_device(local_rank)", True),
        ("if torch.cuda.device_count() > 1:\n    torch.cuda.set_device(local_rank)", False),
        ("if local_rank < torch.cuda.device_count():\n    torch.cuda.set_device(local_rank)", False),
        ("torch.cuda.set_device(local_rank % torch.cuda.device_count())", False),
        ("torch.cuda.set_device(min(local_rank, torch.cuda.device_count() - 1))", False),
        ("torch.cuda.set_device(local_rank if torch.cuda.device_count() > 1 else 0)", False),
        ("n_gpu = torch.cuda.device_count()\nif n_gpu > 1:\n    torch.cuda.set_device(local_rank)", False),
        ("torch.cuda.set_device(0)", False),
    ],
)
def test_a_local_rank_that_the_program_compares_with_its_gpus(source: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"import os, torch\n{source}\n")
    head = "#!/bin/bash\n#SBATCH --time=10 --nodes=1 --ntasks-per-node=4 -c 8 --gpus-per-task=1\n"
    assert bool(hits(f"{head}srun -c 8 python a.py\n", "isolated-gpu-by-local-rank", tmp_path)) is found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("export MASTER_PORT=29500\npython a.py", True),
        ("MASTER_PORT=29500\nexport MASTER_PORT\npython a.py", True),
        ("MASTER_PORT=29500 python a.py", True),
        ("set -a\nMASTER_PORT=29500\npython a.py", True),
        ("declare -x MASTER_PORT=29500\npython a.py", True),
        ("MASTER_PORT=29500\ntorchrun --nproc_per_node=2 --master_port $MASTER_PORT a.py", True),
        ("MASTER_PORT=29500\npython a.py --port ${MASTER_PORT}", True),
        ("MASTER_PORT=29500\npython a.py", False),
        ("MASTER_PORT=29500\nexport MASTER_ADDR=n1\npython a.py", False),
    ],
)
def test_a_port_that_no_program_gets(lines: str, found: bool) -> None:
    head = "#!/bin/bash\n#SBATCH --time=10 -p shared --nodes=1 --gpus-per-node=2 -c 8\n"
    assert bool(hits(f"{head}{lines}\n", "fixed-port")) is found


@pytest.mark.parametrize(
    ("head", "line", "found"),
    [
        ("-N 2", "flux run ./a", "warning: flux run starts 1 rank with 1 core and no GPU"),
        ("-n 4 -c 8", "flux run ./a", "warning: flux run starts 1 rank"),
        ("-n 4 -c 8 -g 1", "flux run -n 4 -c 8 ./a", "warning: flux run without -g"),
        ("-n 4 -c 8", "flux run -n 4 ./a", "warning: flux run without -c"),
        ("-t 1h", "flux run ./a", "note: "), ("-N 2", "for i in 1 2; do flux submit ./a $i; done", "note: "),
        ("-n 4 -c 8 -g 1", "flux run -n 4 -c 8 -g 1 ./a", ""), ("-N 2", "flux run -N 2 --exclusive ./a", ""),
        ("-N 2", "flux run -n 16 -c 4 ./a", ""),
    ],
)  # fmt: skip
def test_flux_run_without_a_size(head: str, line: str, found: str) -> None:
    said = hits(f"#!/bin/bash\n#FLUX: {head}\n{line}\n", "flux-run-size")
    assert said[0].startswith(found) if found else not said


def test_flux_directives_begin_alike_and_stand_together() -> None:
    assert not hits("#!/bin/bash\n## FLUX: -N 2\n# a comment\n## FLUX: -t 1h\nflux run -n 2 ./a", "flux-directive")
    assert "does not begin" in hits("#!/bin/bash\n#FLUX: -N 2\n#flux: -t 1h\n", "flux-directive")[0]
    assert "after a command" in hits("#!/bin/bash\n#FLUX: -N 2\ndate\n#FLUX: -t 1h\n", "flux-directive")[0]


@pytest.mark.parametrize(
    ("directive", "found"),
    [
        ("#SBATCH --cpu-bind=cores", "refused: --cpu-bind is an option of srun, not of sbatch"),
        ("#SBATCH --mpi=pmix", "refused: --mpi is an option of srun"),
        ("#SBATCH -l walltime=1:00:00", "refused: -l with a resource is an option of qsub, not of sbatch"),
        ("#SBATCH --zoobar=1", "warning: sbatch has no option --zoobar, unless"),
        ("#SBATCH -g 1", "refused: sbatch has no option -g"),
        ("#BSUB -zoobar 1", "refused: bsub has no option -zoobar"),
        ("#PBS --zoobar 1", "refused: qsub has no option"),
        ("#FLUX: --cores-per-task=2", "refused: --cores-per-task is an option of flux run, not of flux batch"),
        ("#SBATCH --image=x --gres-flags=enforce-binding --kill-on-invalid-dep=yes --tres-per-task=cpu:2", ""),
        ("#SBATCH --no-kill --requeue --oom-kill-step --segment=4 --exclusive=user", ""),
        ("#BSUB -alloc_flags smt4 -core_isolation 2 -eo e -oo o -XF", ""),
        ("#PBS -l select=1 -A x -j oe -W x=y -V", ""),
        ("#FLUX: -N1 -n2 -c3 -g1 --setattr=a=b --conf=x --requires=h -B b", ""),
    ],
)
def test_options_that_do_not_exist(directive: str, found: str) -> None:
    said = hits(f"#!/bin/bash\n{directive}\n", "unknown-option")
    assert said[0].startswith(found) if found else not said


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("# SBATCH --nodes=2\n# SBATCH -t 10", "none of 2 directives is read"),
        ("##SBATCH --nodes=2", "this directive is not read"), ("#sbatch -N 2", "this directive is not read"),
        ("#SBATCH: -N 2", "this directive is not read"), ("# PBS -l select=2", "PBS reads lines"),
        ("#SBATCH --time=1\n##SBATCH --nodes=2", ""), ("# SBATCH lines are added by submit.py", ""),
        ("# sbatch --nodes=2 this.sh", ""), ("cat > job <<EOF\n##SBATCH --nodes=2\nEOF", ""), ("# nothing", ""),
    ],
)  # fmt: skip
def test_a_head_of_which_nothing_is_read(rows: str, found: str) -> None:
    said = hits(f"#!/bin/bash\n{rows}\nsrun ./a\n", "no-directive-read")
    assert found in said[0] if found else not said


LUMI = Site(
    nodes={"g": NodeKind(cores=56, gpu=Gpu(count=8, vendor="amd"))},
    scheduler=Scheduler(kind="slurm"),
    launch=LaunchPolicy(container=ContainerPolicy(binds=("/opt/cray",))),
)


def test_images_that_get_their_gpus_from_the_site() -> None:
    text = ONE.format("") + "srun -n 4 singularity exec a.sif python a.py\n"
    assert hits(text, "container-without-gpu") == ["note: singularity runs without --nv or --rocm in a job with GPUs"]
    assert not hits(text, "container-without-gpu", site=LUMI)
    assert not hits(text.replace("srun", "module load singularity-AI-bindings\nsrun"), "container-without-gpu")
    plain = LUMI.model_copy(update={"launch": LaunchPolicy()})
    assert "without --rocm" in hits(text, "container-without-gpu", site=plain)[0]


@pytest.mark.parametrize(
    "line", ["ssh $host ray start --head\npython tune.py", "bash start_ray.sh\npython tune.py", "python driver.py"]
)
def test_the_driver_of_a_cluster_belongs_on_the_first_node(tmp_path: Path, line: str) -> None:
    (tmp_path / "driver.py").write_text("import ray\nray.init('auto')\nimport mpi4py\n")
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --time=10 --nodes=2\n" + line)
    assert not [each for each in lint_file(tmp_path / "job.sh").findings if each.rule == "only-first-node"]


def test_other_programs_run_only_on_the_first_node(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --time=10 --nodes=2\npython train.py\n"
    assert hits(text, "only-first-node")[0].startswith("note")


def test_a_setting_in_a_comment_is_no_evidence() -> None:
    text = "#BSUB -nnodes 1 -W 10\n{}\njsrun -n6 -a1 -c7 -g1 -bpacked:7 ./solver\n"
    assert not hits(text.format("#export HOROVOD_GPU_ALLGATHER=MPI"), "smpiargs-gpu")
    assert hits(text.format("export HOROVOD_GPU_ALLGATHER=MPI"), "smpiargs-gpu")
    assert hits(text.format("# a CUDA-aware example"), "smpiargs-gpu")


@pytest.mark.parametrize(("queue", "severity"), [("compute_full_node", "note"), ("gpu", "warning")])
def test_a_queue_of_whole_nodes_by_its_name(queue: str, severity: str) -> None:
    said = hits(ONE.format(f"-p {queue}") + "torchrun --nproc_per_node=4 a.py", "ranks-share-a-core")
    assert said[0].startswith(severity)


def test_a_line_that_is_filled_in_ends_no_head() -> None:
    text = "#!/bin/bash\n${PARTITION_OPTION}\n#SBATCH --nodes=2\n#SBATCH -t 1\n./a\n"
    assert not hits(text, "no-directive-read") and not hits(text, "directive-late")
    assert hits(text.replace("${PARTITION_OPTION}", "module load a"), "no-directive-read")
    assert not hits(text.replace("=2", "=${NODES}"), "directive-variable")
    assert hits(text.replace("=2", "=${NODES}").replace("${PARTITION_OPTION}", ""), "directive-variable")


@pytest.mark.parametrize(("time", "found"), [("WTIME:00", False), ("2h30", True), ("2:00", False)])
def test_a_wall_time_that_is_to_be_filled_in(time: str, found: bool) -> None:
    assert bool(hits(f"#BSUB -nnodes 1 -W {time}\njsrun -n1 ./a\n", "time-format")) == found


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (("import torch", "import torch"), "warning"),
        (("import torch", "print(1)"), "warning"),
        (("import torch", ""), "note"),
        (("import torch", "import torch\ntorch.nn.DataParallel"), None),
        (("print(1)", "print(2)"), None),
    ],
)
def test_sources_of_programs_in_turn(tmp_path: Path, sources: tuple[str, str], found: str | None) -> None:
    for name, source in zip(("a.py", "b.py"), sources, strict=True):
        if source:
            (tmp_path / name).write_text(source + "\n")
    text = "#!/bin/bash\n#SBATCH -t 10 -n 1 -c 4 --gres=gpu:4\npython a.py\npython b.py\n"
    said = hits(text, "gpus-without-ranks", tmp_path)
    assert [each.partition(":")[0] for each in said] == ([found] if found else [])


@pytest.mark.parametrize(
    ("head", "lines", "found"),
    [
        ("-N1 --gres=gpu:1", "python train.py", "note: train.py has GPUs and one core"),
        ("-N2 --ntasks-per-node=4 --gpus-per-node=4", "srun python train.py", "warning: each task of train.py"),
        ("-N1 --gres=gpu:1 -p exclusive_whole_node --exclusive", "python train.py", ""),
        ("-N1 --gres=gpu:1 -c 8", "python train.py", ""),
        ("-N1 --gres=gpu:1 --cpus-per-gpu=8", "python train.py", ""),
        ("-N1 --ntasks-per-node=4 --gpus-per-node=4", "srun -c 8 python train.py", ""),
        ("-N1 -n 8 --gpus-per-node=1", "python train.py", ""),
        ("-N1 -n 64", "srun python solve.py", ""),
        ("-N1 --gres=gpu:1", "python -m venv env\n./solve", ""),
    ],
)
def test_one_core_beside_a_gpu(head: str, lines: str, found: str) -> None:
    said = hits(f"#!/bin/bash\n#SBATCH --time=10 {head}\n{lines}\n", "one-core-with-gpu")
    assert len(said) == bool(found) and "".join(said).startswith(found)


@pytest.mark.parametrize(
    ("head", "lines", "severity"),
    [  # as a real Slurm 22.05 ran them: in turn, or at the same time
        ("-N1 -n4 -c1", "for i in 1 2; do\n srun work $i &\ndone\nwait", "warning"),
        ("-N1 -n1 -c4", "srun work 1 &\nsrun work 2 &\nwait", "warning"),
        ("-N1 -n4", "srun --ntasks=1 work 1 &\nsrun --ntasks=1 work 2 &\nwait", "warning"),
        ("-N2 -n4", "srun -N1 -n1 work 1 &\nsrun -N1 -n1 work 2 &\nsrun -N1 -n1 work 3 &\nwait", "warning"),
        ("-N2 -n2", "srun -N1 -n1 work 1 &\nsrun -N1 -n1 work 2 &\nwait", ""),
        ("-N2 -n4", "for i in 1 2 3 4; do\n srun -N1 -n1 work $i &\ndone\nwait", ""),
        ("-N1 -n4", "srun work 1 &\nwait", ""),
        ("-N1 -n4", "srun --exact -n1 work 1 &\nsrun --exact -n1 work 2 &\nwait", ""),
    ],
)
def test_steps_that_wait_for_each_other(head: str, lines: str, severity: str) -> None:
    said = hits(f"#!/bin/bash\n#SBATCH --time=10 {head}\n{lines}\n", "steps-in-turn")
    assert [each.partition(":")[0] for each in said] == ([severity] if severity else [])
