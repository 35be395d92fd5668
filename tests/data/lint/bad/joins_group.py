"""A program that leaves its place in the process group to the environment."""

import torch.distributed as dist

dist.init_process_group("nccl")
