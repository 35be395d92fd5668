"""A program that uses one GPU."""

import torch

model = torch.nn.Linear(8, 8).cuda()
