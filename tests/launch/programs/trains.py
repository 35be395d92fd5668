"""Trains two ranks until a file appears; as unchanged as a program of users is."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
go = torch.ones(1)
while go[0] > 0:
    optimizer.zero_grad()
    model(torch.randn(64, 64)).pow(2).mean().backward()
    optimizer.step()
    open(f"{sys.argv[1]}.up", "w").close()
    time.sleep(0.02)
    go[0] = not os.path.exists(sys.argv[1])
    dist.broadcast(go, 0)
