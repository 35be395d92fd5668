"""Epochs of Lightning; with `requeue`, it gets the signal of a time limit in the second one of the first start."""

import os
import signal
import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        if "requeue" in sys.argv and self.current_epoch == 1 and index == 0 and "SLURM_RESTART_COUNT" not in os.environ:
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(300):  # the job is requeued; without a wait these few steps may end before
                time.sleep(0 if self.trainer.received_sigterm else 0.2)
        return self.layer(batch).square().mean()

    def on_train_start(self) -> None:
        print("begins at epoch", self.current_epoch, flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
trainer = Trainer(accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=3, **quiet)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
total = trainer.strategy.reduce(torch.tensor(trainer.global_rank + 1.0), reduce_op="sum")
print(f"world {trainer.world_size}, sum {total.item():.0f}", flush=True)
torch.distributed.destroy_process_group()  # else its threads may abort the process at exit
