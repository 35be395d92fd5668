"""Two steps of a model whose parameters are sharded over the ranks."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
total = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(total)
rows = len(next(model.parameters()).to_local())
print(f"world {dist.get_world_size()}, sum {total.item()}, {rows} of 8 rows", flush=True)
dist.destroy_process_group()
