"""KAUST's first demonstration of Ray Tune (kaust-rccl/hpo-with-ray, demo1), without its head and worker scripts.

What changes is named in docs/howto/tune.md: `ray.init()` without an address, the place of the results, and for Ray 2.7
and newer the dictionary of `tune.report`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from study.tunebed import events, results
from support import venvs
from support.slurm import SlurmCluster
from support.slurmcli import Work, working

pytestmark = [pytest.mark.real, pytest.mark.long]
HELLO = """\
import os, sys
import ray
from ray import tune

def trainable(config):
    for x in range(20):
        tune.report({"score": config["a"] * x**0.5 + config["b"]})
    if config["b"] > 100:
        raise ValueError("no such data")

ray.init()
print("nodes", len(ray.nodes()), flush=True)
analysis = tune.run(trainable, num_samples=4, resources_per_trial={"cpu": 1},
                    storage_path=os.environ["STACKYARD_DIRECTORY"], verbose=0,
                    config={"a": tune.uniform(0, 20), "b": tune.uniform(0, 20)})
print("best", analysis.get_best_config(metric="score", mode="max"), flush=True)
"""
SPACE = "format: 1\nparameters: {a: {uniform: [0, 20]}, b: {uniform: [0, 20]}}\nmetric: {name: score}\n"


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path, hello_tune=HELLO) as made:
        (made.directory / "space.yaml").write_text(SPACE)
        yield made


def test_a_program_for_ray_tune_runs_on_two_nodes_and_its_trials_are_in_the_table(work: Work) -> None:
    try:
        python = venvs.frameworks()
    except MissingError as error:
        pytest.skip(error.message)
    study = work.directory / "studies" / "hello_tune"
    words = ("-N", "2", "--cores-per-trial", "2", "--gpus-per-trial", "0", "--shared", "-t", "10")
    done = work.run("tune", "--engine", "ray", "space.yaml", "hello_tune.py", *words,
                    PATH=f"{python.parent}:{os.environ['PATH']}")  # fmt: skip
    assert results(study) == {(trial, 0): 1 for trial in range(4)}
    best = max(events(study, "ended"), key=lambda event: event["value"])
    assert f"Best score: {best['value']:.4g}"[:14] in done.out and f"trial {best['trial']}" in done.out
    log = "".join(path.read_text() for path in (study / "runs").glob("*/logs/rank-00000.log"))
    assert "nodes 2" in log and "best {" in log
    again = work.run("tune", "--continue", study)
    assert "4 of 4 trials have a result" in again.out and len(results(study)) == 4
    work.nothing_left()
