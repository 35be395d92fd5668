"""ResNet-50 on made-up images with Horovod, over MPI or Gloo.

stackyard launch -N 2 --backend horovod examples/resnet/train_horovod.py
"""

from __future__ import annotations

import horovod.torch as hvd
import resnet
import torch


class Ranks:
    """The ranks that Horovod found."""

    def __init__(self) -> None:
        self.rank, self.size = hvd.rank(), hvd.size()

    def sum(self, values: list[float]) -> list[float]:
        return [float(value) for value in hvd.allreduce(torch.tensor(values, dtype=torch.float64), op=hvd.Sum)]


def main() -> None:
    options = resnet.arguments("ResNet with Horovod").parse_args()
    hvd.init()
    group = Ranks()
    model = resnet.build(options, resnet.device(options, hvd.local_rank()))
    plain = resnet.optimizer_for(model, options)
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    resnet.train(options, group, model, optimizer, resnet.Checkpoint(options.checkpoint, model, plain))
    hvd.shutdown()


if __name__ == "__main__":
    main()
