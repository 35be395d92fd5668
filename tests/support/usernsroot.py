"""Run a command as root of a user and mount namespace in which all numbers are the same: ``usernsroot.py COMMAND...``

Apptainer asks for every capability there is where root builds a definition; a container's own root has them only there.
"""

import ctypes
import os
import sys
from pathlib import Path

NEW_USER_AND_MOUNTS = 0x10000000 | 0x00020000


def main(argv: list[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    made, told = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        if libc.unshare(NEW_USER_AND_MOUNTS):
            sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
        os.write(made[1], b"x")
        os.read(told[0], 1)
        os.setgid(0)
        os.setuid(0)
        os.execvp(argv[0], argv)
    os.read(made[0], 1)
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{name}").write_text("0 0 65536\n")
    os.write(told[1], b"x")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
