"""Whether what root's automounter should mount can be reached: in a mount namespace that it does not reach, each access
hangs until the process is killed.

The kernel asks the automounter, which mounts in its own namespace. What it mounts there is seen in another one only if
mounts are passed on to that (mount_namespaces(7): shared or slave, not private, which `unshare -m` makes).
"""

from __future__ import annotations

from pathlib import Path

from stackyard.errors import MissingError
from stackyard.host.command import CommandError, run
from stackyard.host.readonly import unescaped

ANSWER_S = 30.0
"""For the automounter to mount an image: it takes some hundredths of a second."""


def require_answer(folder: Path) -> None:
    """Do nothing where the automounter is not in charge of a directory, else wait for it.

    Raises:
        MissingError: it does not answer here.
    """
    if not _is_automounted(folder):
        return
    try:
        run(["stat", "--format=%i", f"{folder}/."], check=False, timeout_s=ANSWER_S)
    except CommandError as error:
        raise MissingError(
            f"{folder} does not answer: timed out after {ANSWER_S:g} s waiting for this node's automounter (autofs)",
            hint="make a mount namespace of its own with `unshare --propagation slave`, not private (findmnt -o "
                 "TARGET,PROPAGATION shows which it is); outside of one ask root: systemctl status autofs",
        ) from error  # fmt: skip


def _is_automounted(folder: Path) -> bool:
    """Whether the last mount at exactly this place, in this namespace, is one of the automounter. Source: proc(5)."""
    kind = b""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        if unescaped(before.split(b" ")[4]) == bytes(folder):
            kind = after.split(b" ")[0]
    return kind == b"autofs"
