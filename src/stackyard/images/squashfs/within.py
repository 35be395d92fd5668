"""Calls a function of this program where the image of a revision is mounted: outside, only its stubs are visible.

python -m stackyard.images.squashfs.within DIRECTORY    carries out the call that `call` has written there
"""

from __future__ import annotations

import errno
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stackyard.core.errors import StackyardError
from stackyard.host.files.scratch import scratch
from stackyard.images.squashfs.enter import TRIES, run_module_within, server_ended, staying_mounted
from stackyard.yard.kinds.payload import Payload

NAME = "stackyard.images.squashfs.within"
LIMIT_S = 6 * 3600.0
A = TypeVar("A")
R = TypeVar("R")


def call(payload: Payload, function: Callable[[A], R], argument: A, what: str, *, again: bool = True) -> R:
    """The result of a function that reads the files of a revision at their paths.

    Args:
        again: call it once more where the server of the image ends meanwhile; it must be possible to repeat it.
        function: one of a module, by whose name the other process finds it.
        what: what the function does, for the error: "building the image of demo/1".

    Raises:
        MissingError: the image cannot be mounted on this machine.
        StackyardError: what the function raises, or its process ended.
    """
    if payload.is_visible:
        return function(argument)
    for _ in range(TRIES if again else 1):
        with scratch("within") as work:
            (work / "call").write_bytes(pickle.dumps((payload, function, argument)))
            done = run_module_within(payload, NAME, str(work), timeout_s=LIMIT_S)
            if not (work / "result").exists():
                raise StackyardError(f"{what} exited with status {done.returncode}", detail=done.output)
            result, error, is_lost = pickle.loads((work / "result").read_bytes())
        if not is_lost:
            break
    else:
        raise server_ended(payload)
    if error is not None:
        raise error
    value: R = result
    return value


def main(work: Path) -> None:
    """Carry out the call, and write its result or its error beside it."""
    payload, function, argument = pickle.loads((work / "call").read_bytes())
    result, failure = None, None
    try:
        with staying_mounted(payload):
            result = function(argument)
    except StackyardError as error:
        failure = error
    (work / "result").write_bytes(pickle.dumps((result, failure, is_lost(payload.root))))


def is_lost(root: Path) -> bool:
    """Whether the server of a mounted image has ended, so that nothing that was read of it late is certain."""
    try:
        os.statvfs(root)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
