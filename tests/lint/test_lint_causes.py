"""Causes of silent differences: subshells in substitutions, zsh's words, chunks of PBS, ranks that do not divide."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent
from stackyard.lint.directives import split_directive
from stackyard.lint.shell.commands import parse_shell
from stackyard.lint.shell.scope import resolve

HEAD = "#!/bin/bash\n#SBATCH -t 10 -N 2 -n 8\n"
PBS = "#!/bin/bash\n#PBS -l walltime=1:00:00\n#PBS -l select={}\ncd $PBS_O_WORKDIR\n"


def fixed(text: str) -> tuple[Intent, str]:
    """The intent of a script, and its notes as one text."""
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    return intent, "\n".join(notes)


def nodes_are_unknown(notes: str) -> bool:
    return "check nodes" in notes or "the number of nodes is not in the script" in notes


def rules(text: str, *directories: Path) -> list[str]:
    return [each.rule for each in lint_text(text, name="job.sh", directories=directories).findings]


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("a $(( (1+2)*2 )) b", ("a", "6", "b")),
        ("a $(((1+2)*2)) b", ("a", "6", "b")),
        ("a $((cat x; echo y) | sort) b", ("a", "\ue000$((cat x; echo y) | sort)\ue001", "b")),
        ('a "$((cat x; echo y) | sort)" b', ("a", "\ue000$((cat x; echo y) | sort)\ue001", "b")),
        ("a $((b); (c)) d", ("a", "\ue000$((b); (c))\ue001", "d")),
        ("a $( ((b)) ; c) d", ("a", "\ue000$( ((b)) ; c)\ue001", "d")),
    ],
)
def test_a_subshell_at_the_start_of_a_substitution(line: str, argv: tuple[str, ...]) -> None:
    assert resolve(parse_shell(line))[0].argv == argv


def test_a_subshell_in_parentheses_is_no_arithmetic() -> None:
    commands = parse_shell("((a; b) | c)\n((i += 1))\nd\n")
    assert [each.words[0].raw for each in commands] == ["a", "b", "c", "((", "d"]
    assert commands[0].within("subshell") and not commands[4].within("subshell")


@pytest.mark.parametrize("shebang", ["#!/bin/zsh", "#!/usr/bin/env zsh", "#!/usr/bin/zsh -l"])
def test_zsh_does_not_split_variables(shebang: str) -> None:
    lines = '#SBATCH -t 10 -n 1\nA="-x 1"\nB=(c d)\nsrun ./a $A ${=A} $B ${B[@]}\n'
    intent, notes = fixed(f"{shebang}\n{lines}")
    assert intent.program == ("./a", "-x 1", "-x", "1", "c", "d", "c", "d"), notes
    assert fixed(f"#!/bin/bash\n{lines}")[0].program[:3] == ("./a", "-x", "1")


@pytest.mark.parametrize(
    ("select", "nodes", "ranks", "cores", "said"),
    [
        ("2:ncpus=8:mpiprocs=4", 2, 4, 2, "2 chunks are taken as 2 nodes"),
        ("ncpus=8:mpiprocs=4", 1, 4, 2, ""),
        ("1:ncpus=8:mpiprocs=4+2:mpiprocs=4:ncpus=8", 3, 4, 2, "3 chunks are taken as 3 nodes"),
        ("1:ncpus=8:mpiprocs=4+1:ncpus=8:mpiprocs=2", 1, None, None, "the chunks 1:ncpus=8"),
        ("@N@:ncpus=8:mpiprocs=4", 1, None, None, "select=@N@:ncpus=8:mpiprocs=4 is a placeholder"),
        ("@N:ncpus=8:mpiprocs=4", 1, None, None, "the chunks @N:ncpus=8:mpiprocs=4: check nodes"),
        ("$N:ncpus=8:mpiprocs=4", 1, None, None, "the chunks $N:ncpus=8:mpiprocs=4: check nodes"),
        ("2:ncpus=8:mpiprocs=4:host=n1", 2, 4, 2, "host=n1 of the chunk"),
    ],
)
def test_chunks_of_pbs(select: str, nodes: int, ranks: int | None, cores: int | None, said: str) -> None:
    intent, notes = fixed(PBS.format(select) + "mpiexec ./a\n")
    assert intent.nodes == nodes and said in notes, notes
    assert (intent.ranks_per_node, intent.cores_per_rank) == (ranks, cores) or nodes_are_unknown(notes)


@pytest.mark.parametrize("launch", ["mpirun -n 3", "srun -n 3", "mpiexec -np 3"])
def test_ranks_that_do_not_divide_by_the_nodes(launch: str) -> None:
    intent, notes = fixed(f"{HEAD}{launch} ./a\n")
    assert "3 ranks on 2 nodes: check ranks_per_node" in notes, (intent, notes)


@pytest.mark.parametrize(
    ("sets", "found"),
    [("-n2 -r1", True), ("-n2 -r2", False), ("-n1 -r1", True), ("-r1", True), ("-r2", False), ("-n2", True)],
)
def test_one_gpu_of_each_node_by_sets_per_host(sets: str, found: bool) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 2 -W 10\njsrun {sets} -a1 -c7 -g1 ./a\n"
    assert ("jsrun-one-gpu" in rules(text)) is found


@pytest.mark.parametrize(
    "line", ["import horovod.torch as hvd", "from mpi4py import MPI", "m = importlib.import_module('horovod.torch')"]
)
def test_an_import_within_a_function_counts(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(f"def main():\n    {line}\n    DataLoader(x, num_workers=4)\nmain()\n")
    assert "fork-under-mpi" in rules(f"{HEAD}srun python a.py\n", tmp_path)


@pytest.mark.parametrize(
    ("line", "image", "program"),
    [
        ("singularity exec $1 --cleanenv a.sif ./a", "a.sif", ("./a",)),
        ("singularity exec --nv $OPTS --bind /x $MORE -e a.sif ./a -b", "a.sif", ("./a", "-b")),
        ("apptainer exec $OPTS a.sif ./a", "a.sif", ("./a",)),
        ("apptainer exec $IMAGE ./a", "", ("./a",)),
    ],
)
def test_options_behind_a_variable_of_a_container(line: str, image: str, program: tuple[str, ...]) -> None:
    intent, notes = fixed(f"{HEAD}{line}\n")
    assert (intent.container, intent.program) == (image, program), notes
    assert "$1" not in line or "the container options in $1" in notes


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("source env/bin/activate\npython /a/b.py", True),
        ("cd sub\nmpiexec /bin/a", True),
        ("cd /work/me\nsource env/bin/activate", False),
        ("cd $WORK\n./a", False),
        ("cd ~/x\n./a", False),
        ("./a\ncd /work", True),
        ("source ~/env.sh\n/bin/a", False),
        (". /etc/profile\nmodule load x", False),
        ("cd $PBS_O_WORKDIR/sub\n./a", False),
    ],
)
def test_relative_paths_before_the_first_cd(lines: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l select=1:ncpus=4 -l walltime=1:00:00\n{lines}\n"
    assert ("pbs-working-folder" in rules(text)) is found


@pytest.mark.parametrize("option", ["--exclusive", "--exact"])
def test_a_step_of_its_own_cores_has_one_core_for_each_task(option: str) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -n 4 -c 8\nsrun {option} -n 1 ./a &\nsrun {option} -n 1 ./b &\nwait\n"
    assert "srun-cpus-not-inherited" in rules(text)
    assert "srun-cpus-not-inherited" not in rules(text.replace("-n 1", "-n 1 -c 8"))


@pytest.mark.parametrize("python", ["libtbx.python", "ccp4-python", "/opt/x/phenix.python3"])
def test_other_names_of_python(python: str) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 2 -W 10\njsrun -n 12 -r 6 -a 3 -c 3 -g 1 {python} a.py\n"
    assert "jsrun-node-cores" in rules(text)
    assert fixed(text)[0].program == (python, "a.py")


def test_slots_of_a_job_without_tasks_are_not_known() -> None:
    intent, notes = fixed("#!/bin/bash\n#SBATCH -t 10 -N 2\nmpirun ./a\n")
    assert (intent.nodes, intent.ranks_per_node) == (2, None) and "check ranks_per_node" in notes


def test_a_directory_of_the_head_and_one_of_the_script() -> None:
    intent, _ = fixed("#!/bin/bash\n#SBATCH -t 10 -n 1 -D /work/a\ncp in.txt x\ncd /work/b\nsrun ./a\n")
    assert intent.cwd == "/work/b" and intent.prologue == ("cd /work/a", "cp in.txt x", "cd /work/b")
    intent, notes = fixed("#!/bin/bash\n#SBATCH -t 10 -n 1 -D /work/a\ncd b\nsrun ./a\n")
    assert intent.cwd == "/work/a/b" and "set cwd" not in notes


@pytest.mark.parametrize(
    ("lines", "prologue"),
    [
        ("cd $PBS_O_WORKDIR", ()),
        ("cd $PBS_O_WORKDIR\nmodule load x\ncp a b", ("cd $PBS_O_WORKDIR", "module load x", "cp a b")),
        ("module load x\ncd $PBS_O_WORKDIR", ("module load x",)),
        ('cd "$PBS_O_WORKDIR" || exit 1\ncp a b', ('cd "$PBS_O_WORKDIR"', "cp a b")),
    ],
)
def test_lines_of_a_pbs_job_run_where_it_was_submitted(lines: str, prologue: tuple[str, ...]) -> None:
    intent, _ = fixed(f"{PBS.format('1:ncpus=4:mpiprocs=4').replace('cd $PBS_O_WORKDIR', lines)}mpiexec ./a\n")
    assert intent.prologue == prologue


@pytest.mark.parametrize(
    ("head", "threads", "found"),
    [
        ("-N 1 --ntasks-per-node=1 --gres=gpu:1", 10, True),
        ("-n 4", 2, True),
        ("-n 4", 1, False),
        ("-N 1", 10, False),
        ("-n 4 --exclusive", 10, False),
        ("-n 4 --cpus-per-gpu=4 -G 4", 4, False),
        ("-n 4 -p whole-nodes", 4, False),
    ],
)
def test_threads_of_a_task_without_a_number_of_cores(head: str, threads: int, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 {head}\nexport OMP_NUM_THREADS={threads}\nmpirun ./a\n"
    hits = [each for each in lint_text(text).findings if each.rule == "threads-over-cores"]
    assert [each.severity for each in hits] == (["note"] if found else [])
    with_cores = text.replace("mpirun", f"srun -c {threads}")
    assert "threads-over-cores" not in rules(with_cores)


@pytest.mark.parametrize(("mem", "found"), [("64", True), ("256", True), ("500", False), ("512", False)])
def test_memory_that_may_be_meant_in_mebibytes(mem: str, found: bool) -> None:
    assert ("memory-unit" in rules(f"#!/bin/bash\n#SBATCH -t 10 -n 1 --mem={mem}\nsrun ./a\n")) is found


def test_bash_by_another_path_is_bash() -> None:
    assert "the job file's lines are for bash" not in fixed("#!/bin/env bash\n#SBATCH -t 10 -n 1\nsrun ./a\n")[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--job-name=158#SBATCH -o out", ["--job-name=158"]),
        ("-n 4#four", ["-n", "4"]),
        ("-t 10 # ten", ["-t", "10"]),
        ("--comment='a # b' -n 2", ["--comment=a # b", "-n", "2"]),
        ('-o "a b".txt', ["-o", "a b.txt"]),
        (r"--comment=a\#b\ c -n 2", ["--comment=a#b c", "-n", "2"]),
        ("-A <your project>", ["-A", "<yourproject>"]),
        ("-o 'a", ["-o", "'a"]),
    ],
)
def test_words_of_a_directive_as_sbatch_splits_them(text: str, words: list[str]) -> None:
    assert split_directive(text, "slurm") == words


@pytest.mark.parametrize(
    ("head", "line", "found"),
    [
        ("-n 16", "./solve", False),
        ("-n 16 -c 2", "./solve", True),
        ("-n 1", "./solve", True),
        ("-n 16", "mpirun ./solve", True),
    ],
)
def test_threads_of_a_program_that_has_all_cores_of_the_job(head: str, line: str, found: bool) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 {head}\nexport OMP_NUM_THREADS={40 if '-c' in head else 16}\n{line}\n"
    assert ("threads-over-cores" in rules(text)) is found


def test_a_placeholder_of_question_marks_is_no_path() -> None:
    text = "#!/bin/bash\n#PBS -l ncpus=4 -l walltime=1:00:00\nW='???/data'\ncd $W\n/bin/a\n"
    assert "pbs-working-folder" not in rules(text)


@pytest.mark.parametrize("option", ["--group=jh22", "-l elapstim_req=00:30:00", "-T openmpi", "-l gpunum_job=8"])
def test_directives_of_nqsv(option: str) -> None:
    text = f"#!/bin/bash\n#PBS -q gpu\n#PBS -b 1\n#PBS {option}\npython a.py\n"
    assert rules(text) == ["not-understood"]
    intent, notes = fixed(text)
    assert intent.program == ("a.py",) and "a directive of a scheduler that is not supported: -b 1" in notes


@pytest.mark.parametrize(
    "line",
    [
        "srun singularity exec --nv a.sif bash -c '. env/bin/activate && python train.py --lr 1'",
        "srun singularity exec --nv a.sif python train.py --lr 1",
        "srun python train.py --lr 1",
    ],
)
def test_one_rank_with_several_gpus_in_a_container(line: str) -> None:
    text = f"#!/bin/bash\n#SBATCH -t 10 -N 1 --gpus-per-node=8 --exclusive\n{line}\n"
    assert "gpus-without-ranks" in rules(text)
    assert "gpus-without-ranks" not in rules(text.replace("--gpus-per-node=8", "--gpus-per-node=8 -n 8"))


@pytest.mark.parametrize(
    ("lines", "at_home"),
    [
        ("module load x\n/bin/a", True),
        ("cd sub\n/bin/a", True),
        ("/bin/a\ncd /work", True),
        ("cd /work\n/bin/a", False),
        ("[ -d $PBS_O_WORKDIR ] && cd $PBS_O_WORKDIR\n/bin/a", False),
    ],
)
def test_a_pbs_script_without_cd_runs_in_the_home_directory(lines: str, at_home: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l select=1:ncpus=4:mpiprocs=4 -l walltime=1:00:00\n{lines}\n"
    assert ("the script runs in the home directory" in fixed(text)[1]) is at_home
    assert "home directory" not in fixed(text.replace("-l walltime", "-l wd -l walltime"))[1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("java -jar /opt/x.jar -R index/genome.fasta", True),
        ("/opt/solve data/in.txt", True),
        ("/opt/solve /data/in.txt", False),
        ("module load a/1.2.x", False),
        ("singularity pull docker://a/b.c", False),
        ("sed -i s/a.b/c.d/ /etc/x", False),
        ("/opt/solve $X/in.txt", False),
    ],
)
def test_relative_files_of_a_program_in_the_home_directory(line: str, found: bool) -> None:
    text = f"#!/bin/bash\n#PBS -l select=1:ncpus=4 -l walltime=1:00:00\n{line}\n/bin/b\n"
    assert ("pbs-working-folder" in rules(text)) is found


def test_whole_nodes_and_threads() -> None:
    text = "#!/bin/bash\n#SBATCH -t 10 -N 11 -n 11\nexport OMP_NUM_THREADS=24\nibrun ./a\n"
    assert "threads-over-cores" not in rules(text)
    assert "threads-over-cores" not in rules(text.replace("ibrun", "mpirun"))


def test_a_sleep_after_a_controller_of_any_name() -> None:
    text = "#!/bin/bash\n#SBATCH -t 10 -n 4\nsrun -n 1 ./ipcontroller_new.sh &\necho x\nsleep 60\nsrun -n 2 ./a\n"
    assert "sleep-as-synchronisation" in rules(text)


def test_directives_that_are_all_late() -> None:
    text = "#!/bin/bash\nmodule load a\n#SBATCH -n 4\n##SBATCH --mail-type=ALL\nsrun ./a\n"
    (hit,) = [each for each in lint_text(text).findings if each.rule == "no-directive-read"]
    assert hit.message.startswith("this directive is not read: Slurm stops at the first command")


def test_a_script_that_submits_itself_says_the_time_there() -> None:
    text = '#!/bin/bash\n#SBATCH -n 1\nif [ -z "$ID" ]; then\n  sbatch --time=1:00:00 "$0" "$@"\n  exit\nfi\n./a\n'
    assert "time-missing" not in rules(text) and "time-missing" in rules(text.replace('"$0"', "other.sh"))


def test_directives_that_a_comment_says_to_switch_on() -> None:
    text = "#!/bin/bash\n{}\n#PBS -l select=1:ncpus=1 -l walltime=1:00:00\n# PBS -N job\ncd $PBS_O_WORKDIR\n./a\n"
    assert "directive-spaced" in rules(text.format("# hello"))
    assert "directive-spaced" not in rules(text.format("# To activate an option, remove the whitespace behind #"))


def test_tasks_of_srun_that_are_not_known() -> None:
    intent, notes = fixed("#!/bin/bash\n#SBATCH -t 10 -N 8 --overcommit --exclusive\nsrun ./a\n")
    assert intent.nodes == 8 and "check ranks_per_node" in notes and "this launch uses 1" not in notes
    intent, notes = fixed("#!/bin/bash\n#SBATCH -t 10\nsrun ./a\n")
    assert (intent.nodes, intent.ranks_per_node) == (1, 1) and "check ranks_per_node" not in notes


def test_a_conditional_cd_to_where_the_job_was_submitted_is_said() -> None:
    lines = 'if [ -n "$A" ]; then\n  cd $PBS_O_WORKDIR\nfi\ncp a b\n'
    intent, notes = fixed(PBS.format("1:ncpus=4:mpiprocs=4").replace("cd $PBS_O_WORKDIR\n", lines) + "mpiexec ./a\n")
    assert "conditional: cd $PBS_O_WORKDIR" in notes, (intent.prologue, notes)


@pytest.mark.parametrize(
    ("sets", "threads", "found"),
    [
        ("-n1 -a1 -c1 -g1 -bpacked:1", 7, True),
        ("-n6 -a1 -c7 -g1 -bpacked:7", 7, False),
        ("-n6 -a1 -c7 -g1 -bpacked:7", 28, False),
        ("-n6 -a1 -c7 -g1 -bpacked:7", 29, True),
        ("-n1 -a4 -c40 -g4 -bnone", 40, False),
        ("-n1 -a4 -cALL_CPUS -g4", 40, False),
        ("-n1 -a1 -g1", 4, False),
    ],
)
def test_threads_on_the_cores_of_a_resource_set(sets: str, threads: int, found: bool) -> None:
    text = f"#!/bin/bash\n#BSUB -nnodes 1 -W 10\nexport OMP_NUM_THREADS={threads}\njsrun {sets} ./a\n"
    assert ("threads-over-cores" in rules(text)) is found


def test_a_sleep_after_dask() -> None:
    text = "#!/bin/bash\n#SBATCH -t 10 -N 2\ndask-ssh --nprocs 24 $HOSTS &\nsleep 10\npython a.py\n"
    assert "sleep-as-synchronisation" in rules(text)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("if [ $A ]; then\n  cd $FOLDER\nelse\n  cd $SLURM_SUBMIT_DIR\nfi\n", ["cd $FOLDER"]),
        ("cd /x\nif [ $A ]; then\n  cd $SLURM_SUBMIT_DIR\nfi\n", ["conditional: cd $SLURM_"]),
        ("cd $FOLDER\nif [ $A ]; then\n  cd /x\nfi\n", ["cd $FOLDER", "conditional: cd /x"]),
        ("[ -d /x ] && cd /x\n", ["conditional: cd /x"]),
        ("mkdir -p /x && cd /x\n", []),
        ('if [ -n "$SLURM_SUBMIT_DIR" ]; then\n  cd $SLURM_SUBMIT_DIR\nfi\n', []),
    ],
)
def test_a_conditional_cd_does_not_undo_the_note_of_an_earlier_one(lines: str, said: list[str]) -> None:
    _, notes = fixed(f"#!/bin/bash\n#SBATCH -N 1 -n 4 -t 10\n{lines}srun ./a\n")
    assert all(each in notes for each in said), notes
    assert said or " cd " not in notes
