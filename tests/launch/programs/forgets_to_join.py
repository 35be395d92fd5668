"""Rank 1 does not join the all-reduce 17; a worker of a DataLoader waits on each rank."""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index > 3:
            worker_is_stuck_here()
        return torch.ones(2)


def worker_is_stuck_here():
    time.sleep(300)


def forgets_to_join():
    time.sleep(300)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = iter(DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1]))
    next(loader)
    group = dist.new_group([0, 1])
    for _ in range(16):
        dist.all_reduce(torch.ones(10))
    open(f"{sys.argv[2]}/up.{rank}", "w").close()
    if rank == 1:
        forgets_to_join()
    dist.all_reduce(torch.ones(10))
