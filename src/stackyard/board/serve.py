"""Runs a tool behind a UNIX socket in a directory of yours, and ends it with everything that it has started."""

from __future__ import annotations

import math
import os
import select
import signal
import socket as sockets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stackyard.board.prepared import Board
from stackyard.core.errors import MissingError, StackyardError, StopSignal
from stackyard.host.files.scratch import scratch
from stackyard.host.run import command, script
from stackyard.host.run.identity import hostname
from stackyard.launch.api.asking import is_over
from stackyard.launch.api.jobs import allocation_of

MOST_BYTES, OWN_BYTES = 107, len("/stackyard.board-123456789abc-12345678/s")
"""Of the path of a socket: sun_path of unix(7) has 108, the last one is NUL; and what is below $TMPDIR."""
REFUSED = "no network of its own: "
"""What `bridge` prints before the reason."""
_BRIDGE = Path(__file__).with_name("bridge.py")
ASK_S = 60
"""How often a scheduler is asked about a job."""
_GONE = select.POLLHUP | select.POLLERR


def serve(board: Board, port: int, ready: Callable[[Path], None]) -> None:
    """Run the tool until it ends, this process is interrupted, or its terminal is gone. Nothing is left then.

    Args:
        port: for your browser; a tool in a namespace of its own has the same one there.
        ready: called with the path of the socket once the tool answers there.

    Raises:
        MissingError: the tool needs a network namespace, which this machine does not give.
        CommandError: the tool failed.
        StackyardError: the job has ended that this process is in.
        StopSignal: the terminal is gone.
    """
    tool = board.tool
    too_long = len(os.fsencode(os.environ.get("TMPDIR", ""))) > MOST_BYTES - OWN_BYTES
    with scratch("board", beside=Path("/tmp") if too_long else None) as directory:
        socket = directory / "s"
        argv, environ = board.where.command(tool.command(board.place(directory / "shown"), socket, port))
        if not tool.has("socket"):
            argv = [*script.words(_BRIDGE), str(socket), str(port), *argv]
        # TensorBoard tells every account its address in $TMPDIR/.tensorboard-info
        environ = {**tool.variables, **environ, "TMPDIR": str(directory)}
        try:
            command.run(argv, env=environ, timeout_s=math.inf, watch=_watch(board, socket, ready))
        except command.CommandError as error:
            if tool.has("socket") or not error.result.stderr.startswith(REFUSED):
                raise
            why = f"it listens on a port, and gets {error.result.stderr.strip()}"
            raise MissingError(
                f"cannot keep {tool.name} from other accounts: {why}",
                hint="ask staff for user namespaces (sysctl user.max_user_namespaces), or use a tool that listens on a "
                "UNIX socket: tensorboard, optuna-dashboard, or any -- COMMAND {socket}",
            ) from error


def _watch(board: Board, socket: Path, ready: Callable[[Path], None]) -> Callable[[], None]:
    """A function, called while the tool runs: it tells when the tool answers, and ends it with terminal and job.

    On the nodes of a job its scheduler ends all processes; a command of salloc on a login node goes on.
    """
    terminal, waits, asked = select.poll(), [socket], [time.monotonic()]
    job = allocation_of(board.workspace)
    is_watched = job is not None and hostname().partition(".")[0] not in job.hosts
    for stream in (0, 1, 2) if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else ():  # it is under nohup
        if stream or os.isatty(stream):
            terminal.register(stream, 0)

    def look() -> None:
        if any(event & _GONE for _, event in terminal.poll(0)):
            raise StopSignal(signal.SIGHUP)
        if job and is_watched and time.monotonic() - asked[0] > ASK_S:
            asked[0] = time.monotonic()
            if is_over(job.scheduler, job.job):
                raise StackyardError(f"job {job.job} has ended, and its board with it")
        with suppress(OSError), sockets.socket(sockets.AF_UNIX) as client:
            if waits:
                client.connect(str(socket))
                ready(waits.pop())

    return look
