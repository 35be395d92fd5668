"""`lint --fix` on what scripts of the field have: pipes, bare programs, sizes that differ, names of files."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent
from stackyard.lint.fix import closing
from stackyard.lint.fix.making import IntentDraft

HEAD = "#!/bin/bash\n#SBATCH -t 10 {}\n"


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


@pytest.mark.parametrize(
    ("lines", "prologue", "said"),
    [
        ("echo \"$A\" | sed 's/x/y/' > hosts", ("echo \"$A\" | sed 's/x/y/' >hosts",), ""),
        ("cat a | sort | tee b", ("cat a | sort | tee b",), ""),
        ("env | grep A", (), "line 3: only prints"),
        ("./make | jq . > b", (), "line 3: piped: ./make | jq . >b"),
        ("if a; then\necho 1 | tee x\nfi", (), "piped: echo 1 | tee x"),
        ("for i in 1 2; do\necho $i\ndone > hosts", (), "line 5: the redirection >hosts of the commands before it"),
        ("julia make.jl > in.txt", ("julia make.jl > in.txt",), ""),
        ("set -x", (), "line 3: only prints"),
        ("cd /a && mkdir b &&", ("cd /a",), "conditional: mkdir b"),
        ("set -euo pipefail", (), "line 3: set -euo pipefail"),
        ("[ -e x ] || exit 1", (), "conditional: exit 1"),
        ("f() { A=1; set --; }\nf", (), "in a function: A=1"),
        ("export HF_TOKEN=abc X=1", ("export X=1",), "HF_TOKEN: its value may be a secret"),
        ("export HF_TOKEN=$(cat ~/.token)", ("export HF_TOKEN=$(cat ~/.token)",), ""),
        ("HOSTFILE=h\ncat a > $HOSTFILE", ("HOSTFILE=h", "cat a > $HOSTFILE"), ""),
    ],
)
def test_what_stands_before_the_launch(lines: str, prologue: tuple[str, ...], said: str) -> None:
    intent, notes = fixed(HEAD.format("-n 1") + lines + ("" if lines.endswith("&&") else "\n") + " srun ./a\n")
    assert intent.prologue == prologue and said in notes and "after the launch" not in notes


@pytest.mark.parametrize(
    ("lines", "cwd", "said"),
    [
        ("cd $SLURM_SUBMIT_DIR", "", ""),
        ('cd "${SLURM_SUBMIT_DIR:-.}/"', "", ""),
        ("cd $SLURM_SUBMIT_DIR/out", "", "cd $SLURM_SUBMIT_DIR/out: set cwd"),
        ("cd", "", "line 3: cd: set cwd"),
        ("cd /a\ncd b/../c", "/a/c", ""),
        ("cd /a\ncd $B", "", "cd $B: set cwd"),
        ("cd ~/runs", "", "cd ~/runs: set cwd"),
    ],
)
def test_the_working_directory(lines: str, cwd: str, said: str) -> None:
    intent, notes = fixed(HEAD.format("-n 1") + lines + "\nsrun ./a\n")
    assert intent.cwd == cwd and said in notes and ("set cwd" in notes) == ("set cwd" in said)
    assert intent.prologue == (() if cwd == "" and not said else tuple(lines.splitlines()))


def test_a_home_directory_is_known_only_at_run_time() -> None:
    _, notes = fixed(HEAD.format("-n 1") + "OUT=~/out\nsrun ./a --out $OUT/x '~/y' a~b\n")
    assert "variables of the script in ~/out/x" in notes and "~/y" not in notes and "a~b" not in notes


@pytest.mark.parametrize(
    ("head", "line", "sizes", "said"),
    [
        ("-n 16 --ntasks-per-node=4", "srun ./a", (4, 4, None, None), "the head requests 16 cores, the job file as"),
        ("-n 20 --gres=gpu:2", "mpiexec -n 2 ./a", (1, 2, 10, 1), ""),
        ("-N 1 --gres=gpu:8", "torchrun --nproc_per_node=8 a.py", (1, 8, None, 1), "the head requests 1 core, the"),
        ("-N 1 -c 10 --gres=gpu:4", "torchrun --nproc_per_node=4 a.py", (1, 4, 2, 1), "the head requests 10 cores"),
        ("-N 1 -c 8 --gres=gpu:4", "torchrun --nproc_per_node=4 a.py", (1, 4, 2, 1), ""),
        ("-N 1 -c 9 --exclusive", "torchrun --nproc_per_node=4 a.py", (1, 4, 2, None), ""),
        ("-N 1 -n 8 -c 2 --gres=gpu:8", "singularity run a.sif ./a", (1, 1, 16, 8), "run script of the image"),
        ("-N 2 -c 4 --gres=gpu:2", "for i in 0 1; do\nsrun -N1 -n1 -w $i torchrun --nnodes=2 --nproc_per_node=2 "
         "--node_rank=$i --master_addr=a a.py &\ndone", (2, 2, 2, 1), "in a loop"),
        ("-N 1 -n 1 -c 32", "mpirun -np 16 ./a", (1, 16, 2, None), ""),
        ("-N 2 -c 8", "mpirun -np 32 ./a", (2, 16, 1, None), "the head requests 16 cores, the job file 2 x 16 ranks"),
        ("-N 2", "srun -n 8 -c 4 --gpus-per-task=1 $EXE -x", (2, 4, 4, 1), "the head requests 2 cores"),
        ("--gres=gpu:2", "srun torchrun --nproc_per_node=2 a.py", (1, 2, None, 1), "the head requests 1 core, the job"),
        ("--gres=gpu:2 --mincpus=8", "srun torchrun --nproc_per_node=2 a.py", (1, 2, None, 1), "no cores, the job"),
        ("-n 1 -c 6 -G 1", "srun ./a", (1, 1, 6, 1), ""),
        ("-n 8 -c 1 -G 8", "srun -c 1 ./a", (1, 8, 1, None), "--gpus=8 is not a whole number for each node"),
        ("-N 1 --ntasks-per-node=8 --cpus-per-gpu=6", "torchrun --nproc_per_node=8 a.py", (1, 8, None, None), ""),
        ("-N 4 -n 4", "srun -n 2 ./a", (2, 1, None, None), "the head requests 4 cores"),
        ("-N 2 -c 4", "./a", (1, 1, 4, None), "the head requests 8 cores"),
    ],
)  # fmt: skip
def test_the_sizes_of_the_job(head: str, line: str, sizes: tuple[int | None, ...], said: str) -> None:
    intent, notes = fixed(HEAD.format(head) + line + "\n")
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == sizes, notes
    assert said in notes and ("the head requests" in notes) == ("the head requests" in said)


@pytest.mark.parametrize(
    ("head", "line", "said"),
    [
        ("-n 1 --gpus=a100:1", "srun ./a", "line 2: the kind of GPU in gpu:a100:1"),
        ("-N 1 --gres=gpu:8", "srun -n 1 --gres=gpu:2 ./a", "the head requests 8 GPUs on each node, the launch 2"),
        ("-n 1", "srun --jobid=77 ./a", "the option jobid 77 of srun"),
    ],
)
def test_gpus_and_jobs_of_the_launch(head: str, line: str, said: str) -> None:
    assert said in fixed(HEAD.format(head) + line + "\n")[1]
    own = fixed(HEAD.format("-n 1 --gpus=1") + "srun -c 1 --gpus=1 --jobid=$SLURM_JOB_ID ./a\n")[1]
    assert not any(part in own for part in ("kind of GPU", "the head requests", "jobid"))


@pytest.mark.parametrize(
    ("option", "said"),
    [("-c 7$ -g1", "cpu_per_rs is 7$"), ("-c ALL_CPUS -g ALL_GPUS", "the GPUs of the launch are not a plain number")],
)
def test_sizes_that_are_no_numbers(option: str, said: str) -> None:
    _, notes = fixed(f"#BSUB -nnodes 2 -W 10\njsrun -n2 -r1 -a1 {option} ./a\n")
    assert said in notes and "GPUs are not requested" not in notes


def test_slots_of_one_host_are_the_cores_of_a_plain_program() -> None:
    intent, _ = fixed('#BSUB -n 4 -W 10\n#BSUB -R "span[hosts=1]"\npython a.py\n')
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank) == (1, 1, 4)
    intent, notes = fixed("#BSUB -n 4 -W 10\npython a.py\n")
    assert (intent.nodes, intent.ranks_per_node) == (1, 1) and "the head requests 4 cores" in notes


def test_pbs_resources_without_select() -> None:
    intent, notes = fixed("#PBS -l ncpus=12,ngpus=1,mem=10gb\n#PBS -l walltime=10:00\n/usr/bin/time -v python a.py\n")
    assert (intent.nodes, intent.cores_per_rank, intent.gpus_per_rank, intent.batch.memory_gib) == (1, 12, 1, 10)
    assert intent.program == ("a.py",) and "time -v before python" in notes and not intent.batch.scheduler_args
    intent, notes = fixed("#PBS -l nodes=1:ppn=4,mem=6gb\n#PBS -l walltime=10:00\nmpirun ./a\n")
    assert intent.batch.memory_gib == 6 and "memory_gib" not in notes
    intent, notes = fixed("#PBS -l nodes=4:big:ppn=2:gpus=1\n#PBS -l walltime=10:00\nmpirun ./a\n")
    assert (intent.nodes, intent.ranks_per_node) == (4, 2) and "ranks on each node" not in notes
    intent, notes = fixed("#PBS -l select=2:ncpus=64\nmpiexec -n 8 --ppn 4 ./a\n")
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank) == (2, 4, 16)


@pytest.mark.parametrize(
    ("lines", "program", "said"),
    [
        ("julia main.jl in.json &> out.txt", ("julia", "main.jl", "in.json"), "the redirection &>out.txt"),
        ("./a\nfor i in 1 2; do\necho $i >> done.txt\ndone", ("./a",), "after the launch: echo $i"),
        ("for i in 1 2; do\n./a $i\ndone > log 2>&1", ("./a", "$i"), "after the launch: the redirection >log"),
        ("module load R\n./a -x\nrm -f tmp", ("./a", "-x"), "after the launch: rm -f tmp"),
        ("./a\n./b", ("./b",), "line 3: ./a"),
        ("while read -r line; do\necho $line\ndone\neval $text", (), "fill in program"),
        ("A=1 time relax <<EOF | tee in.txt\n1 2\nEOF", (), "line 3: piped: A=1 time relax | tee in.txt"),
        ("alias run='torchrun --nproc_per_node=2'\nrun a.py", (), "line 4: run a.py"),
        ("go() {\nset --\n./a\n}\ngo 1", (), "line 7: go 1"),
        ("go() {\n./a $1\n}\ngo 1", ("./a", "1"), ""),
        ("time -p ./a -x", ("./a", "-x"), ""),
        ("$MPI_EXEC -n 4 ./a", (), "fill in program"),
        ("./a | tee log", (), "piped: ./a | tee log"),
    ],
)
def test_a_program_that_is_no_python(lines: str, program: tuple[str, ...], said: str) -> None:
    intent, notes = fixed(HEAD.format("-n 1") + lines + "\n")
    assert intent.program == program and said in notes


def test_container_options_in_a_variable() -> None:
    lines = (
        'BIND=""\nif a; then\nBIND="--bind /a"\nfi\nsingularity exec --nv --bind $B $BIND $DIR/a.sif jupyter --port 1\n'
    )
    intent, notes = fixed(HEAD.format("-n 1") + lines)
    assert intent.program == ("jupyter", "--port", "1")
    assert (
        "the container options in $BIND" in notes
        and "the container options in $B\n" not in notes
        and "the container image $DIR/a.sif" in notes
    )
    intent, notes = fixed(HEAD.format("-n 1") + "singularity exec $IMAGE ./a\n")
    assert intent.program == ("./a",) and "the container image $IMAGE" in notes


def test_standard_input_of_the_launch() -> None:
    _, notes = fixed(HEAD.format("-n 1") + "echo 1 | srun ./a < in.txt\n")
    assert "the pipe into the launch, its standard input" in notes
    assert "the redirection <in.txt: launch --stdin" in notes


def test_a_ray_driver_that_is_not_found_is_not_lost() -> None:
    text = HEAD.format("-N 2 --exclusive") + (
        "ip=$(hostname)\nsrun -N1 -n1 hostname\n"
        "srun -N1 -n1 --gres=gpu:4 ray start --head --block &\nsrun -n 1 $1\n$DRIVER --go\n"
    )
    intent, notes = fixed(text)
    assert (intent.nodes, intent.backend, intent.program, intent.gpus_per_rank) == (2, "ray", (), 4)
    for part in ("a further launch, srun -n 1 $1", "srun -N1 -n1 hostname", "after the launch: $DRIVER --go"):
        assert part in notes


@pytest.mark.parametrize(
    ("text", "name", "output"),
    [
        ("#SBATCH -n 1 -o log.%j.%N_%A_%a_%4t.txt", "slurm", "log.%j.%N_%A_%a_%4t.txt"),
        ("#SBATCH -n 1 -o log_%NAME%.txt", "slurm", ""),
        ("#SBATCH -n 1 -o {{name}}.txt", "slurm", ""),
        ("#FLUX: -n 1\n#FLUX: --output={{name}}.{{id}}.log", "flux", "{{name}}.{{id}}.log"),
    ],
)
def test_what_the_scheduler_fills_in_is_no_placeholder(text: str, name: str, output: str) -> None:
    intent, notes = fixed(f"#!/bin/bash\n{text}\n./a\n")
    assert intent.batch.output == output and ("is a placeholder" in notes) == (not output)


def test_threads_of_another_function_are_not_those_of_the_launch() -> None:
    text = HEAD.format("-N 1") + "export OMP_NUM_THREADS=4\na() {{\nOMP_NUM_THREADS=1\nset --\n}}\na\n{}\n"
    assert fixed(text.format("srun -c 8 ./a"))[0].threads_per_rank is None
    assert fixed(text.format("b() {\nOMP_NUM_THREADS=2\nsrun -c 8 ./a\n}\nb"))[0].threads_per_rank == 2


def test_the_other_commands_of_an_eval() -> None:
    lines = 'CMD="module load a; export B=1; torchrun --nproc_per_node=2 a.py"\neval $CMD\n'
    intent, notes = fixed(HEAD.format("-N 1 -c 2") + lines)
    assert intent.program == ("a.py",)
    assert "in eval: module load a" in notes and "in eval: export B=1" in notes and "in eval: torchrun" not in notes


def test_small_launches_beside_a_plain_program() -> None:
    intent, notes = fixed("#BSUB -nnodes 1 -W 10\n#BSUB -N a@b.c\njsrun -n1 -g1 nvidia-smi -L; python a.py\n")
    assert intent.program == ("a.py",) and "a small command on the nodes, jsrun -n1 -g1 nvidia-smi -L" in notes
    assert "line 2: words that belong to no option: a@b.c" in notes


def test_what_a_template_engine_fills_in_is_one_word() -> None:
    text = (
        "#!/bin/bash\n#BSUB -q {{ queue }}\n#BSUB -nnodes 2 -W 10\n"
        "export OMP_NUM_THREADS={{ threads }}\nexport A={{ a }}\n"
        "jsrun -r {{ sets | int }} -a1 -c 7 -g 1 python {{ trainer }} --in {{ yaml }}\n"
    )
    intent, notes = fixed(text)
    assert intent.program == ("python", "{{ trainer }}", "--in", "{{ yaml }}")
    assert intent.prologue == ("export A={{ a }}",)
    assert "q: {{queue}} is a placeholder" in notes and "rs_per_host is {{ sets | int }}" in notes
    assert "belong to no option" not in notes


def test_options_without_their_value() -> None:
    intent, notes = fixed(
        "#!/bin/bash\n#SBATCH -n 1 --partition= # a name\n#SBATCH -w  # a node\n#SBATCH -A # you\n./a\n"
    )
    assert not intent.batch.scheduler_args
    assert "belong to no option" not in notes
    _, notes = fixed("#BSUB !MAIL -u a@b.c more -W 10\n./a\n")
    assert "line 1: words that belong to no option: !MAIL more" in notes
    _, notes = fixed("#!/bin/bash\n#SBATCH -n 1 --partition= # a name\n#SBATCH -w  # a node\n#SBATCH -A # you\n./a\n")
    for name in ("partition", "nodelist", "account"):
        assert f"{name} has no value: fill it in" in notes


@pytest.mark.parametrize(
    ("lines", "program"),
    [
        ("./a &\nwait\nkill 3", ("./a",)),
        ("./a\nkill 3\nfind . -name x -delete\nscancel $SLURM_JOB_ID", ("./a",)),
        ("srun env A=1 ./a\nsrun env", ("./a",)),
        ("srun numactl -N 0 ./a\nsrun numactl --show", ("./a",)),
        ("./a\nuname -a", ("./a",)),
    ],
)
def test_what_is_not_the_program(lines: str, program: tuple[str, ...]) -> None:
    intent, _ = fixed(HEAD.format("-N 1") + lines + "\n")
    assert intent.program[-1:] == program


@pytest.mark.parametrize(
    ("command", "prologue", "lost"),
    [
        ("umask 077", ("export P=/opt/umask_tools/0777/x",), True),
        ("rm a b", ("rm a", "rm b"), True),
        ("umask 077", ("export P=1", "umask 077"), False),
        ("tar cf \\\n a.tar a", ("test -d a && tar cf a.tar a",), False),
        ('echo "a\\\nb"', ('{ echo "ab"; }',), False),
        ("rm a", ("for f in 1; do rm a; done",), False),
    ],
)
def test_the_last_look_finds_a_command_that_another_part_lost(
    command: str, prologue: tuple[str, ...], lost: bool
) -> None:
    script = lint_text(f"#!/bin/bash\n{command}\n", name="job.sh").script
    making = IntentDraft(script, {"prologue": prologue})
    closing.close(making, None, None, [], 0)
    assert bool(making.notes) == lost, making.notes


def test_variables_of_a_container_are_carried_over_and_not_named_as_lost() -> None:
    line = "singularity exec --env A=/b,C=d --env E=f,g --env H=$X --bind /s a.sif python a.py\n"
    intent, notes = fixed(HEAD + line)
    assert intent.variables == {"A": "/b", "C": "d", "E": "f,g"}
    assert "--env" not in notes and "the variable H=$X" in notes and "the container option --bind /s" in notes
    within, notes = fixed(f"{HEAD}srun {line}")
    assert not within.variables and "the container option --env A=/b,C=d" in notes
