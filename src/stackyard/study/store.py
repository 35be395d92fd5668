"""The files of a study.

studies/resnet/
  study.yaml            what was asked
  study.json            the seed, where it runs, what each variant was: written once, before anything runs
  jobs/n0002-a01.json   the runs of one allocation, in their order: written once
  jobs/n0002-a01/1/     an attempt: `run` names the batch job's run directory; who starts it first makes `begun`
  points/<point>.json   one record per run: its attempts, with the run directory and what was measured
  runs/                 the run directories of all of them
  table.csv, report.*   made of these at any time
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from stackyard.core.below import Below
from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.study.directory import new_directory
from stackyard.study.schedule import JobPlan, Point
from stackyard.study.table import Row, table_text
from stackyard.yard import formats, members
from stackyard.yard.write import atomic

FORMAT = 1
_RUN = re.compile(r"runs/[A-Za-z0-9-]{1,40}")


@dataclass(frozen=True)
class StudyPaths:
    """The directory of a study."""

    root: Path

    request = Below("study.yaml")
    about = Below("study.json")
    jobs = Below("jobs")
    points = Below("points")
    runs = Below("runs")
    table = Below("table.csv")
    lease = Below("lease/controller")
    """Held by the one process that submits jobs, or runs them here."""

    def point(self, name: str) -> Path:
        """The record of a point."""
        return self.points / f"{name}.json"

    def attempts(self, job: str) -> list[Path]:
        """The attempts of a job, oldest first."""
        found = (path for path in (self.jobs / job).glob("*") if path.name.isdecimal())
        return sorted(found, key=lambda path: int(path.name))


@dataclass(frozen=True)
class About:
    """The state of a study before its first run.

    Attributes:
        how: ``jobs``: as batch jobs; ``here``: on this machine, or in this allocation.
        command: the command line that made it.
        variants: of each variant the module and the lock's hash, or the image with its size and time.
        remarks: sentences about the request that a report repeats.
    """

    seed: int
    how: str
    created: str
    command: tuple[str, ...]
    user: str
    host: str
    versions: dict[str, str] = field(default_factory=dict)
    site: str = ""
    variants: dict[str, dict[str, str]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One run of a point.

    Attributes:
        run: its run directory, relative to the study.
        place: the scheduler's job that it ran in, else the machine: runs of a pair have the same.
        state: ``running``, ``done``, ``failed``, ``no-value`` or ``interrupted``.
        message: why it is not done.
        measured: what was read from its output (`study.metrics.Measured`).
        seconds: from its start to its end; the start-up is included.
    """

    run: str
    state: str
    place: str = ""
    message: str = ""
    code: int | None = None
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    started: float = 0
    seconds: float = 0
    command: str = ""
    measured: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PointRecord:
    """A point with its attempts; without any it is missing."""

    point: Point
    attempts: tuple[Attempt, ...] = ()

    @property
    def last(self) -> Attempt | None:
        """The attempt that counts."""
        return self.attempts[-1] if self.attempts else None

    @property
    def state(self) -> str:
        """Of the attempt that counts; ``missing`` without one."""
        return self.last.state if self.last else "missing"

    def is_settled(self, *, again: bool = False) -> bool:
        """Whether it needs no further run. `again`: what failed is tried once more."""
        return self.state == "done" or (not again and self.state in ("failed", "no-value"))

    def with_attempt(self, attempt: Attempt) -> PointRecord:
        """The record with one more attempt, or with the same run's newer state."""
        kept = [each for each in self.attempts if each.run != attempt.run]
        return replace(self, attempts=(*kept, attempt))


def _attempts(values: dict[str, Any]) -> tuple[Attempt, ...]:
    """The attempts of a point; a study may be read by another account."""
    found = tuple(members.make(Attempt, each) for each in values["attempts"])
    for each in found:
        numbers = (each.code or 0, each.ranks, each.started, each.seconds)
        if not all(abs(number) < 1e15 for number in numbers):
            raise ValueError(f"a number that cannot be calculated with: {numbers!r:.100}")
        if not _RUN.fullmatch(each.run):
            raise ValueError(f"not a run directory of this study: {each.run!r:.100}")
    return found


_ABOUT = formats.Kind(FORMAT, lambda values: members.make(About, values), error=InputError)
_JOB = formats.Kind(FORMAT, JobPlan.from_json, error=InputError)
_POINT = formats.Kind(FORMAT, _attempts, error=InputError)


def create(paths: StudyPaths, text: str, about: About, jobs: Iterable[JobPlan]) -> None:
    """Write a new study: as a whole, or not at all, also where another process writes one to the same place.

    Raises:
        InputError: the directory is not empty.
        StackyardError: it cannot be written.
    """
    with new_directory(paths.root, f"stackyard bench --continue {paths.root}; or -o ANOTHER") as place:
        draft = StudyPaths(place)
        for directory in (draft.jobs, draft.points, draft.runs):
            directory.mkdir(parents=True)
        atomic.write_text(draft.request, text)
        for job in jobs:
            add_job(draft, job)
        atomic.write_json(draft.about, {"format": FORMAT, **asdict(about)})


def add_job(paths: StudyPaths, job: JobPlan) -> None:
    """Store a job before it is submitted."""
    atomic.write_json(paths.jobs / f"{job.id}.json", {"format": FORMAT, **job.to_json()})


def read_about(paths: StudyPaths) -> About:
    """The state before the first run.

    Raises:
        InputError: the directory is not a study, or the file is damaged.
    """
    if not paths.about.exists():
        raise InputError(f"{paths.root} is not a study: it has no study.json",
                         hint="name the directory that `stackyard bench` printed")  # fmt: skip
    return formats.load(paths.about, _ABOUT)


def read_jobs(paths: StudyPaths) -> list[JobPlan]:
    """The jobs so far, by size and allocation. Raises InputError."""
    found = [formats.load(path, _JOB) for path in paths.jobs.glob("*.json")]
    return sorted(found, key=lambda job: (job.nodes, job.allocation))


def read_point(paths: StudyPaths, point: Point) -> PointRecord:
    """The record of a point; without attempts if it has not run. Raises InputError."""
    file = paths.point(point.id)
    return PointRecord(point, formats.load(file, _POINT) if file.exists() else ())


def read_points(paths: StudyPaths) -> Iterator[PointRecord]:
    """The records of all points, in the order of the runs. Raises InputError."""
    return (read_point(paths, point) for job in read_jobs(paths) for point in job.points)


def write_point(paths: StudyPaths, record: PointRecord) -> None:
    """Store a record. Raises StackyardError."""
    attempts = [asdict(attempt) for attempt in record.attempts]
    atomic.write_json(paths.point(record.point.id), {"format": FORMAT, "attempts": attempts})


def new_attempt(paths: StudyPaths, job: JobPlan) -> Path:
    """The directory of the next attempt of a job."""
    number = len(paths.attempts(job.id)) + 1
    directory = paths.jobs / job.id / str(number)
    directory.mkdir(parents=True)
    return directory


WITHDRAWN = "withdrawn"
"""In place of a job: an attempt that is not carried out."""


def begin(attempt: Path, job: str) -> bool:
    """Whether this job may carry an attempt out, or `WITHDRAWN` take it back: only the first one that asks may.

    So a job that is submitted twice, or starts after its controller was killed and gave it up, runs nothing. The same
    job may ask again: its scheduler has started it again, after a preemption, and goes on where it was.

    Raises:
        StackyardError: the file system failed.
    """
    try:
        with (attempt / "begun").open("x", encoding="utf-8") as stream:
            stream.write(json.dumps({"job": job}) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        return job != WITHDRAWN and _begun_by(attempt) == job
    except OSError as error:
        raise StackyardError(f"cannot write {attempt / 'begun'}: {(error.strerror or '').lower()}") from error
    return True


def _begun_by(attempt: Path) -> str:
    """The job that an attempt belongs to; empty if its file was not written to its end."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(at.read_regular(attempt / "begun"))["job"])
    return ""


def rows(paths: StudyPaths) -> Iterator[Row]:
    """All rows of the table: one per run and metric, in the order of the runs; those that have not run too."""
    for record in read_points(paths):
        yield from _rows_of(record)


def write_table(paths: StudyPaths) -> None:
    """Write ``table.csv`` as the records are now. Raises StackyardError."""
    atomic.write_text(paths.table, table_text(rows(paths)))


def _rows_of(record: PointRecord) -> Iterator[Row]:
    point, last = record.point, record.last or Attempt("", "missing")
    values = last.measured.get("values") or [{"name": "", "value": None, "unit": ""}]
    for measured in values:
        yield Row(
            point.nodes, last.ranks, point.variant, point.repeat, point.allocation, point.order, point.warmup,
            measured["name"], measured["value"], measured["unit"], " ".join(last.hosts), last.run, record.state,
        )  # fmt: skip
