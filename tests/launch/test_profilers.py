"""Profilers on chosen ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, MissingError
from stackyard.launch.plan.model import Wrapper
from stackyard.launch.plan.profilers import MANY_MB, TABLE, require, wrap
from stackyard.launch.request.intent import Intent
from stackyard.launch.shim import programs, shell
from support import venvs
from support.watched import Running, local_line, make_plan
from support.watched import layout as layout_of

FILE = "${STACKYARD_RANK_FILE}"


def wrapped(spec: str, nodes: int = 1, each: int = 8, ranks_per_task: int = 1) -> Wrapper:
    (wrapper,) = wrap([spec], layout_of(nodes, each), ranks_per_task, "/run")
    return wrapper


def test_nsys_on_one_rank() -> None:
    (wrapper,) = wrap(["nsys:ranks=0"], layout_of(1, 8))
    assert wrapper.tasks == (0,)
    assert wrapper.argv == (
        "nsys", "profile", "--output=${STACKYARD_STEP}/profile/nsys/" + FILE, "--force-overwrite=true",
    )  # fmt: skip
    assert wrapper.directories == ("profile/nsys",)
    assert "requires nsys on PATH" in wrapper.reasons[0].reason


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("", (0, 3, 6)), (":ranks=0,8", (0, 8)), (":ranks=2-4,3", (2, 3, 4)), (":ranks=all", tuple(range(9)))],
)
def test_ranks(text: str, tasks: tuple[int, ...]) -> None:
    """By default the first of each node."""
    assert wrapped(f"py-spy{text}", 3, 3).tasks == tasks


def test_options_and_several() -> None:
    first, second, third = wrap(
        ["nsys:capture=cudaProfilerApi:delay=5:ranks=1", "horovod:cycles=1", "rocprofv3:format=pftrace"],
        layout_of(1, 2), 1, "/run",
    )  # fmt: skip
    assert first.argv[-3:] == ("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--delay=5")
    assert (second.argv, second.tasks) == ((), None)
    timeline = "/run/profile/horovod/timeline.json"
    assert second.variables == {"HOROVOD_TIMELINE": timeline, "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    assert third.argv[-3:] == ("--output-format", "pftrace", "--")


def settings(wrapper: Wrapper, name: str = "TORCH") -> dict[str, object]:
    value: dict[str, object] = json.loads(wrapper.variables[f"STACKYARD_TRACE_{name}"])
    return value


def test_what_the_probe_starts() -> None:
    torch = wrapped("torch:steps=10-20:shapes=1:memory=1:ranks=5")
    assert (torch.argv, torch.tasks) == ((), (5,))
    assert settings(torch) == {"output_dir": "/run/profile/torch", "steps": [10, 20], "shapes": True, "memory": True}
    assert settings(wrapped("jax"), "JAX") == {"output_dir": "/run/profile/jax", "steps": [3, 13]}
    seconds = settings(wrapped("tensorflow:delay=60:duration=2.5"), "TENSORFLOW")
    assert seconds == {"output_dir": "/run/profile/tensorflow", "delay": 60.0, "duration": 2.5}
    assert settings(wrapped("memray:native=1"), "MEMRAY") == {"output_dir": "/run/profile/memray", "native": True}


def test_ranks_that_torchrun_starts() -> None:
    """The variable is that of a task, so it names the ranks."""
    made = wrapped("torch:ranks=1,6", nodes=2, each=1, ranks_per_task=4)
    assert (made.tasks, settings(made)["ranks"]) == ((0, 1), [1, 6])
    assert settings(wrapped("torch", nodes=2, each=1, ranks_per_task=4))["ranks"] == [0, 4]


def test_steps_of_programs_that_know_none() -> None:
    """Torch says to nsys and ncu when a step begins, by cudaProfilerStart."""
    nsys, ncu = wrapped("nsys:steps=5-8"), wrapped("ncu:steps=5-8")
    assert nsys.argv[-2:] == ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
    assert ncu.argv[-1] == "--profile-from-start=no"
    assert "--launch-count=100" in wrapped("ncu").argv
    for made in (nsys, ncu):
        assert (settings(made)["range"], settings(made)["steps"]) == (True, [5, 8])


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("nsy", "no such profiler: nsy", "did you mean nsys? known: nsys, ncu, rocprof"),
        ("nsys:rank=0", "no such option: rank=0", "did you mean ranks=...?"),
        ("nsys:ranks", "no such option: ranks", "known: ranks=..."),
        ("nsys:ranks=8", "valid ranks are 0 to 7", None),
        ("nsys:ranks=a", "not a list of ranks", "ranks=0-3"),
        ("nsys:ranks=3-1", "out of range", None),
        ("nsys:capture=x", "invalid value capture=x", "cudaProfilerApi"),
        ("torch:steps=5", "steps=5 is not a range of steps", "steps=10-20"),
        ("torch:steps=9-9", "steps=9-9 is not a range", None),
        ("torch:duration=1m", "duration=1m is not a number of seconds", None),
        ("py-spy:steps=1-2", "no such option: steps=1-2", None),
        ("nvprof", "nvprof is not supported: NVIDIA ended it", "--profile nsys"),
        ("nvprof:children=1", "nvprof is not supported", "On an older GPU"),
        ("dlprof", "dlprof is not supported", "--profile torch"),
    ],
)
def test_refuses(spec: str, message: str, hint: str | None) -> None:
    with pytest.raises(InputError, match=message) as caught:
        wrapped(spec)
    assert hint is None or hint in (caught.value.hint or "")


def test_every_row_can_be_asked_for() -> None:
    for name, row in TABLE.items():
        wrapper = wrapped(name)
        assert wrapper.argv or wrapper.variables
        assert not any("{" in word.replace("${", "") for word in (*wrapper.argv, *row.last) if row.name != "py-spy")
        assert row.reason


@pytest.mark.parametrize(
    ("spec", "severity", "message"),
    [
        ("torch:ranks=all", "note", "torch: traces of 64 ranks, up to 1.3 GB in the run directory"),
        ("torch", "note", "torch: traces of 8 ranks, up to 160 MB in the run directory"),
        ("torch:ranks=all:steps=0-500", "warning", "torch: traces of 64 ranks, up to 64.0 GB in the run directory"),
        ("nsys:ranks=0", "note", "nsys: traces of 1 rank, about 2 MB for each second of the run and rank"),
    ],
)
def test_the_size_is_said(spec: str, severity: str, message: str) -> None:
    (finding,) = wrapped(spec, 8, 8).findings
    assert (finding.severity, finding.message) == (severity, message)
    assert MANY_MB == 10_000


def test_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(MissingError, match="nsys: nsys not found on PATH"):
        require(Intent(program=("train.py",), profile=("nsys",)), environ)
    with pytest.raises(MissingError, match="jax: the module jax was not found in the Python of this shell"):
        require(Intent(program=("train.py",), profile=("jax",)), environ)
    require(Intent(program=("train.py",), profile=("nsys",)), environ, look="modules")
    require(Intent(program=("train.py",), profile=("jax",)), environ, look="programs")
    (tmp_path / "jax.py").touch()
    require(Intent(program=("train.py",), profile=("jax",), cwd=str(tmp_path)), environ)
    require(Intent(program=("sh", "train.sh"), profile=("jax",)), environ)
    require(Intent(program=("train.py",), profile=("nsys",), container="x.sif"), environ)
    for spec, variables, probe in (("jax", {}, False), ("nsys:steps=1-2", {"STACKYARD_PROBE": "off"}, True)):
        with pytest.raises(InputError, match="is started by the probe, which"):
            require(Intent(program=("train.py",), profile=(spec,)), environ | variables, probe=probe)


def _run(spec: str, step: Path, program: tuple[str, ...], path: Path) -> subprocess.CompletedProcess[str]:
    """A wrapper around a program, rendered as the shim does."""
    (wrapper,) = wrap([spec], layout_of(1, 1), 1, str(step))
    for directory in wrapper.directories:
        (step / directory).mkdir(parents=True)
    words = shell.array("sy_words", program)
    text = f'sy_task=0 sy_rank=0\n{words}{programs.wrapped(wrapper)}"${{sy_words[@]}}"'
    environ = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/bash", "-c", text], env=environ, check=False, timeout=240, capture_output=True, text=True
    )


def test_the_files_of_each_start_are_kept(tmp_path: Path) -> None:
    """The directory is there before a rank starts; what an earlier start wrote is set aside, with its logs."""
    (trace,) = wrap(["jax:ranks=1"], layout_of(1, 2))
    code = 'echo "$STACKYARD_TRACE_JAX" > "$STACKYARD_STEP/profile/jax/${STACKYARD_RANK_FILE-none}"'
    for _ in range(2):
        plan = replace(make_plan(local_line(1, 2), 1, 2, "sh", "-c", code), wrappers=(trace,))
        assert Running(tmp_path / "step", plan).end().state == "done"
    for name in ("profile", "profile-1"):
        files = {path.name: path.read_text().strip() for path in (tmp_path / "step" / name / "jax").iterdir()}
        told = json.loads(files.pop("rank-00001"))
        assert told == {"output_dir": f"{tmp_path}/step/profile/jax", "steps": [3, 13]} and files == {"none": ""}


@pytest.mark.real
def test_py_spy_keeps_the_code(tmp_path: Path) -> None:
    try:
        found = venvs.python("py-spy").parent
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    busy = "import sys,time\nend = time.time() + 1\nwhile time.time() < end: sum(range(1000))\nsys.exit(5)"
    done = _run("py-spy:rate=50", tmp_path, (sys.executable, "-c", busy), found)
    assert done.returncode == 5
    out = tmp_path / "profile" / "py-spy"
    assert [path.name for path in out.iterdir()] == ["rank-00000.speedscope.json"], done.stderr
    _check_speedscope(json.loads((out / "rank-00000.speedscope.json").read_text()))


def _check_speedscope(file: dict[str, object]) -> None:
    """What https://www.speedscope.app/file-format-schema.json demands of a file with sampled profiles."""
    assert isinstance(file.get("activeProfileIndex", 0), int)
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = file["shared"]["frames"]  # type: ignore[index]
    assert frames and all(isinstance(frame["name"], str) for frame in frames)
    assert all(isinstance(frame.get("line", 0), int) and isinstance(frame.get("col", 0), int) for frame in frames)
    assert file["profiles"]
    for profile in file["profiles"]:  # type: ignore[attr-defined]
        assert profile["type"] == "sampled" and isinstance(profile["name"], str)
        assert profile["unit"] in ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")
        assert profile["endValue"] >= profile["startValue"]
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
