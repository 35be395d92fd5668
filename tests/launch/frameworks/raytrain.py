"""Two workers of Ray Train, one on each node."""

import os

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train(config) -> None:
    import torch
    import torch.distributed as dist

    total = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        with open(config["file"], "w") as file:
            file.write(f"world {dist.get_world_size()}, sum {total.item()}")


here = os.getcwd()
ray.init(logging_level="ERROR")
scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_SPREAD")
TorchTrainer(
    train,
    train_loop_config={"file": f"{here}/seen"},
    torch_config=TorchConfig("gloo"),
    scaling_config=scaling,
    run_config=RunConfig(storage_path=f"{here}/ray"),
).fit()
with open(f"{here}/seen") as file:
    print(file.read(), flush=True)
