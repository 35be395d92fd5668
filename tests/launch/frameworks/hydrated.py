"""A program of Hydra that trains by torch."""

import hydra
import torch
import torch.distributed as dist


@hydra.main(version_base=None, config_path=None)
def main(config) -> None:
    dist.init_process_group("gloo")
    total = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(total)
    print(f"world {dist.get_world_size()}, sum {total.item()}, x {config.x}", flush=True)
    dist.destroy_process_group()


main()
