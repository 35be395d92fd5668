"""Carries out a recorded launch in a separate process, as a Python program needs it.

So the caller's signals, threads and limits are not changed, its work does not delay the hub, and `stackyard runs
cancel` interrupts that process and not the caller.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

from stackyard.host.run import process
from stackyard.launch.jobs.recording import Run
from stackyard.launch.records.private import write_private
from stackyard.launch.records.record import read_status, write_status

MOST_SAID = 2000
"""Characters of what it printed, in the message of a launch that failed before its ranks started."""


class LocalLaunch:
    """A running recorded launch. It ends when this process ends, for any reason."""

    def __init__(self, run: Run) -> None:
        """Start the launch. Its output goes to ``batch.log``, as for a batch job.

        Raises:
            StackyardError: it cannot be started.
        """
        self.run = run
        workspace = run.job.workspace
        argv = workspace.stackyard("launch", "--with-caller", "--recorded", str(run.paths.root))
        write_private(run.paths, run.plan.private if run.plan else {})
        self._child = process.start(argv, log=run.paths.batch_log, env=workspace.environ, with_caller=True)
        self._settled = threading.Event()
        threading.Thread(target=self._settle, name=f"stackyard {run.paths.name}", daemon=True).start()

    def interrupt(self) -> None:
        """Terminate the ranks, as Ctrl-C does."""
        self._child.signal(signal.SIGINT, whole=False)

    def wait(self) -> None:
        """Wait until the launch has ended and its end is recorded."""
        self._settled.wait()

    def _settle(self) -> None:
        code = self._child.wait() or 0
        try:
            self._record(code)
        finally:
            self._settled.set()

    def _record(self, code: int) -> None:
        """Record the end of a process that failed before the ranks started, and so recorded none."""
        paths = self.run.paths
        status = read_status(paths)
        if status.over:
            return
        state = "cancelled" if code == 128 + signal.SIGINT else "failed"
        said = self._child.output().strip()[-MOST_SAID:] or f"the launcher process {process_end(code)}"
        with suppress(OSError):
            write_status(paths, replace(status, state=state, code=code or 1, ended=time.time(), message=said))


def process_end(code: int) -> str:
    """A description of a process's end, by its code."""
    return f"was ended by signal {code - 128}" if code > 128 else f"exited with status {code}"


def end_with_caller() -> None:
    """End this process with SIGTERM as soon as its standard input is closed, which happens when the caller ends."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="caller", daemon=True).start()
