"""Run a program where no read-only view can be made: in a chroot of the same files, without the privilege to mount."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.accounts import Account

_SCRIPT = 'mount --rbind / "$0" && exec chroot "$0" "$@"'


def confined(directory: Path, argv: Sequence[str | Path], account: Account | None = None) -> list[str]:
    """The command line that runs `argv` so, as root or as an account. `directory` is empty and becomes the new root.

    The kernel makes no user namespace for a process in a chroot.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("a chroot needs root, unshare and setpriv")
    directory.mkdir(exist_ok=True)
    drop = ["setpriv", "--bounding-set=-sys_admin"]
    if account is not None:
        drop += [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
    return ["unshare", "--mount", "sh", "-c", _SCRIPT, str(directory), *drop, *map(str, argv)]
