"""A program of two ranks under PyTorch's profiler: ``planted_ranks.py OUTPUT KIND ...``, one kind after the other.

A kind is a fault that is planted, or none. The trace of a rank is in ``OUTPUT/KIND/rank-00000.pt.trace.json.gz``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS, SKIPPED = 12, 2
RANK = int(os.environ["RANK"])


class Samples(Dataset[int]):
    """Numbers; each takes some time to load."""

    def __init__(self, count: int, load_s: float) -> None:
        self.count, self.load_s = count, load_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if self.load_s:
            time.sleep(self.load_s)
        return index


def batches(size: int, width: int, load_s: float = 0, workers: int = 0) -> Iterator[Any]:
    """The batches of all steps, from a DataLoader."""
    samples = Samples(size * (STEPS + SKIPPED + 1), load_s)
    return iter(DataLoader(samples, size, num_workers=workers, collate_fn=lambda _: torch.randn(size, width)))


def network(width: int, depth: int = 4) -> Any:
    """Linear layers, the same on all ranks."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return DistributedDataParallel(torch.nn.Sequential(*layers))


def trained(model: Any, change: Callable[[Any], Any] = lambda batch: batch) -> Callable[[Any], None]:
    """A step of training; `change` is what is done to a batch before."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        model(change(batch)).pow(2).mean().backward()
        optimizer.step()

    return step


def counted(batch: Any) -> Any:
    """Python that computes."""
    total = 0
    for number in range(1_200_000):
        total += number * number
    return batch


def turned(batch: Any) -> Any:
    """The same batch, in other types and layouts on the way."""
    for _ in range(100):
        batch = batch.to(torch.float64).t().contiguous().t().contiguous().to(torch.float32)
    return batch


def more_work(batch: Any) -> Any:
    """The same batch; on rank 1 after some more work."""
    for _ in range(40 * RANK):
        batch = batch + 0 * (batch @ batch.T @ batch)
    return batch


def exchanged(batch: Any) -> Any:
    """The same batch, after the ranks have exchanged much more than their gradients."""
    distributed.all_reduce(torch.zeros(16_000_000))
    return batch


Kinds = dict[str, Callable[[], tuple[Iterator[Any], Callable[[Any], None]]]]
KINDS: Kinds = {
    "healthy": lambda: (batches(768, 384), trained(network(384))),
    "healthy-workers": lambda: (batches(768, 384, workers=1), trained(network(384))),
    "slow-loader": lambda: (batches(128, 256, load_s=0.001), trained(network(256))),
    "slow-rank": lambda: (batches(256, 384), trained(network(384), more_work)),
    "cpu-bound": lambda: (batches(256, 256), trained(network(256), counted)),
    "communication": lambda: (batches(64, 256), trained(network(256), exchanged)),
    "copies": lambda: (batches(512, 512), trained(network(512, 1), turned)),
}


def traced(kinds: Kinds, kind: str, output: Path) -> None:
    """Train some steps of a kind, and trace the last of them."""
    loaded, step = kinds[kind]()
    schedule = torch.profiler.schedule(skip_first=SKIPPED - 1, wait=0, warmup=1, active=STEPS, repeat=1)
    output.mkdir(parents=True, exist_ok=True)
    file = output / f"rank-{RANK:05d}.pt.trace.json.gz"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule,
        profile_memory=kind == "copies", on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(file)),
    ) as profiler:  # fmt: skip
        for _ in range(STEPS + SKIPPED):
            step(next(loaded))
            profiler.step()
    distributed.barrier()


def main(kinds: Kinds) -> None:
    """Every kind that is named, in its order; both ranks on one core, so that what else runs disturbs both alike."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    for kind in sys.argv[2:]:
        traced(kinds, kind, Path(sys.argv[1]) / kind)
    distributed.destroy_process_group()
    os._exit(0)  # torch 2.13 with gloo sometimes aborts in its exit handlers where a rank has one core


if __name__ == "__main__":
    main(KINDS)
