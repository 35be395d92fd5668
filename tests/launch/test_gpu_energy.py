"""The energy of a step's GPUs: read by each agent from the GPUs' own counters, summed over the nodes, or why not.

There is no GPU here. A compiled libnvidia-ml.so.1 and a program stand in for the vendors'; both check how they are
called.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from images.elfbed import build
from stackyard.launch.node.monitoring import counters, energy
from stackyard.launch.node.monitoring.usage import Usage
from stackyard.launch.node.step import PlannedSlot, StepFile
from stackyard.launch.records.outcome import GpuEnergy, Placement
from stackyard.launch.run.energy import gpu_energy
from stackyard.launch.run.usage import usage_report
from support import programs
from support.processes import wait_for
from support.slurmcli import Work

GPUS = ("GPU-00aa 0 5000 0 0", "GPU-11bb 0 9000 -1 0")


class Nvml:
    """The library that stands in, and what its GPUs say now."""

    def __init__(self, directory: Path, lacks: str = "") -> None:
        self.directory = directory / "nvml"
        source = Path(__file__).with_name("nvml.c").read_text(encoding="utf-8")
        source = source.replace(lacks, "of_a_newer_driver") if lacks else source
        build(self.directory / counters.LIBRARY, source=source)

    def say(self, *gpus: str, status: int = 0, host: str = socket.gethostname()) -> None:
        """What is read from now on."""
        file = self.directory / f".{host}"
        file.write_text("\n".join([str(status), *gpus]) + "\n")
        file.replace(self.directory / host)


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    programs.need("gcc")
    found = Nvml(tmp_path)
    found.say(*GPUS)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(found.directory))
    monkeypatch.setenv("NVML_STANDIN", str(found.directory))
    return found


def began(vendor: str = "nvidia") -> Usage:
    """An agent's reader after its first reading."""
    usage = Usage(vendor)
    usage.begin_energy("0,1")
    usage.begin_energy("0,1")  # by the next rank
    wait_for(lambda: bool(select.select([process_of(usage).stdout], [], [], 0)[0]))
    return usage


def process_of(usage: Usage) -> subprocess.Popen[bytes]:
    """The one that reads the counters."""
    process: subprocess.Popen[bytes] = usage._energy._process
    return process


def ended(usage: Usage, went: float = 0) -> dict[str, Any]:
    """What the agent sends."""
    sent: list[tuple[str, dict[str, Any]]] = []
    usage.end_energy(went, lambda kind, value: sent.append((kind, value)))
    ((kind, value),) = sent
    assert kind == "energy"
    json.dumps(value)
    return value


def test_the_difference_of_two_readings_in_joules(nvml: Nvml) -> None:
    reader = began()
    nvml.say("GPU-00aa 0 65000 0 0", "GPU-11bb 0 9250 -1 0")
    gpus = ended(reader)["gpus"]
    assert [(gpu["index"], gpu["uuid"], gpu["joules"], gpu["others"], gpu["why"]) for gpu in gpus] == [
        ("0", "GPU-00aa", 60.0, 0, ""), ("1", "GPU-11bb", 0.25, 0, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(("first", "last", "why"), [
    ("GPU-00aa 3 0 -1 0", "GPU-00aa 3 0 -1 0", "has no energy counter, as GPUs older than Volta"),
    ("GPU-00aa 0 5000 1 0", "GPU-00aa 0 6000 1 0", "is shared as MIG instances, and its counter counts all of them"),
    ("GPU-00aa 0 5000 0 0", "GPU-00aa 0 4000 0 0", "has a counter that started again during the run"),
    ("GPU-00aa 0 0 0 0", "GPU-00aa 0 0 0 0", "has a counter that stays at 0"),
    ("GPU-00aa 0 5000 0 0", "GPU-00aa 15 0 0 0", "has a counter that cannot be read (NVML status 15)"),
])  # fmt: skip
def test_a_counter_that_does_not_count(nvml: Nvml, first: str, last: str, why: str) -> None:
    nvml.say(first, GPUS[1])
    reader = began()
    nvml.say(last, "GPU-11bb 0 9500 -1 0")
    bad, good = ended(reader)["gpus"]
    assert (bad["joules"], bad["why"]) == (None, why)
    assert good["joules"] == 0.5


@pytest.mark.parametrize(("lacks", "joules", "why"), [
    ("nvmlDeviceGetTotalEnergyConsumption", None, "has no energy counter, as GPUs older than Volta"),
    ("nvmlDeviceGetMigMode", 1.0, ""),
])  # fmt: skip
def test_a_driver_that_is_older_than_a_function(nvml: Nvml, lacks: str, joules: float | None, why: str) -> None:
    Nvml(nvml.directory.parent, lacks)
    reader = began()
    nvml.say("GPU-00aa 0 6000 0 0", GPUS[1])
    gpu = ended(reader)["gpus"][0]
    assert (gpu["joules"], gpu["why"]) == (joules, why)


def test_a_gpu_that_falls_off_the_bus(nvml: Nvml) -> None:
    reader = began()
    nvml.say("GPU-00aa 0 6000 0 0")
    assert ended(reader)["gpus"][1]["why"] == "was lost during the run"


@pytest.mark.parametrize(
    ("first", "went_later", "last", "others"), [(2, True, 0, 2), (2, False, 0, 0), (0, True, 1, 1)]
)
def test_processes_that_compute_while_no_rank_runs_are_others(
    nvml: Nvml, first: int, went_later: bool, last: int, others: int
) -> None:
    nvml.say(f"GPU-00aa 0 5000 0 {first}")
    before = time.monotonic()
    reader = began()
    went = time.monotonic() if went_later else before
    nvml.say(f"GPU-00aa 0 6000 0 {last}")
    assert ended(reader, went)["gpus"][0]["others"] == others


def test_a_driver_that_is_not_loaded_or_crashes_or_is_not_there(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml.say(status=9)
    assert ended(began()) == {"why": "nvmlInit_v2 returned 9"}
    nvml.say(*GPUS)
    reader = began()
    (nvml.directory / socket.gethostname()).unlink()  # the stand-in aborts
    assert ended(reader) == {"why": "the process that reads the energy counters exited with status -6"}
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml.directory / "none"))
    assert ended(began()) == {"why": "libnvidia-ml.so.1 not found"}


@pytest.mark.parametrize("when", ["from the start", "at the end"])
def test_a_library_that_hangs_is_not_waited_for(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(energy, "LIMIT_S", 0.2)
    if when == "from the start":
        nvml.say(status=-1)
        reader = Usage("nvidia")
        reader.begin_energy("0")
    else:
        reader = began()
        nvml.say(status=-1)
    process = process_of(reader)
    assert ended(reader) == {"why": "reading the energy counters timed out after 0.2 s"}
    assert process.wait(20) == -signal.SIGKILL


@pytest.mark.parametrize(("vendor", "visible"), [("nvidia", "-"), ("", "0"), ("intel", "0")])
def test_nothing_is_started_without_a_gpu(vendor: str, visible: str) -> None:
    reader = Usage(vendor)
    reader.begin_energy(visible)
    reader.end_energy(0, lambda *sent: pytest.fail(str(sent)))


def test_the_reader_is_no_process_of_a_rank(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_DIR", "/tmp/x")  # by which what remains of the ranks is found, and killed
    reader = began()
    assert b"STACKYARD" not in Path(f"/proc/{process_of(reader).pid}/environ").read_bytes()
    ended(reader)


ROCM = """\
#!/usr/bin/env python3
import os, sys
assert sys.argv[1:] == ["--showenergycounter", "--csv"], sys.argv
state = open(os.path.join(os.path.dirname(__file__), "counts")).read().split()
print("WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\\n")
print("device,Energy counter,Accumulated Energy (uJ)")
for number, count in enumerate(state):
    print(f"card{number},{count}," + (f"{int(count) * 15.3}" if count != "N/A" else "N/A"))
print()
"""
"""What rocm-smi prints: the accumulator, and its product with the resolution (rocm_smi_lib, `showEnergy`)."""
AMD = """\
#!/usr/bin/env python3
import os, sys
assert sys.argv[1:] == ["metric", "--energy", "--csv"], sys.argv
state = open(os.path.join(os.path.dirname(__file__), "counts")).read().split()
print("timestamp,gpu,total_energy_consumption")
for number, count in enumerate(state):
    print(f"1722967687,{number}," + (f"{int(count) * 15.3e-6:.3f}" if count != "N/A" else "N/A"))
"""
"""What amd-smi prints, in joules."""


@pytest.mark.parametrize(("program", "text"), [("rocm-smi", ROCM), ("amd-smi", AMD)])
def test_the_counters_of_amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, text: str) -> None:
    (tmp_path / program).write_text(text)
    (tmp_path / program).chmod(0o755)
    (tmp_path / "counts").write_text("65628000 1000000 N/A")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reader = began("amd")
    (tmp_path / "counts").write_text("65728000 1000000 N/A")
    one, two, three = ended(reader)["gpus"]
    assert (one["index"], two["index"], three["index"]) == ("0", "1", "2")
    assert one["joules"] == pytest.approx(1.53, abs=2e-3)  # 100,000 times 15.3 uJ; amd-smi gives three digits
    assert two["joules"] == 0
    assert three["why"] == "has no energy counter"


def test_without_a_program_of_amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ended(began("amd")) == {"why": "rocm-smi and amd-smi not found"}
    (tmp_path / "rocm-smi").write_text("#!/bin/sh\necho 'ERROR: no amdgpu'\nexit 2\n")
    (tmp_path / "rocm-smi").chmod(0o755)
    assert ended(began("amd")) == {"why": "rocm-smi --showenergycounter --csv shows no energy counter (exit status 2)"}


# What the hub makes of it.

FILE = StepFile("r", "s", "i", (), "slurm", 2, 2, gpu_vendor="nvidia",
                slots=(PlannedSlot((0,), (0,)), PlannedSlot((1,), (1,))))  # fmt: skip


def places(*shown: str) -> list[Placement]:
    return [Placement(task, f"n{task // 2}", 1, (), text) for task, text in enumerate(shown)]


def gpu(index: int, joules: float | None = 10.0, others: int = 0, why: str = "") -> dict[str, Any]:
    return {"index": str(index), "uuid": f"GPU-{index}a-b", "joules": joules, "others": others, "why": why}


BOTH = {node: {"gpus": [gpu(0), gpu(1, 20)]} for node in range(2)}


def test_the_gpus_of_a_step_are_summed_over_its_nodes() -> None:
    found = gpu_energy(FILE, places("0", "1", "0,1", "1,0"), BOTH)
    assert found == GpuEnergy(60, 4, "NVML's counters of the GPUs")
    assert usage_report((), found)["energy"] == "0.01667 Wh of 4 GPUs: NVML's counters of the GPUs"
    assert usage_report((), found)["gpu_energy"]["joules"] == 60
    more = {node: {"gpus": [*each["gpus"], gpu(2), gpu(3)]} for node, each in BOTH.items()}
    assert gpu_energy(FILE, places("0", "1", "2", "3"), more) == GpuEnergy(50, 4, "NVML's counters of the GPUs")
    by_uuid = gpu_energy(FILE, places("GPU-0a", "GPU-1a-b", "0", "1"), BOTH)
    assert by_uuid is not None and by_uuid.joules == 60


def test_gpus_that_others_used_too_are_said() -> None:
    sent = {0: {"gpus": [gpu(0), gpu(1, others=2)]}, 1: {"gpus": [gpu(0, others=1), gpu(1)]}}
    found = gpu_energy(FILE, places("0", "1", "0", "1"), sent)
    assert found is not None
    assert found.joules == 40
    assert found.notes == ("other programs used GPU 1 of n0, GPU 0 of n1, and its energy includes theirs",)


@pytest.mark.parametrize(("shown", "second", "why"), [
    ("0,1", None, "n1: its agent sent no reading"),
    ("0,1", {"why": "libnvidia-ml.so.1 not found"}, "n1: libnvidia-ml.so.1 not found"),
    ("0,1", {"gpus": [gpu(0), gpu(1, None, why="has no energy counter")]}, "n1: GPU 1 has no energy counter"),
    ("MIG-3-a", BOTH[1], "n1: the counter of a GPU counts all of its MIG instances"),
    ("0", {"gpus": [gpu(0)]}, "n1: 1 counter on the node, and which are those of its 2 GPUs is not known"),
    ("0,1", {"gpus": 3}, "an agent sent an invalid reading"),
])  # fmt: skip
def test_one_gpu_without_a_value_leaves_the_whole_without(shown: str, second: Any, why: str) -> None:
    sent = {0: BOTH[0], **({} if second is None else {1: second})}
    found = gpu_energy(FILE, places("0", "1", shown, shown), sent)
    assert found == GpuEnergy(None, 4, f"not measured: {why}")
    assert usage_report((), found)["energy"] == f"not measured: {why}"


def test_numbers_of_amds_programs_count_all_gpus_of_a_node() -> None:
    """In a control group 0 and 1 may be any two of the four that the program shows."""
    file = StepFile("r", "s", "i", (), "slurm", 1, 2, gpu_vendor="amd", slots=FILE.slots)
    two, four = {0: BOTH[0]}, {0: {"gpus": [gpu(number) for number in range(4)]}}
    assert gpu_energy(file, places("0,1", "1,0"), two) == GpuEnergy(
        30, 2, "AMD's counters of the GPUs, which do not show other users"
    )
    found = gpu_energy(file, places("0,1", "1,0"), four)
    assert found is not None and "4 counters on the node" in found.source


def test_a_step_without_gpus_has_no_energy_of_them() -> None:
    file = StepFile("r", "s", "i", (), "slurm", 2, 1, slots=(PlannedSlot((0,)),))
    assert gpu_energy(file, [Placement(0, "n0", 1), Placement(1, "n1", 1)], {}) is None
    assert usage_report(())["gpu_energy"] is None


BURNS = """\
import os
state = os.path.join(os.environ["NVML_STANDIN"], os.uname().nodename)
if os.environ["LOCAL_RANK"] == "0":
    status, *gpus = open(state).read().splitlines()
    rows = [gpu.split() for gpu in gpus]
    with open(state + ".new", "w") as new:
        print(status, *(" ".join([a, b, str(int(n) + 3_600_000), c, d]) for a, b, n, c, d in rows), sep="\\n", file=new)
    os.replace(state + ".new", state)
"""
"""Each GPU of its node uses an hour of a watt."""


@pytest.mark.real
def test_a_run_on_two_nodes_with_two_gpus_each(work: Work, nvml: Nvml) -> None:
    """Through Slurm, the agents (one file, in memory) and the hub, into the record of the run and what it shows."""
    (work.directory / "burns.py").write_text(BURNS)
    for host in ("n1", "n2"):
        nvml.say(*GPUS, host=host)
    words = ("launch", "-N", "2", "-r", "2", "-c", "1", "-g", "1", "burns.py")
    work.allocated(*words, salloc=("-N2", "-c2", "--gpus-per-node=2"))
    found = json.loads(work.run("runs", "show", "--json").out)["usage"]
    assert found["gpu_energy"] == {"joules": 14400, "gpus": 4, "source": "NVML's counters of the GPUs", "notes": []}
    assert "GPU energy 4 Wh of 4 GPUs: NVML's counters of the GPUs" in work.run("runs", "show").out
