"""One all-reduce, measured: over torch.distributed (gloo, nccl; on AMD nccl is RCCL) or over MPI."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

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
    """Connect a group, add numbers, check the sum, measure the time. `at` receives the progress of this rank.

    Raises whatever torch raises, and ValueError for a wrong sum.
    """
    dist = torch.distributed
    where = "cpu"
    if task.device >= 0:
        torch.cuda.set_device(task.device)
        where = f"cuda:{task.device}"
    at("connecting")
    began = time.perf_counter()
    dist.init_process_group(
        task.backend, init_method=task.address, rank=task.rank, world_size=task.size,
        timeout=timedelta(seconds=task.limit_s),
    )  # fmt: skip
    try:

        def prepare(count: int) -> Callable[[], None]:
            data = torch.full((count // 4,), 1.0, device=where)

            def reduce() -> None:
                dist.all_reduce(data)
                if task.device >= 0:
                    torch.cuda.synchronize(task.device)

            reduce()
            _check(float(data[-1]), task.size)
            data.zero_()
            return reduce

        def slowest(value: float) -> float:
            shared = torch.tensor([value], device=where, dtype=torch.float32)
            dist.all_reduce(shared, op=dist.ReduceOp.MAX)
            return float(shared[0])

        prepare(SMALL_BYTES)
        connect_s = slowest(time.perf_counter() - began)
        at("connected")
        return {**_measure(task, prepare, slowest), "connect_s": connect_s}
    finally:
        dist.destroy_process_group()


def over_mpi(task: Task, at: Callable[[str], None]) -> dict[str, Any]:
    """An all-reduce over MPI_COMM_WORLD. Raises ImportError without mpi4py, ValueError on a PMI mismatch."""
    at("starting MPI")
    began = time.perf_counter()
    from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

    comm = MPI.COMM_WORLD
    if (comm.Get_rank(), comm.Get_size()) != (task.rank, task.size):
        raise ValueError(
            f"PMI mismatch: rank {comm.Get_rank()} of {comm.Get_size()} in MPI, rank {task.rank} of {task.size} by the "
            "launcher"
        )

    def prepare(count: int) -> Callable[[], None]:
        ones, total = array("f", [1.0]) * (count // 4), array("f", [0.0]) * (count // 4)

        def reduce() -> None:
            comm.Allreduce([ones, MPI.FLOAT], [total, MPI.FLOAT])

        reduce()
        _check(total[-1], task.size)
        return reduce

    def slowest(value: float) -> float:
        return float(comm.allreduce(value, op=MPI.MAX))

    prepare(SMALL_BYTES)
    connect_s = slowest(time.perf_counter() - began)
    at("connected")
    library = MPI.Get_library_version().splitlines()[0].strip("\0 ,")
    return {**_measure(task, prepare, slowest), "connect_s": connect_s, "library": library}


def _measure(
    task: Task, prepare: Callable[[int], Callable[[], None]], slowest: Callable[[float], float]
) -> dict[str, Any]:
    """Seconds of one all-reduce: the mean of the slowest rank in the best of four batches, which fill `task.seconds`.

    The best batch counts, so that a short disturbance does not make a node look slow; a slow node is slow in all.
    """
    if task.seconds <= 0:
        return {"bytes": SMALL_BYTES, "seconds": 0.0, "times": 1}
    size = task.bytes or _calibrated(task, prepare, slowest)
    reduce = prepare(size)
    one = slowest(_timed(reduce, 1))
    times = max(1, min(1000, int(task.seconds / BATCHES / max(one, 1e-6))))
    best = min(slowest(_timed(reduce, times)) for _ in range(BATCHES))
    return {"bytes": size, "seconds": best, "times": times}


def _calibrated(task: Task, prepare: Callable[[int], Callable[[], None]], slowest: Callable[[float], float]) -> int:
    """The bytes of an all-reduce: GPUs: 1 GiB, since less measures latency. CPUs: whole MiB for a tenth of the time."""
    if task.device >= 0:
        return GPU_BYTES
    one = slowest(_timed(prepare(FIRST_BYTES), 2))
    size = FIRST_BYTES * max(1, int(task.seconds / 10 / max(one, 1e-6)))
    return min(size, MOST_CPU_BYTES)


def _timed(reduce: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        reduce()
    return (time.perf_counter() - start) / times


def _check(got: float, size: int) -> None:
    if got != float(size):
        raise ValueError(f"wrong sum of {size} ones: {got:g}")
