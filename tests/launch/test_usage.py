"""Memory and GPUs of each rank: looked at by the agent, recorded, shown, and named where they were used up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.elfbed import build
from stackyard.launch.node.monitoring.gpuprobe import GpuProbe, amd_rows, nvidia_rows
from stackyard.launch.node.monitoring.usage import FREE_S, LOOK_SHARE, Group, MpiLibraries, Usage
from stackyard.launch.node.ranks import Rank
from stackyard.launch.node.step import PlannedSlot, StepFile
from stackyard.launch.records.outcome import Cause, RankUsage
from stackyard.launch.run.causes import table as causes
from stackyard.launch.run.usage import ranks_usage, usage_report, with_usage
from support import programs
from support.cli import stackyard
from support.processes import wait_for
from support.slurmcli import SHAPE, Work

GIB, MIB = 1 << 30, 1 << 20
USES = """\
import os, time
rank = int(os.environ["RANK"])
read, write = os.pipe()
if os.fork():
    data = bytearray(100_000_000 * (rank + 1))
    del data
    time.sleep(4)
else:
    os.close(write)
    os.read(read, 1)  # until the other one ends
"""


def peaks(directory: Path) -> dict[str, object]:
    """Show of the last run: what it prints, and its usage as JSON; the peaks are as the program made them."""
    found = json.loads(stackyard("runs", "show", "--json", cwd=directory).out)["usage"]
    assert [one["task"] for one in found["ranks"]] == [0, 1]
    for one in found["ranks"]:
        assert one["processes"] == 2
        made = 100_000_000 * (one["task"] + 1)
        assert made < one["largest_bytes"] < made + 80 * MIB  # gone when it was looked at: the kernel's high-water mark
        assert one["largest_bytes"] < one["peak_bytes"] < made + 160 * MIB
    shown = stackyard("runs", "show", cwd=directory).out
    assert f"memory     {found['memory']}" in shown
    assert "(rank 1 on " in found["memory"]
    return dict(found)


def test_the_memory_of_each_rank(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(USES)
    done = stackyard("launch", "-r", "2", "--json", "train.py", cwd=tmp_path, expect=0, timeout_s=300)
    assert [one["task"] for one in json.loads(done.out)["usage"]] == [0, 1]
    found = peaks(tmp_path)
    assert found["measured"] == 2
    assert found["gpus"] == ""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Rank]:
    """A rank whose child has its memory already."""
    child = f"x = bytearray(50_000_000); open({str(tmp_path / 'there')!r}, 'w'); input()"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    started = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE)
    wait_for((tmp_path / "there").exists)
    yield Rank(3, 0, started.pid)
    started.communicate(b"\n")


def test_looks_are_seldom(sleeper: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is not repeated for as long as it would cost more than its share."""
    usage, clock = Usage(""), [0.0]
    looks: list[float] = []

    def measure(rank: Rank, now: float) -> None:
        looks.append(now)
        clock[0] += FREE_S * 0.7

    monkeypatch.setattr(usage, "_measure", measure)
    monkeypatch.setattr(
        "stackyard.launch.node.monitoring.usage.time",
        SimpleNamespace(CLOCK_THREAD_CPUTIME_ID=3, clock_gettime=lambda _: clock[0]),
    )
    for now, count in ((1, 1), (2, 2), (3, 2), (0.3 * FREE_S * LOOK_SHARE, 2), (FREE_S * LOOK_SHARE, 3)):
        usage.look([sleeper], now)
        assert len(looks) == count
    usage.look([sleeper], 4, at_once=True)
    assert len(looks) == 4


def test_a_failure_has_the_limit_and_the_kills(sleeper: Rank) -> None:
    usage = Usage("")
    usage.look([sleeper], time.monotonic())
    assert usage.of(3, failed=False)["peak"] > 1_000_000
    assert set(usage.of(3, failed=True)) == {"peak", "largest", "processes", "ago", "limit", "oom_kills"}
    assert usage.of(4, failed=False) == {}


@pytest.mark.real
def test_the_mpi_that_a_rank_has_loaded(tmp_path: Path) -> None:
    """Told by the file, not by its name; found once; of no rank without an MPI, nor where none is asked for."""
    programs.need("gcc")
    host, other = (build(tmp_path / directory / "libmpi.so.12.3") for directory in ("host", "image"))
    names = ("libmpi.so.12", "libmpi.so.40")
    text = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); input()"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {text!r}, sys.argv[1]])"
    for library in (host, other):
        started = subprocess.Popen(
            [sys.executable, "-c", inner, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert started.stdout is not None and started.stdout.readline()
        usage, none = Usage("", MpiLibraries(str(host), names)), Usage("", MpiLibraries("", names))
        for each in (usage, none):
            each.look([Rank(3, 0, started.pid), Rank(4, 1, os.getpid())], time.monotonic())
        wait_for(lambda asked=usage: "mpi" in asked.of(3, failed=False))  # type: ignore[misc]
        started.communicate(b"\n")
        usage.look([Rank(3, 0, started.pid)], time.monotonic())
        assert usage.of(3, failed=False)["mpi"] == (str(library), library is host)
        assert "mpi" not in none.of(3, failed=False)


def test_ranks_with_another_mpi_are_named() -> None:
    own = [RankUsage(0, "n1", mpi="/libs/libmpi.so.12", mpi_is_host=True), RankUsage(1, "n1")]
    assert usage_report(own)["mpi"] == ""
    others = [RankUsage(task, "n2", mpi="/opt/libmpi.so.12") for task in (2, 3)]
    said = "2 of 3 ranks loaded /opt/libmpi.so.12, which is not the host's (rank 2 on n2)"
    assert usage_report([*own, *others])["mpi"] == said


NONE = f"{(1 << 63) - 4096}\n"
GROUPS = {
    "version 2": ("0::/job/step/task\n", "", "memory.max", "memory.events", "max\n"),
    "version 1": ("4:memory:/job/step/task\n0::/\n", "memory", "memory.limit_in_bytes", "memory.oom_control", NONE),
}


@pytest.mark.parametrize("version", GROUPS)
def test_the_lowest_limit_of_the_groups(tmp_path: Path, version: str) -> None:
    own, below, limit, counter, none = GROUPS[version]
    (tmp_path / "own").write_text(own)
    root = tmp_path / "cgroup"
    for name, value in {"": none, "job": f"{4 * GIB}\n", "job/step": f"{8 * GIB}\n", "job/step/task": none}.items():
        directory = root / below / name
        directory.mkdir(parents=True)
        (directory / limit).write_text(value)
        (directory / counter).write_text(f"low 0\noom 5\noom_kill {len(name)}\n")
    group = Group(str(tmp_path / "own"), str(root))
    assert (group.limit, group.kills()) == (4 * GIB, 0)
    (root / below / "job" / counter).write_text("oom_kill 5\n")
    assert group.kills() == 2


def test_without_a_limit_the_node_counts(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    group = Group(str(tmp_path / "own"), str(tmp_path))
    assert (group.limit, group.kills()) == (0, 0)


NVIDIA = """\
if [ "$*" != "--query-gpu=index,memory.used,memory.total,utilization.gpu --format=csv,noheader,nounits" ]; then
  echo "Field \\"$1\\" is not a valid field to query." >&2; exit 2
fi
echo x >> "$COUNT"
[ "$(wc -l < "$COUNT")" = 1 ] && used=70000 || used=100
echo "0, $used, 81559, 90"; echo "1, 500, 81559, [N/A]"
"""
ROCM = """\
[ "$*" = "--showmeminfo vram --showuse --csv" ] || { echo "rocm-smi: error: unrecognized arguments: $*" >&2; exit 2; }
echo x >> "$COUNT"
printf '\\nWARNING: AMD GPU device(s) is/are in a low-power state.\\n'
echo "device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B)"
echo "card0,90,68702699520,73400320000"; echo "card1,N/A,68702699520,524288000"
"""


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"nvidia-smi": NVIDIA, "rocm-smi": ROCM}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    return tmp_path / "count"


def ended(probe: GpuProbe, now: float) -> bool:
    """Whether its program, if it is started at all, has ended and was read."""
    probe.step(now)
    return probe._running is None


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_the_peaks_of_the_gpus(vendors: Path, vendor: str) -> None:
    probe = GpuProbe(vendor)
    for now in (100.0, 104.0, 105.0, 105.1, 2000.0):
        wait_for(lambda now=now: ended(probe, now))  # type: ignore[misc]
    assert len(vendors.read_text().split()) == 2  # 5 s after the first look, and then seldom
    assert probe.peaks["0"][0] == 70000 * MIB
    assert probe.peaks["0"][2] == 90
    assert probe.peaks["1"][0] == 500 * MIB
    assert probe.peaks["1"][2] == -1


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", "0, [N/A], 81559, 3\n", "device,GPU use (%)\ncard0,3\n"]
)
def test_what_the_programs_say_without_gpus(text: str) -> None:
    assert nvidia_rows(text) == []
    assert amd_rows(text) == []


def test_a_program_that_fails_is_not_started_again(vendors: Path) -> None:
    (vendors.parent / "nvidia-smi").write_text(f"#!/bin/sh\necho x >> {vendors}\nexit 9\n")
    probe = GpuProbe("nvidia")
    for now in (100.0, 105.0, 5000.0, 9000.0):
        wait_for(lambda now=now: ended(probe, now))  # type: ignore[misc]
    assert vendors.read_text() == "x\n"
    assert probe.peaks == {}


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel", ""])
def test_without_a_program_nothing_is_known(vendor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    probe = GpuProbe(vendor)
    for now in (100.0, 105.0, 205.0, 305.0):
        wait_for(lambda now=now: ended(probe, now))  # type: ignore[misc]
    assert (probe.peaks, probe._programs) == ({}, [])


FILE = StepFile("r", "s", "i", (), "slurm", 2, 2, slots=(PlannedSlot((0,), (0, 1)), PlannedSlot((1,), (2, 3))))
SEEN = {str(gpu): [gpu * GIB, 80 * GIB, gpu * 10] for gpu in range(4)}


def test_a_rank_has_the_gpus_that_are_its_own() -> None:
    known = {task: (f"n{task // 2}", {"peak": GIB, "largest": GIB, "processes": 1, "gpus": SEEN}) for task in range(4)}
    usage = ranks_usage(FILE, known)
    assert [(one.gpu_peak_bytes // GIB, one.gpu_use_percent) for one in usage] == [(1, 5), (5, 25)] * 2
    assert usage_report(usage)["gpus"] == "peak 5.0 GiB of 160.0 GiB (rank 1 on n0), 15 % busy on average"
    few = {0: ("n0", {"gpus": {"0": [GIB, 80 * GIB, -1]}})}  # a launcher that shows the agent one GPU only
    (one,) = ranks_usage(FILE, few)
    assert (one.gpu_peak_bytes, one.gpu_total_bytes, one.gpu_use_percent) == (GIB, 80 * GIB, -1)


def test_memory_that_was_used_up_is_in_the_remedy() -> None:
    found = causes.explain(tail=["step 3"], code=137, launcher_output="", facts={"oom_kills": 1})
    assert found is not None
    assert found.rule == "oom-kill"
    sent = {"peak": 4 * GIB - 1, "largest": GIB, "processes": 5, "ago": 0.8, "limit": 4 * GIB, "oom_kills": 1}
    told = with_usage(found, 3, sent)
    assert told is not None
    begin = (
        "rank 3 had used up to 4.0 GiB in 5 processes 0.8 s before its end, of 4.0 GiB that its job has on the node; "
    )
    assert told.remedy == begin + found.remedy
    assert with_usage(Cause("module-missing", "a", "b"), 3, sent) == Cause("module-missing", "a", "b")
    gpu = with_usage(Cause("gpu-memory", "a", "b"), 3, {"gpus": {"0": [79 * GIB, 80 * GIB, 3]}})
    assert gpu is not None
    assert gpu.remedy == "in use on its node, seen every few seconds: GPU 0 79.0 GiB of 80.0 GiB; b"


@pytest.mark.real
def test_ranks_on_two_nodes(work: Work) -> None:
    (work.directory / "uses.py").write_text(USES)
    work.allocated("launch", *SHAPE, "uses.py")
    hosts = {str(one["host"]) for one in peaks(work.directory)["ranks"]}  # type: ignore[attr-defined]
    assert len(hosts) == 2
