"""Runs a command, and records which shared libraries its processes have mapped: one file per rank. Runs on the nodes.

    python watch.py FOLDER VARIABLES COMMAND...

VARIABLES: the variables that may have the rank's number, joined by commas; the first one set counts. It stays outside
of the image and reads /proc/PID/maps of the processes that it started, so the image needs no support for it. The maps
are read again and again until the command ends, because libraries come and go. Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

FIRST_S, LATER_S, FIRST_READS = 0.005, 0.1, 400


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    pids: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            pids += [int(word) for word in (thread / "children").read_text().split()]
    except OSError:  # it, or one of its threads, has just ended
        pass
    return pids


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    pids, queue = [], [pid]
    while queue:
        current = queue.pop()
        pids.append(current)
        queue += children(current)
    return pids


def mapped(pid: int, known: Container[str]) -> dict[str, list[int]]:
    """The shared libraries that a process has mapped, as it sees them: path to device and inode.

    Device and inode are from stat(2), since on btrfs and overlayfs the device in proc(5)'s maps differs.
    """
    files: dict[str, list[int]] = {}
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:  # it has ended
        return files
    for line in lines:
        words = line.split(None, 5)
        if len(words) == 6 and ".so" in words[5] and words[5] not in known:
            with suppress(OSError):  # it has just ended, or the file was removed
                status = Path(f"/proc/{pid}/root{words[5]}").stat()
                files[words[5]] = [status.st_dev, status.st_ino]
    return files


def main() -> int:
    """Run the command, write the mappings of its processes, and exit with its status."""
    directory, names, command = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
    process = subprocess.Popen(command, close_fds=False)  # PMI_FD is one of them
    files: dict[str, list[int]] = {}
    reads = 0
    while process.poll() is None:
        for pid in descendants(process.pid):
            files.update(mapped(pid, files))
        reads += 1
        time.sleep(FIRST_S if reads < FIRST_READS else LATER_S)
    rank = next((os.environ[name] for name in names if name in os.environ), "0")
    said = {"rank": int(rank), "host": socket.gethostname(), "code": process.returncode, "files": files}
    place = directory / f"rank-{rank}-{os.getpid()}-{socket.gethostname()}.json"
    place.with_suffix(".new").write_text(json.dumps(said))
    place.with_suffix(".new").replace(place)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
