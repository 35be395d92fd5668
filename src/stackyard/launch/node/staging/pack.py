"""Files and directories as one stream of bytes, read once: the sending side; `unpack` is the receiving side.

    {"total": bytes, "files": n} first: the space that the nodes need
    {"name": "data/a", "kind": "file", "size": n, "mode": 420, "mtime_ns": t}    followed by n bytes, and by
    {"sha256": "..."}
    {"name": "data", "kind": "directory", "mode": 493, "mtime_ns": t}               before what is in it
    {"name": "data/b", "kind": "link", "target": "a"}
    {"end": "..."}                                   HMAC-SHA-256 of all lines so far by the secret of the step

Every line is one JSON object; names are bytes, written as Latin-1, since file systems do not record an encoding. The
lines have the checksums, so the HMAC at the end authenticates every byte. A tar stream could not do this: its header
fixes the size, and nothing follows a file's content. Part of the agent of a job with staged files: any Python from 3.6
on, standard library alone (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH115, PTH118, PTH120, PTH208

import _thread
import collections
import hashlib
import hmac
import json
import os
import queue
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Entry = tuple[bytes, bytes, os.stat_result, bytes]

CHUNK = 1 << 20
"""Bytes that are passed on at a time."""
SMALL, READ_AHEAD, READERS = 1 << 18, 64, 8
"""Files of at most so many bytes are read before their turn: so many, by so many threads."""


class StagingError(Exception):
    """Files cannot be staged; the text has the reason.

    `is_consequence`: the cause is on another node. `of_node`: the cause is this node, not the staged files.
    """

    def __init__(self, why: "str", is_consequence: "bool" = False, of_node: "bool" = False) -> "None":
        Exception.__init__(self, why)
        self.is_consequence, self.of_node = is_consequence, of_node


def shown(path: "bytes") -> "str":
    """A path, made safe for a message."""
    return os.fsdecode(path).encode("utf-8", "backslashreplace").decode()


def line_of(record: "dict[str, Any]") -> "bytes":
    """A record as a line of the stream."""
    return json.dumps(record).encode() + b"\n"


def mac_of(secret: "str") -> "hmac.HMAC":
    """The HMAC that authenticates the stream."""
    return hmac.new(secret.encode(), b"stage\n", hashlib.sha256)


def key_of(secret: "str") -> "str":
    """The secret of connections between agents, derived so that it differs from that of connections to the hub."""
    return hmac.new(secret.encode(), b"between agents", hashlib.sha256).hexdigest()


class Packer:
    """Reads the files to stage. `items` are (name, path); `total` and `files` are known after `survey`."""

    def __init__(self, items: "list[tuple[bytes, bytes]]", secret: "str") -> "None":
        self._items, self._mac = items, mac_of(secret)
        self._found = []  # type: list[Entry]
        self._out = bytearray()
        self.total = self.files = 0

    def survey(self, tick: "Callable[[], None]" = lambda: None) -> "None":
        """Stat every file without reading it, and call `tick` for each. Raises Unstaged."""
        for name, path in self._items:
            root = os.path.realpath(path)
            for entry in _walk(name, root):
                tick()
                self._found.append(entry)
                if stat.S_ISREG(entry[2].st_mode):
                    self.files += 1
                    self.total += entry[2].st_size

    def chunks(self) -> "Iterator[bytes]":
        """The stream, in pieces of about `CHUNK` bytes. Raises StagingError."""
        self._line({"total": self.total, "files": self.files})
        for (name, path, info, target), content in _ahead(self._found):
            record = {"name": name.decode("latin-1"), "mode": info.st_mode & 0o777, "mtime_ns": info.st_mtime_ns}
            if target:
                self._line(dict(record, kind="link", target=target.decode("latin-1")))
            elif stat.S_ISDIR(info.st_mode):
                self._line(dict(record, kind="folder"))
            else:
                self._line(dict(record, kind="file", size=info.st_size))
                yield from self._content(_pieces(path, info) if content is None else _taken_from(content))
            if len(self._out) >= CHUNK:
                yield self._taken()
        self._out += line_of({"end": self._mac.hexdigest()})
        yield self._taken()

    def _line(self, record: "dict[str, Any]") -> "None":
        line = line_of(record)
        self._mac.update(line)
        self._out += line

    def _taken(self) -> "bytes":
        out, self._out = bytes(self._out), bytearray()
        return out

    def _content(self, pieces: "Iterable[bytes]") -> "Iterator[bytes]":
        """The bytes of a file together with pending output, followed by its checksum."""
        digest = hashlib.sha256()
        for data in pieces:
            digest.update(data)
            self._out += data
            if len(self._out) >= CHUNK:
                yield self._taken()
        self._line({"sha256": digest.hexdigest()})


def _pieces(path: "bytes", seen: "os.stat_result") -> "Iterator[bytes]":
    """The bytes of a file, which must not have changed since the survey. Raises Unstaged."""
    left = seen.st_size
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        _compare(path, seen, os.fstat(file))
        while left:
            data = os.read(file, min(CHUNK, left))
            if not data:
                raise _changed(path)
            left -= len(data)
            yield data
        _compare(path, seen, os.fstat(file))
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(file)


def _ahead(entries: "list[Entry]") -> "Iterator[tuple[Entry, queue.Queue[Any] | None]]":
    """Every entry; for a small file with a queue that receives its content or the reason of a failure.

    Opening a file on a shared file system takes a millisecond or more, so the next ones are opened meanwhile. These are
    bare threads: those of `concurrent.futures` would hold the agent up at its end, where the file system stalls.
    """
    todo = queue.Queue()  # type: queue.Queue[Any]
    for _ in range(READERS):
        _thread.start_new_thread(_read_each, (todo,))
    waiting = collections.deque()  # type: collections.deque[tuple[Entry, queue.Queue[Any] | None]]
    try:
        for entry in entries:
            content = None  # type: queue.Queue[Any] | None
            if stat.S_ISREG(entry[2].st_mode) and entry[2].st_size <= SMALL:
                content = queue.Queue(1)
                todo.put((content, entry[1], entry[2]))
            waiting.append((entry, content))
            if len(waiting) > READ_AHEAD:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        for _ in range(READERS):
            todo.put(None)


def _read_each(todo: "queue.Queue[Any]") -> "None":
    for content, path, info in iter(todo.get, None):
        try:
            content.put(b"".join(_pieces(path, info)))
        except Exception as error:
            content.put(error)


def _taken_from(content: "queue.Queue[Any]") -> "tuple[bytes, ...]":
    part = content.get()
    if isinstance(part, Exception):
        raise part
    return (part,)


def _walk(name: "bytes", path: "bytes") -> "Iterator[Entry]":
    """All entries at and below a path: name in the stream, path, lstat result, and the target of a link."""
    todo = [(name, path)]
    while todo:
        name, path = todo.pop()
        try:
            info = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(info.st_mode) else b""
            if target and not is_inside(name, target):
                path, target = os.path.realpath(path), b""
                info = os.lstat(path)
                if stat.S_ISDIR(info.st_mode):
                    raise StagingError(f"{shown(name)} is a link to the directory {shown(path)}: stage that as well")
            below = sorted(os.listdir(path), reverse=True) if stat.S_ISDIR(info.st_mode) else []
        except OSError as error:
            raise _unreadable(path, error) from None
        if not target and not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
            raise StagingError(f"{shown(path)} is neither a file nor a directory: it cannot be staged")
        yield name, path, info, target
        todo += [(name + b"/" + child, os.path.join(path, child)) for child in below]


def is_inside(name: "bytes", target: "bytes") -> "bool":
    """Whether the target of a link in the stream is staged too."""
    top = name.split(b"/")[0]
    end = os.path.normpath(os.path.join(os.path.dirname(name), target))
    return not target.startswith(b"/") and (end == top or end.startswith(top + b"/"))


def _compare(path: "bytes", seen: "os.stat_result", now: "os.stat_result") -> "None":
    if (seen.st_size, seen.st_mtime_ns, seen.st_ino) != (now.st_size, now.st_mtime_ns, now.st_ino):
        raise _changed(path)


def _changed(path: "bytes") -> "StagingError":
    return StagingError(f"{shown(path)} was changed while it was read: start again when nothing writes to it")


def _unreadable(path: "bytes", error: "OSError") -> "StagingError":
    return StagingError(f"cannot read {shown(path)}: {error.strerror}")
