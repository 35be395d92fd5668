"""A day of a researcher on a Slurm of four nodes, in one shell: PATH, HOME, and no file of Stackyard's.

Own script, own sbatch, an array, a crash, a hang, a lost node and a restart, an old script, functions from a notebook.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.cli import STACKYARD
from support.slurm import SlurmCluster
from support.watched import mentions

HELLO = """\
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename)
"""
SWEEP = "import os; print('rate', float(os.environ['SLURM_ARRAY_TASK_ID']) / 10)\n"
CRASH = """\
import os, time
if os.environ["RANK"] == "1":
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
time.sleep(300)
"""
HANG = """\
import time
def all_reduce():
    time.sleep(300)
print("step 1", flush=True)
all_reduce()
"""
TRAIN = """\
import os, pathlib, time
saved = pathlib.Path("checkpoint")
step = int(saved.read_text()) if saved.exists() else 0
print("begins at", step, flush=True)
while step < 40:
    if step == 20 and os.environ["STACKYARD_ATTEMPT"] == "1":
        time.sleep(300)  # a node is lost, and that may be noticed late
    step += 1
    if os.environ["RANK"] == "0":
        saved.with_suffix(".part").write_text(str(step))
        saved.with_suffix(".part").rename(saved)
    time.sleep(0.25)
print("trained", step, "steps on", os.environ["WORLD_SIZE"], "ranks", flush=True)
"""
OWN = f"""\
#!/bin/bash
#SBATCH --job-name=own --nodes=2 --ntasks-per-node=2 --cpus-per-task=4 --partition=debug --time=5
{STACKYARD} launch hello.py > own.txt 2> own.err
"""
OLD = """\
#!/bin/bash
#SBATCH -J old
#SBATCH -N 2
#SBATCH --ntasks-per-node=2
#SBATCH -c 2
#SBATCH -p debug
#SBATCH -t 00:05:00
export GREETING="good evening"
srun python hello.py --greet
"""
NOTEBOOK = """\
import stackyard

def loss(rate):
    import os
    return os.uname().nodename.startswith("n"), (rate - 0.1) ** 2

with stackyard.Executor(time_min=5, queue="debug", cores_per_rank=1) as executor:
    print(sorted(executor.map(loss, [0.0, 0.1, 0.3])))
print([run.state for run in stackyard.runs()][-1])
"""


@dataclass
class Shell:
    """A shell on a login node."""

    cluster: SlurmCluster
    directory: Path

    @property
    def environ(self) -> dict[str, str]:
        ours = self.cluster.environ()
        kept = {name: value for name, value in ours.items() if name in ("PATH", "SLURM_CONF", "LANG", "USER")}
        own = {"HOME": str(self.directory), "NO_COLOR": "1", "STACKYARD_TMP": str(self.node_disk)}
        return {**kept, **self.cluster.env, **own}

    @property
    def node_disk(self) -> Path:
        return self.directory / "tmp"

    def run(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, cwd=self.directory, env=self.environ, capture_output=True, text=True, timeout=300,
                              check=False)  # fmt: skip
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def stackyard(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run(str(STACKYARD), *words, expect=expect)

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.stackyard("runs", "--json").stdout)
        return found

    def until(self, done: Callable[[], bool], timeout_s: float = 120) -> None:
        end = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < end, "timed out"
            time.sleep(0.1)


@pytest.mark.real
@pytest.mark.long
def test_the_day_of_a_researcher(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    shell = Shell(slurm_exclusive, tmp_path)
    shell.node_disk.mkdir()
    programs = {"hello": HELLO, "sweep": SWEEP, "crash": CRASH, "hang": HANG, "train": TRAIN, "notebook": NOTEBOOK}
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text)
    states = []

    # own script, outside of any job: Slurm is asked for the nodes
    done = shell.stackyard("launch", "--stream", "all", "-N", "2", "-r", "2", "-c", "1", "-p", "debug", "hello.py")
    assert sorted(line.split(" on ")[0][4:] for line in done.stdout.splitlines()) == [
        f"rank {i} of 4" for i in range(4)
    ]
    states.append("done")

    # own sbatch: its tasks are the ranks
    (tmp_path / "own.sh").write_text(OWN)
    shell.run("sbatch", "--wait", "-o", "own.log", "own.sh")
    assert "rank 0 of 4" in (tmp_path / "own.txt").read_text()
    assert "2 ranks per node with 4 cores each, as this allocation was requested" in (tmp_path / "own.err").read_text()
    states.append("done")

    # a sweep as an array
    done = shell.stackyard("submit", "-N", "1", "-r", "1", "-c", "1", "-p", "debug", "-t", "5", "-a", "1-3", "sweep.py")
    assert "3 done of 3 tasks" in done.stderr
    assert "rate 0.2" in shell.stackyard("runs", "logs", "last.2").stdout
    states.append("done")

    # a crash: the first rank, its cause and what to do
    done = shell.stackyard("submit", "-N", "2", "-r", "1", "-c", "1", "-p", "debug", "-t", "5", "crash.py", expect=1)
    assert "rank 1" in done.stderr
    assert "CUDA out of memory" in done.stderr
    assert "hint:" in done.stderr
    states.append("failed")

    # a hang: where it hangs
    words = ("launch", "-N", "2", "-r", "1", "-c", "1", "-p", "debug", "--hang", "0.05", "--grace", "1", "hang.py")
    done = shell.stackyard(*words, expect=1)
    assert "no output for 0.05 min" in done.stderr
    stacks = sorted(tmp_path.glob("runs/*/stacks/rank-*.txt"))
    assert len(stacks) == 2
    states.append("hung")

    # a node is lost: the job goes on in its allocation, from its checkpoint
    words = ("launch", "-N", "2", "-r", "1", "-c", "1", "--restarts", "1", "--lost-timeout", "4", "--grace", "1")
    started = subprocess.Popen(
        ["salloc", "-Q", "-p", "debug", "-N3", "--no-kill", STACKYARD, *words, "train.py"],
        cwd=tmp_path, env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    shell.until(lambda: started.poll() is not None or (tmp_path / "checkpoint").exists())
    assert started.poll() is None, started.communicate()
    slurm_exclusive.lose_node("n2", "cut")
    out, err = started.communicate(timeout=240)
    assert started.returncode == 0, err
    assert "attempt 2, after: heartbeat timeout: n2" in err
    assert "trained 40 steps on 2 ranks" in out
    states.append("done")

    # an old script: what is wrong with it, the same job as a job file
    (tmp_path / "old.sh").write_text(OLD)
    said = shell.stackyard("lint", "--fix", "old.sh", expect=3)  # under srun alone the program ends with a KeyError
    assert "hello.py reads RANK, WORLD_SIZE, which nothing sets" in said.stdout
    done = shell.stackyard("submit", "--job", "old.sh.job.yaml")
    assert "rank 0 of 4" in done.stdout
    states.append("done")

    # functions, from a notebook
    done = shell.run(sys.executable, "notebook.py")
    best, state = done.stdout.splitlines()
    assert best == str([(True, 0.0), (True, 0.1**2), (True, (0.3 - 0.1) ** 2)])
    assert state == "done"
    states.append("done")

    assert [run["state"] for run in shell.runs()] == states
    shell.until(lambda: not mentions(str(tmp_path)))  # also on the lost node
