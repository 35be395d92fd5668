"""Trackers on nodes without internet: where they write, whose variables win, and what the end of a run says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from support import venvs
from support.cli import Done, stackyard
from support.slurm import SlurmCluster
from support.slurmcli import working

NAMES = ("WANDB_MODE", "WANDB_DIR", "MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE")
PROGRAM = f"""\
import json, os, sys
print("has", json.dumps({{name: os.environ.get(name) for name in {NAMES}}}))
if "write" in sys.argv:
    for number in range(2):
        os.makedirs(os.environ["WANDB_DIR"] + f"/wandb/offline-run-20261128-{{number}}")
    os.makedirs(os.environ["MLFLOW_TRACKING_URI"] + "/0")
"""
REAL = """\
import wandb
run = wandb.init(project="p")
run.log({"loss": 0.5})
run.finish()
"""
REAL_MLFLOW = """\
import mlflow
with mlflow.start_run():
    mlflow.log_metric("loss", 0.5)
"""


def launched(directory: Path, *words: str | Path, site: str = "launch: {offline: true}\n", **variables: str) -> Done:
    (directory / "site.yaml").write_text(site)
    (directory / "train.py").write_text(PROGRAM)
    own = {"STACKYARD_SITE": str(directory / "site.yaml"), "STACKYARD_HOME": str(directory / "yard")}
    return stackyard("launch", "-r", "1", "-g", "0", *words, cwd=directory, **own, **variables)


def has(done: Done) -> dict[str, str | None]:
    (line,) = (line for line in done.out.splitlines() if line.startswith("has "))
    found: dict[str, str | None] = json.loads(line.removeprefix("has "))
    return found


def run_in(directory: Path) -> Path:
    (run,) = (directory / "runs").iterdir()
    return run


def test_trackers_write_into_the_run_directory_and_its_end_says_how_to_go_on(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    done = launched(directory, "train.py", "write")
    run = run_in(directory)
    assert has(done) == dict(zip(NAMES, ("offline", str(run), f"{run}/mlruns", "true"), strict=True))
    sync = f"2 offline runs of Weights & Biases; to upload: wandb sync '{run}/wandb'/offline-run-*"
    look = f"MLflow wrote into {run}/mlruns; to look at it: stackyard board {run.name} --tool mlflow"
    for said in (sync, look):  # a terminal shows paths as they were typed
        assert said.replace(f"{directory}/", "") in done.err
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert sync in [event.get("text") for event in events]
    assert "WANDB_MODE" in launched(directory, "--dry-run", "train.py").out


def test_nothing_is_said_where_nothing_was_written_and_nothing_set_without_the_key(tmp_path: Path) -> None:
    quiet = launched(tmp_path, "train.py")
    assert has(quiet)["WANDB_MODE"] == "offline" and "Weights" not in quiet.err and "MLflow" not in quiet.err
    assert set(has(launched(tmp_path, "train.py", site="launch: {}\n")).values()) == {None}


@pytest.mark.parametrize("by", ["shell", "option", "site"])
def test_what_is_set_wins(tmp_path: Path, by: str) -> None:
    own = {"WANDB_MODE": "online", "MLFLOW_TRACKING_URI": "http://tracker:5000"}
    if by == "shell":
        done = launched(tmp_path, "train.py", **own)
    elif by == "option":
        done = launched(tmp_path, *(f"--env={name}={value}" for name, value in own.items()), "train.py")
    else:
        done = launched(tmp_path, "train.py", site=f"launch: {json.dumps({'offline': True, 'variables': own})}\n")
    assert has(done) == {**own, "WANDB_DIR": str(run_in(tmp_path)), "MLFLOW_ALLOW_FILE_STORE": "true"}


@pytest.mark.real
def test_a_batch_job_says_it_in_its_log(slurm: SlurmCluster, tmp_path: Path) -> None:
    with working(slurm, tmp_path, train=PROGRAM) as work:
        site = tmp_path / "site.yaml"
        site.write_text(site.read_text() + "launch: {offline: true}\n")
        work.run("submit", "-N", "1", "-r", "1", "-c", "1", "-g", "0", "-t", "2", "train.py", "write")
        assert f"wandb sync {work.last}/wandb/offline-run-*" in (work.last / "batch.log").read_text()


@pytest.mark.long
@pytest.mark.real
@pytest.mark.parametrize("package", ["wandb", "mlflow"])
def test_the_real_ones(tmp_path: Path, package: str) -> None:
    try:
        python = venvs.python(package)
    except MissingError as error:
        pytest.skip(error.message)
    (tmp_path / "real.py").write_text(REAL if package == "wandb" else REAL_MLFLOW)
    done = launched(tmp_path, "real.py", PATH=f"{python.parent}:{os.environ['PATH']}")
    run = run_in(tmp_path)
    if package == "wandb":
        assert "1 offline run of Weights & Biases" in done.err
        assert list(run.glob("wandb/offline-run-*/run-*.wandb")) and not (tmp_path / "wandb").exists()
    else:
        assert list(run.glob("mlruns/0/*/metrics/loss")) and "to look at it: stackyard board" in done.err
        assert not (tmp_path / "mlflow.db").exists() and not (tmp_path / "mlruns").exists()
