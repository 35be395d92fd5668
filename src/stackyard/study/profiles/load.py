"""The traces of a run, or of a directory: which files there are, read one after the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.launch.api.runs import RunPaths, ranks_per_task, read_run
from stackyard.study.metrics.measured import Memory
from stackyard.study.metrics.resources import memories
from stackyard.study.profiles.activity import read_trace
from stackyard.study.profiles.overview import Overview, RankView, rank_view

_TRACE = re.compile(r"(?!\.).*(?:rank|trace).*\.json(?:\.gz)?", re.IGNORECASE)
_RANK = re.compile(r"rank[-_]?(\d{1,7})", re.IGNORECASE)
MOST_FILES = 10_000
Progress = Callable[[int, int, Path], None]
"""Called before a file is read: its place among all, their number, and the file."""


def is_profile(path: Path) -> bool:
    """Whether a path is that of a trace, or of a directory of traces."""
    return path.is_file() or (path.is_dir() and bool(_traces(path)))


def overview(paths: Path, tell: Progress, ranks: Collection[int] = ()) -> Overview:
    """What the traces in a directory, or one file, show; see `run_overview`."""
    files = [paths] if paths.is_file() else _traces(paths)
    return _overview(paths.resolve().name, files, tell, ranks, {})


def run_overview(paths: RunPaths, tell: Progress, ranks: Collection[int] = ()) -> Overview:
    """What the traces of a run show.

    Args:
        ranks: read only these; empty: all that were traced.

    Raises:
        InputError: it has no traces of PyTorch, or none of them can be read.
    """
    files = _traces(paths.main.profile / "torch")
    if not files:
        read_run(paths)
        raise InputError(
            f"run {paths.name} has no traces of PyTorch: {paths.main.profile / 'torch'} is empty or missing",
            hint="trace some steps: `stackyard launch --profile torch:ranks=all:steps=10-20 PROGRAM`; while it runs: "
            "`stackyard profile RUN --steps 10`",
        )
    return _overview(paths.name, files, tell, ranks, _memory(paths))


def _traces(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False)
                     if _TRACE.fullmatch(entry.name)]  # fmt: skip
    except OSError:
        return []
    return [directory / name for name in sorted(names)]


def _overview(
    name: str, files: list[Path], tell: Progress, ranks: Collection[int], memory: dict[int, Memory]
) -> Overview:
    views: dict[int, RankView] = {}
    unread: dict[str, str] = {}
    known = [(int(match[1]) if (match := _RANK.search(path.name)) else at, path) for at, path in enumerate(files)]
    kept = [(rank, path) for rank, path in known if not ranks or rank in ranks]
    for at, (rank, path) in enumerate(kept):
        try:
            tell(at, len(kept), path)
            view = rank_view(read_trace(path, rank))
        except OSError as error:
            unread[path.name] = error.strerror or str(error)
            continue
        if not view.steps:
            unread[path.name] = view.trace.reading.cut or "it has no step and no operator of PyTorch's profiler"
        elif view.trace.rank in views:
            unread[path.name] = f"{views[view.trace.rank].trace.path.name} is of rank {view.trace.rank} too"
        else:
            views[view.trace.rank] = view
    if not views:
        why = "; ".join(f"{name}: {why}" for name, why in list(unread.items())[:3])
        raise InputError(f"no trace of {name} can be read: {why or 'none is of these ranks'}",
                         hint="traces are those of PyTorch's profiler: rank-00000.pt.trace.json.gz")  # fmt: skip
    return Overview(name, tuple(views[rank] for rank in sorted(views)), unread, memory)


def _memory(paths: RunPaths) -> dict[int, Memory]:
    """The most memory of each rank; none where a task has all ranks of its node, as torchrun's."""
    return {} if ranks_per_task(paths) > 1 else {one.rank: one for one in memories(paths)}
