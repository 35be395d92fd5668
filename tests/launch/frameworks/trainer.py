"""Two steps of the Trainer of transformers on a model of a few hundred parameters."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
rows = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(0)} for _ in range(8)]
arguments = TrainingArguments("out", max_steps=2, per_device_train_batch_size=2, report_to=[], save_strategy="no")
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
trainer.train()
total = trainer.accelerator.reduce(torch.tensor(arguments.process_index + 1))
print(f"world {arguments.world_size}, sum {total.item()}", flush=True)
trainer.accelerator.end_training()
