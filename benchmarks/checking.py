"""``stackyard fsck --deep`` of one revision beside sha256sum of the same files, on as many cores; with its memory.

Both find the files in the page cache, so what is compared is the work and not the disk.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

from benchmarks import inputs
from benchmarks.measure import Figure, alternate, figure_of
from benchmarks.tools import STACKYARD, environment, scratch, stackyard

TARGET, TARGET_MIB = 1.5, 200.0


def measure(pairs: int = 5) -> list[Figure]:
    """Seconds over those of sha256sum, and MiB over what it is to stay under."""
    from support.testbed import real_channel

    with scratch("fsck") as directory:
        file = directory / "checked" / "environment.yml"
        file.parent.mkdir()
        inputs.environment_file(file, real_channel())
        stackyard(directory, "deploy", file, "--version", "1")
        (root,) = (directory / "yard" / "stacks" / "checked").iterdir()
        memory: list[float] = []
        found = alternate(lambda: _fsck(directory, memory), lambda: _sha256sum(root), pairs)
        count, size = _counted(root)
    what, against = "fsck --deep of a revision", f"sha256sum on {_cores()} cores"
    note = f"{count:,} files, {size / 2**20:,.0f} MiB, in the page cache"
    return [
        figure_of(what, against, found, TARGET, unit="s", note=note),
        Figure(f"{what}, memory", f"{TARGET_MIB:g} MiB", tuple(m / TARGET_MIB for m in memory), 1.0,
               absolute=f"{max(memory):.0f} MiB"),
    ]  # fmt: skip


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _fsck(directory: Path, memory: list[float]) -> float:
    """Seconds of a check; what it took of memory at most is added to the list, in MiB."""
    words = [STACKYARD, "--yard", directory / "yard", "fsck", "checked", "--deep"]
    started = time.perf_counter()
    child = subprocess.Popen(words, env=environment(directory), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    taken = time.perf_counter() - started
    if status:
        raise SystemExit(f"fsck exited with status {os.waitstatus_to_exitcode(status)}")
    usage: resource.struct_rusage = used
    memory.append(usage.ru_maxrss / 1024)
    return taken


def _sha256sum(root: Path) -> float:
    """Seconds of sha256sum over all files of the revision."""
    line = f'find "$1" -type f -print0 | xargs -0 -n 200 -P {_cores()} sha256sum > /dev/null'
    started = time.perf_counter()
    subprocess.run(["sh", "-c", line, "sh", root], check=True)
    return time.perf_counter() - started


def _counted(root: Path) -> tuple[int, int]:
    """Files and bytes of a revision."""
    sizes = [path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return len(sizes), sum(sizes)
