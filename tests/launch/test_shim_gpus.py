"""Which GPUs a rank sees: the plan's policy met with what the launcher gave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.launch.node.step import PlannedSlot
from support.shimstep import SHOW, Step, error_of, standing_in


@pytest.fixture
def step(tmp_path: Path) -> Iterator[Step]:
    with standing_in(tmp_path / "a step's folder") as made:
        yield made


GPUS: dict[str, tuple[str, str, int, str | None, str | None, str]] = {
    # policy, vendor, local rank of 2 (own: GPU 1, GPU 0), given, seen, device
    "all, nothing given": ("all", "nvidia", 0, None, "1,0", "0"),
    "all, all given": ("all", "nvidia", 1, "0,1", "1,0", "1"),
    "all, others' numbers": ("all", "amd", 1, "6,7", "7,6", "1"),
    "all, narrowed": ("all", "nvidia", 1, "GPU-5a", "GPU-5a", "0"),
    "all, more than planned": ("all", "nvidia", 1, "0,1,2,3", "1,0", "1"),
    "own, nothing given": ("own", "nvidia", 0, None, "1", "0"),
    "own, all given": ("own", "amd", 0, "4,5", "5", "0"),
    "own, narrowed": ("own", "intel", 1, "3", "3", "0"),
}


@pytest.mark.parametrize("case", GPUS)
def test_gpus(step: Step, case: str) -> None:
    policy, vendor, local, given, seen, device = GPUS[case]
    name = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}[vendor]
    slots = (PlannedSlot((0,), (1,)), PlannedSlot((1,), (0,)))
    step.write(SHOW, tasks=2, slots=slots, gpu_visibility=policy, gpu_vendor=vendor)
    for task in range(2):
        step.start(task, **({} if given is None else {name: given}), HIP_VISIBLE_DEVICES="0")
    assert [process.wait(30) for process in step.started] == [0, 0]
    environ = step.shown(local)[1]
    assert (environ.get(name), environ["STACKYARD_DEVICE"]) == (seen, device)
    assert ("HIP_VISIBLE_DEVICES" in environ) == (vendor != "amd")
    line = next(line for line in step.lines() if line.startswith(f"start {local} "))
    assert line.split()[-1] == seen


def test_gpus_that_fit_nothing(step: Step) -> None:
    slots = tuple(PlannedSlot((n,), (n,)) for n in range(4))
    step.write(tasks=4, slots=slots, gpu_visibility="all", gpu_vendor="nvidia")
    process = step.run(CUDA_VISIBLE_DEVICES="0,1")
    assert process.returncode == 71
    said = error_of(process)
    assert "sees 2 GPUs (CUDA_VISIBLE_DEVICES=0,1), expected 1 (its own) or 4 (all of the node)" in said
    assert step.paths.rank_log(0).read_text() == said
    assert step.lines()[0].endswith(" 0,1")
    assert step.lines()[1:] == ["exit 0 71"]
