"""One all-reduce, measured: over torch.distributed (gloo, nccl; on AMD nccl is RCCL) or over MPI."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .operations import ITEM, MpiGroup, TorchGroup, prepare

FIRST_BYTES = 1 << 20
MOST_CPU_BYTES = 256 << 20
GPU_BYTES = 1 << 30
SMALL_BYTES = 4096
BATCHES = 4


class Task(NamedTuple):
    """The task of a rank in a group.

    `bytes` 0: chosen by a short calibration so that the measurement takes about `seconds`; `device` -1 is the CPU.
    """

    backend: str
    address: str
    rank: int
    size: int
    device: int = -1
    bytes: int = 0
    seconds: float = 1.0
    limit_s: float = 60.0


def over_torch(torch: Any, task: Task, at: Callable[[str], None]) -> dict[str, Any]:
    """Connect a group, add numbers, check the sums, measure the time. `at` receives the progress of this rank.

    Raises whatever torch raises, and ValueError for wrong sums.
    """
    at("connecting")
    began = time.perf_counter()
    group = TorchGroup(torch, task.backend, task.address, task.rank, task.size, task.device, task.limit_s)
    try:
        return _connected(group, task, began, at)
    finally:
        group.close()


def over_mpi(task: Task, at: Callable[[str], None]) -> dict[str, Any]:
    """An all-reduce over MPI_COMM_WORLD. Raises ImportError without mpi4py, ValueError on a PMI mismatch.

    A rank that hangs in MPI_Init ends after the limit to connect: mpi4py keeps Python's lock there, so that no thread
    of Python could end it.
    """
    at("starting MPI")
    began = time.perf_counter()
    faulthandler.dump_traceback_later(task.limit_s, exit=True)
    try:
        group = MpiGroup(task.rank, task.size)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return {**_connected(group, task, began, at), "library": group.library}


def _connected(group: Any, task: Task, began: float, at: Callable[[str], None]) -> dict[str, Any]:
    _checked(group, SMALL_BYTES)
    connect_s = group.slowest(time.perf_counter() - began)
    at("connected")
    return {**_measure(task, group), "connect_s": connect_s}


def _checked(group: Any, size: int) -> Callable[[], Any]:
    """An all-reduce of so many bytes. Raises ValueError if its sums are wrong."""
    made = prepare(group, "all_reduce", size // ITEM)
    wrong = made.wrong()
    if wrong:
        raise ValueError(f"wrong sums over {group.size} ranks: {wrong} of {size // ITEM}")
    return made.run


def _measure(task: Task, group: Any) -> dict[str, Any]:
    """Seconds of one all-reduce: the mean of the slowest rank in the best of four batches, which fill `task.seconds`.

    The best batch counts, so that a short disturbance does not make a node look slow; a slow node is slow in all.
    """
    if task.seconds <= 0:
        return {"bytes": SMALL_BYTES, "seconds": 0.0, "times": 1}
    size = task.bytes or _calibrated(task, group)
    reduce = _checked(group, size)
    one = group.slowest(_timed(reduce, 1))
    times = max(1, min(1000, int(task.seconds / BATCHES / max(one, 1e-6))))
    best = min(group.slowest(_timed(reduce, times)) for _ in range(BATCHES))
    return {"bytes": size, "seconds": best, "times": times}


def _calibrated(task: Task, group: Any) -> int:
    """The bytes of an all-reduce: GPUs: 1 GiB, since less measures latency. CPUs: whole MiB for a tenth of the time."""
    if task.device >= 0:
        return GPU_BYTES
    one = group.slowest(_timed(_checked(group, FIRST_BYTES), 2))
    size = FIRST_BYTES * max(1, int(task.seconds / 10 / max(one, 1e-6)))
    return min(size, MOST_CPU_BYTES)


def _timed(reduce: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        reduce()
    return (time.perf_counter() - start) / times
