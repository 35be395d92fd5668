"""Writes the files of a stream from `pack` below one new directory, and verifies every byte.

The stream comes from another node. Nothing is written outside of the directory, over a file or through a link, and the
length of lines is limited. Part of the agent of a job with staged files: any Python from 3.6 on, standard library alone
(see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH101, PTH102, PTH118, PTH120, PTH211

import errno
import hashlib
import hmac
import json
import os
import stat

from stackyard.launch.node.machine import size_text
from stackyard.launch.node.staging.pack import StagingError, is_inside, mac_of, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LINE_LIMIT = 1 << 16
"""Bytes of the longest line: two paths of PATH_MAX bytes, each byte escaped."""
BLOCK = 4096
"""What a file system uses for a file at least, and for a directory."""


class Unpacker:
    """Writes below `directory`, which it creates. `done`: the end of the stream was authenticated."""

    def __init__(self, directory: "str", names: "list[bytes]", secret: "str") -> "None":
        self._root, self._names, self._mac = os.fsencode(directory), set(names), mac_of(secret)
        self._line = bytearray()
        self._directories = []  # type: list[tuple[bytes, int, int]]
        self._known = set()  # type: set[bytes]
        self._file, self._record = -1, {}  # type: int, dict[str, Any]
        self._left, self._digest = 0, hashlib.sha256()
        self.total = self.written = 0
        self.begun = self.done = False
        os.mkdir(self._root, 0o700)

    def feed(self, data: "bytes") -> "None":
        """Write the next data. Raises Unstaged."""
        try:
            self._feed(data)
        except OSError as error:
            raise self._unwritten(error) from None

    def close(self) -> "None":
        """Close a file that is still open."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _feed(self, data: "bytes") -> "None":
        at, view = 0, memoryview(data)
        while at < len(data):
            if self._left:
                part = view[at : at + self._left]
                self._write(part)
                at += len(part)
                continue
            end = data.find(b"\n", at) + 1
            self._line += view[at : end or len(data)]
            if len(self._line) > LINE_LIMIT:
                raise _invalid(f"a line is longer than {LINE_LIMIT} bytes")
            at = end or len(data)
            if end:
                line, self._line = bytes(self._line), bytearray()
                self._take(line)

    def _write(self, part: "memoryview") -> "None":
        self._digest.update(part)
        self._left -= len(part)
        while part:
            count = os.write(self._file, part)
            self.written += count
            part = part[count:]

    def _take(self, line: "bytes") -> "None":
        try:
            record = json.loads(line.decode())
            if self.done or not isinstance(record, dict) or ("total" in record) == self.begun:
                raise ValueError("out of order")
            self._obey(record)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _invalid(str(error)) from None
        self._mac.update(line)

    def _obey(self, record: "dict[str, Any]") -> "None":
        if self._file >= 0:
            self._close_file(record["sha256"])
        elif "total" in record:
            self._begin(_number(record["total"]), _number(record["files"]))
        elif "end" in record:
            self._end(record["end"])
        else:
            self._create(record)

    def _begin(self, total: "int", files: "int") -> "None":
        self.begun, self.total = True, total
        need, free = total + BLOCK * files, _free(self._root)
        if need > free:
            raise self._no_room(need, free)

    def _create(self, record: "dict[str, Any]") -> "None":
        name, kind = self._checked(record["name"]), record["kind"]
        path = os.path.join(self._root, name)
        if kind == "folder":
            os.mkdir(path, 0o700)
            self._known.add(name)
            self._directories.append((path, _mode(record) | 0o700, _number(record["mtime_ns"])))
        elif kind == "link":
            target = record["target"].encode("latin-1")
            if not is_inside(name, target):
                raise ValueError(f"the link {shown(name)} leads out of what is staged")
            os.symlink(target, path)
        elif kind == "file":
            self._left = _number(record["size"])
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._file, self._record, self._digest = os.open(path, flags, 0o600), record, hashlib.sha256()
        else:
            raise ValueError(f"unknown kind {kind!r:.20}")

    def _checked(self, text: "str") -> "bytes":
        """A validated name for a new entry: below a directory of this stream, never through a link."""
        name = text.encode("latin-1")
        above, _, last = name.rpartition(b"/")
        is_below = above in self._known if above else name in self._names
        if not is_below or last in (b"", b".", b"..") or b"\0" in name:
            raise ValueError(f"the name {shown(name)!r:.80} is not below what is staged")
        return name

    def _close_file(self, expected: "str") -> "None":
        if self._digest.hexdigest() != expected:
            raise StagingError("checksum mismatch: {}".format(shown(self._record["name"].encode("latin-1"))))
        when = _number(self._record["mtime_ns"])
        os.fchmod(self._file, _mode(self._record))
        os.utime(self._file, ns=(when, when))
        self.close()

    def _end(self, proof: "str") -> "None":
        if not isinstance(proof, str) or not hmac.compare_digest(proof.encode(), self._mac.hexdigest().encode()):
            raise _invalid("its end does not prove that it comes from this launch")
        for path, mode, when in reversed(self._directories):
            os.chmod(path, mode)
            os.utime(path, ns=(when, when))
        self.done = True

    def _unwritten(self, error: "OSError") -> "StagingError":
        if error.errno == errno.ENOSPC:
            return self._no_room(self.total, self.written + _free(self._root))
        return StagingError(f"cannot write in {shown(os.path.dirname(self._root))}: {error.strerror}", of_node=True)

    def _no_room(self, need: "int", free: "int") -> "StagingError":
        where = shown(os.path.dirname(os.path.dirname(self._root)))
        text = f"{_exactly(need)} needed in {where}, {_exactly(free)} free"
        return StagingError(f"{text}: stage less, or set STACKYARD_TMP to a larger disk of the nodes", of_node=True)


def _exactly(size: "int") -> "str":
    return f"{size_text(size)} ({size} bytes)"


def _free(path: "bytes") -> "int":
    free = os.statvfs(path)
    return free.f_bavail * free.f_frsize


def _number(value: "Any") -> "int":
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.20} is not a count")
    return value


def _mode(record: "dict[str, Any]") -> "int":
    return stat.S_IMODE(_number(record["mode"])) & 0o777


def _invalid(why: "str") -> "StagingError":
    return StagingError(f"invalid data from another node: {why}")
