"""Runs our own programs where the image of a revision is mounted."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.files import at
from stackyard.host.run.command import Result, run
from stackyard.yard.kinds.payload import Payload

CANNOT_MOUNT = 4
"""The exit status of the launcher where the image cannot be mounted on this machine."""
TRIES = 2
"""How often a program of ours is run where the server of its image ends meanwhile."""
_BUS_ERROR = (-signal.SIGBUS, 128 + signal.SIGBUS)
"""How a program ends that has mapped a file of an image whose server is gone."""


def staying_mounted(payload: Payload) -> AbstractContextManager[object]:
    """Keep a mounted image mounted: its server exits when no file has been open for a while."""
    return at.closing(os.open(payload.root, os.O_RDONLY | os.O_DIRECTORY))


def run_module_within(
    payload: Payload, module: str, *words: str, timeout_s: float, environ: Mapping[str, str] | None = None
) -> Result:
    """Run ``python -m MODULE WORDS`` of this program with an image mounted, and keep it mounted meanwhile.

    A server exits when no file of its image has been open for a while. On a busy machine, or with a short
    ``STACKYARD_IMAGE_IDLE_S``, that can be before Python has started and opened its first file of the image.

    Raises:
        MissingError, StackyardError, CommandError: as for `run_within`.
    """
    argv = ["/bin/sh", "-c", 'exec "$@" 9<"$0"', str(payload.root)]
    return run_within(payload, [*argv, sys.executable, "-m", module, *words], timeout_s=timeout_s, environ=environ)


def run_within(
    payload: Payload, argv: Sequence[str], *, timeout_s: float, environ: Mapping[str, str] | None = None
) -> Result:
    """Run a program by the launcher of an image; its file system server may stay running.

    If the server ends meanwhile, the program is run once more, in which case the image is mounted again: it must be one
    of ours, which can be repeated.

    Raises:
        MissingError: the image cannot be mounted on this machine.
        StackyardError: its file system server ended twice.
        CommandError: it timed out.
    """
    words, env = payload.command(argv, os.environ if environ is None else environ)
    for _ in range(TRIES):
        done = run(words, env=env, check=False, timeout_s=timeout_s, leaves_others=True)
        if done.returncode == CANNOT_MOUNT and "stackyard: " in done.stderr:
            raise _refused(done)
        if not done.returncode or not (done.returncode in _BUS_ERROR or os.strerror(errno.ENOTCONN) in done.output):
            return done
    raise server_ended(payload, done.output)


def server_ended(payload: Payload, detail: str = "") -> StackyardError:
    """The error for a file system server that ended while it was needed, more than once."""
    return StackyardError(
        f"the image mounted on {payload.root} could no longer be read: its server (squashfuse_ll) ended",
        hint="try again: the next command mounts it; look for the OOM killer in the kernel's log (dmesg)",
        detail=detail,
    )


def _refused(done: Result) -> MissingError:
    """What the launcher has written, as an error."""
    first, *rest = done.stderr.strip().splitlines()
    hint = next((line.removeprefix("  hint: ") for line in rest if line.startswith("  hint: ")), None)
    detail = "\n".join(line for line in rest if not line.startswith("  hint: "))
    return MissingError(first.removeprefix("stackyard: "), hint=hint, detail=detail)
