"""zstd through its own program, since Python has a module for it only from version 3.14 on, used for reading."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, cast

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.files import space
from stackyard.host.files.damage import checked
from stackyard.host.run.command import ending, run, which


@cache
def version() -> str:
    """The version of the program. Raises MissingError: not found."""
    match = re.search(r"v(\d[\d.]*)", run([_program(), "--version"], timeout_s=20).stdout)
    return match[1] if match else "unknown"


def _program() -> str:
    path = which("zstd")
    if path is None:
        raise MissingError("zstd not found on PATH: it packs and unpacks layers", hint="install zstd, or use gzip")
    return str(path)


@contextmanager
def packing(target: IO[bytes], level: int) -> Iterator[IO[bytes]]:
    """A stream whose bytes are compressed into a file, deterministic for a version and level.

    Raises:
        MissingError: the program is missing.
        OSError: the disk is full.
        StackyardError: it failed.
    """
    words = [_program(), "-q", f"-{level}", "--single-thread", "-c"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=target, stderr=subprocess.PIPE) as process:
        try:
            yield cast(IO[bytes], process.stdin)
        except BrokenPipeError:
            pass  # its own message says why
        except BaseException:
            process.kill()
            raise
        _, said = process.communicate()
    text = said.decode(errors="replace")
    if process.returncode and space.says_full(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if process.returncode:
        raise StackyardError(f"cannot compress: zstd {ending(process.returncode)}", detail=text)


@contextmanager
def unpacking(source: IO[bytes]) -> Iterator[IO[bytes]]:
    """The decompressed content as a stream; reading its end raises EOFError if the file is damaged.

    Raises:
        MissingError: the program is missing.
    """
    if which("zstd") is None and sys.version_info >= (3, 14):
        from compression import zstd

        with zstd.ZstdFile(source) as stream:
            yield checked(stream, zstd.ZstdError)
        return
    words = [_program(), "-q", "-d", "-c"]
    os.lseek(source.fileno(), source.tell(), os.SEEK_SET)  # what this process has read ahead, the program reads too
    with subprocess.Popen(words, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield cast(IO[bytes], _UnpackedStream(process))
        finally:
            process.kill()


class _UnpackedStream:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        out = cast(IO[bytes], self._process.stdout)
        data = out.read(size)
        if (not data and size) or size < 0:
            said = cast(IO[bytes], self._process.stderr).read().decode(errors="replace").strip()
            if self._process.wait():
                raise EOFError(said or ending(self._process.returncode))
        return data
