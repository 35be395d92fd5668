"""The table of options that exclude or need each other says what a real sbatch and srun say, of generated heads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stackyard.lint.api import lint_text
from support.slurm import SlurmCluster

OPTIONS = {
    "nodes": "2", "ntasks": "4", "ntasks-per-node": "2", "cpus-per-task": "2", "cpus-per-gpu": "2", "mem": "100M",
    "mem-per-cpu": "10M", "mem-per-gpu": "10M", "gpus": "4", "gpus-per-node": "2", "gpus-per-task": "1",
    "gres": "gpu:2", "ntasks-per-gpu": "1", "exclusive": None, "overcommit": None, "hint": "nomultithread",
    "core-spec": "1", "thread-spec": "1", "distribution": "block", "nodelist": "n1,n2", "exclude": "n3",
    "dependency": "singleton", "requeue": None, "no-kill": None, "export": "ALL", "contiguous": None,
    "spread-job": None, "switches": "1", "signal": "B:USR1@30", "open-mode": "append", "gpu-bind": "none",
    "mail-type": "END", "nice": "1", "comment": "x", "profile": "none", "mem-bind": "none",
}  # fmt: skip
OF_THE_TABLE = ("exclusive", "without", "did not request any GPU", "needs either", "requires")
"""What sbatch prints of options that exclude or need each other."""
BODY = "trap : USR1\nsrun ./a.out & wait\n"
DRAWN = 200


def heads() -> list[list[str]]:
    """Two to five options each, always the same ones; what they ask of four nodes fits."""
    draw = random.Random(20261126)
    names = sorted(OPTIONS)
    return [["time", *draw.sample(names, draw.randint(2, 5))] for _ in range(DRAWN)]


def written(name: str) -> str:
    value = {**OPTIONS, "time": "5"}[name]
    return f"--{name}" if value is None else f"--{name}={value}"


@pytest.mark.real
@pytest.mark.long
def test_generated_heads_are_judged_as_by_sbatch(slurm: SlurmCluster, tmp_path: Path) -> None:
    """At most one in 200 differs each way. What depends on the sizes of the cluster is not the table's."""
    wrong_yes, wrong_no = [], []
    for words in heads():
        script = tmp_path / "job.sh"
        text = "#!/bin/bash\n" + "".join(f"#SBATCH {written(name)}\n" for name in words) + BODY
        script.write_text(text)
        done = slurm.run("sbatch", "--test-only", script, check=False)
        said = any(each.rule == "options-together" for each in lint_text(text, name="job.sh").findings)
        refused = done.returncode != 0 and any(word in done.output for word in OF_THE_TABLE)
        if refused and not said:
            wrong_no.append((words, done.output))
        if said and done.returncode == 0:
            wrong_yes.append(words)
    assert len(wrong_no) <= 1, wrong_no
    assert len(wrong_yes) <= 1, wrong_yes


@pytest.mark.real
@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ("--gpus-per-socket=1 -B 1", True),
        ("--gpus-per-socket=1 --gpus=1", False),
        ("--gpus-per-task=1 --cpus-per-task=2", False),
        ("--ntasks-per-gpu=1 --cpus-per-task=2", False),
        ("--ntasks-per-gpu=1 --gpus-per-socket=1 --sockets-per-node=1", False),
    ],
)
def test_what_gpus_are_counted_by(slurm: SlurmCluster, tmp_path: Path, options: str, taken: bool) -> None:
    """Cores of a task say nothing about the number of tasks; -B says how many sockets a node has."""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --time=5 {options}\n{BODY}")
    done = slurm.run("sbatch", "--test-only", script, check=False)
    said = any(each.rule == "options-together" for each in lint_text(script.read_text(), name="job.sh").findings)
    assert (done.returncode == 0, said) == (taken, not taken), done.output
