"""Mounted images, the mount methods that this machine supports, and mounting for all processes of a user.

A revision can be used without it: its commands mount its image by themselves (`image/launcher`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError, cause
from stackyard.host.files import at, automount, filesystem
from stackyard.host.run.command import CommandError, run, which
from stackyard.images.squashfs import bykernel
from stackyard.images.squashfs.file import superblock
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

RUNTIMES = ("apptainer", "singularity")
"""Programs that mount an image for one command, or bring a squashfuse_ll of their own."""
STALE, SILENT = "and its server has ended", "and its server does not answer"
_FUSE = os.makedev(10, 229)  # the kernel's Documentation/admin-guide/devices.txt
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_SLAVE = 1 << 19 | 1 << 14  # MS_SLAVE | MS_REC of mount(2)


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo: mount point, type, source, and the file system's options."""

    where: Path
    kind: str
    source: str
    options: str = ""

    @property
    def trouble(self) -> str:
        """Why files of a FUSE mount cannot be read; empty: they can."""
        if not self.kind.startswith("fuse"):
            return ""
        if not automount.answers(self.where):
            return SILENT
        try:
            os.statvfs(self.where)  # names may still be found, in the kernel's cache
        except OSError as error:
            return STALE if error.errno == errno.ENOTCONN else ""
        return ""


@dataclass(frozen=True)
class Way:
    """One mount method: its name, whether this machine supports it, and what is missing."""

    name: str
    works: bool
    detail: str


def mounts() -> list[Mount]:
    """The mounts in this namespace; of several at one place the last is in effect."""
    return [Mount(Path(row.where), row.kind, row.source, row.options) for row in filesystem.mounts()]


def mounted(record: BuildRecord) -> Mount | None:
    """The mount of a revision's image in this namespace, if any."""
    here = Path(record.prefix)
    return next((mount for mount in reversed(mounts()) if mount.where == here and mount.kind != "autofs"), None)


def ways() -> list[Way]:
    """The mount methods for commands of an image, in the order in which they are tried."""
    server, device = file_system_server(), why_no_fuse()
    lacks = [] if server else ["squashfuse_ll not found (install squashfuse)"]
    lacks += [device] if device else []
    namespace = why_no_namespace()
    helper = which("fusermount3")
    return [
        Way("mounted already", True, "by root for all: a kernel mount, or autofs (`stackyard image autofs`)"),
        _way("user namespace", [*([namespace] if namespace else []), *lacks],
             "squashfuse_ll, shared by your processes"),
        _way("fusermount3", [*([] if helper else ["fusermount3 not found (install fuse3)"]), *lacks],
             "squashfuse_ll, for revisions of your own"),
        _way("Apptainer", _contained([way for way in (namespace, device) if way]),
             "mounts it for one command, which starts 0.1 to 0.3 s later"),
    ]  # fmt: skip


def told(record: BuildRecord) -> str:
    """A short description of how an image is mounted on this machine."""
    if here := mounted(record):
        trouble = here.trouble
        return f"{here.kind}, " + (f"{trouble}: {_unmounting(record)}" if trouble else "seen by this process")
    if why := unusable(record):
        return f"cannot be: {why}"
    possible = ways()[1:]
    first = next((way for way in possible if way.works), None)
    if first is not None:
        return f"when it is used, by {first.name}"
    return "not possible here: " + "; ".join(f"{way.name}: {way.detail}" for way in possible)


def unusable(record: BuildRecord) -> str:
    """The problem of a revision's image, such as a missing read permission; empty: it can be mounted."""
    try:
        superblock(RevisionPaths.of(record.path).image)
    except StackyardError as error:
        return error.message
    return ""


def _unmounting(record: BuildRecord) -> str:
    return f"stackyard image unmount {record.module}"


def file_system_server() -> Path | None:
    """squashfuse_ll: on PATH, or the one in an installation of Apptainer or Singularity."""
    if path := which("squashfuse_ll"):
        return path
    for name in RUNTIMES:
        brought = Path(_configured(name, "LIBEXECDIR"), name, "bin", "squashfuse_ll")
        if brought.is_absolute() and os.access(brought, os.X_OK):
            return brought
    return None


def _contained(lacks: list[str]) -> list[str]:
    """Why Apptainer or Singularity cannot mount. Limits in their configuration show only when they are used.

    Args:
        lacks: the requirements missing for ordinary programs, which a set-user-ID installation does not have.
    """
    name = next((runtime for runtime in RUNTIMES if which(runtime)), "")
    if not name:
        return ["apptainer or singularity not found"]
    if not lacks or os.geteuid() == 0:
        return []
    starter = Path(_configured(name, "LIBEXECDIR"), name, "bin", "starter-suid")
    if starter.exists() and starter.stat().st_mode & stat.S_ISUID:
        return []
    return [*lacks, f"{name} is not installed with set-user-ID, which would do without"]


def _configured(program: str, name: str) -> str:
    """A build setting of Apptainer or Singularity; empty if it cannot be queried."""
    if which(program) is None:
        return ""
    return run([program, "buildcfg", name], check=False, timeout_s=20).stdout.strip()


def _way(name: str, lacks: list[str], detail: str) -> Way:
    return Way(name, not lacks, "; ".join(lacks) or detail)


def why_no_fuse() -> str:
    """Why /dev/fuse cannot be used; empty: it can."""
    try:
        with at.closing(os.open("/dev/fuse", os.O_RDWR)) as handle:
            return "" if os.fstat(handle).st_rdev == _FUSE else "/dev/fuse: not the device of FUSE"
    except OSError as error:
        return f"/dev/fuse: {cause(error)}"


def why_no_namespace() -> str:
    """Why this user cannot create a user and a mount namespace to mount in; empty: it works. Tested in a child process.

    Some kernels create it and allow no mount in it (kernel.apparmor_restrict_unprivileged_userns).
    """
    pid = os.fork()
    if pid == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_SLAVE, None)
        os._exit(ctypes.get_errno() & 0x7F if failed else 0)
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"user namespaces: {os.strerror(number)} (see user.max_user_namespaces)" if number else ""


def mount(record: BuildRecord) -> str:
    """Mount an image for every process of this user (of all users, as root); returns the method.

    Raises:
        InputError: it was adopted: only its commands can mount it.
        MissingError: a program is missing.
        StackyardError: it is mounted already, belongs to another user, or the mount failed.
    """
    record.origin.require_common_mount()
    if here := mounted(record):
        trouble = here.trouble
        why, hint = (f", {trouble}", _unmounting(record)) if trouble else ("", None)
        raise StackyardError(f"{record.module} is mounted already: {here.kind} on {here.where}{why}", hint=hint)
    paths = RevisionPaths.of(record.path)
    if os.geteuid() == 0:
        require_readable(paths)
        words = bykernel.words(paths.image, record.prefix)
        return _mounted(words, record, "for all users of this node, until it is restarted or unmounted")
    server = file_system_server()
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
        StackyardError: it is not mounted in this namespace, is another user's mount, or is in use.
    """
    here = mounted(record)
    if here is None:
        raise StackyardError(
            f"{record.module} is not mounted here",
            hint="a namespace of its commands ends by itself, some minutes after its last program",
        )
    if os.geteuid() != 0 and not _is_own(here):
        raise StackyardError(
            f"cannot unmount {record.module}: root or another user has mounted it, for all users of this node",
            hint=f"ask root to do it: stackyard image unmount {record.module}",
        )
    words = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    if here.trouble:  # its users cannot read it either: it is not waited for
        words += ["--lazy", "--no-canonicalize"] if os.geteuid() == 0 else ["-z"]
    try:
        run([*words, record.prefix], timeout_s=60)
    except CommandError as error:
        raise StackyardError(
            f"cannot unmount {record.module}: {error.message}", detail=error.detail,
            hint=f"see which programs use it: fuser -vm {record.prefix}",
        ) from error  # fmt: skip


def _is_own(mount: Mount) -> bool:
    """Whether this user mounted it with fusermount3, which unmounts only the user's own mounts."""
    return mount.kind.startswith("fuse") and f"user_id={os.geteuid()}" in mount.options.split(",")


def require_readable(paths: RevisionPaths) -> None:
    """Require that root can read the image, as for a mount for all users; on a shared file system it may not.

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
