"""What `stackyard bench` costs for each run of a study, beside a loop of ``sbatch``; and how often it asks Slurm.

On a Slurm of its own, whose nodes are network namespaces of this machine. Both submit the same program six times, on
two nodes each, at once; the time is that until the last job has ended, and by hand squeue is asked every second.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import Figure, alternate
from benchmarks.tools import STACKYARD, scratch

RUNS, NODES = 6, 2
MORE_S = 2.0
SUBMITTED_S = 5
SITE = """\
name: bench
nodes: {cpu: {platform: linux-64, cores: 32}}
scheduler: {kind: slurm, launcher: srun}
"""
PROGRAM = """\
import os
if os.environ.get("RANK", os.environ.get("SLURM_PROCID")) == "0":
    print("images/s: 100", flush=True)
"""
COUNTED = """\
#!/bin/sh
[ -n "$SLURM_JOB_ID" ] || echo "$(date +%s.%N) {name} $*" >> "{log}"
exec {real} "$@"
"""


def measure(pairs: int = 5) -> list[Figure]:
    """Seconds more for each run than by hand; questions to the scheduler in a study of a minute."""
    from support.slurm import SlurmCluster

    with scratch("studies") as directory, SlurmCluster.own(4) as cluster:
        env = cluster.environ(STACKYARD_HOME=str(directory / "yard"), STACKYARD_SITE=str(directory / "site.yaml"))
        (directory / "site.yaml").write_text(SITE)
        (directory / "speed.py").write_text(PROGRAM)
        both = alternate(lambda: _study(directory, env), lambda: _by_hand(directory, env), pairs)
        gap = _between_questions(directory, env)
    more = tuple((ours - theirs) / RUNS for ours, theirs in both)
    ours, theirs = (statistics.median(side) for side in zip(*both, strict=True))
    told = f"{ours:.1f} s : {theirs:.1f} s for {RUNS} runs"
    return [
        Figure("a run of a study: seconds more", "sbatch in a loop", more, MORE_S, False, told),
        Figure("questions to Slurm of a study: seconds apart", "none", (gap,), 10.0, True, "the shortest gap"),
    ]


def _study(directory: Path, env: Mapping[str, str]) -> float:
    place = directory / "study"
    shutil.rmtree(place, ignore_errors=True)
    shape = ["--nodes", str(NODES), "-r", "1", "-c", "1", "-t", "2", "--shared"]
    argv = [STACKYARD, "bench", "speed.py", "-o", place, "--repeat", str(RUNS), "--warmup-runs", "0", *shape,
            "--measure", "images/s=images/s: (.+)"]  # fmt: skip
    started = time.monotonic()
    done = subprocess.run(argv, cwd=directory, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return time.monotonic() - started


def _by_hand(directory: Path, env: Mapping[str, str]) -> float:
    started = time.monotonic()
    batch = ["sbatch", "--parsable", f"-N{NODES}", "--ntasks-per-node=1", "-c1", "-o", "hand-%j.out"]
    for _ in range(RUNS):
        subprocess.run(
            [*batch, "--wrap=srun python3 speed.py"], cwd=directory, env=dict(env), check=True, capture_output=True
        )
    while subprocess.run(["squeue", "-h"], env=dict(env), capture_output=True, check=True).stdout:
        time.sleep(1)
    return time.monotonic() - started


def _between_questions(directory: Path, env: Mapping[str, str]) -> float:
    """The fewest seconds between two calls of squeue, scontrol or sacct by the follower, while its jobs run."""
    log, shims = directory / "asked", directory / "shims"
    shims.mkdir()
    for name in ("squeue", "scontrol", "sacct"):
        if real := shutil.which(name, path=env["PATH"]):
            (shims / name).write_text(COUNTED.format(name=name, log=log, real=real))
            (shims / name).chmod(0o755)
    (directory / "speed.py").write_text("import time\ntime.sleep(30)\n" + PROGRAM)
    started = time.time()
    _study(directory, {**env, "PATH": f"{shims}:{env['PATH']}"})
    times = [float(line.split()[0]) for line in log.read_text().splitlines()]
    following = [moment for moment in times if moment > started + SUBMITTED_S]
    return min(later - earlier for earlier, later in itertools.pairwise(following))
