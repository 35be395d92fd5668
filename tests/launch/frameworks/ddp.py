"""Three steps of DistributedDataParallel."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4) * (rank + 1)).square().mean().backward()
    optimizer.step()
total = torch.tensor(rank + 1)
dist.all_reduce(total)
print(f"world {world}, sum {total.item()}", flush=True)
dist.destroy_process_group()
