"""Run as a script: ``guard.py PARENT PROGRAM ...`` becomes the program, and the kernel kills it when the parent exits.

A build that is killed must not leave a program behind that still writes into the prefix.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def main() -> None:
    """Request the signal, check that the parent has not exited before that, and become the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
