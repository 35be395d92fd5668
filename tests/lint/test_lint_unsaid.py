"""What a launch does not say: its ranks, its places, its GPUs."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent


def fixed(text: str) -> tuple[Intent, str]:
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


def rules(text: str) -> set[str]:
    return {finding.rule for finding in lint_text(text, name="job.sh").findings}


APRUN = "#!/bin/bash\n#PBS -l nodes=8:ppn=32,walltime=1:00:00\ncd $PBS_O_WORKDIR\naprun {} ./a\n"


def test_aprun_starts_one_process_unless_it_says_more() -> None:
    intent, notes = fixed(APRUN.format("-q"))
    assert (intent.nodes, intent.ranks_per_node) == (1, 1) and "this launch uses 1" in notes
    intent, _ = fixed(APRUN.format("-n 256 -N 32"))
    assert (intent.nodes, intent.ranks_per_node) == (8, 32)
    assert fixed(APRUN.format("-B"))[0].nodes == 8


@pytest.mark.parametrize(
    ("options", "found"),
    [("-n8 -g1 -c2", True), ("-n8 -g1 -c2 -r1", False), ("-n8 -g6 -c42", False), ("-n8 -gALL_GPUS", False)],
)
def test_jsrun_fills_one_node_after_the_other(options: str, found: bool) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 8 -W 10\njsrun {options} -b none ./a\n"
    assert ("idle-nodes" in rules(text)) is found


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ('bash -c "\n source /env.sh;\n python a.py"', True),
        ("python a.py", True),
        ("python a.py --num_gpus 4", False),
        ("python a.py --dataparallel", False),
    ],
)
def test_several_gpus_for_one_process_in_a_container(program: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 --gres=gpu:2\nsingularity exec --nv a.sif {program}\n"
    assert ("gpus-without-ranks" in rules(text)) is found


def test_a_python_file_behind_another_program_of_pbs() -> None:
    head = "#!/bin/bash\n#PBS -l walltime=1:00:00\n"
    assert "pbs-working-folder" in rules(head + "/lib/ld-2.17.so `which python` a.py 1\n")
    assert "pbs-working-folder" not in rules(head + "/lib/ld-2.17.so `which python` /home/me/a.py 1\n")


def test_a_job_that_submits_the_next_one_by_name() -> None:
    head = "#!/bin/bash\n#BSUB -W 10 -nnodes 1\njsrun -n1 ./a\n"
    assert "bsub-without-input" in rules(head + "bsub job.sh\n")
    assert "bsub-without-input" not in rules(head + "bsub < job.sh\n")
    assert "bsub-without-input" not in rules(head + "bsub -W 10 -nnodes 1 job.sh\n")


def test_variables_that_a_sourced_script_may_have_exported() -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -N 1 -n 4\n"
    intent, _ = fixed(head + "source $SUITE/setup.sh\nSUBJECTS_DIR=/data\nsrun ./a\n")
    assert "SUBJECTS_DIR=/data" in intent.prologue
    intent, _ = fixed(head + "source venv/bin/activate\nSUBJECTS_DIR=/data\nsrun ./a\n")
    assert "SUBJECTS_DIR=/data" not in intent.prologue


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('lr="${lr:-0.1}"\nsrun ./a --lr $lr', "lr has its default, 0.1"),
        ("srun -n ${N:-4} ./a", "N has its default, 4"),
        ("N=2\nsrun -n ${N:-4} ./a", ""),
        ("srun -n ${SLURM_NTASKS:-4} ./a", ""),
    ],
)
def test_defaults_that_the_environment_of_a_submission_may_replace(lines: str, said: str) -> None:
    _, notes = fixed(f"#!/bin/bash\n#SBATCH -t 10 -N 1 -n 4\n{lines}\n")
    assert said in notes and ("has its default" in notes) is bool(said), notes


@pytest.mark.parametrize(("before", "found"), [("", True), ("cd /data\n", False)])
def test_a_relative_program_in_the_shell_of_a_task(before: str, found: bool) -> None:
    text = f'#!/bin/bash\n#PBS -l select=1:ncpus=4,walltime=1:00:00\nmpiexec bash -c "\n{before}python main.py"\n'
    assert ("pbs-working-folder" in rules(text)) is found


def test_a_launcher_behind_a_profiler() -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -n 4 -c 8\n"
    assert "srun-cpus-not-inherited" in rules(head + "map --profile --cuda-kernel-analysis srun ./a\n")
    assert "srun-cpus-not-inherited" in rules(head + "perf-report -o a.txt srun ./a\n")
    assert fixed(head + "map --profile reads.fq\n")[0].program == ("map", "--profile", "reads.fq")


def test_a_head_with_blocks_that_a_program_fills_in() -> None:
    head = "#!/bin/bash\n#BSUB -n 4\n{}#BSUB -W {{{{ t }}}}\n"
    assert "time-missing" not in rules(head.format("{% if t %}") + "./a\n")
    assert "time-missing" in rules("#!/bin/bash\n#BSUB -n 4\n./a\n")
