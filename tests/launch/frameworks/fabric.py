"""A reduction by Lightning Fabric."""

import torch
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cpu", devices=1, num_nodes=2, strategy="ddp")
fabric.launch()
total = fabric.all_reduce(torch.tensor(fabric.global_rank + 1.0), reduce_op="sum")
print(f"world {fabric.world_size}, sum {total.item():.0f}", flush=True)
torch.distributed.destroy_process_group()  # else its threads may abort the process at exit
