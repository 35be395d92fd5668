"""Run a program where the kernel mounts no overlayfs for the launcher of an image: ``nooverlay.py PROGRAM ...``

A filter of system calls (seccomp(2)) refuses mount(2) with the flags by which the launcher, and nothing else, calls it.
Standard library only.
"""

import ctypes
import os
import platform
import struct
import sys

FLAGS = 1 | 2 | 4 | 2048  # read-only, nosuid, nodev, nodiratime
MOUNT = {"x86_64": 165, "aarch64": 40, "ppc64le": 21, "s390x": 21}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_NUMBER, _FOURTH = 0, 16 + 8 * 3 + (4 if sys.byteorder == "big" else 0)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main() -> None:
    """Install the filter, and become the program."""
    steps = [
        (_LOAD, 0, 0, _NUMBER), (_EQUAL, 0, 3, MOUNT[platform.machine()]),
        (_LOAD, 0, 0, _FOURTH), (_EQUAL, 0, 1, FLAGS), (_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), code)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        sys.exit(f"cannot install the filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
