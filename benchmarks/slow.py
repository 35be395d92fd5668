"""`slow_fs.c`, a pass-through file system that models a shared one: built, and mounted over a directory for a while."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.tools import HERE


def build(program: Path) -> None:
    """Compile it; where something for that is missing, the benchmark ends and says what."""
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False)
    if flags.returncode or shutil.which("gcc") is None:
        raise SystemExit(
            "slow_fs: gcc, pkg-config or the headers of libfuse 3 not found: install gcc pkg-config libfuse3-dev"
        )
    subprocess.run(["gcc", "-O2", str(HERE / "slow_fs.c"), "-o", str(program), *flags.stdout.split()], check=True)


@contextmanager
def mounted(program: Path, place: Path, delay_us: int, kept_s: int, *options: str) -> Iterator[Callable[[], int]]:
    """A directory on the slow file system meanwhile; what says how many operations that had."""
    below, counted = place.with_name(f"{place.name}.below"), place.with_name(f"{place.name}.count")
    place.rename(below)
    place.mkdir()
    asked = {"SLOW_BASE": below, "SLOW_US": delay_us, "SLOW_KEPT_S": kept_s, "SLOW_COUNT": counted}
    env = {**os.environ, **{name: str(value) for name, value in asked.items()}}
    server = subprocess.Popen([str(program), "-f", *options, str(place)], env=env)
    try:
        while not os.path.ismount(place):
            time.sleep(0.02)
        yield lambda: _operations(server.pid, counted)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # the kernel gives loop devices back late
        server.kill()
        server.wait(10)
        place.rmdir()
        below.rename(place)


def _operations(pid: int, counted: Path) -> int:
    counted.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    while not (counted.exists() and counted.read_text().endswith("\n")):
        time.sleep(0.01)
    return int(counted.read_text())
