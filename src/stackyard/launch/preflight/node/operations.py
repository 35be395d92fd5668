"""Collective operations over torch.distributed and over MPI: prepared, run, and checked element by element.

Shared by the preflight, which times the best batch, and by `iterations`, which times each iteration. The data are
small whole numbers with a period of `PERIOD`, so that every sum is exact in single precision (up to 2^24).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

ITEM = 4
"""Bytes of an element: single precision."""
PERIOD = 64
CHUNK = 1 << 20
"""Elements that are filled or checked at a time, a multiple of the period."""
UNTOUCHED = [-1.0] * PERIOD


class Kind(NamedTuple):
    """A row of `KINDS`.

    `per_rank`: the size in bytes is that of all ranks' parts together; `sends`, `receives`: whether a buffer has a part
    for each rank; `redop` and `root` as nccl-tests prints them; `bus(n)`: the factor of the bus bandwidth.
    """

    bus: Callable[[int], float]
    per_rank: bool = False
    sends: bool = False
    receives: bool = False
    redop: str = "none"
    root: int = -1


KINDS = {
    "all_reduce": Kind(lambda n: 2 * (n - 1) / n, redop="sum"),
    "all_gather": Kind(lambda n: (n - 1) / n, per_rank=True, receives=True),
    "reduce_scatter": Kind(lambda n: (n - 1) / n, per_rank=True, sends=True, redop="sum"),
    "all_to_all": Kind(lambda n: (n - 1) / n, per_rank=True, sends=True, receives=True),
    "broadcast": Kind(lambda n: 1.0, root=0),
    "send_recv": Kind(lambda n: 1.0, redop="sum"),
}
"""The operations. busbw = size / time x bus(n) (nccl-tests, doc/PERFORMANCE.md); send_recv is a ring."""


def count_of(operation: str, size: int, ranks: int) -> int:
    """Elements of each rank's part for a size in bytes; parts of a total are multiples of 16 bytes (nccl-tests)."""
    if not KINDS[operation].per_rank:
        return size // ITEM
    return size // ITEM // ranks // 4 * 4


def size_of(operation: str, count: int, ranks: int) -> int:
    """The size in bytes, as nccl-tests counts it, of a part of `count` elements."""
    return count * ITEM * (ranks if KINDS[operation].per_rank else 1)


def buffer_bytes(operation: str, count: int, ranks: int) -> int:
    """Bytes of both buffers of a rank."""
    kind = KINDS[operation]
    return count * ITEM * ((ranks if kind.sends else 1) + (ranks if kind.receives else 1))


NAMES = {
    "all_reduce": ("all_reduce",),
    "all_gather": ("all_gather_single", "all_gather_into_tensor", "_all_gather_base"),
    "reduce_scatter": ("reduce_scatter_single", "reduce_scatter_tensor", "_reduce_scatter_base"),
    "all_to_all": ("all_to_all_single",),
    "broadcast": ("broadcast",),
    "send_recv": ("batch_isend_irecv",),
}
"""The functions of torch.distributed, the newest names first: torch 2.13 warns of older ones."""


class Prepared(NamedTuple):
    """An operation with its buffers: `run` it once; `wrong` runs it on fresh data and counts this rank's bad values."""

    run: Callable[[], Any]
    wrong: Callable[[], int]


class TorchGroup:
    """A process group of torch.distributed: gloo on CPUs; nccl on GPUs, which is RCCL on AMD."""

    in_place = ("all_reduce", "broadcast")

    def __init__(
        self, torch: Any, backend: str, address: str, rank: int, size: int, device: int, limit_s: float
    ) -> None:
        self.torch, self.dist, self.rank, self.size, self.device = torch, torch.distributed, rank, size, device
        self.where = "cpu"
        if device >= 0:
            torch.cuda.set_device(device)
            self.where = f"cuda:{device}"
        self.dist.init_process_group(
            backend, init_method=address, rank=rank, world_size=size, timeout=timedelta(seconds=limit_s)
        )

    def made(self, count: int) -> Any:
        """A buffer of zeros."""
        return self.torch.zeros(count, device=self.where)

    def tile(self, period: list[float], count: int) -> Any:
        """At least `count` elements of repeated data."""
        return self.torch.tensor(period, device=self.where).repeat(-(-count // PERIOD))

    def differing(self, a: Any, b: Any) -> int:
        """How many elements differ."""
        return int((a != b).sum())

    def call(self, operation: str, sent: Any, received: Any) -> Callable[[], Any]:
        """The operation on these buffers. Raises NotImplementedError if this torch lacks it."""
        name = next((name for name in NAMES[operation] if hasattr(self.dist, name)), "")
        if not name:
            raise NotImplementedError(f"torch {self.torch.__version__} has none of {', '.join(NAMES[operation])}")
        run, words = getattr(self.dist, name), {"all_reduce": (received,), "broadcast": (received, 0)}
        arguments = words.get(operation, (received, sent))
        if operation == "send_recv":
            peers = (self.dist.isend, sent, (self.rank + 1) % self.size), (self.dist.irecv, received, self.rank - 1)
            ring = [self.dist.P2POp(function, data, peer % self.size) for function, data, peer in peers]
            return self._to_end(lambda: [request.wait() for request in run(ring)])
        return self._to_end(lambda: run(*arguments))

    def _to_end(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """With GPUs, `run` and wait for its end: their operations are only queued."""
        if self.device < 0:
            return run
        return lambda: (run(), self.torch.cuda.synchronize(self.device))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.barrier()

    def slowest(self, value: float) -> float:
        """The largest of all ranks' values."""
        shared = self.torch.tensor([value], device=self.where, dtype=self.torch.float32)
        self.dist.all_reduce(shared, op=self.dist.ReduceOp.MAX)
        return float(shared[0])

    def everyone(self, value: Any) -> list[Any]:
        """All ranks' values, by rank."""
        values: list[Any] = [None] * self.size
        self.dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        """Leave the group."""
        self.dist.destroy_process_group()


class MpiGroup:
    """MPI_COMM_WORLD. Raises ImportError without mpi4py, ValueError if the launcher and MPI disagree on the ranks."""

    in_place = ("broadcast",)

    def __init__(self, rank: int, size: int) -> None:
        from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

        self.mpi, self.comm, self.rank, self.size = MPI, MPI.COMM_WORLD, rank, size
        own = self.comm.Get_rank(), self.comm.Get_size()
        if own != (rank, size):
            raise ValueError(f"PMI mismatch: rank {own[0]} of {own[1]} in MPI, rank {rank} of {size} by the launcher")
        self.library = MPI.Get_library_version().splitlines()[0].strip("\0 ,")

    def made(self, count: int) -> Any:
        """A buffer of zeros."""
        return array("f", [0.0]) * count

    def tile(self, period: list[float], count: int) -> Any:
        """At least `count` elements of repeated data."""
        return array("f", period) * -(-count // PERIOD)

    def differing(self, a: Any, b: Any) -> int:
        """How many elements differ."""
        return 0 if a == b else sum(map(float.__ne__, a, b))

    def call(self, operation: str, sent: Any, received: Any) -> Callable[[], Any]:
        """The operation on these buffers."""
        comm, to, at = self.comm, [sent, self.mpi.FLOAT], [received, self.mpi.FLOAT]
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: comm.Allreduce(to, at),
            "all_gather": lambda: comm.Allgather(to, at),
            "reduce_scatter": lambda: comm.Reduce_scatter_block(to, at),
            "all_to_all": lambda: comm.Alltoall(to, at),
            "broadcast": lambda: comm.Bcast(at, 0),
            "send_recv": lambda: comm.Sendrecv(to, after, 0, at, before, 0),
        }
        return calls[operation]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.Barrier()

    def slowest(self, value: float) -> float:
        """The largest of all ranks' values."""
        return float(self.comm.allreduce(value, op=self.mpi.MAX))

    def everyone(self, value: Any) -> list[Any]:
        """All ranks' values, by rank."""
        values: list[Any] = self.comm.allgather(value)
        return values

    def close(self) -> None:
        """Nothing: mpi4py leaves MPI when Python exits."""


def prepare(group: Any, operation: str, count: int) -> Prepared:
    """Buffers for an operation on parts of `count` elements.

    Raises:
        NotImplementedError: the group does not have the operation. Running it may raise whatever the library raises.
    """
    n, rank, kind = group.size, group.rank, KINDS[operation]
    is_in_place = operation in group.in_place
    sent = group.made(count * n if kind.sends else count)
    received = sent if is_in_place else group.made(count * n if kind.receives else count)
    run = group.call(operation, sent, received)
    parts = _wanted(operation, rank, n, count)

    def wrong() -> int:
        _fill(group, received, UNTOUCHED)
        if operation != "broadcast" or rank == 0:
            _fill(group, sent, _ramp(rank))
        run()
        bad = sum(_differing(group, received, at * count, count, part) for at, part in enumerate(parts))
        if is_in_place:
            _fill(group, sent, [0.0] * PERIOD)  # sums of sums would grow beyond all numbers
        return bad

    return Prepared(run, wrong)


def _ramp(start: int) -> list[float]:
    """One period of a rank's data: element i of rank r is (r + i) modulo the period."""
    return [float((start + i) % PERIOD) for i in range(PERIOD)]


def _sums(ranks: int, first: int) -> list[float]:
    """One period of the sum over all ranks, from element `first` on."""
    whole = ranks // PERIOD * (PERIOD * (PERIOD - 1) // 2)
    return [float(whole + sum((r + first + i) % PERIOD for r in range(ranks % PERIOD))) for i in range(PERIOD)]


def _wanted(operation: str, rank: int, n: int, count: int) -> list[list[float]]:
    """What a rank receives, one period for each part of `count` elements."""
    if operation in ("all_reduce", "reduce_scatter"):
        return [_sums(n, rank * count if operation == "reduce_scatter" else 0)]
    if operation in ("all_gather", "all_to_all"):
        first = rank * count if operation == "all_to_all" else 0
        return [_ramp(other + first) for other in range(n)]
    return [_ramp((rank - 1) % n if operation == "send_recv" else 0)]


def _fill(group: Any, buffer: Any, period: list[float]) -> None:
    tile = group.tile(period, min(len(buffer), CHUNK))
    for at in range(0, len(buffer), CHUNK):
        end = min(at + CHUNK, len(buffer))
        buffer[at:end] = tile[: end - at]


def _differing(group: Any, buffer: Any, first: int, count: int, period: list[float]) -> int:
    tile = group.tile(period, min(count, CHUNK))
    spans = ((at, min(at + CHUNK, count)) for at in range(0, count, CHUNK))
    return sum(group.differing(buffer[first + a : first + b], tile[: b - a]) for a, b in spans)
