"""The start of a Megatron-style program: its groups, from RANK, WORLD_SIZE and LOCAL_RANK alone."""

import os

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local = int(os.getenv("LOCAL_RANK", "0"))
dist.init_process_group("gloo", world_size=world, rank=rank)
tensor_parallel = dist.new_group(range(world))
total = torch.tensor(rank + 1)
dist.all_reduce(total, group=tensor_parallel)
print(f"world {world}, sum {total.item()}, local rank {local}", flush=True)
dist.destroy_process_group()
