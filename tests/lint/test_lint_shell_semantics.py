"""`lint --fix` on what the shell does with a line: conditions, subshells, arithmetic, environment, expanded words."""

from __future__ import annotations

import pytest

from stackyard.launch.request.intent import Intent
from stackyard.lint.api import lint_text, to_intent

HEAD = "#!/bin/bash\n#SBATCH -t 10 -n 1\n"


def fixed(lines: str) -> tuple[Intent, str]:
    """The intent of a script of these lines, and its notes as one text."""
    intent, notes = to_intent(lint_text(f"{HEAD}{lines}\n", name="job.sh").script)
    return intent, "\n".join(notes)


@pytest.mark.parametrize(
    "lines",
    [
        "A=1\n[ -f x ] && A=2",
        "A=1\n[ -f x ] || {\nA=2\n}",
        "A=1\n[ -f x ] && export A=2",
        "A=1\n(A=2)",
        "A=1\n((A++))",
        "A=1\nlet A+=2",
        "A=1\nB=$((A += 3))",
        "A=1\nprintf -v A '%03d' 7",
        "A=1\nf() { A=2; set --; }\nf",
        "A=1\nread A < x",
    ],
)
def test_a_value_that_may_have_changed_is_not_taken_for_certain(lines: str) -> None:
    intent, notes = fixed(f"{lines}\nsrun ./a $A")
    assert intent.program == ("./a", "$A") and "variables of the script in $A" in notes


@pytest.mark.parametrize(
    ("lines", "prologue", "said"),
    [
        ("[ -f x ] && A=2\necho $A > b", ("echo $A > b",), "line 3: conditional: A=2"),
        ("[ -f x ] || {\nmodule load a\n}", (), "line 4: conditional: module load a"),
        ("cd a || { echo; exit 1; }; module load b", ("cd a", "module load b"), "conditional: exit 1"),
        ("(export B=1; cd /x)", (), "line 3: in a subshell: cd /x"),
        ("(cat a | sort > b)", (), "line 3: piped: cat a | sort >b"),
        ("[ -f x ] &&\n  # why\n  module load a", (), "line 5: conditional: module load a"),
        ("[ -f x ] && for i in 1; do\nmodule load a\ndone", (), "line 4: conditional: module load a"),
        ("N=$[ 2 + 3 ]\necho $N > x", ("N=$[ 2 + 3 ]", "echo $N > x"), ""),
        ("((i=3))\n((i > 2)) && echo", ("((i=3))",), "line 4: only prints"),
        ("LC_ALL=C sort a > b", ("LC_ALL=C sort a > b",), ""),
        ("a[0]=1\na[1]='2 3'\nexport B=${a[1]}", ("a[0]=1", "a[1]='2 3'", "export B=${a[1]}"), ""),
        ("PATH=/x:$PATH", ("PATH=/x:$PATH",), ""),
        ("export A=1\nA=2", ("export A=1", "A=2"), ""),
        ("set -a\nA=1\nset +a", ("set -a", "A=1", "set +a"), ""),
        ("A=1\nunset A", ("A=1", "unset A"), ""),
        ("f() { ./x; }\nexport -f f", (), "line 4: a function for the ranks: export -f f"),
        ("for i in 1 2; do\nA=$i\ndone\necho $i > x", ("echo $i > x",), "line 3: conditional: for i in 1 2"),
        ("IFS=,", (), "line 3: IFS=,: words may be split otherwise"),
        ("A=(\n# it's one\nb )\nexport C=1", ("export C=1",), ""),
        ("A=$(cat <<EOF\nit's\nEOF\n)\nexport C=1", ("export C=1",), ""),
    ],
)
def test_a_line_keeps_what_the_shell_makes_of_it(lines: str, prologue: tuple[str, ...], said: str) -> None:
    intent, notes = fixed(f"{lines}\nsrun ./a")
    assert intent.prologue == prologue and said in notes and intent.program == ("./a",)


@pytest.mark.parametrize("end", ["exit 0", "exit", "echo; exit $?", "{ exit 1; }", "exec ./b"])
def test_what_stands_after_the_end_is_not_run(end: str) -> None:
    intent, notes = fixed(f"srun ./a\n{end}\nA=1\nsrun ./c")
    assert "./c" not in intent.program and "to line 6: what stands after exit or exec is not run" in notes


@pytest.mark.parametrize(
    "end",
    ["x || exit 1", "if x; then\nexit 1\nfi", "(exit 1)", "x || {\nexit 1\n}", "exec > log", "f() { x && exit; }\nf"],
)
def test_an_end_that_may_not_be_reached(end: str) -> None:
    intent, notes = fixed(f"{end}\nsrun ./c")
    assert intent.program == ("./c",) and "is not run" not in notes


@pytest.mark.parametrize(
    ("line", "program", "said"),
    [
        ("srun ./a *.in {1..3} [ab]", ("./a", "*.in", "{1..3}", "[ab]"), "the shell expands {1..3}"),
        ("F=*.in\nsrun ./a $F", ("./a", "*.in"), "the shell expands $F"),
        ("srun ./a '*.in' \"{1..3}\" x=[0,1]", ("./a", "*.in", "{1..3}", "x=[0,1]"), ""),
        (r"srun ./a $'a\tb\x41\'' $'c'", ("./a", "a\tbA'", "c"), ""),
        ("mpirun -np 1 ./a : -np 1 ./b", ("./a", ":", "-np", "1", "./b"), "several programs in one launch"),
        ("srun --foo bar ./a", ("bar", "./a"), "bar may be the value of foo"),
    ],
)
def test_words_of_the_launch(line: str, program: tuple[str, ...], said: str) -> None:
    intent, notes = fixed(line)
    assert intent.program == program and said in notes and (said or "the shell expands" not in notes)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("for f in $(find . -exec basename {} \\;) b; do\nsrun ./a $f\ndone", "the launch is in a loop"),
        ("srun ./a | tee b &\nwait", "the launch is in the background"),
        ("cd x && srun ./a &\nwait", "the launch is in the background"),
        ("for i in 1 2; do srun ./a $i; done | tee b &\nwait", "the launch is in the background"),
        ("#PBS -N a\nsrun ./a", "line 3: a directive of another scheduler: -N a"),
        ("parallel -j 2 'srun -n1 ./a {1}' ::: x y", "the launch is started by another program: parallel -j 2"),
        ("srun bash -c 'which a\npython a.py'", "line 3: in each task: only prints"),
    ],
)
def test_what_is_around_the_launch(lines: str, said: str) -> None:
    assert said in fixed(lines)[1]


def test_a_comment_in_backquotes_is_no_word() -> None:
    assert fixed("srun ./a `# the input` x `# the rest` \\\n  y")[0].program == ("./a", "x", "y")
    assert fixed("N=4\nsrun ./a $[ N * 2 ]")[0].program == ("./a", "8")


def test_one_agent_in_the_batch_script() -> None:
    line = "torchrun --nnodes=2 --nproc_per_node=4 --master_addr=$A a.py\n"
    said = "torchrun starts on the first node only, the job file's on each of 2"
    head = "#!/bin/bash\n#SBATCH -t 10 -N 2 -c 8 --gres=gpu:4\n"
    for prefix, named in (("", True), ("srun ", False)):
        _, notes = to_intent(lint_text(f"{head}{prefix}{line}", name="job.sh").script)
        assert (said in "\n".join(notes)) == named


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#SBATCH -t 10 -N 1 --ntasks-per-node=32 --cores-per-socket=16\n./a", ""),
        (
            "#SBATCH -t 10 -N 1\nfor i in 1 2; do\nIDS=$IDS:$(sbatch a.sh)\ndone\nsrun ./a",
            "line 4: conditional: IDS=$IDS",
        ),
        ("#SBATCH -t 10 -N 1\nmpirun $MCA -np 2 ./a", "$MCA may hold options of mpirun"),
        ("#PBS -l select=1:ncpus=$C:ngpus=$G\n./a", "ngpus=$G of the chunk is not a plain number"),
    ],
)
def test_sizes_and_words_that_a_script_leaves_open(text: str, said: str) -> None:
    intent, notes = to_intent(lint_text(f"#!/bin/bash\n{text}\n", name="job.sh").script)
    assert said in "\n".join(notes) and (said or intent.cores_per_rank == 32)


def test_an_exclusive_flux_run_has_all_cores() -> None:
    text = "#!/bin/bash\n#flux: -N 1 -t 10m\nflux run -N1 -n24 -x -l ./a\n"
    intent, notes = to_intent(lint_text(text, name="job.sh").script)
    assert (intent.ranks_per_node, intent.cores_per_rank) == (24, None) and "exclusive" not in "\n".join(notes)


def test_directives_of_a_script_within_a_command() -> None:
    text = "#!/bin/bash\nA=$(sbatch <<EOF\n#!/bin/bash\n#SBATCH -n 1\nsrun ./a\nEOF\n)\n"
    assert lint_text(text, name="job.sh").findings == ()
