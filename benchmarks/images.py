"""An environment as one file beside the same environment as a prefix: imports from a shared file system, and warm ones.

Both are deployed from one list of packages into one yard. The shared file system is `slow_fs.c`: 5 ms for every
operation on names and attributes, which it counts. For the times clients keep names for a second and a pause of more
lies before each import; the operations are counted with names kept for 30 s, as NFS clients keep those of directories,
and told for one second too. "One at a time" is a server that is loaded by others. Many at once are started by one
process that runs in the environment, as `stackyard launch` does it on each node: right after the mount, and later, as
the local disk has them that they are compared with: what is imported is in memory there. The image is mounted in two
ways: by the kernel (as root or autofs would) and by the launcher with squashfuse_ll, where nobody has set anything up.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import inputs, slow
from benchmarks.measure import Figure, alternate, figure_of, seconds
from benchmarks.tools import environment, stackyard
from stackyard.images.squashfs import bykernel

DELAY_US = 5000
KEPT_S, LONG_KEPT_S, FORGOTTEN_S = 1, 30, 1.5
MOST_OPERATIONS = 16
STORM, STORMS = 16, 3
IMPORTS = "import numpy, scipy, pandas"
STORM_OF_IMPORTS = f"""\
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", "{IMPORTS}"]) for _ in range({STORM})]
sys.exit(max(process.wait() for process in started))
"""
Mounted = Callable[[], AbstractContextManager[None]]
CONDA, PIP = ("python=3.11", "numpy"), ("scipy", "pandas")


class Run(NamedTuple):
    """Seconds of some processes, and the operations of the file system meanwhile."""

    seconds: float
    operations: int


@dataclass(frozen=True)
class Way:
    """One way to have the environment at its prefix: its name, and the reaches of the figures."""

    name: str
    warm: float
    second: float
    storm: float
    kernel: bool


WAYS = (Way("kernel mount", 1.05, 15, 1.2, True), Way("squashfuse_ll", 1.35, 12, 1.6, False))


def measure(pairs: int = 15) -> list[Figure]:
    """Operations and times of imports through each way of mounting, over those of the plain prefix."""
    with deployed() as bed:
        figures = [figure for way in WAYS for figure in warm(bed, way, pairs)]
        return figures + shared(bed)


def warm(bed: Bed, way: Way, pairs: int) -> list[Figure]:
    """On the local disk, all in memory: an import, and the start of a command."""
    with bed.mounted(way):
        packed, plain = (lambda: bed.import_once(bed.packed)), (lambda: bed.import_once(bed.plain))
        figures = [figure_of(f"warm import, {way.name}", "plain prefix", alternate(packed, plain, pairs), way.warm)]
        if not way.kernel:
            started = alternate(lambda: bed.start(bed.packed), lambda: bed.start(bed.plain), pairs)
            more = tuple((ours - theirs) * 1000 for ours, theirs in started)
            figures.append(Figure("start of python through its stub: ms more", "plain prefix", more, 5))
        return figures


def shared(bed: Bed) -> list[Figure]:
    """On the slow file system: one process after the other, then many at once with a server that does one at a time."""
    plain = Side(*bed.imports(bed.plain, nullcontext), (), bed.operations(bed.plain, nullcontext))
    found = []
    for way in WAYS:
        packed = partial(bed.mounted, way)
        ours = Side(*bed.imports(bed.packed, packed), bed.storms(packed), bed.operations(bed.packed, packed))
        found += [_operations_of(way, ours, plain), *_times_of(way, ours, plain)]
    return found


class Storms(NamedTuple):
    """Many imports at once: right after the mount, later, and those from the local disk that followed."""

    first: float
    later: float
    local: float


class Side(NamedTuple):
    """What was measured of one side: the first import, the next, many at once, later; many at once with those from the
    local disk; operations of one and of many."""

    first: Run
    second: Run
    many: Run
    storms: Sequence[Storms]
    operations: tuple[int, int]


def _operations_of(way: Way, ours: Side, plain: Side) -> Figure:
    both = f"{ours.operations[0]}, {ours.operations[1]} : {plain.operations[0]}, {plain.operations[1]}"
    short = f"with names kept for {KEPT_S} s: {ours.many.operations} : {plain.many.operations} for {STORM}"
    return Figure(f"{way.name}: operations on the shared path, the most of 1 and {STORM} imports", "-",
                  (max(ours.operations),), MOST_OPERATIONS, absolute=both, note=short)  # fmt: skip


def _times_of(way: Way, ours: Side, plain: Side) -> list[Figure]:
    what = ("first import", "next import", f"{STORM} at once, later, one operation at a time")
    found = [
        figure_of(f"{way.name}, {DELAY_US / 1000:g} ms per operation, {name}: how much faster", "plain prefix",
                  [(mine.seconds, theirs.seconds)], reach, at_least=True, unit="s")
        for name, mine, theirs, reach in zip(what, ours[:3], plain[:3], (8, way.second, 12), strict=True)
    ]  # fmt: skip
    for name, reach in (("later", way.storm), ("first", None)):
        pairs = [(getattr(storms, name), storms.local) for storms in ours.storms]
        when = "later" if reach else "right after the mount"
        found.append(figure_of(f"{way.name}, the same {STORM}, {when}", "local disk", pairs, reach, unit="s"))
    return found


@dataclass(frozen=True)
class Bed:
    """A yard with both environments, and the slow file system that can take its place."""

    directory: Path
    plain: Path
    packed: Path

    @property
    def yard(self) -> Path:
        """Where the yard is, whichever file system it is on."""
        return self.directory / "yard"

    @property
    def _env(self) -> dict[str, str]:
        return {**environment(self.directory), "STACKYARD_TMP": str(self.directory / "node")}

    def import_once(self, prefix: Path) -> float:
        """Seconds of one process that imports the packages."""
        return seconds([prefix / "bin" / "python", "-c", IMPORTS], env=self._env)

    def start(self, prefix: Path) -> float:
        """Seconds of one process that does nothing."""
        return seconds([prefix / "bin" / "python", "-c", "pass"], env=self._env)

    def storm(self, prefix: Path) -> float:
        """Seconds of a process that starts many which import the packages."""
        return seconds([prefix / "bin" / "python", "-c", STORM_OF_IMPORTS], env=self._env)

    def storms(self, mounted: Mounted) -> list[Storms]:
        """In turn, some times: many at once right after a new mount, many later, and many from the local disk."""
        self.storm(self.plain)
        found = []
        for _ in range(STORMS):
            with self.slow(DELAY_US, KEPT_S, "-s"), mounted():
                first = self.storm(self.packed)
                time.sleep(FORGOTTEN_S)
                later = self.storm(self.packed)
            found.append(Storms(first, later, self.storm(self.plain)))
        return found

    def imports(self, prefix: Path, mounted: Mounted) -> tuple[Run, Run, Run]:
        """The first import after the mount, the next one, and, with a server that does one at a time, many later."""
        with self.slow(DELAY_US, KEPT_S) as count, mounted():
            first = self._counted(count, lambda: self.import_once(prefix))
            time.sleep(FORGOTTEN_S)
            second = self._counted(count, lambda: self.import_once(prefix))
        with self.slow(DELAY_US, KEPT_S, "-s") as count, mounted():
            self.import_once(prefix)
            time.sleep(FORGOTTEN_S)
            return first, second, self._counted(count, lambda: self.storm(prefix))

    def operations(self, prefix: Path, mounted: Mounted) -> tuple[int, int]:
        """The operations of one import and of many, each after a new mount, where names are kept for long."""
        found = []
        for run in (self.import_once, self.storm):
            with self.slow(0, LONG_KEPT_S) as count, mounted():
                found.append(self._counted(count, partial(run, prefix)).operations)
        return found[0], found[1]

    @staticmethod
    def _counted(count: Callable[[], int], run: Callable[[], float]) -> Run:
        before = count()
        return Run(run(), count() - before)

    @contextmanager
    def mounted(self, way: Way) -> Iterator[None]:
        """The image where the packages are imported from it: mounted now by the kernel, or at the first command."""
        if way.kernel:
            subprocess.run(bykernel.words(self.packed.parent / "image.sqsh", str(self.packed)), check=True)
        try:
            yield
        finally:
            if way.kernel:
                subprocess.run(["umount", str(self.packed)], check=True)
            else:
                _end_servers(self.packed.parent / "image.sqsh")

    def slow(self, delay_us: int, kept_s: int, *options: str) -> AbstractContextManager[Callable[[], int]]:
        """The yard on the slow file system meanwhile; what says how many operations that had."""
        return slow.mounted(self.directory / "slow_fs", self.yard, delay_us, kept_s, *options)


def _end_servers(image: Path) -> None:
    ended = ["pkill", "-f", f"squashfuse_ll.*{image}"]
    while subprocess.run(ended, check=False).returncode == 0:
        time.sleep(0.02)


@contextmanager
def deployed() -> Iterator[Bed]:
    """Deploy both environments, and build the slow file system."""
    from support.testbed import real_channel

    if os.geteuid() != 0:
        raise SystemExit("images: run it as root: it mounts an image by the kernel")
    with tempfile.TemporaryDirectory(prefix="stackyard-bench-images-") as name:
        directory = Path(name)
        slow.build(directory / "slow_fs")
        (directory / "node").mkdir()
        for stack, form in (("plain", "prefix"), ("packed", "squashfs")):
            file = directory / stack / "environment.yml"
            file.parent.mkdir()
            inputs.environment_file(file, real_channel(), CONDA, PIP)
            stackyard(directory, "deploy", file, "--version", "1", "--image", form)
        prefixes = [next((directory / "yard/stacks" / stack).iterdir()) / "prefix" for stack in ("plain", "packed")]
        yield Bed(directory, *prefixes)
