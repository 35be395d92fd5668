"""Files staged on 64 nodes by the tree of the agents, beside 64 nodes that each read them from the shared file system.

The nodes are real agents and ranks on this machine, each with a directory of its own. The shared file system is bindfs,
which gives all of its readers together `RATE` bytes a second: one file server. What is copied between nodes here costs
this machine's two cores, which the nodes of a cluster do not share: the tree's time is that of 64 checksums and copies.
Bytes are those that the FUSE server was asked for, by its own reads (/proc/PID/io).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.measure import Figure, shown
from benchmarks.tools import scratch

NODES = 64
SIZE = 32 << 20
RATE = 100_000_000


def measure(pairs: int = 1) -> list[Figure]:
    """Bytes read from the shared file system, and seconds until all nodes have the files."""
    found = [(staged(), each_by_itself()) for _ in range(pairs)]
    (ours_s, ours_read), (theirs_s, theirs_read) = found[-1]
    where = f"{SIZE >> 20} MiB staged on {NODES} nodes"
    against = "every node reads it by itself"
    return [
        Figure(f"{where}: bytes read from the shared file system", against, tuple(a[1] / b[1] for a, b in found),
               1.5 / NODES, absolute=f"{shown(ours_read, '')} : {shown(theirs_read, '')}"),
        Figure(f"{where}: time, at {RATE // 1_000_000} MB/s for all readers", against,
               tuple(a[0] / b[0] for a, b in found), 0.5, absolute=f"{ours_s:.1f} s : {theirs_s:.1f} s"),
    ]  # fmt: skip


def staged() -> tuple[float, int]:
    """Seconds of staging, and the bytes that were read for it."""
    from stackyard.launch.plan.model import Stage

    with shared() as (directory, source, read):
        plan = replace(_plan("true"), stage=Stage(((source.name, str(source)),)))
        result = _run(directory, plan)
        assert result.staged is not None and result.staged.nodes == NODES
        return result.staged.seconds, read()


def each_by_itself() -> tuple[float, int]:
    """The same for ranks that copy the file to their node's directory, from the first that begins to the last."""
    with shared() as (directory, source, read):
        times = directory / "times"
        times.mkdir()
        code = f"date +%s.%N > {times}/$RANK; cp {source} $STACKYARD_DIR/copy; date +%s.%N >> {times}/$RANK"
        _run(directory, _plan("sh", "-c", code))
        both = [[float(line) for line in file.read_text().split()] for file in times.iterdir()]
        assert len(both) == NODES
        return max(end for _, end in both) - min(begin for begin, _ in both), read()


def _plan(*argv: str) -> Any:
    from support.watched import local_line, make_plan

    return make_plan(local_line(NODES, 1), NODES, 1, *argv)


def _run(directory: Path, plan: Any) -> Any:
    from stackyard.launch.records.paths import StepPaths
    from stackyard.launch.run.step import WatchOptions, run_step
    from support.watched import Heard

    result = run_step(StepPaths(directory / "run"), plan, Heard(), run="x", options=WatchOptions(start_s=300))
    if result.state != "done":
        raise SystemExit(f"{result.first}\n{result.launcher_output}")
    return result


@contextmanager
def shared() -> Iterator[tuple[Path, Path, Callable[[], int]]]:
    """A directory, a file in a file system of limited speed, and what says how much of it was read.

    Meanwhile the nodes of this process's launches have their disks in that directory.
    """
    from support.bindfs import bindfs

    with scratch("staging") as directory:
        for name in ("below", "disks"):
            (directory / name).mkdir()
        (directory / "below/data").write_bytes(os.urandom(SIZE))
        limited = (f"--read-rate={RATE}", "-o", "direct_io")
        own = {"STACKYARD_TMP": str(directory / "disks")}
        with bindfs(directory / "below", directory / "shared", *limited) as server, mock.patch.dict(os.environ, own):
            before = _read_by(server.pid)
            yield directory, directory / "shared/data", lambda: _read_by(server.pid) - before


def _read_by(pid: int) -> int:
    """Bytes that a process has read, from wherever: of a FUSE server also its requests, which are small."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))
