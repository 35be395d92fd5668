"""Files and directories as one stream of bytes, read once: the end that reads; `unpack` is the end that writes.

    {"total": bytes, "files": n}                     first: what the nodes need room for
    {"name": "data/a", "kind": "file", "size": n, "mode": 420, "mtime_ns": t}    followed by n bytes, and by
    {"sha256": "..."}
    {"name": "data", "kind": "folder", "mode": 493, "mtime_ns": t}               before what is in it
    {"name": "data/b", "kind": "link", "target": "a"}
    {"end": "..."}                                   HMAC-SHA-256 of all lines so far by the secret of the step

Every line is one JSON object; names are bytes, written as Latin-1, since file systems do not say what their names are
encoded in. The lines hold the checksums, so the HMAC at the end vouches for every byte. A tar stream could not: its
header has a size that must hold, and nothing follows a file's content. Part of the agent where something is staged: any
Python from 3.6 on, standard library alone (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH115, PTH118, PTH120, PTH208

import hashlib
import hmac
import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

CHUNK = 1 << 20
"""Bytes that are passed on at a time."""


class Unstaged(Exception):
    """Something cannot be staged; the text says why.

    `is_consequence`: another node is to blame. `of_node`: this node is, and not what is staged.
    """

    def __init__(self, why: "str", is_consequence: "bool" = False, of_node: "bool" = False) -> "None":
        Exception.__init__(self, why)
        self.is_consequence, self.of_node = is_consequence, of_node


def shown(path: "bytes") -> "str":
    """A path for a message."""
    return os.fsdecode(path).encode("utf-8", "backslashreplace").decode()


def line_of(record: "dict[str, Any]") -> "bytes":
    """A record of the stream."""
    return json.dumps(record).encode() + b"\n"


def mac_of(secret: "str") -> "hmac.HMAC":
    """What the end of the stream proves."""
    return hmac.new(secret.encode(), b"stage\n", hashlib.sha256)


def key_of(secret: "str") -> "str":
    """The secret of the connections between agents: what proves itself to one is not taken for another's."""
    return hmac.new(secret.encode(), b"between agents", hashlib.sha256).hexdigest()


class Packer:
    """Reads what is staged. `items` are (name, path); `total` and `files` are known after `survey`."""

    def __init__(self, items: "list[tuple[bytes, bytes]]", secret: "str") -> "None":
        self._items, self._mac = items, mac_of(secret)
        self._found = []  # type: list[tuple[bytes, bytes, os.stat_result, bytes]]
        self._out = bytearray()
        self.total = self.files = 0

    def survey(self) -> "None":
        """Look at every file without reading it. Raises Unstaged."""
        for name, path in self._items:
            root = os.path.realpath(path)
            for found in _walk(name, root):
                self._found.append(found)
                if stat.S_ISREG(found[2].st_mode):
                    self.files += 1
                    self.total += found[2].st_size

    def chunks(self) -> "Iterator[bytes]":
        """The stream, in pieces of about `CHUNK` bytes. Raises Unstaged."""
        self._line({"total": self.total, "files": self.files})
        for name, path, info, target in self._found:
            record = {"name": name.decode("latin-1"), "mode": info.st_mode & 0o777, "mtime_ns": info.st_mtime_ns}
            if target:
                self._line(dict(record, kind="link", target=target.decode("latin-1")))
            elif stat.S_ISDIR(info.st_mode):
                self._line(dict(record, kind="folder"))
            else:
                self._line(dict(record, kind="file", size=info.st_size))
                yield from self._content(path, info)
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

    def _content(self, path: "bytes", seen: "os.stat_result") -> "Iterator[bytes]":
        """The bytes of a file with what was not yielded before, and its checksum."""
        digest, left = hashlib.sha256(), seen.st_size
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
                digest.update(data)
                self._out += data
                if len(self._out) >= CHUNK:
                    yield self._taken()
            _compare(path, seen, os.fstat(file))
        except OSError as error:
            raise _unreadable(path, error) from None
        finally:
            os.close(file)
        self._line({"sha256": digest.hexdigest()})


def _walk(name: "bytes", path: "bytes") -> "Iterator[tuple[bytes, bytes, os.stat_result, bytes]]":
    """Everything at and below a path: name in the stream, path, what lstat says, and the target of a link."""
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
                    raise Unstaged(f"{shown(name)} is a link to the directory {shown(path)}: stage that as well")
            below = sorted(os.listdir(path), reverse=True) if stat.S_ISDIR(info.st_mode) else []
        except OSError as error:
            raise _unreadable(path, error) from None
        if not target and not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
            raise Unstaged(f"{shown(path)} is neither a file nor a directory: it cannot be staged")
        yield name, path, info, target
        todo += [(name + b"/" + each, os.path.join(path, each)) for each in below]


def is_inside(name: "bytes", target: "bytes") -> "bool":
    """Whether a link of this name in the stream leads to what is staged with it."""
    top = name.split(b"/")[0]
    end = os.path.normpath(os.path.join(os.path.dirname(name), target))
    return not target.startswith(b"/") and (end == top or end.startswith(top + b"/"))


def _compare(path: "bytes", seen: "os.stat_result", now: "os.stat_result") -> "None":
    if (seen.st_size, seen.st_mtime_ns, seen.st_ino) != (now.st_size, now.st_mtime_ns, now.st_ino):
        raise _changed(path)


def _changed(path: "bytes") -> "Unstaged":
    return Unstaged(f"{shown(path)} was changed while it was read: start again when nothing writes to it")


def _unreadable(path: "bytes", error: "OSError") -> "Unstaged":
    return Unstaged(f"cannot read {shown(path)}: {error.strerror}")
