"""Profilers on chosen ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, MissingError
from stackyard.launch.plan.profilers import TABLE, wrap
from stackyard.launch.shim import shell
from support import venvs


def test_nsys_on_one_rank() -> None:
    (wrapper,) = wrap(["nsys:ranks=0"], 8)
    assert wrapper.tasks == (0,)
    assert wrapper.argv == (
        "nsys", "profile", "--output=${STACKYARD_STEP}/nsys-rank-${STACKYARD_TASK}", "--force-overwrite=true",
    )  # fmt: skip
    assert "requires nsys on PATH" in wrapper.reasons[0].reason


def test_nvprof_of_the_pages_machine() -> None:
    (wrapper,) = wrap(["nvprof:children=1"], 6, "/run")
    assert wrapper.argv == (
        "nvprof", "--force-overwrite", "--output-profile", "/run/nvprof-rank-${STACKYARD_TASK}.nvvp",
        "--profile-child-processes",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("", (0,)), (":ranks=0,8", (0, 8)), (":ranks=2-4,3", (2, 3, 4)), (":ranks=all", tuple(range(9)))],
)
def test_ranks(text: str, tasks: tuple[int, ...]) -> None:
    assert [wrapper.tasks for wrapper in wrap([f"py-spy{text}"], 9)] == [tasks]


def test_options_and_several() -> None:
    first, second, third = wrap(
        ["nsys:capture=cudaProfilerApi:delay=5:ranks=1", "horovod:cycles=1", "rocprofv3:format=pftrace"], 2, "/run"
    )
    assert first.argv[-3:] == ("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--delay=5")
    assert (second.argv, second.tasks) == ((), None)
    assert second.variables == {"HOROVOD_TIMELINE": "/run/horovod-timeline.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    assert third.argv[-3:] == ("--output-format", "pftrace", "--")


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("nsy", "no such profiler: nsy", "did you mean nsys? known: nsys, nvprof, rocprof"),
        ("nsys:rank=0", "no such option: rank=0", "did you mean ranks=...?"),
        ("nsys:ranks", "no such option: ranks", "known: ranks=..."),
        ("nsys:ranks=8", "valid ranks are 0 to 7", None),
        ("nsys:ranks=a", "not a list of ranks", "ranks=0-3"),
        ("nsys:ranks=3-1", "out of range", None),
        ("nsys:capture=x", "invalid value capture=x", "cudaProfilerApi"),
    ],
)
def test_refuses(spec: str, message: str, hint: str | None) -> None:
    with pytest.raises(InputError, match=message) as caught:
        wrap([spec], 8)
    assert hint is None or hint in (caught.value.hint or "")


def test_every_row_can_be_asked_for() -> None:
    for name, row in TABLE.items():
        (wrapper,) = wrap([name], 1, "/run")
        assert wrapper.argv or wrapper.variables
        assert not any("{step}" in word for word in wrapper.argv)
        assert row.reason


def _run(spec: str, step: Path, program: tuple[str, ...], path: Path) -> subprocess.CompletedProcess[str]:
    """A wrapper around a program, rendered as the shim does."""
    (wrapper,) = wrap([spec], 1, str(step))
    text = shell.array("words", program) + shell.array("words", wrapper.argv, '"${words[@]}"') + '"${words[@]}"'
    environ = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "STACKYARD_TASK": "0"}
    return subprocess.run(
        ["/bin/bash", "-c", text], env=environ, check=False, timeout=240, capture_output=True, text=True
    )


@pytest.mark.real
def test_py_spy_keeps_the_code(tmp_path: Path) -> None:
    try:
        found = venvs.python("py-spy").parent
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    busy = "import sys,time\nend = time.time() + 1\nwhile time.time() < end: sum(range(1000))\nsys.exit(5)"
    done = _run("py-spy:rate=50", tmp_path, (sys.executable, "-c", busy), found)
    assert done.returncode == 5
    assert list(tmp_path.glob("*.json")), done.stderr
    assert json.loads((tmp_path / "py-spy-rank-0.json").read_text())["profiles"]
    assert not list(tmp_path.glob("*.code"))
