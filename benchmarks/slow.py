"""`slow_fs.c`, a pass-through file system that models a shared one: built, and mounted over a directory for a while."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
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


@contextmanager
def nodes(program: Path, tree: Path, places: Sequence[Path], server_us: int, far_us: int) -> Iterator[None]:
    """Several mounts of one tree, as nodes with caches of their own that have one server.

    Args:
        server_us: microseconds of the server for an operation; it serves one at a time.
        far_us: microseconds of the network for an operation.
    """
    turn = places[0].with_name("server")
    turn.touch()
    asked = {"SLOW_BASE": tree, "SLOW_US": server_us, "SLOW_FAR_US": far_us, "SLOW_SERVER": turn, "SLOW_KEPT_S": 3600}
    env = {**os.environ, **{name: str(value) for name, value in asked.items()}}
    servers = []
    try:
        for place in places:
            place.mkdir()
            counted = {"SLOW_COUNT": f"{place}.count"}
            servers.append(subprocess.Popen([str(program), "-f", "-s", str(place)], env=env | counted))
        for place, server in zip(places, servers, strict=True):
            while not os.path.ismount(place):
                if server.poll() is not None:
                    raise SystemExit(f"slow_fs cannot mount {place}")
                time.sleep(0.02)
        yield
    finally:
        for place in places:
            if os.path.ismount(place):
                subprocess.run(["umount", "--lazy", str(place)], check=True)
        for server in servers:
            server.kill()
            server.wait(10)
