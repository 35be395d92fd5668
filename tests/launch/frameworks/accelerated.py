"""A reduction by accelerate."""

import torch
from accelerate import Accelerator

accelerator = Accelerator()
total = accelerator.reduce(torch.tensor(accelerator.process_index + 1))
print(f"world {accelerator.num_processes}, sum {total.item()}", flush=True)
accelerator.end_training()
