"""Whether a file system mounted on a directory responds: an access to one that does not hangs until a kill.

A mount by root's automounter may not reach a mount namespace: the automounter mounts in its own namespace, and other
namespaces see that only with mount propagation (mount_namespaces(7): shared or slave, not private as made by `unshare
-m`). And a FUSE server may be stopped, or wait for a shared file system itself.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import MissingError
from stackyard.host.files import filesystem
from stackyard.host.run.command import CommandError, run

ANSWER_S = 30.0
"""For the automounter to mount an image, or a server to answer: it takes some hundredths of a second."""
_AUTOMOUNTER = (
    "this node's automounter (autofs)",
    "make a mount namespace of its own with `unshare --propagation slave`, not private (findmnt -o "
    "TARGET,PROPAGATION shows which it is); outside of one ask root: systemctl status autofs",
)
_SERVER = (
    "the file system server of its mount (squashfuse_ll)",
    "see whether it is stopped (ps -C squashfuse_ll -o pid,stat,args: T) and let it go on (kill -CONT PID); else "
    "remove the mount: stackyard image unmount",
)


def answers(directory: Path) -> bool:
    """Whether the mounted file system answers a stat within `ANSWER_S`; tested in a child process."""
    try:
        run(["stat", "--file-system", "--format=%i", f"{directory}/."], check=False, timeout_s=ANSWER_S)
    except CommandError:
        return False
    return True


def require_answer(directory: Path) -> None:
    """Wait for the automounter or the FUSE server of a directory, if there is one.

    Raises:
        MissingError: it does not answer here.
    """
    kind = next((mount.kind for mount in reversed(filesystem.mounts()) if mount.where == str(directory)), "")
    if (kind != "autofs" and not kind.startswith("fuse")) or answers(directory):
        return
    whom, hint = _AUTOMOUNTER if kind == "autofs" else _SERVER
    raise MissingError(f"{directory} does not answer: timed out after {ANSWER_S:g} s waiting for {whom}", hint=hint)
