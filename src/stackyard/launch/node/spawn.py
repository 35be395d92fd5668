"""Starts the ranks of one node on this machine, if no other launcher is needed. Standard library only.

    python -I -S spawn.py --cpus 0-3 --cpus 4-7 -- program [argument ...]

starts the program once for each ``--cpus`` (hardware threads in the operating system's numbers; empty: not bound). Each
task reads its identity from STACKYARD_TASK, STACKYARD_TASKS, STACKYARD_LOCAL_TASK, STACKYARD_LOCAL_TASKS and
STACKYARD_NODE. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to all tasks and their processes. A failed
task does not end the others: the hub decides that. The exit status is that of the first task that failed, or 128 + the
signal's number if a signal killed it.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
NOT_STARTED = 126


def read_cpus(text: str) -> frozenset[int]:
    """``0-3,8`` as a set; empty for no binding. Raises ValueError."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def read_line(words: list[str]) -> tuple[list[frozenset[int]], list[str]]:
    """The CPUs of every task, and the program. Raises ValueError if the line is invalid."""
    tasks: list[frozenset[int]] = []
    rest = list(words)
    while rest and rest[0] != "--":
        if rest[0] != "--cpus" or len(rest) < 2:
            raise ValueError(f"unexpected argument: {rest[0]}")
        tasks.append(read_cpus(rest[1]))
        rest = rest[2:]
    if not tasks or len(rest) < 2:
        raise ValueError("usage: --cpus LIST for each task, then -- and a program")
    return tasks, rest[1:]


def usable(tasks: list[frozenset[int]]) -> bool:
    """Whether this process may use every planned CPU."""
    return frozenset().union(*tasks) <= os.sched_getaffinity(0)


def start(task: int, tasks: int, cpus: frozenset[int], program: list[str]) -> int:
    """Start one task in its own process group and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        for forwarded in FORWARDED:
            signal.signal(forwarded, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        if cpus:
            os.sched_setaffinity(0, cpus)
        own = {"TASK": task, "TASKS": tasks, "LOCAL_TASK": task, "LOCAL_TASKS": tasks, "NODE": 0}
        os.execvpe(program[0], program, os.environ | {f"STACKYARD_{name}": str(n) for name, n in own.items()})
    except OSError as error:
        os.write(2, f"stackyard: failed to start {program[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def run(tasks: list[frozenset[int]], program: list[str]) -> int:
    """Start all tasks, forward signals, wait for all, and return the exit status of the first failure, or 0."""
    bound = usable(tasks)
    if not bound:
        print("stackyard: some of the planned CPUs are not available here; the ranks are not bound", file=sys.stderr)
    alive: set[int] = set()

    def forward(number: int, frame: FrameType | None) -> None:
        for pid in alive:
            _signal_group(pid, number)

    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    for task, cpus in enumerate(tasks):
        alive.add(start(task, len(tasks), cpus if bound else frozenset(), program))
    for forwarded in FORWARDED:
        signal.signal(forwarded, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    failed = 0
    while alive:
        pid, status = os.wait()
        if pid in alive:
            alive.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            failed = failed or (128 - code if code < 0 else code)
    return failed


def _signal_group(pid: int, number: int) -> None:
    for send in (os.killpg, os.kill):
        try:
            return send(pid, number)
        except ProcessLookupError:
            continue  # not yet the leader of its own group, or already ended


def main() -> int:
    """Run as a program."""
    try:
        tasks, program = read_line(sys.argv[1:])
    except ValueError as error:
        print(f"stackyard: spawn.py: {error}", file=sys.stderr)
        return 2
    return run(tasks, program)


if __name__ == "__main__":
    sys.exit(main())
