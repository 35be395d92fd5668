"""Run as a script: ``readonly.py [PATH ...] -- [PATH ...] -- [NAME PATH ...] -- PROGRAM ...`` becomes the program, in a
view of its own.

In that view, a mount namespace, the paths before the first ``--`` are read-only, except those before the second one;
after that, each NAME, an empty directory, shows the directory PATH. The files are the same; only what this program and
its children can write differs. Root needs nothing for that. Any other account gets a user namespace, in which it is
itself and has no privilege once the program runs. Without a program (the words up to the third ``--``) it tries the
view: exit status 0 if the first path is read-only in it.

Exit status 125: the view cannot be made; the last line on standard error says why. Standard library only. The guard
calls `become_view` in the process that becomes its program.
"""

import ctypes
import os
import sys

NO_VIEW = 125
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Make the view and become the program."""
    words = sys.argv[1:]
    ends = [number for number, word in enumerate(words) if word == "--"][:3]
    end = ends[2] if len(ends) == 3 else len(words)
    if not become_view(words[:end]):
        sys.exit(NO_VIEW)
    program = words[end + 1 :]
    if not program:
        sys.exit(0 if os.statvfs(words[0]).f_flag & os.ST_RDONLY else 1)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def become_view(words: list[str]) -> bool:
    """Switch this process to a view, by the words of the script; False on failure, with a reason on stderr."""
    first = words.index("--")
    second = words.index("--", first + 1)
    names = words[second + 1 :]
    try:
        enter(words[:first], words[first + 1 : second], [(names[at], names[at + 1]) for at in range(0, len(names), 2)])
        os.chdir(os.getcwd())  # noqa: PTH109 - the present one is outside the new mounts
    except OSError as error:
        print(f"{error.filename or 'cannot make a read-only view'}: {error.strerror}", file=sys.stderr, flush=True)
        return False
    return True


def enter(readonly: list[str], writable: list[str], names: list[tuple[str, str]]) -> None:
    """Detach from other processes' mounts, make these paths read-only, and show directories at second names.

    Raises:
        OSError: the kernel or the machine's policy refuses.
    """
    _unshare()
    _mount("none", "/", _REC | _PRIVATE)
    for path in (*readonly, *writable):  # a mount of its own, which can have a flag of its own
        _mount(path, path, _BIND | _REC)
    inside = [os.path.realpath(path) for path in writable]
    for point, flags in _mounts():
        if any(_is_in(point, os.path.realpath(top)) for top in readonly) and not any(_is_in(point, w) for w in inside):
            _mount("none", point, _REMOUNT | _BIND | _RDONLY | flags)
    for name, path in names:
        _mount(path, name, _BIND | _REC)


def _unshare() -> None:
    if os.geteuid() == 0 and _libc.unshare(_NEWNS) == 0:
        return
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEWNS | _NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "user namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:  # noqa: PTH123
            stream.write(text)


def _mount(source: str, target: str, flags: int) -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def _mounts() -> list[tuple[str, int]]:
    """Every mount point with the flags to keep: without them an unprivileged remount is refused."""
    points = []
    with open("/proc/self/mountinfo", "rb") as stream:  # noqa: PTH123
        for line in stream:
            words = line.split()
            options = os.fsdecode(words[5]).split(",")
            flags = sum(number for name, number in _KEPT.items() if name in options)
            points.append((os.fsdecode(unescaped(words[4])), flags))
    return points


def unescaped(name: bytes) -> bytes:
    """A path of mountinfo, in which spaces and backslashes are octal."""
    for code in (b"040", b"011", b"012", b"134"):
        name = name.replace(b"\\" + code, bytes([int(code, 8)]))
    return name


def _is_in(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


if __name__ == "__main__":
    main()
