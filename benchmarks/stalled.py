"""A healthy job whose run directory hangs for a minute, beside the same job without that.

The run directory is on a file system in user space whose server is stopped (SIGSTOP) while the ranks work: no call
there returns, for the hub, the agents and everybody else. Four nodes of a Slurm of its own, two ranks each; a rank
writes a line before and a line after the stall. The job has to take no longer, exit with 0, and have all lines in its
logs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.starting_ranks import NODES, PER_NODE, SITE, WAIT_S, allocation
from benchmarks.tools import STACKYARD, scratch

WORK_S, STALL_S = 75, 60
MOST = 1.1
PROGRAM = f"""\
import os, pathlib, time
rank, own = os.environ["RANK"], pathlib.Path(os.environ["OWN"])
print("begun", rank, flush=True)
own.joinpath("begun" + rank).touch()
until, steps = time.monotonic() + {WORK_S}, 0
while time.monotonic() < until:
    time.sleep(0.1)
    steps += 1
print("ended", rank, steps, flush=True)
"""


def measure(pairs: int = 1) -> list[Figure]:
    """Seconds of the job with the stall, over those without."""
    from support.bindfs import UNCACHED, bindfs
    from support.slurm import SlurmCluster

    ratios, told = [], ""
    with scratch("stalled") as directory, SlurmCluster.own(NODES) as cluster, \
            bindfs(directory / "below", directory / "work", *UNCACHED) as server:  # fmt: skip
        work = directory / "work"
        (directory / "site.yaml").write_text(SITE)
        (directory / "program.py").write_text(PROGRAM)
        with allocation(cluster, directory) as env:
            for pair in range(pairs):
                plain = job(directory, work / f"plain-{pair}", env, None)
                stalled = job(directory, work / f"stalled-{pair}", env, server.pid)
                ratios.append(stalled / plain)
                told = f"{stalled:.1f} s : {plain:.1f} s"
    return [Figure(f"a job whose run directory hangs for {STALL_S} s", "the same without", tuple(ratios), MOST,
                   absolute=told, note="both exit with status 0 and have every line in their logs")]  # fmt: skip


def job(directory: Path, cwd: Path, env: Mapping[str, str], server: int | None) -> float:
    """Seconds of one job, whose file system hangs where a server is given."""
    own = directory / f"own-{cwd.name}"
    own.mkdir()
    cwd.mkdir()
    argv = [STACKYARD, "--yard", directory / "yard", "--site", directory / "site.yaml", "launch", "-N", str(NODES),
            "-r", str(PER_NODE), "-c", "1", "--backend", "any", directory / "program.py"]  # fmt: skip
    began = time.monotonic()
    made = subprocess.Popen(
        argv, cwd=cwd, env={**env, "OWN": str(own)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    wait_for_all(own)
    if server is not None:
        time.sleep(2)
        os.kill(server, signal.SIGSTOP)
        time.sleep(STALL_S)
        os.kill(server, signal.SIGCONT)
    out = made.communicate(timeout=WORK_S + WAIT_S)[0].decode()
    took = time.monotonic() - began
    logs = [path.read_text().split() for path in sorted(cwd.glob("runs/*/logs/rank-*.log"))]
    whole = [(words[0], words[2]) for words in logs if len(words) == 5] == [("begun", "ended")] * NODES * PER_NODE
    if made.returncode or not whole:
        raise SystemExit(f"the job exited with status {made.returncode}; logs: {logs}\n{out}")
    return took


def wait_for_all(own: Path) -> None:
    """Wait until every rank has begun."""
    until = time.monotonic() + WAIT_S
    while len(list(own.glob("begun*"))) < NODES * PER_NODE:
        if time.monotonic() > until:
            raise SystemExit("not all ranks have begun")
        time.sleep(0.1)
