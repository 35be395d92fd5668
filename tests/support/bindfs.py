"""A file system in user space whose server can be stopped: then no call there returns. Also used by the benchmarks."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import programs

UNCACHED = ("-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0")
"""Options with which the kernel asks the server for everything."""
MOUNT_S = 20.0


@contextmanager
def bindfs(below: Path, mounted: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A directory as a file system at another one, both created where they are missing; the server.

    Raises:
        MissingError: bindfs not found on this machine.
        RuntimeError: it has not mounted within `MOUNT_S`.
    """
    programs.require("bindfs")
    for directory in (below, mounted):
        directory.mkdir(exist_ok=True)
    server = subprocess.Popen(["bindfs", "-f", *options, str(below), str(mounted)])
    try:
        until = time.monotonic() + MOUNT_S
        while not os.path.ismount(mounted):
            if time.monotonic() > until or server.poll() is not None:
                raise RuntimeError(f"bindfs: cannot mount {mounted}")
            time.sleep(0.02)
        yield server
    finally:
        server.send_signal(signal.SIGCONT)
        subprocess.run(["fusermount3", "-u", "-z", str(mounted)], check=False)
        server.kill()  # a lazy unmount waits for what is still open
        server.wait(60)
