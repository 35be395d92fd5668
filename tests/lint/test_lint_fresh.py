"""Causes found in a fourth batch of scripts of the field: findings overlooked or wrong, and what --fix left unsaid."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent

HEAD = "#!/bin/bash\n#SBATCH -t 10 -n 1 -c 4\n"


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


def rules(text: str) -> dict[str, str]:
    """The rules that find something, and how severe that is."""
    return {each.rule: each.severity for each in lint_text(text, name="job.sh").findings}


AGENT = "torchrun --nnodes=2 --nproc_per_node=4 a.py"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (f"{AGENT} &\nwait", True),
        (f"{AGENT} > log 2>&1 &\nwait", True),
        (f"{AGENT} --node_rank=0 &\n{AGENT} --node_rank=1 &\nwait", False),
        (f"for h in a b; do\n{AGENT} &\ndone\nwait", False),
    ],
)
def test_an_agent_in_the_background_of_the_first_node(lines: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -N 2 -t 10 -c 64 --exclusive\n{lines}\n"
    assert ("torchrun-first-node-only" in rules(text)) is found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--standalone --master_port=29500", False),
        ("--rdzv_backend=c10d --rdzv_endpoint=$H:0 --master_port=29500", False),
        ("--rdzv_backend=c10d --rdzv_endpoint=$H:29500", True),
        ("--rdzv_backend=static --master_port=29500", True),
        ("--master_port=29500", True),
    ],
)
def test_a_port_that_torchrun_does_not_use(options: str, found: bool) -> None:
    assert ("fixed-port" in rules(f"{HEAD}torchrun {options} --nproc_per_node=2 a.py\n")) is found


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("#PBS -l nodes=1:ppn=1", True),
        ("#PBS -l select=1:ncpus=8", True),
        ("#PBS -l select=1:ncpus=16", False),
        ("#PBS -l select=1:ncpus=8 -l place=excl", False),
        ("#PBS -l select=1:ngpus=1", False),
        ('#BSUB -n 4 -R "span[hosts=1]"', True),
        ("#BSUB -n 1", True),
        ("#BSUB -n 4", False),
        ("#BSUB -nnodes 1", False),
        ("#SBATCH -n 1 -c 4", True),
        ("#SBATCH -n 1 -c 16", False),
    ],
)
@pytest.mark.parametrize("program", ["torchrun --standalone a.py", "python a.py"])
def test_more_threads_than_the_job_has_cores(head: str, found: bool, program: str) -> None:
    text = f"#!/bin/bash\n{head}\nexport OMP_NUM_THREADS=16\n{program}\n"
    assert ("threads-over-cores" in rules(text)) is found
    unset = text.replace("export OMP_NUM_THREADS=16\n", "")
    assert "threads-over-cores" not in rules(unset)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("#BSUB -n 1 -W 10", True),
        ('#BSUB -n 4 -W 10 -R "span[hosts=1]"', False),
        ("#BSUB -nnodes 1 -W 10", False),
        ("#PBS -l select=1:ncpus=1:ngpus=4", True),
        ("#PBS -l select=1:ncpus=32:ngpus=4", False),
        ("#PBS -l select=1:ngpus=4", False),
    ],
)
def test_four_ranks_on_one_core_of_lsf_or_pbs(head: str, found: bool) -> None:
    got = rules(f"#!/bin/bash\n{head}\ntorchrun --standalone --nproc_per_node=4 a.py\n")
    assert got.get("ranks-share-a-core") == ("note" if found else None)


@pytest.mark.parametrize("tag", ["#SBATCh", "#Sbatch", "#sbatch", "#SBTACH", "!#SBATCH", "SBATCH"])
def test_a_tag_with_small_letters(tag: str) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -n 1\n{tag} --gres=gpu:4\n./a\n"
    assert "directive-misspelt" in rules(text)
    assert f"line 3: not read by the scheduler: {tag} --gres=gpu:4" in fixed(text)[1]
    assert "directive-misspelt" not in rules(text.replace(tag, "#SBATCH"))
    assert "directive-misspelt" not in rules(text.replace(f"{tag} --gres=gpu:4", "#Search -for it\n##SBATCH --mem=1G"))


def test_directives_of_grid_engine_are_named() -> None:
    intent, notes = fixed("#!/bin/bash\n#$ -cwd\n#$ -l h_rt=1:00:00\n#$ -pe mpi 16\npython a.py\n")
    assert intent.batch.time_min == 60 and "line 4: -pe mpi 16" in notes


def test_what_makes_the_program_stays_with_what_removes_it() -> None:
    lines = ("cd build", "rm -rf *", "cmake ..", "make -j 4", "pip install -r needs.txt", "chmod +x run.sh")
    intent, notes = fixed(HEAD + "\n".join(lines) + "\nsrun ./a\n")
    assert intent.prologue == lines and "cmake" not in notes


def test_a_download_is_not_the_program() -> None:
    text = "#!/bin/bash\n#BSUB -nnodes 1 -W 10\njsrun -n 2 -r 2 ./server\njsrun -n 1 curl --silent -X POST $A/stop\n"
    intent, notes = fixed(text)
    assert intent.program == ("./server",) and "a small command on the nodes, jsrun -n 1 curl" in notes


@pytest.mark.parametrize(
    ("bind", "found"),
    [("cores", True), ("verbose,cores", True), ("v", True), ("none", False), ("map_cpu:0,8", False), ("", True)],
)
def test_cores_that_are_bound_are_still_those_of_the_step(bind: str, found: bool) -> None:
    option = f"--cpu-bind={bind} " if bind else ""
    text = f"#!/bin/bash\n#SBATCH -t 10 -n 1 -c 32\nsrun {option}./a\n"
    assert ("srun-cpus-not-inherited" in rules(text)) is found


def test_a_slow_path_in_the_shell_of_each_task() -> None:
    text = f"{HEAD}srun -c 4 bash -c 'CUDA_LAUNCH_BLOCKING=1 torchrun --standalone a.py'\n"
    assert "slow-path-left-on" in rules(text) and "slow-path-left-on" not in rules(text.replace("=1", "=0"))


@pytest.mark.parametrize(
    ("first", "more", "found"),
    [("me@here$ cat job.sh\n#!/bin/bash", "", True), ("#!/bin/bash", "", False), ("cat a", "sbatch b.sh\n", False)],
)
def test_a_first_line_that_hides_the_shebang(first: str, more: str, found: bool) -> None:
    assert ("no-shebang" in rules(f"{first}\n{more}#SBATCH -t 10 -n 1\nsrun ./a\n")) is found


@pytest.mark.parametrize(
    ("line", "found"),
    [("python train.py --x", True), ("./solve", True), ("/opt/solve", False), ("module load a", False)],
)
def test_plain_programs_of_pbs_are_looked_up_in_the_home_directory(line: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l walltime=1:00:00 -l nodes=1:ppn=1\n{line}\n"
    assert ("pbs-working-folder" in rules(text)) is found
    assert "pbs-working-folder" not in rules(text.replace(line, f"cd $PBS_O_WORKDIR\n{line}"))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mpirun -np 2 ./a", True),
        ("mpirun -np 10 ./a", False),
        ("mpirun ./a", False),
        ("mpirun -np 1 --hostfile h ./a", False),
        ("mpirun -n 1 python -m mpi4py.futures a.py", False),
    ],
)
def test_few_ranks_of_mpirun_on_many_nodes(line: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l walltime=1:00:00 -l nodes=10:ppn=8\n{line}\n"
    assert ("idle-nodes" in rules(text)) is found


def test_the_cores_of_a_node_are_not_those_of_the_nodes_that_are_left() -> None:
    intent, notes = fixed("#!/bin/bash\n#PBS -l walltime=1:00:00 -l nodes=10:ppn=8\nmpirun -np 2 /a\n")
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank) == (2, 1, 8)
    assert "the head requests 80 cores, the job file 2 x 1 rank x 8 cores" in notes


@pytest.mark.parametrize(("file", "kept"), [("core.sh", True), ("v/bin/activate", False), ("~/.bashrc", False)])
def test_variables_that_a_sourced_script_may_use(file: str, kept: bool) -> None:
    intent, _ = fixed(f"{HEAD}parameters='-t 1'\nsource {file}\nother=2\nsrun ./a\n")
    assert intent.prologue == (("parameters='-t 1'",) if kept else ()) + (f"source {file}",)


def test_a_look_with_python_is_not_the_program() -> None:
    lines = "python -c 'import a; print(a)'\n./wrapped.sh --hostfile h train.py\n"
    intent, notes = fixed(HEAD + lines)
    assert intent.program == ("./wrapped.sh", "--hostfile", "h", "train.py") and "line 3: python -c" in notes
    assert fixed(f"{HEAD}python -c 'import a; a.run()'\n")[0].program == ("python", "-c", "import a; a.run()")


def test_ranks_on_each_node_of_ibrun() -> None:
    intent, notes = fixed("#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=24 -t 10\nibrun --npernode 1 ./a\n")
    assert (intent.program, intent.ranks_per_node) == (("./a",), 1)
    assert not any(each in notes for each in ("check program", "are wanted", "of ibrun"))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("singularity exec a.sif python a.py", True),
        ("srun singularity exec a.sif python a.py", False),
        ("singularity exec a.sif torchrun --nnodes=2 a.py", False),
        ("singularity exec a.sif ./a", False),
    ],
)
def test_python_in_a_container_on_the_first_node(line: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -N 2 -t 10 --ntasks-per-node=1\n{line}\n"
    assert ("only-first-node" in rules(text)) is found


@pytest.mark.parametrize(("head", "found"), [("nodes=1:ppn=4", False), ("select=1:ncpus=4", True)])
def test_days_in_the_wall_time_of_torque(head: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l {head}\n#PBS -l walltime=1:02:00:00\n/a\n"
    assert ("time-format" in rules(text)) is found
    assert fixed(text)[0].batch.time_min == (0 if found else 1560)


@pytest.mark.parametrize(("gpus", "cores"), [("--gpus-per-node=2", 12), ("", None)])
def test_cores_for_each_gpu_are_not_passed_on(gpus: str, cores: int | None) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 --ntasks-per-node=1 --cpus-per-gpu=6 {gpus}\nsrun ./a\n"
    intent, notes = fixed(text)
    assert intent.cores_per_rank == cores and intent.batch.scheduler_args == ()
    assert ("--cpus-per-gpu=6, which sbatch" in notes) is (cores is None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("aprun -n 4 ./a", True),
        ("mpirun -np 4 ./a", True),
        ("aprun -n 32 ./a", False),
        ("aprun -n 4 -N 2 ./a", False),
        ("mpirun -np 4 --map-by ppr:2:node ./a", False),
    ],
)
def test_ranks_that_fill_one_node_after_the_other(line: str, said: bool) -> None:
    intent, notes = fixed(f"#!/bin/bash\n#PBS -l nodes=2:ppn=16,walltime=1:00:00\ncd $PBS_O_WORKDIR\n{line}\n")
    assert intent.nodes == 2 and ("fills one node after the other: here 2 ranks on each" in notes) is said


@pytest.mark.parametrize(("line", "found"), [("aprun -n 4 ./a", True), ("aprun -n 20 ./a", False)])
def test_nodes_that_aprun_leaves_idle(line: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l nodes=2:ppn=16,walltime=1:00:00\n{line}\n"
    assert ("idle-nodes" in rules(text)) is found


def test_gpus_that_the_only_launch_hides() -> None:
    text = "#!/bin/bash\n#SBATCH -N 1 -t 10 -c 32 --gpus-per-node=8\n"
    line = "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --standalone --nproc_per_node=4 a.py\n"
    assert rules(text + line)["gpu-list-by-hand"] == "warning"
    assert rules(text + line + line)["gpu-list-by-hand"] == "note"


@pytest.mark.parametrize("line", ["pip3 install a", "python3 -m pip install a"])
def test_packages_are_installed_before_the_program(line: str) -> None:
    intent, notes = fixed(f"{HEAD}{line}\npython a.py\n")
    assert intent.prologue == (line,) and "pip" not in notes and intent.program == ("a.py",)


def test_a_value_made_of_what_changes_later_keeps_its_name() -> None:
    text = "n=$SLURM_ARRAY_TASK_ID\nkind=${kinds[$(( n % 3 ))]}\nn=$(( n / 3 ))\nrate=${rates[$(( n % 2 ))]}\n"
    intent, _ = fixed(f"{HEAD}kinds=( a b c )\nrates=( 1 2 )\n{text}python a.py $kind $rate\n")
    assert intent.program == ("a.py", "$kind", "${rates[$(( n % 2 ))]}")
    assert text.splitlines()[1] in intent.prologue


@pytest.mark.parametrize(("head", "said"), [("-n 24 -x", True), ("-n 1 -x", False), ("-nnodes 2", False)])
def test_slots_on_whole_nodes_whose_number_is_not_known(head: str, said: bool) -> None:
    words = "\n#BSUB -".join(head.split(" -"))
    _, notes = fixed(f"#!/bin/sh\n#BSUB -W 10:00\n#BSUB {words}\npython a.py\n")
    assert ("-n 24 on whole nodes whose number is not in the script: nodes is 1" in notes) is said


def test_resources_of_pbs_given_twice() -> None:
    head = "#!/bin/sh\n#PBS -l select=1:ncpus=40:mpiprocs=20\n#PBS -l select=1:mem=40GB\n#PBS -l walltime=00:20:00\n"
    text = f"{head}cd $PBS_O_WORKDIR\nmpirun -np 20 ./a\n"
    assert rules(text)["option-twice"] == "warning"
    assert "-l select=1:ncpus=40:mpiprocs=20, replaced on a later line" in fixed(text)[1]
    once = text.replace(":mpiprocs=20\n#PBS -l select=1:mem", ":mpiprocs=20:mem")
    assert "option-twice" not in rules(once) and "replaced" not in fixed(once)[1]


@pytest.mark.parametrize("line", ["docker exec -it a python -m torch.distributed.launch b.py", "echo -m no"])
def test_the_old_agent_inside_a_container_that_already_runs(line: str) -> None:
    assert ("torch-launch-old" in rules(f"{HEAD}{line}\n")) is line.startswith("docker")


def test_brackets_of_a_constraint_are_no_placeholder() -> None:
    _, notes = fixed(f"{HEAD}#SBATCH --constraint=[intel|amd]\npython a.py\n")
    assert "placeholder" not in notes
    assert "placeholder" in fixed(f"{HEAD}#SBATCH --account=[account]\npython a.py\n")[1]


def test_an_archive_is_unpacked_before_the_program() -> None:
    intent, _ = fixed(f"{HEAD}unzip -q a.zip\npython a.py\n")
    assert intent.prologue == ("unzip -q a.zip",)


@pytest.mark.parametrize("program", ["~/env/bin/torchrun", "$ENV/bin/torchrun", "$OPTIONS torchrun"])
def test_a_path_with_a_variable_is_no_option(program: str) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 -n 1 -c 4\nsrun {program} --nproc_per_node=2 a.py\n"
    assert ("srun-cpus-not-inherited" in rules(text)) is ("/" in program)
    assert ("may hold options" in fixed(text)[1]) is ("/" not in program)


@pytest.mark.parametrize("value", ["$SLURM_CPUS_ON_NODE", "$(nproc)", "$SLURM_CPUS_PER_TASK"])
@pytest.mark.parametrize("tasks", [1, 8])
def test_the_cores_of_a_node_for_each_of_its_tasks(value: str, tasks: int) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 --ntasks-per-node={tasks}\nexport OMP_NUM_THREADS={value}\nsrun ./a\n"
    assert ("threads-over-cores" in rules(text)) is (tasks > 1 and "PER_TASK" not in value)


@pytest.mark.parametrize(
    ("line", "found"),
    [("ipcontroller --nodb &", True), ("python ~/bin/i-pi a.xml &", True), ("python a.py --controller=b &", False)],
)
def test_a_sleep_after_a_controller(line: str, found: bool) -> None:
    assert ("sleep-as-synchronisation" in rules(f"{HEAD}{line}\nsleep 30\nsrun ./b\n")) is found


@pytest.mark.parametrize("cd", ["", "cd $PBS_O_WORKDIR\n"])
def test_the_directory_that_a_pbs_script_runs_in(cd: str) -> None:
    text = f"#!/bin/bash\n#PBS -l select=1:ncpus=8,walltime=1:00:00\n{cd}mpirun.actual -n 8 valgrind --tool=a ./a\n"
    intent, notes = fixed(text)
    assert intent.ranks_per_node == 8 and intent.program == ("valgrind", "--tool=a", "./a")
    assert ("pbs-working-folder" in rules(text)) is (not cd)
    assert ("runs in the home directory" in notes) is (not cd)


@pytest.mark.parametrize(
    ("head", "options", "found"),
    [
        ("", "--wait=60 --jobid=${SLURM_JOB_ID}", "warning"),
        ("-p compute_full_node", "--jobid $SLURM_JOB_ID", "note"),
        ("--exclusive", "--jobid $SLURM_JOB_ID", None),
        ("", "--jobid 4711", None),
        ("", "--jobid $SLURM_JOB_ID -c 64", None),
    ],
)
@pytest.mark.parametrize("agent", ["accelerate launch --num_processes $((8 * $N))", "torchrun --nproc_per_node=8"])
def test_ranks_on_one_core_of_a_step_of_the_own_job(head: str, options: str, found: str | None, agent: str) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 --ntasks-per-node=1 {head}\nN=$SLURM_JOB_NUM_NODES\n"
    assert rules(f'{text}srun {options} bash -c "{agent} a.py"\n').get("ranks-share-a-core") == found


@pytest.mark.parametrize(
    ("sets", "program", "cores", "gpus"),
    [
        ("-r 1 -g 6 -a 1 -c 1", "python a.py", True, True),
        ("-n $N -r 1 -g 6 -a 1 -c 1", "bash -c 'python a.py'", True, True),
        ("-r 6 -g 1 -a 1 -c 1", "python a.py", True, False),
        ("-r 2 -g 3 -a 1 -c 21 -b packed:21", "python a.py", False, True),
        ("-r 1 -g 6 -a 1 -c 1", "./solver", False, False),
        ("-r 1 -g 6 -a 1 -c 1", "python a.py --gpus 6", True, False),
        ("-r 1 -g 6 -a 1 -c 1", "torchrun --nproc_per_node=6 a.py", True, False),
    ],
)
def test_one_rank_in_a_set_with_all_gpus(sets: str, program: str, cores: bool, gpus: bool) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 2 -W 10\nexport OMP_NUM_THREADS=1\njsrun {sets} {program}\n"
    assert rules(text).get("jsrun-node-cores") == ("note" if cores else None)
    assert rules(text).get("gpus-without-ranks") == ("note" if gpus else None)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("for i in 1 2; do\npython a.py --lr $lr --out=$i --data d/$i\ndone\npython b.py d", True),
        ("python a.py\npython b.py", True),
        ("for i in 1 2; do\npython a.py $i\ndone", False),
        ("for i in 1 2; do\npython a.py --x $EXTRA_ARGS\ndone", False),
        ("for i in 1 2; do\npython a.py --lr $lr &\ndone\nwait", False),
        ("python a.py\npython b.py --gpus 4", False),
        ("python a.py\npython -m b", False),
        ("python a.py\nseq 4 | xargs -P 4 -n 1 python b.py", False),
        ("f() {\npython a.py --x\n}\nfor i in 1 2; do\nf $i &\nf $i\ndone", False),
    ],
)
def test_programs_in_turn_that_leave_gpus_idle(lines: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -n 1 -c 4 --gres=gpu:4\n{lines}\n"
    assert rules(text).get("gpus-without-ranks") == ("note" if found else None)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("<SLURM OPTIONS> --nodes=128", True),
        ("--nodes=2 <OPTIONS> --exclusive", True),
        ("<OPTIONS>", False),
        ("--account=<your account>", False),
        ("--account <ACCOUNT> --nodes=2", False),
        ("--nodes=2 {{ options }}", False),
    ],
)
def test_options_that_are_still_to_be_filled_in(words: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10\n#SBATCH {words}\nsrun ./a\n"
    assert rules(text).get("stray-words") == ("note" if found else None)
    assert "stray-words" not in rules(text.replace("#SBATCH -t 10", "<HEAD>"))
