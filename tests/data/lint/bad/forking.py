"""A Horovod program whose data loader forks."""

import horovod.torch as hvd
import torch

hvd.init()
loader = torch.utils.data.DataLoader(range(8), batch_size=2, num_workers=4)
