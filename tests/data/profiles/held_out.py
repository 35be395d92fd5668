"""Five more faults, and two healthy programs, as in planted_ranks.py: written after the rules of causes were fixed.

None has the network, the loop or the fault of those that the rules were made with. The first time four of five were
named; "cpu-bound", many operations of 16 µs, was not, and its rule was changed. The loader was made slower later: two
ranks that take turns to wait for their data were another cause of the same steps where the cores were shared.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import torch
from planted_ranks import RANK, SKIPPED, STEPS, Kinds, main
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

COUNT = STEPS + SKIPPED


class Images(IterableDataset[Any]):
    """Images that are decoded and turned by Python, too slowly for the network."""

    def __init__(self, effort: int) -> None:
        self.effort = effort

    def __iter__(self) -> Iterator[Any]:
        for number in range(COUNT):
            image = torch.full((16, 3, 32, 32), number / COUNT)
            for _ in range(self.effort):
                image = torch.sort(image.flip(3) * 1.01).values
            yield image, torch.arange(16) % 10


def convolutions(*, turned: bool = False) -> nn.Module:
    """A small convolutional network; `turned`: with a change of layout and type before and after each layer."""

    class Turned(nn.Module):
        def forward(self, images: Any) -> Any:
            for _ in range(3):
                images = images.permute(0, 2, 3, 1).contiguous().to(torch.bfloat16)
                images = images.to(torch.float32).permute(0, 3, 1, 2).contiguous()
            return images

    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 16), (16, 16)):
        layers += [*([Turned()] if turned else []), nn.Conv2d(before, after, 1 if turned else 3, padding=0), nn.ReLU()]
    return nn.Sequential(
        *layers, *([Turned()] if turned else []), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )


def classified(model: nn.Module, after: Callable[[], None] = lambda: None) -> Callable[[Any], None]:
    """A step with Adam on images and labels; `after` is what comes at its end."""
    shared, loss = DistributedDataParallel(model), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(shared.parameters())

    def step(batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(shared(batch[0]), batch[1]).backward()
        optimizer.step()
        after()

    return step


def images(size: int = 16, side: int = 32) -> Iterator[Any]:
    """The same batch in every step, without a loader."""
    return repeat((torch.randn(size, 3, side, side), torch.arange(size) % 10))


def starved() -> tuple[Iterator[Any], Callable[[Any], None]]:
    """Two workers of a loader that cannot keep up."""
    return iter(DataLoader(Images(500), None, num_workers=2)), classified(convolutions())


def saving() -> tuple[Iterator[Any], Callable[[Any], None]]:
    """Rank 0 keeps the whole state in every step, in a file that it waits for."""
    state = {f"weights {number}": torch.zeros(200_000) for number in range(10)}

    def keep() -> None:
        if RANK == 0:
            with tempfile.TemporaryFile() as file:
                buffer = io.BytesIO()
                torch.save(state, buffer)
                for letter in range(40):
                    file.write(bytes(byte ^ letter for byte in buffer.getbuffer()[:40_000]))
                os.fsync(file.fileno())

    return images(32), classified(convolutions(), keep)


def unrolled() -> tuple[Iterator[Any], Callable[[Any], None]]:
    """A recurrent cell in a loop of Python over small tensors."""
    cell, loss = DistributedDataParallel(nn.GRUCell(8, 8)), nn.MSELoss()
    optimizer = torch.optim.RMSprop(cell.parameters())

    def step(batch: Any) -> None:
        hidden = torch.zeros(4, 8)
        with cell.no_sync():
            for moment in range(150):
                hidden = cell.module(batch[:, moment], hidden)
        hidden = cell(batch[:, 0], hidden)
        loss(hidden, torch.zeros(4, 8)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return repeat(torch.randn(4, 150, 8)), step


def one_by_one() -> tuple[Iterator[Any], Callable[[Any], None]]:
    """Gradients that are averaged by hand, one exchange for each of many parameters, and then gathered for a log."""
    torch.manual_seed(2)
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(40)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(batch: Any) -> None:
        model(batch).square().mean().backward()
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
            parts = [torch.empty_like(parameter.grad) for _ in range(2)]
            distributed.all_gather(parts, parameter.grad)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return repeat(torch.randn(8, 256)), step


def attention() -> tuple[Iterator[Any], Callable[[Any], None]]:
    """A transformer that is busy with its matrices."""
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return repeat(torch.randn(24, 96, 128)), step


KINDS: Kinds = {
    "slow-loader": starved,
    "slow-rank": saving,
    "cpu-bound": unrolled,
    "communication": one_by_one,
    "copies": lambda: (images(64), classified(convolutions(turned=True))),
    "healthy-attention": attention,
    "healthy-images": lambda: (images(128, 64), classified(convolutions())),
}

if __name__ == "__main__":
    main(KINDS)
