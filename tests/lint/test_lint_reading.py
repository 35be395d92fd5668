"""What is read: words, commands, values, directives, launch lines."""

from __future__ import annotations

import pytest

from stackyard.lint.api import parse_script
from stackyard.lint.request import mebibytes, minutes
from stackyard.lint.shell.commands import parse_shell, read_shell
from stackyard.lint.shell.scope import resolve
from stackyard.lint.shell.words import shown


def argvs(text: str, **known: str) -> list[list[str]]:
    return [[shown(word) for word in each.argv] for each in resolve(parse_shell(text), known) if each.argv]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a \\\n  b", ["a", "b"]),
        ("X=2; a $X ${X} \"$X\" '$X' \\$X", ["a", "2", "2", "2", "$X", "$X"]),
        ("N=3\na $((N*6)) $((7/2)) $(( N + UNSET ))", ["a", "18", "3", "$(( N + UNSET ))"]),
        ('A="b c"\na $A "$A"', ["a", "b", "c", "b c"]),
        ("a ${U:-8} ${U-'x y'} ${V:+w} ${#U}", ["a", "8", "x", "y", "${V:+w}", "${#U}"]),
        ("a `b c` $(d | e) end", ["a", "$(b c)", "$(d | e)", "end"]),
        ("A=1 B=2 a b", ["a", "b"]),
        ("a b # c", ["a", "b"]),
        ("a b#c '#d'", ["a", "b#c", "#d"]),
        ("a > out 2>&1 b", ["a", "b"]),
        ('a "${x:-"y z"}" done', ["a", "y z", "done"]),
        ("E=; a $E b", ["a", "b"]),
        ('A=(x "y z" # why\n  $Q)\nA+=(w)\na "${A[@]}" ${A[0]}', ["a", "x", "y z", "$Q", "w", "${A[0]}"]),
        ("declare -a A=(\n x\n y\n)\na ${A[@]} b", ["a", "x", "y", "b"]),
    ],
)
def test_words_and_values(text: str, words: list[str]) -> None:
    assert argvs(text)[-1] == words


def test_what_is_set_in_a_branch_is_unknown_after_it() -> None:
    assert argvs("if t; then N=2; a $N; else N=3; fi\nb $N")[1:] == [["a", "2"], ["b", "$N"]]
    assert argvs("i=1\nwhile t; do i=$((i+1)); a $i; done")[-1] == ["a", "$i"]


def test_blocks_background_and_here_documents() -> None:
    text = "for i in 1 2; do a $i & done\nf() { b; }\n( c; d ) &\ncat <<EOF > x\n#SBATCH -N 9\nsrun z\nEOF\ndone_\n"
    commands = {each.words[0].raw: each for each in parse_shell(text) if each.words}
    assert set(commands) == {"a", "b", "c", "d", "cat", "done_"}
    assert commands["a"].background and commands["c"].background and commands["d"].background
    assert not commands["b"].background and not commands["done_"].background
    assert commands["a"].within("loop") and commands["b"].within("function")
    assert "srun z" in commands["cat"].here
    assert {5, 6} <= read_shell(text)[1]


@pytest.mark.parametrize(
    "text",
    [
        "'",
        '"',
        "$(",
        "${",
        "`",
        "$((",
        "((",
        "if",
        "case x in",
        "case x in a",
        "f() {",
        "a <<E",
        "a <",
        "[[ x",
        "\\",
        ")",
        "}",
        "done",
        ";;",
        "&",
        "|",
        "for",
        "for ((",
        "a=(",
        "export a=(b",
        "$'",
        "a | | b",
        "\ue000",
        "bash -c",
    ],
)
def test_no_broken_text_raises(text: str) -> None:
    for whole in (text, f"#!/bin/bash\n#SBATCH -N 2\n{text}\nsrun a {text}", f"bash -c '{text}"):
        parse_script(whole)


def test_case_and_double_brackets() -> None:
    text = 'case "$1" in\n  a|b) x 1 ;;\n  *) y 2 ;;\nesac\nif [[ a < b && ( c || d ) ]]; then z 3; fi\n'
    assert argvs(text) == [["x", "1"], ["y", "2"], ["z", "3"]]


@pytest.mark.parametrize(
    ("head", "asked"),
    [
        ("#SBATCH -N4\n#SBATCH -n 16 -c=2", {"nodes": 4, "tasks": 16, "cpus_per_task": 2}),
        ("#SBATCH --nodes 4 --ntasks-per-n=2  # two each", {"nodes": 4, "tasks_per_node": 2}),
        ("#SBATCH --gres=gpu:v100:4,lscratch:10", {"gpus_per_node": 4}),
        ("#SBATCH --gpus-per-node=a100:8", {"gpus_per_node": 8}),
        ("#SBATCH -N2 -G 8", {"gpus_per_node": 4}),
        ("##SBATCH -N 9\n# SBATCH -N 8\n#SBATCH -N 2\nx\n#SBATCH -N 7", {"nodes": 2}),
        ("#SBATCH --nodes=2-4 -n $N", {"nodes": None, "tasks": None}),
        (
            '#BSUB -nnodes 2\n#BSUB -W 2:00\n#BSUB -alloc_flags "nvme smt4"\nx\n#BSUB -P A',
            {"nodes": 2, "time_min": 120, "account": "A"},
        ),
        ('#BSUB -n 8 -R "span[ptile=4]" -gpu "num=4:mode=shared"', {"tasks": 8, "nodes": 2, "gpus_per_node": 4}),
        (
            "#PBS -l select=2:ncpus=8:mpiprocs=4:ngpus=4,walltime=1:00:00",
            {"nodes": 2, "tasks_per_node": 4, "gpus_per_node": 4, "cpus_per_task": 2, "time_min": 60},
        ),
        ("#PBS -l nodes=3:ppn=4", {"nodes": 3, "tasks_per_node": 4}),
        ("# flux: -N2\n# flux: -n 8\n# flux: -t 30m", {"nodes": 2, "tasks": 8, "time_min": 30}),
    ],
)
def test_what_a_head_asks_for(head: str, asked: dict[str, object]) -> None:
    request = parse_script(f"#!/bin/bash\n{head}\n").request
    assert {name: getattr(request, name) for name in asked} == asked


@pytest.mark.parametrize(
    ("text", "scheduler", "expected"),
    [
        ("15", "slurm", 15),
        ("1:30", "slurm", 1.5),
        ("2:00:00", "slurm", 120),
        ("1-0", "slurm", 1440),
        ("1-2:30", "slurm", 1590),
        ("2h", "slurm", None),
        ("1:00:00:00", "slurm", None),
        ("2:00", "lsf", 120),
        ("1:00:00", "lsf", None),
        ("1:30:00", "pbs", 90),
        ("90", "pbs", 1.5),
        ("1.5h", "flux", 90),
    ],
)
def test_wall_times(text: str, scheduler: str, expected: float | None) -> None:
    assert minutes(text, scheduler) == expected


@pytest.mark.parametrize(("text", "size"), [("64", 64), ("32G", 32768), ("32GB", 32768), ("1.5G", None), ("x", None)])
def test_memory(text: str, size: float | None) -> None:
    assert mebibytes(text) == size


def launches(body: str, head: str = "#SBATCH -N 2") -> list[tuple[str, list[str], tuple[str, ...]]]:
    script = parse_script(f"#!/bin/bash\n{head}\n{body}\n")
    return [(each.kind, [outer.kind for outer in each.via], each.program) for each in script.launches]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("srun -N2 -n8 --label ./a b", [("srun", [], ("./a", "b"))]),
        ("A=1 exec time srun -lu ./a", [("srun", [], ("./a",))]),
        ("C='srun -n 4'; $C ./a", [("srun", [], ("./a",))]),
        ("timeout -k 5 60 mpirun --mca btl tcp,self -x A -np 4 ./a", [("mpirun", [], ("./a",))]),
        ("echo srun ./a; # srun ./b", []),
        ("x=$(srun hostname)", []),
        ('jsrun -r1 -g6 -a6 -c42 -bpacked:7 -M "-gpu" ./a', [("jsrun", [], ("./a",))]),
        (
            "srun bash -c 'torchrun --nproc-per-node=4 t.py'",
            [("srun", [], ("bash", "-c", "torchrun --nproc-per-node=4 t.py")), ("torchrun", ["srun"], ("t.py",))],
        ),
        (
            "srun apptainer exec --nv -B /a i.sif python t.py",
            [
                ("srun", [], ("apptainer", "exec", "--nv", "-B", "/a", "i.sif", "python", "t.py")),
                ("container", ["srun"], ("python", "t.py")),
            ],
        ),
        ("flux run -N2 -n8 -o cpu-affinity=per-task ./a", [("flux", [], ("./a",))]),
        ("accelerate launch --num_processes 8 t.py --x", [("accelerate", [], ("t.py", "--x"))]),
        ("python3 -u -m torch.distributed.run --standalone t.py", [("torchrun", [], ("t.py",))]),
        (
            "nsys profile -o out --trace=cuda python t.py; mpiexec --ppn 4 --depth 8 -n 8 ./a",
            [("mpirun", [], ("./a",))],
        ),
    ],
)
def test_launch_lines(body: str, expected: list[tuple[str, list[str], tuple[str, ...]]]) -> None:
    assert launches(body) == expected


def test_options_of_a_launch() -> None:
    script = parse_script(
        "#!/bin/bash\n#SBATCH -N 3\nS=4\njsrun -n$((S*3)) -a 1 -c7 --gpu_per_rs=1 -E A=1 -E B=2 ./a\n"
    )
    launch = script.launches[0]
    assert (launch.count("nrs"), launch.count("cpu_per_rs"), launch.count("gpu_per_rs"), launch.line) == (12, 7, 1, 4)
    assert [option.value for option in launch.reading.options if option.name == "env"] == ["A=1", "B=2"]


def test_slurm_variables_are_known_from_the_head() -> None:
    script = parse_script("#!/bin/bash\n#SBATCH -N 3 --ntasks-per-node=2\nsrun -n $SLURM_NTASKS -N $SLURM_NNODES ./a\n")
    assert (script.launches[0].count("ntasks"), script.launches[0].count("nodes")) == (6, 3)


def test_the_redirections_of_a_block_are_one_command() -> None:
    commands = parse_shell("for i in 1; do a; done > b 2> c < <(d)\nf > g 2> h\n{ k; } > l; { m; } > n\n")
    files = [[op + word.raw for op, word in each.redirects] for each in commands if each.redirects]
    assert files == [[">b", "2>c", "<<(d)"], [">g", "2>h"], [">l"], [">n"]]


def test_a_process_substitution_is_a_word() -> None:
    assert argvs("a <(b c) d > >(e)") == [["a", "<(b c)", "d"]]
