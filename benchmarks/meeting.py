"""What it costs to look for connections between ranks: the agent's CPU, and the time of a job.

Ranks that are never connected to another one are the dearest, since they are looked at to their end.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.agent_cpu import share
from benchmarks.measure import Figure, alternate, figure_of
from benchmarks.tools import STACKYARD, scratch

RANKS, FILES, CONNECTIONS = 64, 200, 10
MOST, WORK = 0.5, 2500
MANY = 10_000
ON, OFF = ("--backend", "torchrun", "--world-check"), ("--backend", "torchrun", "--no-world-check")
ALONE = f"""\
import socket, time
files = [open("/dev/null") for _ in range({FILES})]
with socket.create_server(("127.0.0.1", 0)) as here:  # a connection to itself is not one to another rank
    kept = [(socket.create_connection(here.getsockname()), here.accept()) for _ in range({CONNECTIONS})]
    time.sleep(10)
    print("ready", flush=True)
    time.sleep(600)
"""
WORKS = f"""\
import time
begun = time.monotonic()
for _ in range({WORK}):
    sum(range(100_000))
print("took", time.monotonic() - begun, flush=True)
"""


def measure(pairs: int = 8) -> list[Figure]:
    """The agent's part of a core and what a job's work takes, with and without looking; and what the hub joins."""
    looking, without = (100 * share(RANKS, ALONE, *options) for options in (ON, OFF))
    each = f"{FILES + 2 * CONNECTIONS} descriptors"
    of_agent = Figure(
        f"agent beside {RANKS} ranks x {each}, never connected to another: % of one core", "-", (looking,), MOST,
        absolute=f"{without:.2f} % without looking",
    )  # fmt: skip
    with scratch("meeting") as directory:
        (directory / "works.py").write_text(WORKS)
        times = alternate(lambda: _took(directory, *ON), lambda: _took(directory, *OFF), pairs, warm_up=0)
    job = figure_of("work of a job of two ranks that are never connected", "without looking", times, 1.01, unit="s")
    return [of_agent, job, *map(_joined, ("through rank 0", "each with 16 others"))]


def _joined(how: str) -> Figure:
    """Seconds of processor in which the hub joins the ends of ten times as many ranks, for each of those of a tenth."""
    few, many = _join_s(how, MANY // 10), _join_s(how, MANY)
    return Figure(f"ends of {MANY:,} ranks, connected {how}, joined: time for each", f"of {MANY // 10:,}",
                  (many / few / 10,), 3, absolute=f"{1000 * many:.0f} : {1000 * few:.0f} ms for all")  # fmt: skip


def _join_s(how: str, ranks: int) -> float:
    from stackyard.launch.run.alone import Edges

    rng, edges = random.Random(ranks), Edges()
    found = []
    for rank in range(ranks):
        to = [0] if how == "through rank 0" else [rng.randrange(ranks) for _ in range(16)]
        found.append((rank, [(f"{rank}:{9000 + port}", f"{other}:29400") for port, other in enumerate(to)]))
        found.append((rank, [(f"{rank}:29400", f"{rng.randrange(ranks)}:9000")]))
    rng.shuffle(found)
    begun = time.process_time()
    for one in found:
        edges.heard([one])
    took = time.process_time() - begun
    assert len(edges.met) > 0.99 * ranks
    return took


def _took(directory: Path, *options: str) -> float:
    """Seconds that the work of rank 0 has taken; that it was alone is an error."""
    words = [STACKYARD, "launch", "-r", "2", "-c", "1", *options, sys.executable, "works.py"]
    own = {**os.environ, "HOME": str(directory), "STACKYARD_TMP": str(directory)}
    done = subprocess.run(words, cwd=directory, env=own, capture_output=True, text=True, check=False)
    took = re.search(r"took ([\d.]+)", done.stdout)
    if took is None:
        raise SystemExit(done.stderr)
    return float(took[1])
