"""The traces of frameworks, with the real ones: steps, files, what cannot be traced, and a program that goes on."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.run.agentfile import probe_files
from support import torchstack

PROGRAM = Path(__file__).with_name("traced_steps.py")
STEPS = [10, 11, 12, 13, 14]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def lines(out: Path) -> dict[str, dict[str, Any]]:
    """What a program that trains in many ways printed about each; one process, since torch is slow to import."""
    try:
        python = torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(f"{error}")
    probe = out / "probe"
    probe.mkdir()
    (out / "tmp").mkdir()
    for name, text in probe_files().items():
        (probe / name).write_text(text)
    done = subprocess.run(
        [python, PROGRAM, probe, out],
        check=False,
        timeout=300,
        text=True,
        capture_output=True,
        cwd=out,
        env={**os.environ, "STACKYARD_DIR": str(out / "tmp")},
    )
    assert done.returncode == 0, done.stderr
    (out / "err").write_text(done.stderr)
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


def trace(out: Path, name: str, file: str = "rank-00000.pt.trace.json.gz") -> dict[str, Any]:
    assert [path.name for path in (out / name).iterdir()] == [file]
    with gzip.open(out / name / file) as packed:
        content: dict[str, Any] = json.load(packed)
    return content


def steps(content: dict[str, Any]) -> list[int]:
    marks = (event["name"].split("#") for event in content["traceEvents"] if event["name"].startswith("ProfilerStep#"))
    return sorted(int(number) for _, number in marks)


def test_the_steps_that_were_asked_for(lines: dict[str, dict[str, Any]], out: Path) -> None:
    path = str(out / "plain" / "rank-00000.pt.trace.json.gz")
    assert lines["plain"] == {"name": "plain", "running": False, "files": [path], "steps": [10, 15], "error": ""}
    content = trace(out, "plain")
    assert steps(content) == STEPS
    assert content["distributedInfo"]["rank"] == content["stackyard"]["rank"] == 0
    assert {"aten::linear", "aten::addmm"} & {event["name"] for event in content["traceEvents"]}


@pytest.mark.parametrize(
    "name",
    ["horovod", "two_optimizers", "closures", "one_that_fails", "batches_without_an_optimizer",
     "batches_before_the_optimizer"],
)  # fmt: skip
def test_each_step_counts_once(lines: dict[str, dict[str, Any]], out: Path, name: str) -> None:
    """A program of 13 steps: a second count of a step would end the trace where it was asked to end, at 15."""
    assert steps(trace(out, name)) == [10, 11, 12, 13]
    assert lines[name]["steps"] == [10, 13]


def test_a_program_without_steps_is_told(lines: dict[str, dict[str, Any]], out: Path) -> None:
    assert lines["no_steps"]["files"] == [] and not (out / "no_steps").exists()
    why = (
        "no torch trace: the program ended after 0 steps, before step 10: it has neither an optimizer nor a DataLoader"
    )
    assert lines["no_steps"]["error"].startswith(why)
    assert f"stackyard: {why}" in (out / "err").read_text()
    assert lines["too_few"]["error"].endswith("after 5 steps, before step 10: trace earlier ones")


def test_a_trace_that_ends_early_has_what_there_is(lines: dict[str, dict[str, Any]], out: Path) -> None:
    assert lines["cut_off"]["running"] is True
    assert steps(trace(out, "cut_off")) == [10, 11, 12, 13]
    assert steps(trace(out, "warned")) == [10, 11, 12, 13] and lines["warned"]["steps"] == [10, 13]


def test_shapes_and_memory(lines: dict[str, dict[str, Any]], out: Path) -> None:
    events = trace(out, "shapes")["traceEvents"]
    assert any("Input Dims" in event.get("args", {}) for event in events)
    assert any(event["name"] == "[memory]" for event in events)
    assert not any("Input Dims" in event.get("args", {}) for event in trace(out, "plain")["traceEvents"])


def test_the_ranks_of_a_task(lines: dict[str, dict[str, Any]], out: Path) -> None:
    assert steps(trace(out, "of_task")) == STEPS
    assert lines["other_rank"] == {"name": "other_rank", "running": False, "files": [], "steps": None, "error": ""}


@pytest.mark.parametrize(
    ("name", "why"), [("full_disk", "is that disk full? (OSError)"), ("file/no-directory", "(NotADirectoryError)")]
)
def test_a_disk_that_takes_nothing(lines: dict[str, dict[str, Any]], out: Path, name: str, why: str) -> None:
    """It is said, nothing is left, and the program goes on."""
    assert lines[name]["files"] == [] and lines[name]["error"].endswith(why)
    assert not (out / name).is_dir() or not list((out / name).iterdir())


def test_of_a_running_program(lines: dict[str, dict[str, Any]], out: Path) -> None:
    assert (lines["running"]["steps"], steps(trace(out, "running"))) == ([0, 4], [0, 1, 2, 3])
    assert lines["seconds"]["steps"] is None and len(steps(trace(out, "seconds"))) > 2
    assert lines["without"]["refused"].startswith("steps: it has neither an optimizer nor a DataLoader")


def test_nothing_is_left_of_it(lines: dict[str, dict[str, Any]], out: Path) -> None:
    assert not list(out.rglob("*.part")) and not list((out / "tmp").iterdir())
