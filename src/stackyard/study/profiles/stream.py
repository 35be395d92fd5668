"""The events of a trace, one after the other: a trace may be larger than the memory, cut off, or made to hurt.

Format: the JSON object or array of Google's "Trace Event Format", plain or packed by gzip. Of it only one block and one
event are held at a time.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from stackyard.core.late import dataclass
from stackyard.host.files.at import open_regular

BLOCK = 1 << 20
MOST_BYTES = 4 << 30
"""Unpacked bytes of a trace that are read: minutes of a processor."""
MOST_VALUE = 8 << 20
"""Characters of one event, or of one value beside the events."""
KEPT = frozenset({"distributedInfo", "stackyard", "host_name"})
"""The values beside the events that are kept."""
_GZIP = b"\x1f\x8b"
_SPACE = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


@dataclass
class Reading:
    """How far a trace was read.

    Attributes:
        bytes: unpacked ones so far.
        cut: why it was not read to its end; empty if it was.
        head: the values beside the events that are in `KEPT`, by name.
    """

    bytes: int = 0
    cut: str = ""
    head: dict[str, Any] = field(default_factory=dict)


class EndError(Exception):
    """The trace cannot be read further; the text says why."""


def read_events(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """The events of a trace in its order, as far as it can be read; why not further is then in `reading`.

    Raises:
        OSError: not a regular file, or it cannot be opened.
    """
    with open_regular(path) as stream:
        text = _Text(blocks(stream, reading))
        try:
            yield from _top(text, reading.head)
        except EndError as error:
            reading.cut = str(error)
        except RecursionError:
            reading.cut = f"it is damaged: nested too deeply near byte {reading.bytes:,}"


def _top(text: _Text, head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of the whole text: of its array, or of the array ``traceEvents`` of its object."""
    first = text.take("{[")
    if first == "[":
        yield from _array(text)
        return
    while text.peek() != "}":
        name = text.value()
        text.take(":")
        if name == "traceEvents" and text.peek() == "[":
            text.take("[")
            yield from _array(text)
        elif isinstance(value := text.value(), dict | list | str) and name in KEPT:
            head[name] = value
        if text.peek() == ",":
            text.take(",")


def _array(text: _Text) -> Iterator[dict[str, Any]]:
    while text.peek() != "]":
        value = text.value()
        if isinstance(value, dict):
            yield value
        if text.peek() == ",":
            text.take(",")
    text.take("]")


class _Text:
    """Decoded text, of which what was taken is dropped."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._buffer, self._at = "", 0

    def _more(self) -> bool:
        block = next(self._blocks, b"")
        self._buffer = self._buffer[self._at :] + self._decoder.decode(block, not block)
        self._at = 0
        return bool(block)

    def peek(self) -> str:
        """The next character that is not a space. Raises EndError: there is none."""
        while True:
            while self._at < len(self._buffer):
                if (letter := self._buffer[self._at]) not in _SPACE:
                    return letter
                self._at += 1
            if not self._more():
                raise EndError("its end is missing")

    def take(self, letters: str) -> str:
        """The next character, which must be one of these."""
        if (letter := self.peek()) not in letters:
            raise EndError(f"it is damaged: {letter!r} where {' or '.join(letters)} is expected")
        self._at += 1
        return letter

    def value(self) -> Any:
        """The next JSON value. Raises EndError: it is cut off, damaged, or longer than `MOST_VALUE`."""
        self.peek()
        while True:
            with suppress(ValueError):
                value, end = _decode(self._buffer, self._at)
                if end < len(self._buffer):  # a number that ends with the block may go on in the next
                    self._at = end
                    return value
            if len(self._buffer) - self._at > MOST_VALUE:
                raise EndError(f"it is damaged, or has a value of more than {MOST_VALUE >> 20} MiB")
            if not self._more():
                raise EndError("its end is missing")


def blocks(stream: BinaryIO, reading: Reading) -> Iterator[bytes]:
    """The unpacked bytes; a packed file that is cut off ends where it is.

    Raises:
        EndError: it is damaged, or longer than `MOST_BYTES`.
    """
    start = stream.read(len(_GZIP))
    stream.seek(0)
    source = gzip.GzipFile(fileobj=stream) if start == _GZIP else stream
    while True:
        try:
            block = source.read1(BLOCK)  # type: ignore[union-attr]
        except EOFError:
            return
        except (OSError, zlib.error) as error:
            raise EndError(f"it cannot be unpacked or read further: {error}") from error
        if not block:
            return
        if reading.bytes >= MOST_BYTES:
            raise EndError(f"only its first {MOST_BYTES >> 30} GiB are read")
        reading.bytes += len(block)
        yield block
