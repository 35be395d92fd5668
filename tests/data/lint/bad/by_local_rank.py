"""A program that takes the GPU of its local rank."""

import os

import torch
import torch.distributed as dist

local_rank = int(os.environ["SLURM_LOCALID"])
dist.init_process_group("nccl")
torch.cuda.set_device(local_rank)
