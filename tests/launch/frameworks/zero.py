"""Two steps of DeepSpeed."""

import deepspeed
import torch
import torch.distributed as dist

deepspeed.init_distributed("gloo")
model = torch.nn.Linear(4, 1)
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(2):
    engine.backward(engine(torch.ones(2, 4)).square().mean())
    engine.step()
total = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(total)
print(f"world {dist.get_world_size()}, sum {total.item()}", flush=True)
dist.destroy_process_group()
