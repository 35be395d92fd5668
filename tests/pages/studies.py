"""Scenes with studies: made by hand where a page reads one, measured on the cluster where it makes one."""

from __future__ import annotations

import cluster
from scene import Scene, plainly

from stackyard.study.schedule import Point
from study.handmade import make_study, noisy
from study.slurm_bed import SPEED
from support.desk import Desk

MET = [
    {"metric": "images/s", "nodes": 1, "value": 410, "low": 0.05},
    {"metric": "images/s", "nodes": 4, "value": 2000, "low": 0.05},
]


def compared(desk: Desk) -> None:
    good = noisy()

    def value(point: Point) -> object:
        return "no space" if (point.repeat, point.nodes, point.variant) == (3, 2, "native") else good(point)

    make_study(desk.here / "studies/resnet", value, variants=("native", "pytorch.sif"))
    for name, seed in (("before", 1), ("after", 2)):
        make_study(desk.here / f"studies/{name}", noisy(seed), repeat=6)


def referred(desk: Desk) -> None:
    make_study(desk.here / "studies/resnet", noisy(), references=MET)


def measured(desk: Desk) -> None:
    cluster.login(desk)
    site = desk.directory / "site.yaml"
    site.write_text(site.read_text().replace("cores: 8", "cores: 8, gpu: {count: 4, vendor: nvidia}"))
    desk.write(train_py=SPEED.replace("images/s:", "total images/sec:"))


REPORT = "stackyard report studies/resnet"
SCENES = (
    Scene("report.md", (1, 2), plainly(compared)),
    Scene("regression.md", (1, 3), plainly(referred), ends={REPORT: 3}),
    Scene("bench.md", (1,), plainly(measured), nodes=True, long=True),
)
