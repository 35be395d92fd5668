"""Holistic Trace Analysis reads our traces: each rank, each step, and what a GPU did."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.study.profiles.load import overview
from stackyard.study.profiles.merge import merge
from study.test_merge import check, read
from support import torchstack, venvs
from support.gputrace import OVERLAP_PERCENT, write_gpu_traces

pytestmark = pytest.mark.long
TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""
"""Torch 2.13 with gloo sometimes aborts in its exit handlers where a rank has one core, also without a probe."""


def analysed(directory: Path, *more: str) -> dict[str, Any]:
    try:
        python = venvs.python("traceinsight")
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    program = Path(__file__).with_name("hta_program.py")
    done = subprocess.run([python, program, directory, *more], capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_ranks_and_steps_of_a_run(tmp_path: Path) -> None:
    try:
        yard = torchstack.torch_yard()
    except MissingError as error:
        pytest.skip(f"{error}")
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("launch", "-r", "2", "--with", "resnet", "--profile", "torch:ranks=all:steps=5-9", "train.py")
    environ = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run([torchstack.STACKYARD, "--yard", yard, *words], cwd=tmp_path, env=environ, check=True, timeout=300)
    (profile,) = tmp_path.glob("runs/*/profile")
    assert analysed(profile / "torch") == {"ranks": [0, 1], "steps": [5, 6, 7, 8]}
    timeline = merge(profile, tmp_path / "timeline.json.gz")
    assert not timeline.left_out and not timeline.unread
    events = read(tmp_path / "timeline.json.gz")
    check(events)
    assert sum(event.get("name", "").startswith("ProfilerStep#") for event in events) == 8
    assert any(event.get("name", "").startswith("gloo:all_reduce") for event in events)


def test_a_gpu(tmp_path: Path) -> None:
    write_gpu_traces(tmp_path)
    found = analysed(tmp_path, "gpu")
    assert (found["ranks"], found["steps"]) == ([0, 1], [5, 6])
    assert (found["overlap"], found["idle"], found["compute"]) == ([OVERLAP_PERCENT] * 2, [200.0] * 2, [1200.0] * 2)
    assert found["kernels"]["MEMORY"] == 200.0
    for rank in overview(tmp_path, lambda *_: None).ranks:  # HTA begins at the first kernel, 50 us into the first step
        assert [us for step in rank.parts.values() for us in (step["computation"], step["idle"])] == [600.0, 200.0] * 2
        assert 100 * rank.hidden / rank.communication == OVERLAP_PERCENT and sum(rank.copies.us.values()) == 100.0
