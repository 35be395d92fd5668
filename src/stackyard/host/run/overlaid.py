"""Run as a script: ``overlaid.py DIRECTORY CHANGES WORK -- PROGRAM ...`` becomes the program, over a layer of its own.

In a mount namespace, what the program and its children write below DIRECTORY lands in CHANGES; the files of DIRECTORY
stay as they are. WORK is an empty directory beside CHANGES that the kernel uses.

Exit status 125: the layer cannot be mounted; the last line on standard error says why. Standard library only.
"""

import ctypes
import os
import sys

NO_LAYER = 125
_NEWNS, _REC, _PRIVATE = 0x00020000, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Mount the layer and become the program."""
    directory, changes, work, _, *program = sys.argv[1:]
    try:
        mount(directory, changes, work)
        os.chdir(os.getcwd())  # noqa: PTH109 - the present one is below the layer
    except OSError as error:
        print(f"{error.filename or 'cannot mount a layer'}: {error.strerror}", file=sys.stderr)
        sys.exit(NO_LAYER)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def mount(directory: str, changes: str, work: str) -> None:
    """Detach from other processes' mounts, and mount the layer. A renamed directory is copied, never redirected.

    Raises:
        OSError: the kernel or the machine's policy refuses.
    """
    _checked(_libc.unshare(_NEWNS), "mount namespace")
    _checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None), "/")
    options = f"lowerdir={directory},upperdir={changes},workdir={work},redirect_dir=off,metacopy=off,index=off"
    done = _libc.mount(b"overlay", os.fsencode(directory), b"overlay", ctypes.c_ulong(0), os.fsencode(options))
    _checked(done, directory)


def _checked(done: int, what: str) -> None:
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


if __name__ == "__main__":
    main()
