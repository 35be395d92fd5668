"""What the agent of a node takes from its ranks: its CPU beside 8 ranks of 390 threads each, as a part of one core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.tools import STACKYARD, scratch

RANKS, THREADS, LOOK_S = 8, 390, 60.0
MOST = 0.5
PROGRAM = f"""\
import threading, time
for _ in range({THREADS} - 1):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


def measure(pairs: int = 1) -> list[Figure]:
    """CPU seconds of the agent in a minute of the run, over that minute."""
    shares = tuple(100 * share(RANKS, PROGRAM) for _ in range(pairs))
    return [Figure(f"agent beside {RANKS} ranks x {THREADS} threads: % of one core", "-", shares, MOST,
                   absolute=f"{shares[-1]:.2f} % of a core")]  # fmt: skip


def share(ranks: int, program: str, *options: str) -> float:
    """The part of one core that the agent uses beside so many ranks of a program, once rank 0 has printed ready."""
    with scratch("agent") as directory:
        (directory / "threads.py").write_text(program)
        words = [STACKYARD, "launch", "-r", str(ranks), "-c", "1", "--oversubscribe", *options, sys.executable]
        own = {**os.environ, "HOME": str(directory), "STACKYARD_TMP": str(directory)}
        process = subprocess.Popen(
            [*words, "threads.py"], cwd=directory, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            time.sleep(10)
            agent = agent_of(directory)
            before = cpu_s(agent)
            time.sleep(LOOK_S)
            return (cpu_s(agent) - before) / LOOK_S
        finally:
            process.terminate()
            process.wait(60)


def agent_of(directory: Path) -> int:
    """The process of the agent of the launch below a directory."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(os.fsencode(directory)) and word.endswith(b"/agent.py") for word in words):
            return int(name)
    raise SystemExit("no agent")


def cpu_s(pid: int) -> float:
    """User and system seconds of a process (proc(5))."""
    words = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
