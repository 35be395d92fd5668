"""All GPUs of this node add up a tensor over NCCL (for AMD GPUs the same name stands for RCCL)."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist


def rank() -> None:
    """One rank: the sum of ones must be the number of ranks."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    ones = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(ones)
    assert ones[0].item() == dist.get_world_size(), ones[0]
    dist.destroy_process_group()


if "RANK" in os.environ:
    rank()
else:
    words = ["torchrun", "--standalone", "--nproc-per-node", "gpu", sys.argv[0]]
    sys.exit(subprocess.run(words, check=False).returncode)
