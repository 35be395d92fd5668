"""Atomic writing: temporary file, fsync, `os.replace`; readers never see a partial file. And a fault hook."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from stackyard.host.files import at
from stackyard.host.run.identity import mark, own_mark
from stackyard.yard import checksum
from stackyard.yard.write import within
from stackyard.yard.write.permissions import file_mode

_hits: dict[str, int] = {}
_waiting: ContextVar[list[Path] | None] = ContextVar("waiting", default=None)
"""What `together` waits for at its end; None outside of it."""


def fault_point(name: str) -> None:
    """A named point at which the crash tests kill this process or simulate a full disk.

    ``STACKYARD_FAULT=name:n`` sends SIGKILL at the n-th pass (from 1) of `name`, ``name:n:enospc`` raises the error
    of a full disk there; unset, this costs one look-up.
    """
    setting = os.environ.get("STACKYARD_FAULT")
    if setting is None:
        return
    words = setting.split(":")
    target, count, kind = [*words, *("", "1", "kill")[len(words) :]]
    if target != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] != int(count):
        return
    if kind == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    os.kill(os.getpid(), signal.SIGKILL)


def temporary(path: Path) -> Path:
    """The temporary path from which this process renames to `path`: beside it, unique to the process.

    Always the same for the same path; leftovers of killed processes are recognised by name (`yard.write.temporaries`).
    """
    return path.with_name(f".{path.name}.{own_mark()}")


def write_text(path: Path, text: str, *, mode: int | None = None, synced: bool = True, top: Path | None = None) -> None:
    """`write_bytes` of a text in UTF-8."""
    write_bytes(path, text.encode(), mode=mode, synced=synced, top=top)


def write_bytes(
    path: Path,
    data: bytes,
    *,
    mode: int | None = None,
    synced: bool = True,
    top: Path | None = None,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write a file completely or not at all.

    Args:
        mode: None follows the umask.
        synced: flush it to disk; unnecessary for a file that is useless after a crash of the machine.
        top: a trusted directory above: no link below it is followed. None: every link on the way is.
        owner: account and group for the file; None: this process's.
    """
    waiting = _waiting.get()
    with _beside(path, top) as (directory, name):
        with at.open_new(directory, name) as stream:
            stream.write(data)
            stream.flush()
            if owner is not None:
                os.fchown(stream.fileno(), *owner)
            os.fchmod(stream.fileno(), file_mode() if mode is None else mode)
            if synced and waiting is None:
                os.fsync(stream.fileno())
        fault_point("write")
        os.replace(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
    if synced and waiting is not None:
        waiting.append(path)


@contextmanager
def _beside(path: Path, top: Path | None) -> Iterator[tuple[int, str]]:
    """The open directory of a path, created if needed, and a temporary name in it, removed at the end.

    An error has the path.
    """
    name = f".{path.name}.{mark()}.tmp"
    with within.named(path.parent), at.directory(top or path.parent, path.parent, make=True) as directory:
        try:
            yield directory, name
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
            raise


@contextmanager
def together() -> Iterator[None]:
    """Flush all files written within a ``with`` block to disk at its end, which is faster than one by one.

    For files that are useless until a later write, such as a marker or a switched link. After an exception they are
    flushed too, since others may use some of them, such as cache entries.
    """
    paths: list[Path] = []
    outer = _waiting.set(paths)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            _sync(paths)
        raise
    finally:
        _waiting.reset(outer)
    _sync(paths)


def rename_directory(source: Path, place: Path) -> None:
    """Rename a directory to a free or empty place; within `together`, files already at the place are flushed too.

    Raises:
        OSError: as `os.rename`.
    """
    os.rename(source, place)
    waiting = _waiting.get()
    if waiting:
        waiting[:] = [place / path.relative_to(source) if path.is_relative_to(source) else path for path in waiting]


def _sync(paths: list[Path]) -> None:
    if paths:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=min(8, len(paths))) as pool:
            list(pool.map(_sync_file, paths))


def _sync_file(path: Path) -> None:
    """Flush a file to disk; a removed one is skipped."""
    gone = suppress(FileNotFoundError, NotADirectoryError)
    with gone, at.closing(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as handle:
        os.fsync(handle)


def write_json(
    path: Path,
    value: Any,
    *,
    checked: bool = False,
    mode: int | None = None,
    synced: bool = True,
    top: Path | None = None,
) -> None:
    """Write a JSON file: indented by two spaces, sorted keys, newline at the end.

    Args:
        checked: include a checksum, which `formats.load` verifies.
        mode, synced, top: as for `write_bytes`.
    """
    write_text(path, json_text(value, checked=checked), mode=mode, synced=synced, top=top)


def json_text(value: Any, *, checked: bool = False) -> str:
    """The text for `write_json`."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return checksum.add(text) if checked else text


def replace_symlink(link: Path, target: str, *, top: Path | None = None) -> None:
    """Point `link` at `target` atomically, even if it exists. `top` is as for `write_bytes`."""
    with _beside(link, top) as (directory, name):
        os.symlink(target, name, dir_fd=directory)
        fault_point("flip")
        os.replace(name, link.name, src_dir_fd=directory, dst_dir_fd=directory)
