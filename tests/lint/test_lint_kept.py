"""`lint --fix` keeps what a script's own lines do, and lint reads what its variables are: causes found in the field."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent

HEAD = "#!/bin/bash\n#SBATCH -t 10 -n 1\n"


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


def found(text: str) -> list[str]:
    """The rules that warn."""
    return [each.rule for each in lint_text(text, name="job.sh").findings if each.severity != "note"]


@pytest.mark.parametrize(
    ("lines", "prologue"),
    [
        ("A=\\\n'b c'\nexport A", ("A='b c'", "export A")),
        ("export A=b\\\nc \\\n  D=e", ("export A=bc D=e",)),
        ('export A="b \\\n c"', ('export A="b  c"',)),
        ("sed 's/a/\\\nb/' c > d", ("sed 's/a/\\\nb/' c >d",)),
        ('echo "\na = 1\n" > b.in', ('echo "\na = 1\n" >b.in',)),
    ],
)
def test_lines_are_joined_as_the_shell_joins_them(lines: str, prologue: tuple[str, ...]) -> None:
    assert fixed(f"{HEAD}{lines}\nsrun ./a\n")[0].prologue == prologue


def test_what_a_variable_that_is_not_needed_ran() -> None:
    lines = "JOB=`qsub next.sh`\nB=$(date | cut -c 1)\nC=$(basename $0)\nD=$(./make)\nE=$(srun -N1 -n1 hostname -i)\n"
    _, notes = fixed(f"{HEAD}{lines}F=$(ssh $E /bin/hostname)\nG=$(srun ./b)\nsrun ./a\n")
    assert "line 3: JOB=`qsub next.sh`" in notes and "line 6: D=$(./make)" in notes
    assert "line 9: G=$(srun ./b)" in notes
    assert not any(f": {name}=" in notes for name in "BCEF")


@pytest.mark.parametrize(
    ("head", "line", "exclusive", "said"),
    [
        ("-N 2", "flux run -N 2 -n 4 --exclusive ./a", True, False),
        ("-N 2 -x -n 2", "flux run -N 2 -n 4 --exclusive ./a", True, False),
        ("-N 2 -n 2", "flux run -N 2 -n 4 --exclusive ./a", None, True),
    ],
)
def test_whole_nodes_of_flux(head: str, line: str, exclusive: bool | None, said: bool) -> None:
    """`flux batch` with nodes and without slots takes whole nodes."""
    intent, notes = fixed(f"#!/bin/bash\n#flux: {head} -t 10m\n{line}\n")
    assert (intent.batch.exclusive or None) == exclusive and ("exclusive of flux" in notes) == said


def test_an_agent_in_a_container_has_the_cores_of_the_script() -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -N 1 --ntasks-per-node=4 -c 4 --gres=gpu:4\n"
    intent, notes = fixed(head + 'singularity exec a.sif bash -c "torchrun --nproc_per_node=4 a.py"\n')
    assert (intent.ranks_per_node, intent.cores_per_rank) == (4, 4) and "check cores_per_rank" not in notes


def test_ranks_by_the_number_of_gpus_share_a_core() -> None:
    text = "#!/bin/bash\n#SBATCH -t 10 -N 1 --gpus=8\nsrun torchrun --nproc_per_node $SLURM_GPUS a.py\n"
    assert found(text) == ["ranks-share-a-core"]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("srun --ntasks=1 hostname 2>&1 | tail -n1", []),
        ("srun -N 1 hostname | tail -n 1", []),
        ("hostname | tail -n 1", []),
        ("srun hostname | tail -n 1", ["address-launch-node"]),
        ("scontrol show hostnames | tail -n 1", ["address-launch-node"]),
    ],
)
def test_the_last_of_one_line(command: str, rules: list[str]) -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -N 2 --ntasks-per-node=4\n"
    assert found(f"{head}export MASTER_ADDR=$({command})\nsrun ./a\n") == rules


def test_a_list_with_a_blank_in_it() -> None:
    finding = next(iter(lint_text("#!/bin/bash\n#SBATCH -t 10\n#SBATCH -p a, b\n./a\n").findings))
    assert (finding.rule, finding.remedy) == ("stray-words", "#SBATCH -p a,b")


FUNCTIONS = "one() {\nsrun ./b\ntwo\n}\nfunction two {\nthree\n}\nthree() {\n./c\n}\n"


@pytest.mark.parametrize(
    ("calls", "program", "said"),
    [
        ("srun ./a", ("./a",), ["one", "two", "three"]),
        ("# one\nsrun ./a", ("./a",), ["one", "two", "three"]),
        ("three\nsrun ./a", ("./a",), ["one", "two"]),
        ("export -f one\nbash -c 'one'", ("./b",), []),
        ('"$@"', ("./b",), []),
        ("trap one EXIT", ("./b",), []),
    ],
)
def test_functions_that_nothing_calls(calls: str, program: tuple[str, ...], said: list[str]) -> None:
    intent, notes = fixed(f"{HEAD}{FUNCTIONS}{calls}\n")
    assert intent.program == program
    assert [name for name in ("one", "two", "three") if f"the function {name}, which nothing calls" in notes] == said


def test_the_last_of_several_launches_in_a_shell_is_the_program() -> None:
    text = "torchrun --nproc_per_node=2 a.py\ntorchrun --nproc_per_node=3 b.py"
    intent, notes = fixed(f"{HEAD}#SBATCH -c 6 --gres=gpu:6\nsingularity exec a.sif bash -c '{text}'\n")
    assert (intent.program, intent.ranks_per_node) == (("b.py",), 3)
    assert "in each task: torchrun --nproc_per_node=2 a.py" in notes


@pytest.mark.parametrize(
    ("lines", "program", "said"),
    [
        ("which mpirun; mpirun --version\n./a", ("./a",), "a small command on the nodes, mpirun --version"),
        ("srun hostname\n./a", ("./a",), "a small command on the nodes, srun hostname"),
        ("srun hostname\n/bin/echo end", ("hostname",), "only prints"),
        ("poetry run python a.py", ("a.py",), "poetry run before python"),
        ("conda run -n env python a.py", ("a.py",), "conda run -n env before python"),
        ("srun $(which python) a.py", ("a.py",), ""),
        ("python $(which torchrun) --nproc_per_node=2 a.py", ("a.py",), ""),
        ("srun python a.py $(which b)", ("a.py", "$(which b)"), "variables of the script in $(which b)"),
        ("srun ./a \\", ("./a",), ""),
        ("export N=a(int)\nsrun ./a $N", ("./a", "a(int)"), ""),
        ("srun ./b | tee b.log\nA=1 srun ./a", ("./a",), "a further launch, srun ./b"),
    ],
)
def test_the_program(lines: str, program: tuple[str, ...], said: str) -> None:
    intent, notes = fixed(HEAD + lines)
    assert intent.program == program and said in notes and "piped: " not in notes
    assert "".join(intent.prologue) == ("export N=a(int)" if "N=" in lines else "")


@pytest.mark.parametrize(
    ("head", "line", "gpus", "said"),
    [
        ("-n 1 --gpus-per-task=2", "./a", 2, ""),
        ("-N 2 --ntasks-per-node=1 --gres=gpu:2 --gpus-per-node=1", "srun ./a", 1, "--gres=gpu:2, which another"),
        ("-N 2 --ntasks-per-node=1 --gres=gpu:1 --gpus-per-node=1", "srun ./a", 1, ""),
    ],
)
def test_gpus_of_the_head(head: str, line: str, gpus: int, said: str) -> None:
    intent, notes = fixed(f"#!/bin/bash\n#SBATCH -t 10 {head}\n{line}\n")
    assert intent.gpus_per_rank == gpus and said in notes and ("--gres" in notes) == bool(said)


def test_an_address_cut_from_a_name_is_not_the_whole_list() -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -N 2 --ntasks-per-node=4\n"
    assert found(head + "srun ./a --url tcp://${SLURM_NODELIST:0:9}1:4000\n") == []
    assert found(head + "srun ./a --url tcp://$SLURM_NODELIST:4000\n") == ["address-launch-node"]


def test_directives_behind_the_first_command() -> None:
    (finding,) = lint_text("#!/bin/bash\nA=1\n#SBATCH -n 2\nsrun ./a\n").findings
    assert finding.message == "this directive is not read: Slurm stops at the first command"


@pytest.mark.parametrize(
    ("line", "rules"),
    [("-o", ["option-without-value"]), ("-N 1 --mem", ["option-without-value"]), ("--exclusive", []), ("-o a", [])],
)
def test_an_option_without_its_value(line: str, rules: list[str]) -> None:
    assert found(f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH {line}\nsrun ./a\n") == rules


def test_a_number_of_tokens_is_no_secret() -> None:
    intent, notes = fixed(HEAD + "export MAX_TOKEN=4096 USE_AUTH_TOKEN=true HF_TOKEN=a4096b\nsrun ./a\n")
    assert (
        intent.prologue == ("export MAX_TOKEN=4096 USE_AUTH_TOKEN=true",)
        and "HF_TOKEN: its value may be a secret" in notes
    )


def test_placeholders_in_angle_brackets() -> None:
    head = "#!/bin/bash\n#SBATCH -n 1 -N 1\n<GPU_CONFIG>\n\n<Load>\n"
    lines = "DIR=<DIR>\nsrun ./a $DIR/b <WORLD> < c > d\n"
    intent, notes = fixed(head + lines)
    assert intent.program == ("./a", "<DIR>/b", "<WORLD>")
    assert "the redirection <c: launch --stdin" in notes and "the redirection >d" in notes
    assert "<GPU_CONFIG>" in notes and "<Load>" in notes
    assert lint_text(head + "torchrun --nproc_per_node=4 a.py\n").findings == ()
    assert found(head.replace("<GPU_CONFIG>", "") + "torchrun --nproc_per_node=4 a.py\n") == []
    assert found(head[:30] + "torchrun --nproc_per_node=4 a.py\n") != []


@pytest.mark.parametrize(("line", "said"), [("-a6 -c7", True), ("-a6 -c12", False)])
def test_cores_of_a_resource_set_that_ranks_do_not_share_evenly(line: str, said: bool) -> None:
    _, notes = fixed(f"#!/bin/bash\n#BSUB -nnodes 2 -W 10\njsrun -r1 {line} -g6 ./a\n")
    assert ("cores of a resource set for 6 ranks: check cores_per_rank" in notes) == said


@pytest.mark.parametrize(("gres", "gpus"), [("gpu:6000:2", 2), ("gpu:2", 2), ("gpu:a100", 1)])
def test_a_kind_of_gpu_that_is_a_number(gres: str, gpus: int) -> None:
    assert fixed(f"#!/bin/bash\n#SBATCH -t 10 -n 1 --gres={gres}\nsrun ./a\n")[0].gpus_per_rank == gpus


def test_versions_are_no_program() -> None:
    assert fixed(HEAD + "./a\ngcc --version\nhipcc --version\n")[0].program == ("./a",)


@pytest.mark.parametrize(("port", "rules"), [("29500", ["fixed-port"]), ("${MASTER_PORT:-29500}", [])])
def test_a_port_by_default_may_be_another(port: str, rules: list[str]) -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -n 1 -N 1 --gres=gpu:1 --mem=8G\n"
    assert found(f"{head}torchrun --rdzv_backend=c10d --rdzv_endpoint=localhost:{port} a.py\n") == rules


def test_a_file_on_the_next_line_is_that_of_the_redirection() -> None:
    intent, notes = fixed(HEAD + "srun ./a -x &> \\\n  b.log\n")
    assert intent.program == ("./a", "-x") and "the redirection &>b.log" in notes


def test_placeholders_in_small_letters_at_the_end_of_a_line() -> None:
    intent, _ = fixed(HEAD + "cd <path_to_it>\nsrun ./a -n <name>   # here\n")
    assert intent.prologue == ("cd <path_to_it>",) and intent.program == ("./a", "-n", "<name>")
    assert "the redirection <in: launch" in fixed(HEAD + "srun ./a <in> out\n")[1]


def test_conda_run_starts_the_program() -> None:
    intent, notes = fixed(HEAD + "conda run -n a ./b\n./c\n")
    assert intent.program == ("./c",) and intent.prologue == () and "conda run -n a ./b" in notes
    assert fixed(HEAD + "./c\nconda run -n a ./b\n")[0].program == ("./b",)


@pytest.mark.parametrize(("line", "rules"), [("A=1", ["only-first-node"]), ("export MY_HOSTFILE=/x/hosts", [])])
def test_a_program_with_a_file_of_hosts_may_start_the_others(line: str, rules: list[str]) -> None:
    head = "#!/bin/bash\n#SBATCH -t 10 -N 2\nexport MASTER_ADDR=$(scontrol show hostnames | head -n 1)\n"
    assert found(f"{head}{line}\npython deep.py train.py\n") == rules


def test_braces_stay_before_a_letter() -> None:
    intent, _ = fixed(f"{HEAD}srun ./a --log=run_${{SIZE}}_x/${{KIND}}.log ${{N}}2\n")
    assert intent.program == ("./a", "--log=run_${SIZE}_x/$KIND.log", "${N}2")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('module load a\nset -e\neval "$WORK"', "no launch line found"),
        ("srun ./a || scontrol requeue $SLURM_JOB_ID", "after the launch: scontrol requeue"),
        ("scontrol update JobId=1 TimeLimit=5\nsrun ./a", "scontrol update"),
        ("end() { echo 1; }\ntrap end EXIT\nsrun ./a", "line 4: trap end EXIT"),
        ("trap 'rm -f a' EXIT\nsrun ./a", "line 3: trap 'rm -f a' EXIT"),
    ],
)
def test_small_commands_that_do_more(lines: str, said: str) -> None:
    intent, notes = fixed(f"{HEAD}{lines}\n")
    assert said in notes
    assert intent.program[:1] != ("set",) and "trap end EXIT" not in intent.prologue


def test_what_scontrol_shows_is_not_said() -> None:
    _, notes = fixed(f"{HEAD}scontrol show job $SLURM_JOB_ID\nsrun ./a\n")
    assert "lines 3: only prints" in notes.replace("line 3", "lines 3")


def test_directories_are_left_as_they_were_entered() -> None:
    intent, _ = fixed(f"{HEAD}pushd a\nmake\npopd\npushd /b\nsrun ./a\n")
    assert intent.prologue == ("pushd a", "make", "popd", "pushd /b") and intent.cwd == "/b"
    intent, _ = fixed(f"{HEAD}cd /c\npushd $SLURM_SUBMIT_DIR\npopd\nsrun ./a\n")
    assert intent.prologue == ("cd /c", "pushd $SLURM_SUBMIT_DIR", "popd") and intent.cwd == "/c"


def test_a_program_in_a_directory_that_the_script_does_not_name() -> None:
    intent, notes = fixed(f"{HEAD}source $STORE/load.sh\n$STORE/bin/solve -n 3\ncp out $HOME\n")
    assert intent.program == ("$STORE/bin/solve", "-n", "3") and "variables of the script" in notes
    assert intent.prologue == ("source $STORE/load.sh",) and "after the launch: cp out" in notes


def test_placeholders_of_several_words_at_the_end_of_a_line() -> None:
    intent, notes = fixed("#!/bin/bash\n#SBATCH -A <your project>\n#SBATCH -t 5 -N 2\nsrun ./a\n")
    assert not intent.batch.account and "placeholder" in notes and intent.nodes == 2


@pytest.mark.parametrize(
    ("lines", "warns"),
    [
        ("jsrun -n1 -a1 -c7 -g1 ./a 1\njsrun -n1 -a1 -c7 -g1 ./a 2", True),
        ("jsrun -n1 -a1 -c7 -g1 ./a 1\njsrun -n4 -a1 -c7 -g1 ./a 2", False),
        ("jsrun -n1 -a1 -c7 -g1 ./a 1 &\njsrun -n1 -a1 -c7 -g1 ./a 2 &", False),
        ("jsrun -n1 -a1 -c7 -g1 ./a 1\njsrun -n1 -a40 -c40 ./b", False),
    ],
)
def test_runs_on_one_gpu_one_after_another(lines: str, warns: bool) -> None:
    assert ("jsrun-one-gpu" in found(f"#!/bin/bash\n#BSUB -nnodes 1 -W 10\n{lines}\n")) == warns


def test_a_default_for_what_is_known_only_when_it_runs_stays() -> None:
    lines = 'while getopts "s:" o; do\n  S=$OPTARG\ndone\nN=${S:-$SLURM_JOB_ID}\nM=${U:-3}\n'
    intent, _ = fixed(f"{HEAD}{lines}./a $N ${{SLURM_ARRAY_TASK_ID:-0}} $M ${{S-1}}\n")
    assert intent.program == ("./a", "${S:-$SLURM_JOB_ID}", "${SLURM_ARRAY_TASK_ID:-0}", "3", "${S-1}")


def test_variables_of_arithmetic_stay() -> None:
    lines = 'A=2\nB=3\nC=4\nN=$(cat n)\nexport S="x$((A * B))"\necho "$((N + 1))" > n\nsrun ./a\n'
    intent, _ = fixed(f"{HEAD}{lines}")
    assert intent.prologue == ("A=2", "B=3", "N=$(cat n)", 'export S="x$((A * B))"', 'echo "$((N + 1))" > n')


def test_a_variable_for_the_launch_in_a_shell_is_said() -> None:
    _, notes = fixed(f"{HEAD}srun bash -c 'LOG=1 RANK=$SLURM_PROCID torchrun --nproc_per_node=2 a.py'\n")
    assert "in each task: LOG=1" in notes and "RANK=" not in notes


@pytest.mark.parametrize("counts", ["--nrs 1 --np 1", "-n1 -a1", "--np 1"])
def test_resource_sets_by_their_tasks(counts: str) -> None:
    line = f"jsrun {counts} --cpu_per_rs 6 --gpu_per_rs 6 --rs_per_host 1 ./a"
    intent, notes = fixed(f"#!/bin/bash\n#BSUB -nnodes 1 -W 10\n{line}\n")
    assert (intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == (1, 6, 6)
    assert "check" not in notes


def test_cores_of_the_head_are_said_where_no_program_is_found() -> None:
    _, notes = fixed("#!/bin/bash\n#BSUB -n 8\n#BSUB -W 1:00\n$CMD -x <<EOF\na\nEOF\n")
    assert "the head requests 8 cores" in notes


def test_variables_before_the_program_of_mpirun_rsh() -> None:
    intent, notes = fixed(f"{HEAD}mpirun_rsh -np 2 -hostfile h A=1 LD_PRELOAD=$B/c.so python a.py -x\n")
    assert intent.program[-2:] == ("a.py", "-x") and intent.variables == {"A": "1"}
    assert "the variable LD_PRELOAD=$B/c.so" in notes


@pytest.mark.parametrize(
    ("head", "line", "severity"),
    [
        ("--gres=gpu:4", "deepspeed a.py", "warning"),
        ("--gres=gpu:4", "deepspeed --num_gpus=$(nvidia-smi -L | wc -l) a.py", "warning"),
        ("--gres=gpu:4 -n 1", "accelerate launch -m b", "note"),
        ("--gres=gpu:4 -n 1", "accelerate launch --config_file c b.py", ""),
        ("--gres=gpu:4 -n 1", "torchrun --nproc_per_node=gpu b.py", "warning"),
        ("--gres=gpu:4 -c 32", "deepspeed a.py", ""),
        ("--gres=gpu:1", "deepspeed a.py", ""),
    ],
)
def test_one_rank_for_each_gpu_on_one_core(head: str, line: str, severity: str) -> None:
    report = lint_text(f"#!/bin/bash\n#SBATCH -t 10 {head}\n{line}\n", name="job.sh")
    assert "".join(each.severity for each in report.findings if each.rule == "ranks-share-a-core") == severity


def test_a_directory_named_like_a_token() -> None:
    intent, _ = fixed(f"{HEAD}srun ./a --data /scratch/hf_v5_token_llama_2_1024 --key hf_{'aB3' * 11}\n")
    assert intent.program == ("./a", "--data", "/scratch/hf_v5_token_llama_2_1024", "--key", "***")
