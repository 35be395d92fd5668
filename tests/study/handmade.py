"""A study directory made by hand, as `stackyard bench` leaves it, without running anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from stackyard.study import store
from stackyard.study.request import StudyRequest, study_text
from stackyard.study.schedule import Point, planned
from stackyard.study.store import About, Attempt, PointRecord, StudyPaths

Value = Callable[[Point], Any]
"""A value, a list of measured values, or the message of a failure, by the point; None: it has not run."""
RATE = {"name": "images/s", "unit": "images/s", "better": "higher", "kind": "rate"}


def noisy(seed: int = 1, noise: float = 0.01, gain: float = 1.06, cold: float = 0.7) -> Value:
    """Images per second of a program that scales well; the second variant is faster; warm-ups are slow."""
    random = Random(seed)

    def value(point: Point) -> float:
        ideal = 410.0 * point.nodes**0.95 * (gain if point.variant not in ("job", "native") else 1)
        return ideal * (1 + noise * (random.random() + random.random() - 1) * 2) * (cold if point.warmup else 1)

    return value


def make_study(
    root: Path, value: Value, *, metric: dict[str, str] = RATE, how: str = "jobs", variants: Sequence[str] = (),
    place: Callable[[Point], str] | None = None, command: str = "", remarks: Sequence[str] = (), seed: int = 7,
    hosts: Callable[[Point], tuple[str, ...]] | None = None, **request: Any,
) -> Path:  # fmt: skip
    """Write a study with the values that `value` gives.

    Args:
        place: the scheduler's job of a run; as planned by default.
        request: further keys of its study.yaml.
    """
    job = {"program": ["train.py", "--batch", "64"], "ranks_per_node": 4}
    asked = {"job": job, "nodes": (1, 2, 4), **({"variants": {name: {} for name in variants}} if variants else {})}
    wanted = StudyRequest(**{**asked, **request})
    about = About(
        seed, how, "2026-11-21T09:30:00+0100", ("stackyard", "bench", "train.py", "--nodes", "1,2,4"), "ada", "login1",
        {"stackyard": "0.1.0"}, "/etc/stackyard/site.yaml",
        {name: {"module": f"{name}/2.13", "lock": "sha256:4f1d0c"} for name in wanted.all_variants}, tuple(remarks),
    )  # fmt: skip
    paths = StudyPaths(root)
    jobs = list(planned(wanted, seed, together=how == "here"))
    store.create(paths, study_text(wanted), about, jobs)
    points = [point for job in jobs for point in job.points]
    for number, point in enumerate(points, 1):
        found = value(point)
        if found is None:
            continue
        failed = isinstance(found, str)
        run = f"runs/2026-11-21-{number:03d}"
        measured = found if isinstance(found, list) else [] if failed else [{**metric, "value": found}]
        own = hosts(point) if hosts else tuple(f"node{(point.allocation * 7 + i) % 40:03d}" for i in range(point.nodes))
        where = place(point) if place else f"{4000 + 50 * point.nodes + point.allocation}"
        where = place(point) if place else f"{4000 + 50 * point.nodes + point.allocation}"
        attempt = Attempt(
            run, "failed" if failed else "done", place=where,
            message=found if failed else "", code=1 if failed else 0, ranks=4 * point.nodes, hosts=own,
            started=1_795_000_000.0 + 120 * number, seconds=97.25,
            command=command or f"srun -N {point.nodes} -n {4 * point.nodes} --cpu-bind=cores --output=none "
            f"--export=ALL {root}/{run}/rank.sh",
            measured={"values": measured},
        )  # fmt: skip
        store.write_point(paths, PointRecord(point, (attempt,)))
    return root
