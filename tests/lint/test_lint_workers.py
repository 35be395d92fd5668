"""Causes of two batches of the field: scripts of tasks, variables before programs, ranks by nodes, other directives."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_file, lint_text, to_intent

HEAD = "#!/bin/bash\n#SBATCH -t 10 -N 4 --gpus-per-node=4\n"
AGENT = "torchrun --nnodes=4 --nproc_per_node=4 --rdzv_backend=c10d --rdzv_endpoint=$A:$P train.py\n"


def found(tmp_path: Path, text: str, worker: str) -> dict[str, tuple[int, str]]:
    """The rules that find something in a script that starts `worker`, each with the line and how severe it is."""
    (tmp_path / "worker.sh").write_text(worker)
    (tmp_path / "job.sh").write_text(text)
    findings = lint_file(tmp_path / "job.sh").findings
    return {each.rule: (each.where.line or 0, each.severity) for each in findings if each.where}


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


@pytest.mark.parametrize("start", ["bash worker.sh", "./worker.sh", "singularity exec --nv a.sif bash worker.sh"])
def test_an_agent_in_the_script_of_each_task(tmp_path: Path, start: str) -> None:
    said = found(tmp_path, f"{HEAD}export A=1\nsrun --nodes=4 {start}\n", f"echo\nexport OMP_NUM_THREADS=1\n{AGENT}")
    assert said["ranks-share-a-core"] == (4, "warning")


@pytest.mark.parametrize(
    ("worker", "rule"),
    [
        (AGENT, "srun-torchrun-per-gpu"),
        (AGENT.replace("nnodes=4", "nnodes=2"), "torchrun-nodes"),
        (AGENT.replace("--rdzv_endpoint=$A:$P", ""), "torchrun-no-rendezvous"),
        (AGENT.replace("torchrun", "python -m torch.distributed.launch"), "torch-launch-old"),
        ("mpirun -np 4 ./a\n", "launcher-in-launcher"),
    ],
)
def test_rules_on_agents_look_into_the_script_of_each_task(tmp_path: Path, worker: str, rule: str) -> None:
    tasks = 4 if rule in ("srun-torchrun-per-gpu", "launcher-in-launcher") else 1
    text = f"{HEAD}srun --ntasks-per-node={tasks} -c 16 bash worker.sh\n"
    assert found(tmp_path, text, worker)[rule][0] == 3
    assert rule not in found(tmp_path, text, "./a\n")


def test_a_function_that_the_script_of_a_task_does_not_call(tmp_path: Path) -> None:
    text = f"{HEAD}srun --nodes=4 bash worker.sh\n"
    assert "ranks-share-a-core" not in found(tmp_path, text, f"many() {{\n{AGENT}}}\n./a\n")


CASES = "if [ $T = a ]; then\n  RUN='ncu -f -o a'\nelse\n  RUN={}\nfi\n{}"


@pytest.mark.parametrize(
    ("other", "line", "sure"),
    [
        ("''", "$RUN ./a", True),
        ("'nsys profile'", "${RUN} ./a", True),
        ("''", "$RUN $EXE", False),
        ("'nsys profile'", "$RUN $EXE", True),
        ("'-g 6'", "$RUN ./a", False),
        ("$1", "$RUN ./a", False),
        ("''\nread RUN", "$RUN ./a", False),
    ],
)
def test_a_variable_without_options_begins_the_program(other: str, line: str, sure: bool) -> None:
    text = "#!/bin/bash\n#BSUB -nnodes 1 -W 10\n" + CASES.format(other, f"jsrun -n1 -c1 -g1 -a1 {line}\n")
    rules = [each.rule for each in lint_text(text, name="job.sh").findings]
    assert ("jsrun-one-gpu" in rules) is sure
    assert ("may hold options" not in fixed(text)[1]) is sure


PBS = "#!/bin/bash\n#PBS -l walltime=1:00:00\n#PBS -l nodes=2:ppn=32\ncd $PBS_O_WORKDIR\n"


@pytest.mark.parametrize(
    ("options", "ranks", "cores"),
    [
        ("-map-by ppr:1:node:pe=8", 1, 8),
        ("--map-by ppr:4:node", 4, 8),
        ("--map-by ppr:4:node:PE=2", 4, 2),
        ("-np 8 --map-by ppr:4:node:pe=2", 4, 2),
        ("--map-by slot:pe=4 -np 16", 8, 4),
        ("", 32, None),
    ],
)
def test_ranks_by_the_mapping_of_open_mpi(options: str, ranks: int, cores: int | None) -> None:
    intent, notes = fixed(f"{PBS}mpirun {options} ./a\n")
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank) == (2, ranks, cores), notes


def test_ranks_on_parts_of_a_node_are_not_known() -> None:
    intent, notes = fixed(f"{PBS}mpirun --map-by ppr:4:socket:pe=8 ./a\n")
    assert intent.ranks_per_node is None and "check ranks_per_node" in notes


@pytest.mark.parametrize(
    ("line", "used"),
    [
        ("mpirun -np 24 -ppn 24 ./a", 1),
        ("mpirun -np 24 -ppn 12 ./a", 2),
        ("mpirun -np 48 -ppn 12 ./a", None),
        ("horovodrun -np 1 --hosts $HOSTS python a.py", 1),
        ("horovodrun -np 16 --hosts $HOSTS python a.py", None),
        ("horovodrun -np $N --hosts $HOSTS python a.py", None),
        ("horovodrun -np 1 --hosts $HOSTS python a.py &\nwait", None),
    ],
)
def test_nodes_without_ranks(line: str, used: int | None) -> None:
    text = f"#!/bin/bash\n#SBATCH -N 4 -t 10\nHOSTS=$(./hosts)\n{line}\n"
    said = [each.message for each in lint_text(text, name="job.sh").findings if each.rule == "idle-nodes"]
    assert said == ([f"the job has 4 nodes, but its launches use {used}"] if used else [])


@pytest.mark.parametrize(
    ("options", "nodes", "ranks"),
    [("-np 24 -ppn 24", 1, 24), ("-np 24 -ppn 12", 2, 12), ("-np 48 -ppn 12", 4, 12), ("-ppn 12", 4, 12)],
)
def test_nodes_of_ranks_on_each(options: str, nodes: int, ranks: int) -> None:
    intent, notes = fixed(f"#!/bin/bash\n#PBS -l select=4:ncpus=24 -l walltime=1:00:00\nmpirun {options} ./a\n")
    assert (intent.nodes or 1, intent.ranks_per_node) == (nodes, ranks), notes
    assert (nodes == 4) is ("this launch uses" not in notes)


OTHER = "#!/bin/bash\n#YBATCH -r a100_4\n#SBATCH -t 10\ntorchrun --standalone --nproc_per_node=4 a.py\n"


def test_directives_of_another_program_ask_for_the_cores() -> None:
    rules = {each.rule: each.severity for each in lint_text(OTHER, name="job.sh").findings}
    assert rules.get("not-understood") == "note" and "ranks-share-a-core" not in rules
    assert "ranks-share-a-core" in {each.rule for each in lint_text(OTHER.replace("#Y", "# Y"), name="a").findings}


def test_directives_of_another_program_are_said_to_be_left_out() -> None:
    assert "line 2: a directive that is not supported, #YBATCH -r a100_4" in fixed(OTHER)[1]


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("python -c 'clean()'; bash run.sh 8", ("bash", "-c", "python -c 'clean()'; bash run.sh 8")),
        ("python -c 'clean()'; python a.py", ("a.py",)),
        ("python -c 'work()'", ("python", "-c", "work()")),
    ],
)
def test_python_that_cleans_up_before_the_program(text: str, program: tuple[str, ...]) -> None:
    intent, _ = fixed(f'#!/bin/bash\n#SBATCH -n 1 -t 10\nsrun bash -c "{text}"\n')
    assert intent.program == program


@pytest.mark.parametrize(
    ("options", "used"), [("-n 4 -d 16", None), ("-n 4 -d 8", 2), ("-n 4", 1), ("-n 4 -d $D", None), ("-n 4 -N 2", 2)]
)
def test_nodes_of_aprun_with_several_cores_for_each_rank(options: str, used: int | None) -> None:
    text = f"#!/bin/bash\n#PBS -l nodes=4:ppn=16,walltime=1:00:00\ncd $PBS_O_WORKDIR\naprun {options} ./a\n"
    said = [each.message for each in lint_text(text, name="job.sh").findings if each.rule == "idle-nodes"]
    assert said == ([f"the job has 4 nodes, but its launches use {used}"] if used else [])
