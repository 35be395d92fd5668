"""The staging directory of a job on one node: found, locked, kept between attempts, removed.

``stackyard-stage-<uid>-<key>-<hostname>``, where the key is that of the run, so that another attempt finds it. An agent
holds the lock of the directory while it runs. An unlocked directory was left by a killed agent or by a last attempt;
the next agent of the same user removes it. Part of the agent of a job with staged files: any Python from 3.6 on,
standard library alone (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH102, PTH112, PTH118, PTH123

import contextlib
import os
import re

from stackyard.launch.node.left import is_private, locked, remove, sweep
from stackyard.launch.node.staging.pack import StagingError

NETWORK = frozenset((
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "cifs", "smb3", "afs", "panfs", "pvfs2", "orangefs",
    "glusterfs", "fuse.glusterfs", "wekafs", "daos", "fuse.daos", "fuse.dfuse", "fuse.sshfs", "9p",
))  # fmt: skip
"""File systems that are not a node's own."""


class StageDirectory:
    """`path` is set by `claim`; the ranks find the files in `files`."""

    def __init__(self, base: "str", key: "str", host: "str") -> "None":
        self._base, self._key, self._host = base, key, host
        self._lock = -1
        self.path = ""

    @property
    def files(self) -> "str":
        """The final path of the complete files."""
        return os.path.join(self.path, "files")

    @property
    def complete(self) -> "bool":
        """Whether all files are complete."""
        return bool(self.path) and os.path.isdir(self.files)

    def claim(self) -> "None":
        """Create the directory, or take over that of an earlier attempt. Raises Unstaged, OSError."""
        base = place_of(self._base)
        start = os.path.join(base, f"{_prefix()}{self._key}-{self._host}")
        for suffix in ("", *(f".{number}" for number in range(1, 10))):
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(start + suffix, 0o700)
            except OSError as error:
                raise StagingError(f"cannot create a directory in {base}: {error.strerror}") from None
            if is_private(start + suffix):
                self._lock = locked(start + suffix)
            if self._lock >= 0:
                self.path = start + suffix
                return
        raise StagingError(f"{start} belongs to another user, or another agent uses it")

    def partial(self) -> "str":
        """The path for files until they are complete; emptied of an earlier attempt's files."""
        path = os.path.join(self.path, "partial")
        remove(path)
        return path

    def finish(self) -> "None":
        """Mark the files as complete."""
        os.rename(os.path.join(self.path, "partial"), self.files)

    def sweep(self) -> "None":
        """Remove leftovers of other jobs of this user."""
        sweep(self.path, _prefix(), self._host)

    def release(self, keeps: "bool") -> "None":
        """Remove the directory, or keep it for the next attempt."""
        if self._lock < 0:
            return
        if keeps:
            os.utime(self.path)
        else:
            remove(self.path)
        os.close(self._lock)
        self._lock = -1


def place_of(base: "str") -> "str":
    """The local disk of the node: STACKYARD_TMP, the site's setting, SLURM_TMPDIR, TMPDIR, /tmp. Raises Unstaged."""
    own, sites = os.environ.get("STACKYARD_TMP", ""), os.path.expandvars(base)
    if own or sites:
        if not os.path.isdir(own or sites):
            who = "STACKYARD_TMP" if own else "local_disk of this kind of node in site.yaml"
            raise StagingError(f"{own or sites} not found, which {who} names")
        return own or sites
    for variable in ("SLURM_TMPDIR", "TMPDIR"):
        path = os.environ.get(variable, "")
        if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK) and file_system(path) not in NETWORK:
            return path
    return "/tmp"


def file_system(path: "str", mounts: "str" = "") -> "str":
    """The type of the file system that a path is on, by /proc/self/mountinfo (proc(5))."""
    path, best, kind = os.path.realpath(path), -1, ""
    for line in (mounts or _mounts()).split("\n"):
        before, _, after = line.partition(" - ")
        if not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), before.split(" ")[4])
        if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind


def _mounts() -> "str":
    try:
        with open("/proc/self/mountinfo", "rb") as stream:
            return os.fsdecode(stream.read())  # as paths are decoded
    except OSError:
        return ""


def _prefix() -> "str":
    return f"stackyard-stage-{os.getuid()}-"
