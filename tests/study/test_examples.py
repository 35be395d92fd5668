"""The studies of the examples: one that is planned for 144 nodes, and one that runs on four."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import programs
from support.cli import stackyard
from support.slurm import SlurmCluster
from support.slurmcli import Work, working
from support.torchstack import EXAMPLES, torch_yard

SMALL = "--depth 14 --width 8 --image-size 32 --classes 10 --samples 640 --steps 12"
SUMMIT = EXAMPLES / "summit-open-ce"


def test_the_study_of_144_nodes_is_planned_with_its_price(tmp_path: Path) -> None:
    words = ("--site", "site.yaml", "bench", "study.yaml", "--dry-run")
    shown = stackyard(*words, cwd=SUMMIT, STACKYARD_HOME=str(tmp_path)).out
    table, script = shown.split("\n\n")[0], shown.partition("#!/bin/bash\n")[2]
    assert table + "\n" == (SUMMIT / "golden/bench-144-nodes.txt").read_text()
    assert re.findall(r"#BSUB -(?:nnodes|W|P) .*", script) == ["#BSUB -P PROJ", "#BSUB -W 0:22", "#BSUB -nnodes 1"]
    assert "jsrun -n144 -r1 -g6 -a6" in shown
    assert not (SUMMIT / "studies").exists()


@pytest.fixture
def work(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Work]:
    with working(slurm, tmp_path) as made:
        yield made


@pytest.mark.real
@pytest.mark.long
def test_native_and_image_are_measured_on_one_two_and_four_nodes(work: Work, tmp_path: Path) -> None:
    programs.need("mksquashfs", "squashfuse")
    site = {"STACKYARD_HOME": str(work.directory / "yard"), "OMP_NUM_THREADS": "1"}
    copy = shutil.copytree(EXAMPLES / "resnet", work.directory / "resnet")
    parent = f"yard: {torch_yard()}\n"  # of the site; the image is in a user's
    with (tmp_path / "site.yaml").open("a") as stream:
        stream.write(parent)
    (tmp_path / "builds.yaml").write_text(parent)
    deploy = ("deploy", "stack.yaml", "--image", "squashfs", "--name", "resnet-image")
    stackyard("--site", tmp_path / "builds.yaml", *deploy, cwd=copy, **site)
    shape = ("-r", "1", "-c", "1", "-g", "0", "--shared", "-t", "5", "--allocations", "1", "--repeat", "1")
    words = ("bench", "study.yaml", *shape, "-o", "study", "--", *SMALL.split())
    shown = stackyard(*words, cwd=copy, expect=None, **work.cluster.environ(**site))
    assert shown.code == 3, shown.err  # one pair has no verdict
    rows = list(csv.DictReader((copy / "study/table.csv").open()))
    assert {(row["nodes"], row["ranks"], row["variant"], row["warmup"]) for row in rows} == {
        (n, n, variant, warmup) for n in "124" for variant in ("native", "image") for warmup in "01"
    }
    assert all(row["state"] == "done" and float(row["value"]) > 0 and row["unit"] == "images/s" for row in rows)
    for row in rows:
        record = json.loads((copy / "study" / row["run"] / "record.json").read_text())
        assert record["intent"]["program"][:3] == ["train.py", "--batch", str(16 * int(row["nodes"]))]
