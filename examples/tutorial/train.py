"""Trains a small network on all ranks, on GPUs or CPUs: the program of docs/tutorial/first-job.md.

    python train.py [--epochs 3] [--fail-on RANK]

Every rank computes on samples of its own, and PyTorch averages the gradients, so that all have the same network.
"""

from __future__ import annotations

import argparse

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train, and print the mean loss of all ranks after each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--fail-on", type=int, help="the rank that fails, to see what is reported then")
    wanted = parser.parse_args()

    distributed.init_process_group()  # reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
    rank, device = distributed.get_rank(), torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", distributed.get_node_local_rank() % torch.cuda.device_count())
    torch.manual_seed(0)
    network = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    samples = torch.randn(2048, 8, generator=torch.Generator().manual_seed(rank)).to(device)
    targets = samples.sin().sum(dim=1, keepdim=True)
    if rank == wanted.fail_on:
        raise SystemExit(3)

    for epoch in range(wanted.epochs):
        for x, y in zip(samples.split(64), targets.split(64), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(x), y)
            loss.backward()
            optimizer.step()
        mean = loss.detach() / distributed.get_world_size()
        distributed.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch} loss {mean.item():.4f} on {distributed.get_world_size()} ranks", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
