"""A tree removed by descriptors (`host.files.at.remove_tree`), beside the same tree removed by paths."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.tools import PYTHON, scratch

DIRECTORIES, FILES = 1000, 20
BY_PATHS = """
import os, shutil, stat
def remove(name):
    for folder, _, _ in os.walk(name):
        mode = os.lstat(folder).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)
    shutil.rmtree(name)
"""
BY_DESCRIPTORS = """
import os
from stackyard.host.files import at, copying
top = os.open(".", at.DIR)
def remove(name):
    at.remove_tree(top, name)
"""
TIMED = """
import os
remove("warm")
start = sum(os.times()[:2])
remove("tree")
print(sum(os.times()[:2]) - start)
"""


def measure(pairs: int = 7) -> list[Figure]:
    """Seconds of processor time, by descriptors over by paths."""
    times = []
    for pair in range(pairs):
        both = {how: _took(how) for how in ((BY_PATHS, BY_DESCRIPTORS) if pair % 2 else (BY_DESCRIPTORS, BY_PATHS))}
        times.append((both[BY_DESCRIPTORS], both[BY_PATHS]))
    medians = [statistics.median(side) for side in zip(*times, strict=True)]
    what = f"removing {DIRECTORIES * FILES:,} files by descriptors, processor time"
    ratios = tuple(ours / other for ours, other in times)
    return [Figure(what, "by paths", ratios, 1.1, absolute=f"{medians[0]:.2f} : {medians[1]:.2f} s")]


def _took(how: str) -> float:
    with scratch("removing") as top:
        for name, count in (("tree", DIRECTORIES), ("warm", 5)):
            _make(top / name, count)
        done = subprocess.run([PYTHON, "-c", how + TIMED], cwd=top, capture_output=True, text=True, check=True)
        return float(done.stdout)


def _make(top: Path, count: int) -> None:
    for number in range(count):
        directory = top / str(number // 50) / str(number)
        directory.mkdir(parents=True)
        for file in range(FILES):
            (directory / str(file)).touch(mode=0o444)
        directory.chmod(0o555)
    for directory in top.iterdir():
        directory.chmod(0o555)
