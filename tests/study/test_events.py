"""TensorBoard's event files, written and read by the TensorBoard of a deployed stack."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.records.paths import RunPaths
from stackyard.study.metrics.model import Metric
from stackyard.study.metrics.read import read_run
from study.metricsbed import run_of
from support import torchstack

pytestmark = [pytest.mark.real]

WRITE = """\
import sys
from tensorboard.summary import Writer
writer = Writer(sys.argv[1])
for i in range(40):
    at = 2000 + i * 0.5 + (4 if i else 0)  # the first step is slow
    if "rate" in sys.argv:
        writer.add_scalar("train/images_per_s", 20.0 if i < 5 else 128.0, 10 * i, wall_time=at)
    writer.add_scalar("loss", 1.0 / (i + 1), 10 * i, wall_time=at)
writer.close()
"""
"""Every tenth step is written; `add_scalar` of this class is TensorFlow 2's form, scalars as tensors."""


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return torchstack.python(torchstack.tensorboard_yard())
    except MissingError as error:
        pytest.skip(error.message.splitlines()[0])


def wrote(python: Path, directory: Path, *what: str, **record: object) -> RunPaths:
    """A run whose program wrote event files below the directory that it ran in."""
    subprocess.run([python, "-c", WRITE, directory / "logs" / "version_0", *what], check=True)
    code = {"directory": str(directory)}
    return run_of(directory, "trained\n", stack={"folder": str(python.parents[2]), "module": "board/1"}, code=code)


def test_a_rate_of_event_files_is_known_by_its_tag(python: Path, tmp_path: Path) -> None:
    measured = read_run(wrote(python, tmp_path, "rate"), energy=False)
    assert not measured.problems
    (rate,) = measured.values
    assert (rate.name, rate.value, rate.source) == ("train/images_per_s", 128, "TensorBoard")
    assert rate.spread is not None and rate.spread.first == 20


def test_without_a_rate_the_times_between_values_are_those_of_steps(python: Path, tmp_path: Path) -> None:
    (time,) = read_run(wrote(python, tmp_path), energy=False).values
    assert (time.name, time.value, time.kind) == ("step_seconds", pytest.approx(0.05), "time")
    assert time.spread is not None and time.spread.first == pytest.approx(0.45)


def test_a_declared_tag(python: Path, tmp_path: Path) -> None:
    paths = wrote(python, tmp_path, "rate")
    metrics = (Metric(name="images", tag="train/images_per_s", unit="img/s"), Metric(name="other", tag="absent"))
    measured = read_run(paths, metrics, energy=False)
    assert [str(one) for one in measured.values] == ["128 img/s"]
    assert measured.problems == ("other: not in the output of any rank; see its log",)


def test_a_stack_without_tensorboard_is_named(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = wrote(python, tmp_path, "rate")
    record = paths.record.read_text().replace(str(python.parents[2]), "")
    paths.record.write_text(record)
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python3").write_text("#!/bin/sh\nexec " + os.path.realpath(python) + ' -S "$@"\n')
    (other / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{os.environ['PATH']}")
    said = "event files are not read: TensorBoard not found in python3; add it there"
    measured = read_run(paths, energy=False)
    assert measured.notes == (said,)
    declared = read_run(paths, (Metric(name="images", tag="loss"),), energy=False)
    assert declared.problems == (f"images: {said}",)


def test_files_of_an_earlier_run_are_left_out(python: Path, tmp_path: Path) -> None:
    paths = wrote(python, tmp_path, "rate")
    for file in tmp_path.rglob("*tfevents*"):
        os.utime(file, (100, 100))
    assert not read_run(paths, energy=False).values


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another account: needs root")
def test_what_a_run_of_another_account_names_is_not_executed(python: Path, tmp_path: Path) -> None:
    paths = wrote(python, tmp_path, "rate")
    os.chown(paths.record, 65534, 65534)
    measured = read_run(paths, energy=False)
    assert measured.notes == ("event files are not read: the Python that a run of another account names is not run",)
