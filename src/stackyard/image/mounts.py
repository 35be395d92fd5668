"""Where images are mounted, the ways in which this machine can mount one, and mounting for all processes of a user.

Nothing here is needed to use a revision: its commands mount its image by themselves (`image/launcher`).
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stackyard.errors import MissingError, StackyardError, cause
from stackyard.host.command import CommandError, run, which
from stackyard.host.readonly import unescaped
from stackyard.yard.layout import RevisionPaths
from stackyard.yard.record import BuildRecord

_FUSE = os.makedev(10, 229)  # the kernel's Documentation/admin-guide/devices.txt
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo: where, which type of file system, from what."""

    where: Path
    kind: str
    source: str


@dataclass(frozen=True)
class Way:
    """One way of mounting: its name, whether this machine has it, and what is missing."""

    name: str
    works: bool
    detail: str


def mounts() -> list[Mount]:
    """What is mounted in this namespace, the last one at a place last. Source: proc(5)."""
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        where, (kind, source, *_) = before.split(b" ")[4], after.split(b" ")
        found.append(Mount(Path(_plain(where)), os.fsdecode(kind), _plain(source)))
    return found


def _plain(text: bytes) -> str:
    return os.fsdecode(unescaped(text))


def mounted(record: BuildRecord) -> Mount | None:
    """How the image of a revision is mounted in this namespace, if it is."""
    here = Path(record.prefix)
    return next((mount for mount in reversed(mounts()) if mount.where == here and mount.kind != "autofs"), None)


def ways() -> list[Way]:
    """The ways in which a command of an image can run here, in the order in which they are tried."""
    server, device = which("squashfuse_ll"), _fuse_device()
    lacks = [] if server else ["squashfuse_ll not found (install squashfuse)"]
    lacks += [device] if device else []
    namespace = _namespace()
    helper = which("fusermount3")
    return [
        Way("mounted already", True, "by root for all: a kernel mount, or autofs (`stackyard image autofs`)"),
        _way("user namespace", [*([namespace] if namespace else []), *lacks],
             "squashfuse_ll, shared by your processes"),
        _way("fusermount3", [*([] if helper else ["fusermount3 not found (install fuse3)"]), *lacks],
             "squashfuse_ll, for revisions of your own"),
    ]  # fmt: skip


def _way(name: str, lacks: list[str], detail: str) -> Way:
    return Way(name, not lacks, "; ".join(lacks) or detail)


def _fuse_device() -> str:
    """Why /dev/fuse cannot be used; empty: it can."""
    try:
        handle = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        return f"/dev/fuse: {cause(error)}"
    try:
        return "" if os.fstat(handle).st_rdev == _FUSE else "/dev/fuse: not the device of FUSE"
    finally:
        os.close(handle)


def _namespace() -> str:
    """Why this user cannot make a user and a mount namespace; empty: it works. Tried in a child."""
    pid = os.fork()
    if pid == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        os._exit(ctypes.get_errno() & 0x7F if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) else 0)
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"user namespaces: {os.strerror(number)} (see user.max_user_namespaces)" if number else ""


def mount(record: BuildRecord) -> str:
    """Mount an image where every process of this user sees it (of everybody, as root); return how.

    Raises:
        MissingError: a program is missing.
        StackyardError: it is mounted already, is not your own, or the mount failed.
    """
    if here := mounted(record):
        raise StackyardError(f"{record.module} is mounted already: {here.kind} on {here.where}")
    paths = RevisionPaths.of(record.path)
    if os.geteuid() == 0:
        require_readable(paths)
        words = ["mount", "-t", "squashfs", "-o", "loop,ro,nodev,nosuid", str(paths.image), record.prefix]
        return _mounted(words, record, "for all users of this node, until it is restarted or unmounted")
    server = which("squashfuse_ll")
    if server is None or which("fusermount3") is None:
        raise MissingError("cannot mount: squashfuse_ll or fusermount3 not found", hint="install squashfuse and fuse3")
    if paths.prefix.stat().st_uid != os.geteuid():
        raise StackyardError(
            f"cannot mount {record.module} for all your processes: {record.prefix} belongs to another user",
            hint="its commands work without; root can mount it for all (`stackyard image autofs`)",
        )
    mode = stat.S_IMODE(paths.prefix.stat().st_mode)
    below = os.open(paths.prefix, os.O_PATH)  # reaches the stubs when the image hides them
    paths.prefix.chmod(mode | stat.S_IWUSR)  # fusermount3 wants the right to write there
    try:
        words = [str(server), "-o", "ro,nodev,nosuid", str(paths.image), record.prefix]
        return _mounted(words, record, "for your processes")
    finally:
        Path(f"/proc/self/fd/{below}").chmod(mode)
        os.close(below)


def _mounted(words: list[str], record: BuildRecord, whom: str) -> str:
    try:
        run(words, timeout_s=60, leaves_others=True)
    except CommandError as error:
        raise StackyardError(f"cannot mount {record.module}: {error.message}", detail=error.detail) from error
    return whom


def unmount(record: BuildRecord) -> None:
    """Undo `mount`.

    Raises:
        StackyardError: it is not mounted in this namespace, or is in use.
    """
    if mounted(record) is None:
        raise StackyardError(
            f"{record.module} is not mounted here",
            hint="a namespace of its commands ends by itself, some minutes after its last program",
        )
    words = ["umount", record.prefix] if os.geteuid() == 0 else ["fusermount3", "-u", record.prefix]
    try:
        run(words, timeout_s=60)
    except CommandError as error:
        raise StackyardError(
            f"cannot unmount {record.module}: {error.message}", detail=error.detail,
            hint=f"see which programs use it: fuser -vm {record.prefix}",
        ) from error  # fmt: skip


def require_readable(paths: RevisionPaths) -> None:
    """Root mounts for all users only what root itself can read, which is not everything on a shared file system.

    Raises:
        StackyardError: this user cannot read the record or the image of a revision.
    """
    for file in (paths.record, paths.image):
        try:
            with file.open("rb") as stream:
                stream.read(1)
        except FileNotFoundError:
            continue  # a prefix, or a revision that was removed
        except OSError as error:
            raise StackyardError(
                f"root cannot read {file}: {cause(error)}, so it cannot be mounted for all users",
                hint="on NFS with root_squash, or in a private FUSE mount, root is nobody: let others read the "
                "revision and enter the directories above it (chmod o+x), or leave it to its commands, which mount it",
            ) from error


def autofs_maps(records: Iterable[BuildRecord], timeout_s: int = 300) -> dict[str, str]:
    """The files by which root lets the kernel mount every image at its first use, by path. Source: autofs(5)."""
    rows = "".join(
        f"{record.prefix}  -fstype=squashfs,loop,ro,nodev,nosuid  :{RevisionPaths.of(record.path).image}\n"
        for record in records
    )
    return {
        "/etc/auto.master.d/stackyard.autofs": f"/-  /etc/auto.stackyard  --timeout={timeout_s}\n",
        "/etc/auto.stackyard": rows,
    }
