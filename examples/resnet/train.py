"""ResNet-50 on made-up images with PyTorch's DistributedDataParallel; ranks come from RANK, WORLD_SIZE, MASTER_ADDR ...

stackyard launch -N 2 examples/resnet/train.py --epochs 3
"""

from __future__ import annotations

import gc
import os

import resnet
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


class Ranks:
    """The process group that torch.distributed made."""

    def __init__(self, where: torch.device) -> None:
        self.rank, self.size, self.where = distributed.get_rank(), distributed.get_world_size(), where

    def sum(self, values: list[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64, device=self.where)
        distributed.all_reduce(total)
        return [float(value) for value in total]


def main() -> None:
    parser = resnet.arguments("ResNet with DistributedDataParallel")
    parser.add_argument("--backend", choices=("gloo", "nccl", "mpi"), help="default: nccl on GPUs, gloo on CPUs")
    options = parser.parse_args()
    where = resnet.device(options, int(os.environ.get("LOCAL_RANK", "0")))
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group(options.backend or ("nccl" if where.type == "cuda" else "gloo"))
        group: resnet.Group = Ranks(where)
    else:
        group = resnet.Alone()
    model = resnet.build(options, where)
    optimizer = resnet.optimizer_for(model, options)
    checkpoint = resnet.Checkpoint(options.checkpoint, model, optimizer)
    resnet.train(options, group, DistributedDataParallel(model) if group.size > 1 else model, optimizer, checkpoint)
    leave()


def leave() -> None:
    """End the process group while Python still runs, on all ranks together.

    Left to the end of the program, threads of Gloo are taken down while they still wait for a peer, and the rank ends
    with SIGABRT ("terminate called without an active exception"): seen with PyTorch 2.13 under a bare srun in three of
    five runs of six ranks, and in one of five without the collection and the barrier.
    """
    if distributed.is_initialized():
        gc.collect()  # DistributedDataParallel holds the group, in a cycle of references
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
