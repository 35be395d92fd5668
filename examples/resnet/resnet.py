"""ResNet with bottleneck blocks on made-up images, and the loop that trains it, whoever adds up the gradients.

Group normalisation takes the place of batch normalisation: its result does not depend on which samples meet on a rank.
A sample follows from its index alone, and every rank takes its part of the same global batch; so the losses of any
number of ranks agree, up to the order of floating-point sums.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

BLOCKS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""Blocks in each of the four stages by depth; 50, 101 and 152 as in He et al., arXiv:1512.03385, table 1."""

EXPANSION = 4


def norm(channels: int) -> nn.GroupNorm:
    """Normalisation over groups of channels: 32, as in Wu and He, arXiv:1803.08494, or as many as divide them."""
    return nn.GroupNorm(next(groups for groups in (32, 16, 8, 4, 2, 1) if channels % groups == 0), channels)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the stride is in the 3x3 convolution."""

    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        leaving = width * EXPANSION
        last = norm(leaving)
        self.body = nn.Sequential(
            nn.Conv2d(entering, width, 1, bias=False), norm(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), norm(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, leaving, 1, bias=False), last,
        )  # fmt: skip
        # a block begins as its shortcut (Goyal et al., arXiv:1706.02677, 5.1); it also keeps rounding from growing
        nn.init.zeros_(last.weight)
        straight = entering == leaving and stride == 1
        self.shortcut: nn.Module = (
            nn.Identity()
            if straight
            else nn.Sequential(nn.Conv2d(entering, leaving, 1, stride, bias=False), norm(leaving))
        )

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.body(images) + self.shortcut(images))


def resnet(depth: int = 50, width: int = 64, classes: int = 1000) -> nn.Sequential:
    """The model; 50, 64 and 1000 make the usual ResNet-50 with its 25.6 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), norm(width), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]  # fmt: skip
    entering = width
    for stage, blocks in enumerate(BLOCKS[depth]):
        for block in range(blocks):
            layers.append(Bottleneck(entering, width << stage, stride=2 if stage and not block else 1))
            entering = (width << stage) * EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(entering, classes))


class Samples(Dataset[tuple[Tensor, int]]):
    """Images that follow from their index: a pattern of their class under noise."""

    def __init__(self, indices: range, image_size: int, classes: int, seed: int) -> None:
        self.indices, self.image_size, self.classes, self.seed = indices, image_size, classes, seed

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        index = self.indices[position]
        label = index * 7919 % self.classes
        return self._noise(label) + 0.5 * self._noise(self.classes + index), label

    def _noise(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        return torch.randn(3, self.image_size, self.image_size, generator=generator)


def batches(options: argparse.Namespace, rank: int, size: int, first_step: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Every step from the first one that is missing, with this rank's part of the global batch."""
    if options.batch % size or options.samples % options.batch:
        raise SystemExit(f"--samples {options.samples}, --batch {options.batch} and {size} ranks must divide evenly")
    part, per_epoch = options.batch // size, options.samples // options.batch
    for step in range(first_step, options.steps or options.epochs * per_epoch):
        begin = step % per_epoch * options.batch + rank * part
        samples = Samples(range(begin, begin + part), options.image_size, options.classes, options.seed)
        # fork after an MPI or a GPU library has started threads is unsafe, so workers come from a clean server
        start = "forkserver" if options.workers else None
        images, labels = next(
            iter(DataLoader(samples, part, num_workers=options.workers, multiprocessing_context=start))
        )
        yield step, images, labels


class Group(Protocol):
    """The ranks that train together."""

    rank: int
    size: int

    def sum(self, values: list[float]) -> list[float]:
        """Each value added up over all ranks, on all ranks."""


class Alone:
    """One rank."""

    rank, size = 0, 1

    def sum(self, values: list[float]) -> list[float]:
        return values


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all programs share; the defaults are ResNet-50 on images of 224 x 224."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--depth", type=int, default=50, choices=BLOCKS)
    add("--width", type=int, default=64, help="channels of the first stage")
    add("--image-size", type=int, default=224)
    add("--classes", type=int, default=1000)
    add("--batch", type=int, default=64, help="samples of one step, over all ranks")
    add("--samples", type=int, default=1280, help="samples of one epoch")
    add("--epochs", type=int, default=1)
    add("--steps", type=int, help="how many steps, instead of whole epochs")
    add("--lr", type=float, default=0.05)
    add("--seed", type=int, default=1)
    add("--workers", type=int, default=0, help="processes that make the samples")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    add("--checkpoint", type=Path, help="resume from this file; written there at SIGUSR1 and at the end")
    return parser


def device(options: argparse.Namespace, local_rank: int) -> torch.device:
    """This rank's device; where the launcher shows a rank one GPU only, that is number 0 for every rank."""
    if options.device == "cpu":
        return torch.device("cpu")
    found = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else local_rank)
    torch.cuda.set_device(found)
    return found


def build(options: argparse.Namespace, where: torch.device) -> nn.Module:
    """The model with the same first weights on every rank."""
    torch.manual_seed(options.seed)
    return resnet(options.depth, options.width, options.classes).to(where)


def optimizer_for(model: nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    """Stochastic gradient descent as ResNets are trained."""
    return torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)


def say(group: Group, **values: Any) -> None:
    """One line of JSON from rank 0, in one write."""
    if group.rank == 0:
        print(json.dumps(values), flush=True)


class Checkpoint:
    """Weights, optimizer and step in one file, replaced as a whole; asked for by SIGUSR1."""

    def __init__(self, path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.path, self.model, self.optimizer = path, model, optimizer
        self.asked = False
        if path:
            signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True

    def load(self) -> int:
        """The step to go on with: 0 where there is no file."""
        if self.path is None or not self.path.exists():
            return 0
        kept = torch.load(self.path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        return int(kept["step"])

    def save(self, step: int) -> None:
        """Write the file; one rank calls it."""
        self.asked = False
        if self.path is not None:
            scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            values = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": step}
            torch.save(values, scratch)
            scratch.replace(self.path)


def train(
    options: argparse.Namespace,
    group: Group,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    checkpoint: Checkpoint,
    exchange: Callable[[], None] = lambda: None,
) -> None:
    """Train to the last step; rank 0 prints a line at the start, one for every step and one at the end.

    Args:
        model: on its device; what it is called with is this rank's images.
        checkpoint: already able to load into model and optimizer.
        exchange: averages the gradients over the ranks, where model and optimizer do not do so by themselves.
    """
    first = checkpoint.load()
    where = next(model.parameters()).device
    say(group, start=first, ranks=group.size, host=socket.gethostname(), device=str(where), torch=torch.__version__)
    step = first - 1
    for step, images, labels in batches(options, group.rank, group.size, first):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images.to(where)), labels.to(where))
        loss.backward()
        exchange()
        optimizer.step()
        total, asked = group.sum([loss.item(), float(checkpoint.asked)])
        seconds = time.perf_counter() - began
        say(group, step=step, loss=total / group.size, seconds=round(seconds, 4),
            images_per_s=round(options.batch / seconds, 1))  # fmt: skip
        if asked:
            if group.rank == 0:
                checkpoint.save(step + 1)
            say(group, saved=step + 1)
    if group.rank == 0:
        checkpoint.save(step + 1)
    say(group, done=step + 1)
