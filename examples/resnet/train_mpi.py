"""ResNet-50 on made-up images over plain MPI: all gradients in one buffer, added up by MPI_Allreduce.

stackyard launch -N 2 --backend mpi examples/resnet/train_mpi.py
"""

from __future__ import annotations

import resnet
import torch
from mpi4py import MPI
from torch import nn

WORLD = MPI.COMM_WORLD


class Ranks:
    """The ranks of MPI_COMM_WORLD."""

    def __init__(self) -> None:
        self.rank, self.size = WORLD.rank, WORLD.size

    def sum(self, values: list[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64).numpy()
        WORLD.Allreduce(MPI.IN_PLACE, total, MPI.SUM)
        return [float(value) for value in total]


def average(model: nn.Module) -> None:
    """Replace every gradient by its mean over the ranks; through this host's memory, so any MPI will do."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    whole = torch.cat([gradient.reshape(-1) for gradient in gradients]).cpu()
    WORLD.Allreduce(MPI.IN_PLACE, whole.numpy(), MPI.SUM)
    whole /= WORLD.size
    parts = whole.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def main() -> None:
    options = resnet.arguments("ResNet over plain MPI").parse_args()
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    model = resnet.build(options, resnet.device(options, node.rank))
    optimizer = resnet.optimizer_for(model, options)
    checkpoint = resnet.Checkpoint(options.checkpoint, model, optimizer)
    resnet.train(options, Ranks(), model, optimizer, checkpoint, lambda: average(model))


if __name__ == "__main__":
    main()
