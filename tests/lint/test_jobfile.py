"""Job files: read, written, read back; and made from batch scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import InputError, ManyErrors
from stackyard.launch.request.intent import BatchOptions, Intent
from stackyard.launch.request.job_file import job_text, load_job
from stackyard.lint.api import lint_file, lint_text, to_intent
from support.cli import stackyard

DIRECTORY = Path(__file__).parent.parent / "data" / "lint"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "intent",
    [
        Intent(),
        Intent(
            program=("train.py", "--epochs", "3", "--name", "a b", "", "yes", "- x", "#", "a: b", "{x}", "ü\n", "1e3"),
            nodes=2,
        ),
        Intent(variables={"A": "1", "no": "true", "B_C": "x,y"}, gpus_per_rank=0, direct=False, hang_min=2.5),
        Intent(container="./x.sif", launcher_args=("--mpi=pmix",), profile=("nsys:ranks=0,8",), cwd="/a b"),
        Intent(
            batch=BatchOptions(
                time_min=90,
                account="P",
                exclusive=False,
                mail_events=("begin", "end"),
                array="0-9%2",
                output="%x-%j.out",
                scheduler_args=("--gres-flags=enforce-binding", "-R", "rusage[mem=1]"),
            )
        ),
    ],
)
def test_a_job_file_reads_back(tmp_path: Path, intent: Intent) -> None:
    assert load_job(written(tmp_path, job_text(intent, ["made by hand", "two\nlines"]))) == intent


def test_only_what_differs_is_written() -> None:
    text = job_text(Intent(program=("a",), nodes=2, batch=BatchOptions(time_min=60)))
    assert text == "format: 1\nprogram: [a]\nnodes: 2\nbatch:\n  time_min: 60\n"


def test_it_is_readable_yaml() -> None:
    intent = Intent(program=("a b.py", "--epochs", "3", "x" * 130), variables={"A": "1", "P": "/a:/b"}, hang_min=2.0)
    text = job_text(intent, ["made from job.sbatch", "check the module"])
    assert text == (
        "# made from job.sbatch\n# check the module\nformat: 1\n"
        f"program: [a b.py, --epochs, '3', {'x' * 130}]\nhang_min: 2\nvariables:\n  A: '1'\n  P: /a:/b\n"
    )


def test_all_problems_at_once_with_places(tmp_path: Path) -> None:
    path = written(tmp_path, "format: 2\nnodez: 3\nnodes: two\nbatch:\n  time_mins: 5\n")
    with pytest.raises(ManyErrors) as raised:
        load_job(path)
    said = {(problem.where.line if problem.where else 0): problem for problem in raised.value.problems}
    assert set(said) == {1, 2, 3, 5}
    assert "'nodes'" in (said[2].hint or "") and "'time_min'" in (said[5].hint or "")


def test_the_format_is_required(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing key 'format'"):
        load_job(written(tmp_path, "nodes: 2\n"))
    with pytest.raises(InputError, match="must be a mapping"):
        load_job(written(tmp_path, "- nodes\n"))


def test_summit_script_to_intent() -> None:
    report = lint_file(DIRECTORY / "good" / "summit.lsf")
    intent, notes = to_intent(report.script)
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == (2, 6, 7, 1)
    assert intent.program == ("train.py", "--epochs", "3")
    assert (intent.batch.time_min, intent.batch.account, intent.batch.queue) == (10, "ABC123", "batch")
    assert intent.batch.scheduler_args == ("-alloc_flags 'nvme smt4'",)
    assert intent.prologue == ("module load open-ce",) and not notes


def test_what_no_job_file_may_have_is_left_out() -> None:
    text = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --job-name=-a\n#SBATCH --array=x\nsrun -n 4 python a.py\n"
    intent, notes = to_intent(lint_text(text).script)
    assert not intent.batch.name
    assert "left out: name: '-a' is not a job name" in notes
    assert "left out: array: 'x' is not a list of array indices" in notes


def test_torchrun_script_to_intent() -> None:
    report = lint_file(DIRECTORY / "good" / "torchrun.sbatch")
    intent, _ = to_intent(report.script)
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank, intent.gpus_per_rank) == (2, 4, 8, 1)
    assert intent.backend == "torchrun" and intent.program == ("train.py", "--epochs=3")
    assert intent.batch.exclusive and "MASTER_ADDR" not in intent.variables


def test_container_and_shell_to_intent() -> None:
    report = lint_file(DIRECTORY / "good" / "container.sbatch")
    intent, notes = to_intent(report.script)
    assert intent.container == "torch.sif" and intent.program == ("python", "-u", "train.py")
    assert any("/opt/conda/bin/activate" in note for note in notes) and any("--bind /scratch" in note for note in notes)


def test_racks_and_pbs_to_intent() -> None:
    intent, _ = to_intent(lint_file(DIRECTORY / "good" / "summit_racks.lsf").script)
    assert intent.batch.pack == "racks" and (intent.nodes, intent.ranks_per_node, intent.cores_per_rank) == (144, 6, 7)
    intent, _ = to_intent(lint_file(DIRECTORY / "good" / "mpi.pbs").script)
    assert (intent.nodes, intent.ranks_per_node, intent.cores_per_rank, intent.program) == (4, 8, 4, ("./solver",))


def test_variables_and_what_is_not_carried_over() -> None:
    text = (
        "#!/bin/bash\n#SBATCH -N 1 -n 4 -c 2 -t 10 --mem=32G --licenses=x:1 --ear=on --mail-type=ALL\n"
        "export A=1 B=$(date)\nexport OMP_NUM_THREADS=2\ncd /data\nsrun -c 2 --foo=1 ./solver $INPUT\n"
    )
    intent, notes = to_intent(lint_text(text, name="j").script)
    assert intent.prologue == ("export A=1 B=$(date)", "cd /data") and intent.cwd == "/data"
    assert intent.variables == {} and intent.threads_per_rank == 2
    assert intent.batch.memory_gib == 32 and intent.batch.scheduler_args == ("--licenses=x:1",)
    assert intent.batch.mail_events == ("begin", "end", "fail")
    assert any("--ear on" in note for note in notes)
    assert any("foo" in note for note in notes) and any("$INPUT" in note for note in notes)


@pytest.mark.parametrize(
    "path", sorted([*(DIRECTORY / "good").iterdir(), *(DIRECTORY / "bad").glob("*.*")]), ids=lambda p: p.name
)
def test_every_script_becomes_a_valid_job_file(tmp_path: Path, path: Path) -> None:
    report = lint_file(path)
    intent, notes = to_intent(report.script)
    assert load_job(written(tmp_path, job_text(intent, notes))) == intent


LOSING = {
    "#!/bin/bash\n#BSUB -nnodes 2 -W 30\nddlrun --rack 18 --verbose python $CONDA_PREFIX/mnist.py\n": (
        "variables of the script in $CONDA_PREFIX/mnist.py", "18 may be the value of rack",
    ),
    "#!/bin/bash\n#SBATCH -N 2 -t 60\n": ("no launch line found: fill in program",),
    "#!/bin/bash\n#SBATCH -N 1 -t 60\nsrun ./first\nsrun ./second\n": ("a further launch, srun ./first",),
}  # fmt: skip


def test_ddlruns_own_options_are_not_the_program() -> None:
    head = "#!/bin/bash\n#BSUB -nnodes 144 -W 60\n"
    line = "ddlrun --nodes 18 --racks 4 -aisles 2 --accelerators 6 --mpiarg -pami_noib --tcp python train.py --x 1\n"
    intent, notes = to_intent(lint_text(head + line).script)
    assert (intent.program, intent.nodes, intent.ranks_per_node) == (("train.py", "--x", "1"), 144, 6)
    placed = [note for note in map(str, notes) if "Stackyard places the ranks" in note]
    assert len(placed) == 3 and any("rack-nodes 18" in note for note in placed)
    assert any("the option mpiarg -pami_noib of ddlrun" in note for note in map(str, notes))


@pytest.mark.parametrize("text", LOSING)
def test_what_a_job_must_not_lose_is_refused_until_it_is_answered(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.sh").write_text(text)
    done = stackyard("lint", "--fix", "job.sh", cwd=tmp_path, expect=None)
    job = tmp_path / "job.sh.job.yaml"
    for said in LOSING[text]:
        assert f"to be answered: line 3: {said}" in done.out or f"to be answered: {said}" in done.out
    for verb in (("submit", "--dry-run"), ("launch",), ("explain",)):
        refused = stackyard(*verb, "--job", job.name, cwd=tmp_path, expect=2)
        assert "could not be carried over" in refused.err and "`unanswered`" in refused.err
        assert all(said in refused.err for said in LOSING[text])
    lines = job.read_text().splitlines(keepends=True)
    answered = [line for line in lines if not line.startswith(("unanswered:", "  - "))]
    job.write_text("".join(answered) if "fill in" not in done.out else "".join(answered) + "program: [x.py]\n")
    (tmp_path / "x.py").touch()
    assert load_job(job).unanswered == ()
    left = stackyard("explain", "--job", job.name, cwd=tmp_path, expect=None)
    assert "could not be carried over" not in left.err


def test_the_driver_of_a_symmetric_ray_cluster_is_the_program() -> None:
    text = "#!/bin/bash\n#SBATCH -N 2 -t 60\nray symmetric-run --address $ip:6379 --min-nodes 2 -- python x.py --k 3\n"
    intent, _ = to_intent(lint_text(text, name="job.sh").script)
    assert (intent.backend, intent.program, intent.unanswered) == ("ray", ("x.py", "--k", "3"), ())
