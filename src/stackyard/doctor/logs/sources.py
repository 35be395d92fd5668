"""Opens logs: files, compressed ones, standard input, directories of logs; each is read within bounds.

The first and the last `WHOLE` bytes of a log are searched line by line. What is between them is read, and those of its
blocks are searched that mention a failure (`HINTS`), up to `MOST_BETWEEN` bytes. Of a file above `MOST` bytes its first
and its last half of that are read. What was left out is in the notes.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.core.quoting import plain
from stackyard.host.files import at

BLOCK, WHOLE, MOST_BETWEEN = 1 << 20, 32 << 20, 64 << 20
MOST, MOST_OF_A_STREAM = 16 << 30, 4 << 30
MOST_FILES = 20_000
HINTS = (
    b"Traceback (most", b"Killed", b"ut of memory", b"oom", b"OOM", b"Segmentation", b"srun: error", b"slurmstepd",
    b"NCCL WARN", b"Abort", b"atal", b"CUDA error", b"HIP error", b"terminate called",
)  # fmt: skip
_LOG = re.compile(
    r"(?:\.(?:log|out|err|txt|std(?:out|err))|\.[oe]\d+(?:[.-]\d+)?|^std(?:out|err)\S*|^slurm-\S*)(?:\.gz)?$",
    re.IGNORECASE,
)
"""How logs in a directory are called."""
_RANK = re.compile(
    r"(?:rank|task|proc|worker|std(?:out|err))[_.-]?(\d+)|(?:^|/)(\d+)/std(?:out|err)|[_.-](\d+)\.(?:log|out|err)(?:\.gz)?$",
    re.IGNORECASE,
)
_PACKED = {b"\xfd7zXZ": "xz -dc", b"\x28\xb5\x2f\xfd": "zstd -dc", b"BZh": "bzip2 -dc"}
_CONTROL = bytes({*range(32), 127} - {8, 9, 10, 12, 13, 27})
"""Bytes that text does not have, colours and progress bars included."""
_MOST_CONTROL = 0.02


@dataclass
class LogSource:
    """A log to read.

    Attributes:
        name: as it is shown.
        path: None: standard input.
        rank: from the name of its file; empty where not known.
        changed: when the file was last written, in seconds since 1970; 0 for a stream.
        first_rank: the rank that torchrun names as the first that failed; empty without it. Known after reading.
        notes: what was not read; complete after reading.
        is_chosen: whether the user named it; one that was found in a directory may be unreadable or no text.
        skipped: whether something was skipped, so that lines after it have no number.
    """

    name: str
    path: Path | None
    rank: str = ""
    changed: float = 0.0
    first_rank: str = ""
    notes: list[str] = field(default_factory=list)
    skipped: bool = False
    is_chosen: bool = True

    def blocks(self) -> Iterator[tuple[bytes, bool]]:
        """Blocks of whole lines, each with whether its lines are to be searched; the others are only counted.

        Raises:
            InputError: one that the user named cannot be read, or is not text.
        """
        try:
            yield from self._blocks()
        except InputError as error:
            if self.is_chosen:
                raise
            self.notes.append(f"not read: {error.message}")

    def _blocks(self) -> Iterator[tuple[bytes, bool]]:
        try:
            if self.path is None:
                yield from self._ends(self._unpacked(cast("io.BufferedReader", sys.stdin.buffer)))
                return
            with self.path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
                    raise InputError(f"{self.name} is not a file: it cannot be a log")
                self.changed = status.st_mtime if stat.S_ISREG(status.st_mode) else 0.0
                yield from self._ends(self._unpacked(stream))
        except (OSError, EOFError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise InputError(f"cannot read {self.name}: {why}") from error

    def _unpacked(self, stream: io.BufferedReader) -> Iterator[bytes]:
        """Blocks of whole lines, of compressed text too.

        Raises:
            InputError: it is not text.
        """
        start = stream.peek(8)[:8]
        if start.startswith(b"\x1f\x8b"):
            yield from self._whole_lines(cast("BinaryIO", gzip.GzipFile(fileobj=stream)), MOST_OF_A_STREAM)
            return
        if packed := next((how for magic, how in _PACKED.items() if start.startswith(magic)), ""):
            raise InputError(f"{self.name} is compressed", hint=f"{packed} {self.name} | stackyard doctor -")
        if not stream.seekable() or (size := stream.seek(0, os.SEEK_END)) <= MOST:
            if stream.seekable():
                stream.seek(0)
            yield from self._whole_lines(stream, MOST if stream.seekable() else MOST_OF_A_STREAM)
            return
        stream.seek(0)
        yield from self._whole_lines(stream, MOST // 2, noted=False)
        stream.seek(size - MOST // 2)
        self.skipped = True
        self.notes.append(f"of {_gib(size)} the first and the last {_gib(MOST // 2)} were read")
        yield from self._whole_lines(stream, MOST // 2, noted=False)

    def _whole_lines(self, stream: BinaryIO, most: int, *, noted: bool = True) -> Iterator[bytes]:
        done, is_first = 0, True
        while done < most and (block := stream.read(BLOCK)):
            block += b"" if block.endswith(b"\n") else stream.readline(BLOCK)
            if is_first and len(block.translate(None, _CONTROL)) < len(block) * (1 - _MOST_CONTROL):
                hint = "name the log of the job or of a rank"
                raise InputError(f"{self.name} is not text: it cannot be a log", hint=hint)
            done, is_first = done + len(block), False
            yield block
        if noted and done >= most and stream.read(1):
            self.notes.append(f"the first {_gib(most)} were read, the rest was not")

    def _ends(self, blocks: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
        """Choose the blocks to search."""
        head = kept = between = left = 0
        last: deque[bytes] = deque()
        for block in blocks:
            if head < WHOLE:
                head += len(block)
                yield block, True
                continue
            last.append(block)
            kept += len(block)
            while kept > WHOLE:
                oldest = last.popleft()
                kept -= len(oldest)
                is_searched = between < MOST_BETWEEN and any(hint in oldest for hint in HINTS)
                between += len(oldest) * is_searched
                left += len(oldest) * (not is_searched)
                yield oldest, is_searched
        yield from ((block, True) for block in last)
        if left:
            self.notes.append(
                f"searched were the first and the last {_gib(WHOLE)}, and {_gib(between)} between them that mention a "
                f"failure; {_gib(left)} were only counted"
            )


def log_sources(words: Sequence[str]) -> list[LogSource]:
    """The logs that words of the command line name: files, ``-`` for standard input, directories of logs.

    Raises:
        InputError: one does not exist, or is a directory without logs.
    """
    sources: list[LogSource] = []
    for word in words:
        path = Path(word)
        if word == "-":
            sources.append(LogSource("standard input", None))
        elif path.is_dir():
            sources += _in_directory(path)
        elif not path.exists():
            raise InputError(f"no such file or run: {word}", hint="`stackyard runs --all` lists your runs")
        else:
            sources.append(LogSource(plain(word), path, _rank_of(path.name) if len(words) > 1 else ""))
    return sources


def _in_directory(top: Path) -> list[LogSource]:
    found: list[LogSource] = []
    seen = 0
    with at.closing(os.open(top.resolve(), at.DIR)) as opened:
        for _, below, entries in at.walk(opened, on_error=lambda _: None, cross=True):
            for entry in sorted(entries, key=lambda entry: entry.name):
                seen += 1
                path = top / below / entry.name
                if seen <= MOST_FILES and _LOG.search(entry.name) and entry.is_file() and os.access(path, os.R_OK):
                    found.append(LogSource(plain(str(path)), path, _rank_of(below + entry.name), is_chosen=False))
            if seen > MOST_FILES:
                break
    if not found:
        hint = "name the files: *.log, *.out, *.err, slurm-*, stdout and the like are looked for in a directory"
        raise InputError(f"no readable logs in {top}", hint=hint)
    if seen > MOST_FILES:
        found[0].notes.append(f"{top} has more than {counted(MOST_FILES, 'file')}: the others were not read")
    return found


def _rank_of(name: str) -> str:
    match = _RANK.search(name)
    return str(int(next(filter(None, match.groups())))) if match else ""


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
