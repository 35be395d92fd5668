"""Measures the import of stacks: what one import asks for, then the times of growing numbers of ranks.

Each measurement is an ordinary launch of `probe.py`, whose run directory stays. All of the stacks take turns, so that
what changes on the machine meanwhile meets all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.launch.api import jobs, runs
from stackyard.launch.api.calls import recorded_here
from stackyard.launch.api.jobs import Intent, Job, Workspace
from stackyard.study import variants
from stackyard.study.execute import why_of
from stackyard.study.imports import probe
from stackyard.study.imports.model import Cores, Fit, Point, fitted, predictions
from stackyard.study.request import StudyRequest, Variant

MOST_PER_NODE = 64
LOCAL = frozenset((
    "btrfs", "devpts", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "fuse.fuse-overlayfs", "fuse.squashfuse",
    "fuse.squashfuse_ll", "overlay", "proc", "ramfs", "rootfs", "squashfs", "sysfs", "tmpfs", "xfs", "zfs",
))  # fmt: skip
"""File systems whose names do not come from a server; in an image, its one file does."""
WARM = 0.5
"""An import that takes less than this share of the first one finds names that its node has kept."""


@dataclass(frozen=True)
class ImportRequest:
    """What is measured.

    Attributes:
        variants: the stacks and images; empty: the Python on PATH.
        staged: each image also as a copy on the nodes.
        modules: empty: the first of `probe.KNOWN` that a stack has.
        nodes, per_node: how many are measured; empty: 1, 2, 4 ... up to those of the allocation, and the cores.
        repeat: how often; the median counts.
        pause_s: seconds before each measurement, in which nodes forget names.
        cold: a shell command for each node before each measurement, which makes it forget names.
        ranks_per_node: in predictions; 0: the most that are measured.
    """

    variants: dict[str, Variant]
    staged: bool = False
    modules: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    per_node: tuple[int, ...] = ()
    repeat: int = 3
    pause_s: float = 0
    cold: str = ""
    ranks_per_node: int = 0

    @property
    def all_variants(self) -> dict[str, Variant]:
        """The variants, with the staged ones."""
        named = self.variants or {"python": Variant()}
        images = {name: each for name, each in named.items() if each.container and self.staged}
        copies = {name: variant.model_copy(update={"stage": ("stack",)}) for name, variant in images.items()}
        return named | {f"{name}-staged": variant for name, variant in copies.items()}


@dataclass(frozen=True)
class Storm:
    """The import of one stack.

    Attributes:
        identity: module and lock's hash, or the image.
        one: what a single import asks for, as `probe` prints it.
        first_s, again_s: the first import, and the next one on the same node.
        points: the medians of the times of the slowest rank.
        fit: None: the server was not loaded.
    """

    variant: str
    identity: dict[str, str]
    one: dict[str, Any]
    first_s: float
    again_s: float
    points: tuple[Point, ...]
    cores: Cores
    fit: Fit | None = None
    predicted: tuple[Mapping[str, object], ...] = ()

    @property
    def shared_names(self) -> int:
        """The names that are not on file systems of the node itself, nor within an image."""
        return sum(number for kind, number in self.one["file_systems"].items() if kind not in LOCAL)

    @property
    def keeps_names(self) -> bool:
        """Whether a node keeps names between two imports."""
        return self.again_s < WARM * self.first_s

    @property
    def is_warm(self) -> bool:
        """Whether the measurements found names that nodes had kept: then no server was asked."""
        return min(point.seconds for point in self.points) < WARM * self.first_s


def launches(request: ImportRequest, workspace: Workspace) -> list[dict[str, object]]:
    """The measurements of each variant without running one: nodes, ranks per node and the command line of the ranks.

    Raises:
        InputError, MissingError: a launch cannot be planned, or a scheduler is here and no allocation.
    """
    bench = [_Bench(request, name, variant, workspace) for name, variant in request.all_variants.items()]
    return [
        {"variant": one.name, "nodes": nodes, "ranks_per_node": per_node, "repeat": request.repeat,
         "command": jobs.launch_command(one.planned(nodes, per_node, "time").plan(), "RUN")}
        for nodes, per_node in _shapes(request, bench[0]) for one in bench
    ]  # fmt: skip


def measure(request: ImportRequest, workspace: Workspace, tell: Callable[[str], None]) -> list[Storm]:
    """Measure each variant.

    Args:
        tell: is called with a sentence for each measurement.

    Raises:
        InputError, MissingError: a launch cannot be planned, or a scheduler is here and no allocation.
        StackyardError: a module cannot be imported.
    """
    bench = {name: _Bench(request, name, variant, workspace) for name, variant in request.all_variants.items()}
    ones, times = {}, dict[tuple[str, int, int], list[Point]]()
    for name, one in bench.items():
        one.forget(1)
        first, again = one.run(1, 1, "time"), one.run(1, 1, "time")
        counted = one.run(1, 1, "trace")[0]
        ones[name] = (counted, first[0]["seconds"], again[0]["seconds"])
        tell(f"{name}: {counted['names']:,} names, {first[0]['seconds']:.2f} s, {again[0]['seconds']:.2f} s again")
    shapes = _shapes(request, next(iter(bench.values())))
    for number in range(1, request.repeat + 1):
        for nodes, per_node in shapes:
            for name, one in bench.items():
                one.forget(nodes)
                ranks = one.run(nodes, per_node, "time")
                slowest = max(ranks, key=lambda rank: float(rank["seconds"]))
                point = Point(nodes, per_node, slowest["seconds"], slowest["waited_s"])
                times.setdefault((name, nodes, per_node), []).append(point)
                tell(f"{name}: {nodes} x {per_node}: {point.seconds:.2f} s ({number} of {request.repeat})")
    return [_storm(one, shapes, times, *ones[name]) for name, one in bench.items()]


def _storm(
    bench: _Bench, shapes: Sequence[tuple[int, int]], times: Mapping[tuple[str, int, int], list[Point]],
    one: dict[str, Any], first_s: float, again_s: float,
) -> Storm:  # fmt: skip
    measured = [times[bench.name, nodes, per_node] for nodes, per_node in shapes]
    points = tuple(sorted(runs, key=lambda point: point.seconds)[len(runs) // 2] for runs in measured)
    cores = Cores(one["cpu_s"], bench.cores)
    fit = fitted(points, cores)
    per_node = bench.ranks_per_node or max(point.per_node for point in points)
    predicted = tuple(predictions(fit, cores, per_node)) if fit else ()
    return Storm(bench.name, bench.identity, one, first_s, again_s, points, cores, fit, predicted)


def _shapes(request: ImportRequest, bench: _Bench) -> list[tuple[int, int]]:
    """Numbers of nodes and of ranks on each: more ranks on one node, more nodes with one, and the most of both."""
    nodes = request.nodes or _doubled(bench.most_nodes)
    per_node = request.per_node or _doubled(min(bench.cores, MOST_PER_NODE))
    found = {(1, each) for each in per_node} | {(each, 1) for each in nodes} | {(max(nodes), max(per_node))}
    return sorted(found | {(1, 1)})


def _doubled(most: int) -> tuple[int, ...]:
    powers = [1 << power for power in range(most.bit_length())]
    return tuple(dict.fromkeys([*powers, most]))


def result_of(text: str) -> dict[str, Any]:
    """The result in the output of a rank; empty without one."""
    try:
        found = json.loads(text.rpartition(probe.MARK)[2].splitlines()[0]) if probe.MARK in text else {}
    except (ValueError, IndexError):  # another thread of the program has written into the line
        return {}
    return found if isinstance(found, dict) else {}


class _Bench:
    """The launches of one variant."""

    def __init__(self, request: ImportRequest, name: str, variant: Variant, workspace: Workspace) -> None:
        self.name, self._request, self._variant = name, request, variant
        self.ranks_per_node = request.ranks_per_node
        self._workspace, self._modules = workspace, ",".join(request.modules)
        self._code = Path(probe.__file__).read_text(encoding="utf-8")
        job = self._job(1, 1, ("python", "-c", "0"))
        allocation = job.context.allocation
        if allocation is None and job.context.scheduler != "none":
            raise InputError("no allocation: imports are measured on nodes that you have",
                             hint="e.g. salloc -N 4 stackyard bench imports ...")  # fmt: skip
        self.most_nodes = len(allocation.hosts) if allocation else 1
        self.identity = variants.identity(job, variant)
        self.cores = job.plan().layout.node.cores

    def _job(self, nodes: int, per_node: int, program: tuple[str, ...]) -> Job:
        study = StudyRequest(job=Intent(program=program, backend="any"), variants={self.name: self._variant})
        intent = variants.intent_of(study, self.name, nodes, self._workspace.environ)
        shape = {"ranks_per_node": per_node, "cores_per_rank": 1, "gpus_per_rank": 0, "oversubscribe": True}
        changed = intent.model_copy(update={**shape, "logs": "all"})
        return jobs.launch_job(variants.workspace_of(self._workspace, self._variant, self._workspace.runs), changed)

    def forget(self, nodes: int) -> None:
        """Have the nodes forget names, as requested."""
        if self._request.cold:
            self._ended(self._job(nodes, 1, ("sh", "-c", self._request.cold)))
        time.sleep(self._request.pause_s)

    def planned(self, nodes: int, per_node: int, how: str) -> Job:
        """One measurement."""
        return self._job(nodes, per_node, ("python", "-c", self._code, self._modules, how))

    def run(self, nodes: int, per_node: int, how: str) -> list[dict[str, Any]]:
        """What each rank has measured; the modules are settled by the first one."""
        paths = self._ended(self.planned(nodes, per_node, how))
        logs = [runs.rank_log(paths, rank) for rank in range(nodes * per_node)]
        texts = [log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists()]
        found = [result for text in texts if (result := result_of(text))]
        if len(found) < nodes * per_node:
            raise StackyardError(f"{len(found)} of {nodes * per_node} ranks have printed a result",
                                 hint=f"their logs are in {paths.root}")  # fmt: skip
        self._modules = ",".join(found[0]["modules"])
        return found

    def _ended(self, job: Job) -> runs.RunPaths:
        recorded = jobs.record_launch(job)
        with recorded_here(recorded) as here:
            here.wait()
        status = runs.current_status(recorded.paths)
        if not status.ended_well:
            raise StackyardError(f"cannot measure {self.name}: {why_of(status)}",
                                 hint=f"`stackyard runs show {recorded.paths.root}` has its output")  # fmt: skip
        return recorded.paths
