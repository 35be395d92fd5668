"""A program with four devices."""

import lightning

trainer = lightning.Trainer(devices=4, num_nodes=1)
