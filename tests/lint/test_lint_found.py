"""Causes found in scripts of the field: what lint overlooked, and what --fix changed without a word."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent

HEAD = "#!/bin/bash\n#SBATCH -t 10 -n 1 -c 4\n"


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


def rules(text: str) -> set[str]:
    """The rules that find something, notes among them."""
    return {each.rule for each in lint_text(text, name="job.sh").findings}


@pytest.mark.parametrize("options", ["", "-u ", "-W ignore ", "-X dev -u -W ignore "])
def test_a_launch_behind_options_of_python(options: str) -> None:
    text = f"{HEAD}python {options}-m torch.distributed.launch --nproc_per_node=1 a.py\n"
    assert "torch-launch-old" in rules(text)
    assert fixed(text)[0].backend == "torchrun"
    assert not lint_text(f"{HEAD}python {options}a.py -m torch.distributed.launch\n").script.launches


def test_the_word_that_the_old_launcher_adds() -> None:
    line = "python -m torch.distributed.launch{} --nproc_per_node=1 a.py\n"
    assert "passes --local_rank=N" in fixed(HEAD + line.format(""))[1]
    assert "local_rank" not in fixed(HEAD + line.format(" --use_env"))[1]


def test_a_shell_that_becomes_the_program() -> None:
    text = f"{HEAD}srun bash -c 'export RANK=$SLURM_PROCID; exec python a.py'\n"
    assert fixed(text)[0].program == ("a.py",)


def test_cores_that_are_requested_for_each_gpu() -> None:
    text = "#!/bin/bash\n#SBATCH -N1 --ntasks-per-node=1 --cpus-per-gpu=8 --gpus-per-node=4 -t 10\n"
    intent, _ = fixed(f"{text}srun torchrun --nproc_per_node=4 a.py\n")
    assert intent.cores_per_rank == 8 and intent.batch.scheduler_args == ()


@pytest.mark.parametrize("line", ["srun ./a", "mpirun -np 8 ./a", "ibrun ./a"])
def test_cores_that_only_the_site_decides_are_named(line: str) -> None:
    head = "#!/bin/bash\n#SBATCH -N 1 -n 8 -t 10{}\n"
    assert "the head requests 8 cores, the job file as many as the site gives" in fixed(f"{head.format('')}{line}\n")[1]
    assert "the site gives" not in fixed(f"{head.format(' --exclusive')}{line}\n")[1]


def test_the_depth_of_aprun() -> None:
    intent, _ = fixed("#!/bin/bash\n#PBS -l nodes=4,walltime=1:00:00\naprun -n 4 -N 1 -d 8 ./a\n")
    assert intent.cores_per_rank == 8


def test_the_last_directive_of_pbs_counts() -> None:
    text = "#!/bin/bash\n#PBS -m abe -l walltime=1:00:00\n#PBS -m n\n#PBS -l select=1:ncpus=4\n./a\n"
    assert "option-twice" in rules(text) and fixed(text)[0].batch.mail_events == ()
    assert "option-twice" not in rules(text.replace("-m abe ", ""))


@pytest.mark.parametrize("tag", ["#SBATCH", "#PBS"])
def test_a_directive_without_a_blank_is_read(tag: str) -> None:
    option = {"#SBATCH": "--time=10", "#PBS": "-lwalltime=0:10:00"}[tag]
    script = lint_text(f"#!/bin/bash\n{tag}{option}\n./a\n").script
    assert script.request.time_min == 10 and "no-directive-read" not in rules(script.text)
    assert not lint_text(f"#!/bin/bash\n{tag}x {option}\n./a\n").script.scheduler


def test_a_script_of_lsf_that_the_script_itself_writes() -> None:
    made = 'for i in 1 2; do\necho "\n#BSUB -W 10\n./a" > run$i.sh\nbsub {}run$i.sh\ndone\n'
    assert "bsub-without-input" in rules("#!/bin/bash\n" + made.format(""))
    assert "bsub-without-input" not in rules("#!/bin/bash\n" + made.format("< "))


def test_the_shortest_of_several_options_is_proposed() -> None:
    hints = [each.remedy for each in lint_text("#!/bin/bash\n#SBATCH -t 10 --gpu=4\nsrun ./a\n").findings]
    assert "#SBATCH --gpus=4" in hints


@pytest.mark.parametrize(
    ("lines", "prologue", "cwd", "said"),
    [
        ("cd scripts\n./prepare > log\ncd $SLURM_SUBMIT_DIR\n. env.sh",
         ("cd scripts", "./prepare >log", "cd $SLURM_SUBMIT_DIR", ". env.sh"), "", ""),
        ("cd $A\ncd /b", ("cd $A", "cd /b"), "/b", ""),
        ("cd /a\ncd .", ("cd /a",), "/a", ""),
        ("for i in 1 2; do\ncd d_$i\ndone", (), "", "line 4: cd d_$i: set cwd"),
    ],
)  # fmt: skip
def test_where_the_lines_before_the_launch_end(lines: str, prologue: tuple[str, ...], cwd: str, said: str) -> None:
    intent, notes = fixed(f"{HEAD}{lines}\nsrun ./a\n")
    assert intent.cwd == cwd and said in notes and ("set cwd" in notes) == bool(said)
    assert [each for each in intent.prologue if "prepare" not in each] == [e for e in prologue if "prepare" not in e]


def test_a_default_that_a_message_sets() -> None:
    lines = 'echo "in ${DIR:=$PWD/out}"\necho "port ${PORT:-1}"\nmkdir -p $DIR\n'
    assert fixed(f"{HEAD}{lines}srun ./a $DIR\n")[0].prologue == ('echo "in ${DIR:=$PWD/out}"', "mkdir -p $DIR")


def test_a_loop_that_waits_for_a_file() -> None:
    text = f"{HEAD}srun ./solve &\nwhile [[ ! -e done ]]; do\n    sleep 5\ndone\nrm done\n"
    assert "missing-wait" not in rules(text)
    assert "missing-wait" in rules(text.replace("while [[ ! -e done ]]; do\n    sleep 5\ndone\n", "sleep 5\n"))


@pytest.mark.parametrize(("call", "found"), [("one $i", True), ("one $i &", False)])
def test_one_gpu_at_a_time_in_a_function_of_a_loop(call: str, found: bool) -> None:
    text = "#!/bin/bash\n#BSUB -nnodes 1 -W 10\none() {\n  jsrun -n1 -a1 -c7 -g1 python a.py $1\n}\n"
    text += f"for i in 1 2; do\n  {call}\ndone\nwait\n"
    assert ("jsrun-one-gpu" in rules(text)) is found
    assert "jsrun-one-gpu" not in rules(text.replace("jsrun -n1", "jsrun -i -n1"))


@pytest.mark.parametrize(("option", "found"), [("--cpus-per-task=", True), ("--time=", True), ("--mail-user=", False)])
def test_a_number_that_is_left_empty(option: str, found: bool) -> None:
    assert ("option-without-value" in rules(f"#!/bin/bash\n#SBATCH {option}\n#SBATCH -n 1\nsrun ./a\n")) is found


LAUNCH = 'launch() { srun -c 4 "$@" 2>&1 | tee log; }\n'


@pytest.mark.parametrize(
    ("lines", "program", "prologue"),
    [
        (f"{LAUNCH}. env.sh\nlaunch python a.py --x 'b c'", ("a.py", "--x", "b c"), (". env.sh",)),
        ("go() {\nmodule load $1/2.0\nsrun ./a --n=${2} $1\n}\nexport B=1\ngo gcc 3", ("./a", "--n=3", "gcc"),
         ("export B=1", "module load gcc/2.0")),
        ('a() {\n. env.sh\n}\nmain() {\na\nsrun ./a "$@"\n}\nmain "$@"', ("./a", "$@"), (". env.sh",)),
        ('go() {\nlocal n=$1; shift\nsrun ./a --n $n "$@"\nreturn 0\n}\ngo 1 b', ("./a", "--n", "1", "b"), ()),
        ('go() {\nlocal all=("$@")\nsrun ./a "${all[@]}"\n}\ngo 1 b', ("./a", "1", "b"), ()),
        ("go() {\nsrun ./a ${1:-b} ${2:-c}\n}\ngo z", ("./a", "z", "c"), ()),
        ("go() {\nexport A=$1\nexec srun ./a\n}\ngo 1", ("./a",), ("export A=1",)),
    ],
)  # fmt: skip
def test_a_function_that_one_line_calls(lines: str, program: tuple[str, ...], prologue: tuple[str, ...]) -> None:
    intent, notes = fixed(f"{HEAD}{lines}\n")
    assert (intent.program, intent.prologue) == (program, prologue) and "in a function" not in notes


@pytest.mark.parametrize(
    "lines",
    [
        "go() {\nsrun ./a $1\n}\ngo 1\ngo 2",
        "go() {\nlocal n=$1\nsrun ./a $n\n}\ngo 1\necho $n",
        "go() {\nlocal -i n=$1\nsrun ./a $n\n}\ngo 1",
        "go() {\nset -- a b\nsrun ./a $1\n}\ngo 1",
        "go() {\n[ -z $1 ] || shift\nsrun ./a $1\n}\ngo 1 2",
        "go() {\nsrun ./a $#\n}\ngo 1",
        "go() {\nsrun ./a $1\n}\ngo '*'",
        "go() {\nsrun ./a $(b $1)\n}\ngo 1",
        "go() {\nsrun ./a $1\n}\ngo 1 &\nwait",
        "go() {\nsrun ./a $1\n}\ntrap go EXIT\ngo 1",
    ],
)
def test_other_functions_stay_where_they_are(lines: str) -> None:
    assert "the launch is in a function" in fixed(f"{HEAD}{lines}\n")[1]


def test_a_function_that_a_loop_or_a_condition_calls() -> None:
    body = "go() {\n[ -e done$1 ] && return 0\nsrun ./a --seed=$1\n}\n"
    intent, notes = fixed(f'{HEAD}{body}for s in 1 2; do\ngo "$s"\ndone\n')
    assert intent.program == ("./a", "--seed=$s") and "the launch is in a loop" in notes
    assert "conditional: return 0" in notes and "in a function" not in notes
    assert "the launch is in a condition" in fixed(f"{HEAD}{body}if b; then\ngo 1\nfi\n")[1]


WRAPPED = "singularity exec a.sif torchrun --nnodes=2 --nproc_per_node=4 a.py"


@pytest.mark.parametrize("before", ["srun ./env.sh", "srun bash scripts/env.sh"])
def test_a_container_and_an_agent_behind_an_unknown_script(before: str) -> None:
    head = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=4 --ntasks-per-node=1 -t 10 -c 32\n"
    text = f"{head}{before} {WRAPPED}\n"
    assert rules(text) >= {"container-without-gpu", "torchrun-no-rendezvous"}
    intent, _ = fixed(text)
    assert intent.program == (*before.split()[1:], *WRAPPED.split()) and intent.backend == "auto"
    assert not rules(f"{head}srun ./env.sh torchrun\n") & {"torchrun-no-rendezvous"}


def test_a_script_around_a_container_without_a_launcher() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=1 -t 10\n./env.sh singularity exec a.sif python a.py\n"
    assert "container-without-gpu" in rules(text) and "container-without-gpu" not in rules(
        text.replace("a.sif", "--nv a.sif")
    )
    assert fixed(text)[0].program == ("./env.sh", "singularity", "exec", "a.sif", "python", "a.py")


@pytest.mark.parametrize("value", ['"span[hosts=1] rusage[mem=4GB]', "'select[a", '"span[hosts=1]'])
def test_a_quote_that_is_not_closed(value: str) -> None:
    text = f"#!/bin/bash\n#BSUB -n 8 -W 10 -R {value}\n./a\n"
    assert "resource-string" in rules(text) and "-R " in fixed(text)[1]
    assert "resource-string" not in rules(text.replace(value, '"span[hosts=1]"'))


def test_a_misspelt_tag_is_no_request() -> None:
    _, notes = fixed("#!/bin/bash\n#SBATCH -n 1 -t 10\n#SBTACH --gres=gpu:4\nsrun ./a\n")
    assert "line 3: not read by the scheduler: #SBTACH --gres=gpu:4" in notes


@pytest.mark.parametrize("end", ["qdel $PBS_JOBID", "bkill $LSB_JOBID", "scancel $SLURM_JOB_ID"])
def test_the_end_of_a_job_is_no_program(end: str) -> None:
    intent, notes = fixed(f"{HEAD}./a\n{end}\n")
    assert intent.program == ("./a",) and f"after the launch: {end}" in notes


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ('-B"$A:$A" -B /opt:/opt $A/torch.sif', True),
        ("$IMAGE", True),
        ('--bind $A "${TORCH_IMG}"', True),
        ("$OPTIONS torch.sif", False),
        ("$A", False),
        ("--nv $IMAGE", False),
        ("$GPU_FLAG $IMAGE", False),
    ],
)
def test_variables_in_the_words_of_a_container(words: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -N 1 --gpus-per-node=1 -t 10\nsingularity exec {words} python a.py\n"
    assert ("container-without-gpu" in rules(text)) is found
