"""Lines as twenty public logs have them, in short, with the number that a person reads in each.

Where the form was seen: issues 466, 712, 2739 of horovod/horovod, 232 of tensorflow/benchmarks, 4225, 4404 of
Lightning-AI/pytorch-lightning, 19 of CompRhys/roost, 7 of microsoft/huggingface-transformers, 11 of
epfLLM/Megatron-LLM, and READMEs. The second ten were looked for after the readers had been written.
"""

from __future__ import annotations


def bars(count: int, total: int, per_second: float, label: str = "", shown: str = "9.99it/s") -> str:
    """The refreshes of a progress bar that returns to the start of its line."""
    lines = []
    for done in range(1, count + 1):
        minutes, seconds = divmod(int(done / per_second), 60)
        part = f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else f"{minutes:02d}"
        lines.append(f"\r{label}{done * 100 // total:3d}%|██▌   | {done}/{total} [{part}:{seconds:02d}<01:02, {shown}]")
    return "".join(lines)


def megatron(first: int, count: int, rest: str = "") -> str:
    """Lines of Megatron-LM, one an iteration."""
    return "".join(
        f" iteration {i:8d}/  250000 | consumed samples: {i * 512:12d} |"
        f" elapsed time per iteration (ms): 4{i % 3}00.0 | learning rate: 1.365E-05 |"
        f" global batch size:   512 | lm loss: 2.38E+00 |{rest}\n"
        for i in range(first, first + count)
    )


KNOWN: dict[str, tuple[str, str, float]] = {
    "Horovod on GPUs": (
        "Iter #9: 108.3 img/sec per GPU\nImg/sec per GPU: 108.2 +-1.2\nTotal img/sec on 4 GPU(s): 432.8 +-4.9 \n",
        "images_per_s", 432.8),
    "Horovod on CPUs": (
        "Iter #9: 5.8 img/sec per CPU\nImg/sec per CPU: 5.7 +-0.1\nTotal img/sec on 2 CPU(s): 11.4 +-0.2\n",
        "images_per_s_per_cpu", 5.7),
    "tf_cnn_benchmarks": (
        "Step\tImg/sec\ttotal_loss\n1\timages/sec: 205.3 +/- 0.0 (jitter = 0.0)\t9.1\ntotal images/sec: 204.75\n",
        "images_per_s", 204.75),
    "a diverged tf_cnn_benchmarks": (
        "80\timages/sec: 120.3 +/- 1.8 (jitter = 10.5)\tnan\n----\ntotal images/sec: 513.40\n----\n",
        "images_per_s", 513.4),
    "Lightning, three epochs": (
        "Training: 0it [00:00, ?it/s]\nSanity Checking DataLoader 0: 100%|██| 2/2 [00:00<00:00, 99.0it/s]\n"
        + "".join(bars(18, 18, 0.25, f"Epoch {epoch}: ", " 4.47s/it, loss=9.9, v_num=1") for epoch in range(3)),
        "iterations_per_s", 0.25),
    "Lightning, its last line": (
        "Epoch 1: 100%|████| 1017/1017 [00:09<00:00, 100.37it/s, loss=0.336, v_num=24, acc=0.143Exception ignored in\n",
        "iterations_per_s", 100.37),
    "tqdm beside the bar of a reader": (
        f"Reading file x.gz: 0it [00:26, ?it/s]\nDecoding: 900it [09:00,  1.6it/s]\n{bars(32, 32, 0.5)}\n",
        "iterations_per_s", 0.5),
    "Trainer": (
        bars(120, 120, 2) + "\n{'train_runtime': 60.2, 'train_samples_per_second': 57.063, 'train_loss': 0.5}\n",
        "train_samples_per_second", 57.063),
    "Trainer, its table": (
        "***** train metrics *****\n  train_runtime            = 0:01:13.52\n  train_samples_per_second =     27.489\n",
        "train_runtime", 73.52),
    "Megatron-LM": (megatron(182, 30), "samples_per_s", 512 / 4.1),
    # these ten were held back
    "Horovod below mpirun": (
        "[1,0]<stdout>:Img/sec per GPU: 600.0 +-3.8\n[1,0]<stdout>:Total img/sec on 8 GPU(s): 4800.1 +-30.3\n",
        "images_per_s", 4800.1),
    "tf_cnn_benchmarks with blanks": (
        "60  images/sec: 237.8 +/- 1.3 (jitter = 1.2)  8.115\n-\ntotal images/sec: 238.68\n", "images_per_s", 238.68),
    "Trainer with a bar at its end": (
        "{'train_runtime': 248.4568, 'train_samples_per_second': 12.477, 'train_steps_per_second': 0.805}\n"
        "100%|████████| 200/200 [04:08<00:00,  1.24s/it]\n2025-04-01 15:45:26,813 - INFO - saved\n",
        "train_samples_per_second", 12.477),
    "Trainer on nodes that share a log": (
        "10.0.0.7: {'train_runtime': 922.04, 'train_samples_per_second': 183.36, 'train_loss': 0.23}\n"
        "10.0.0.8: {'train_runtime': 922.12, 'train_samples_per_second': 183.34, 'train_loss': 0.23}\n",
        "train_samples_per_second", 183.34),
    "a Trainer's coloured table": (
        "\x1b[32m[2022-08-31 16:24:54,981] [    INFO]\x1b[0m -   train_samples_per_second =    891.178\x1b[0m\n",
        "train_samples_per_second", 891.178),
    "Lightning, the ends of epochs": (
        "Epoch 0: 100%|██████████| 311/311 [00:13<00:00, 23.54it/s, v_num=4]\n"
        "Epoch 1: 100%|██████████| 311/311 [00:13<00:00, 23.69it/s, v_num=4]\n"
        "Testing DataLoader 0: 100%|██████████| 133/133 [00:07<00:00, 17.44it/s]\n", "iterations_per_s", 23.69),
    "Lightning with rich": (
        "Epoch 0/23 ━━━━━━━━━━━━━━━━━━ 98/98 0:00:22 • 0:00:00 4.44it/s v_num: 0 train/loss: 1.559\n"
        "                                                                        train/acc: 0.399\n"
        "Epoch 1/23 ━━━━━━━━━━━━━━━━━━ 98/98 0:00:25 • 0:00:00 4.00it/s v_num: 0 train/loss: 1.2\n",
        "iterations_per_s", 98 / 25),
    "tqdm, the ends of epochs": (
        "Epoch 1/10: 100%|██████| 40/40 [01:25<00:00,  2.14s/it, loss=3.3562, acc=37.88%]\n"
        "Epoch 1/10 - Train Loss: 3.3562, Test Acc: 59.38%\n"
        "Epoch 2/10: 100%|██████| 40/40 [01:22<00:00,  2.07s/it, loss=2.0977, acc=54.86%]\n",
        "iterations_per_s", 40 / 82),
    "Megatron-LM below torchrun": (
        "[default0]: [2025-05-27 15:23:07] iteration        1/    24000 | elapsed time per iteration (ms): 271607.0 | "
        "throughput per GPU (TFLOP/s/GPU): 40.4 | global batch size:  1024 | lm loss: 1.19E+01 |\n",
        "samples_per_s", 1024 / 271.607),
    "Lightning without an end": (
        "Epoch 0/-2 ━━━━━━━━━━━━━━━ 5072/-- 2:40:43 • -:--:-- 0.57it/s v_num: xn3p train_loss: 10.416\n",
        "iterations_per_s", 5072 / 9643),
}  # fmt: skip
