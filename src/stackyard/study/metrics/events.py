"""TensorBoard's event files, read by the TensorBoard of the stack that wrote them, in a subprocess."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.files import at
from stackyard.host.run import command
from stackyard.launch.api.runs import RunPaths, RunStatus, read_run
from stackyard.study.metrics.formats import RATE_NAMES, known_quantity, step_time
from stackyard.study.metrics.measured import Quantity
from stackyard.study.metrics.series import NoValueError, Series
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import read_record

USUAL = ("runs", "logs", "lightning_logs", "tb_logs", "tensorboard", "output")
"""Where programs write event files, below the directory that they run in."""
MOST_DIRECTORIES, MOST_EVENT_DIRECTORIES = 2000, 20


def event_directories(
    paths: RunPaths, status: RunStatus, part: str = ".tfevents.", most: int = MOST_EVENT_DIRECTORIES
) -> list[Path]:
    """The directories with event files that were written during a run: in its own, and in the usual ones of its cwd.

    Args:
        part: of the names of the files.
        most: how many directories; the others are left out.
    """
    record = read_run(paths)
    here = Path(str(record.intent.get("cwd") or record.code.get("directory") or ""))
    tops = [paths.root, *(here / name for name in USUAL if here.is_absolute())]
    directories = (directory for top in tops for directory in _below(top, status.started - 60, part))
    return list(dict.fromkeys(islice(directories, most)))


def _below(top: Path, since: float, part: str) -> Iterator[Path]:
    try:
        fd = os.open(top, at.DIR)
    except OSError:
        return
    with at.closing(fd):
        for _, path, entries in islice(at.walk(fd, on_error=lambda _: None), MOST_DIRECTORIES):
            files = [one for one in entries if part in one.name and one.is_file(follow_symlinks=False)]
            if any(one.stat(follow_symlinks=False).st_mtime >= since for one in files):
                yield top / path


def read_events(
    paths: RunPaths, directories: Sequence[Path], tags: Mapping[str, Quantity]
) -> list[tuple[Quantity, Series]]:
    """Named tags and rates by their names; without any the time of a step, from when values were written.

    Raises:
        NoValueError: the Python of the run's stack has no TensorBoard, or cannot read the files.
    """
    request = {"directories": [str(one) for one in directories], "tags": list(tags), "names": RATE_NAMES.pattern}
    rows = _asked(paths, json.dumps(request))
    quantities = {tag: tags.get(tag) or known_quantity(tag) for tag in rows}
    found = [(quantity, _series(rows[tag])) for tag, quantity in quantities.items() if quantity]
    return found or [(step_time(), _times(max(rows.values(), key=len, default=[])))]


def _series(rows: list[list[float]]) -> Series:
    series = Series()
    for (before, *_), (step, _, value) in pairwise([*rows[:1], *rows]):
        series.add(value, max(step - before, 1))
    return series


def _times(rows: list[list[float]]) -> Series:
    series = Series()
    for (step, wall, _), (later, end, _) in pairwise(rows):
        if later > step:
            series.add((end - wall) / (later - step), later - step)
    return series


def _asked(paths: RunPaths, request: str) -> dict[str, list[list[float]]]:
    record = read_run(paths)
    environ = command.clean_environment(PYTHONDONTWRITEBYTECODE="1", TF_CPP_MIN_LOG_LEVEL="3")
    words, stack = ["python3"], "python3"
    try:
        if folder := record.stack.get("folder"):
            if paths.record.stat().st_uid != os.geteuid():  # what it names may be that account's too
                raise NoValueError(
                    "event files are not read: the Python that a run of another account names is not run"
                )
            stack = record.stack.get("module", folder)
            payload = read_record(RevisionPaths.of(Path(folder)).record).payload
            words, environ = payload.command([str(payload.python)], environ)
        program = Path(__file__).with_name("events_program.py").read_text(encoding="utf-8")
        done = command.run([*words, "-c", program, request], env=environ, timeout_s=120, check=False)
        if "No module named 'tensorboard" in done.stderr:
            raise NoValueError(f"event files are not read: TensorBoard not found in {stack}; add it there")
        return dict(json.loads(done.stdout))
    except (StackyardError, ValueError) as error:
        raise NoValueError(f"event files are not read by the TensorBoard of {stack}: {error}") from error
