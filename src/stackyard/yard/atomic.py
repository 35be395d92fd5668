"""The one writer: temporary file, fsync, `os.replace`; readers never see a partial file. And a fault hook."""

from __future__ import annotations

import errno
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from stackyard.host.identity import process_token
from stackyard.yard import checksum
from stackyard.yard.permissions import file_mode

_hits: dict[str, int] = {}


def fault_point(name: str) -> None:
    """A named point at which the crash tests kill this process or simulate a full disk.

    ``STACKYARD_FAULT=name:n`` sends SIGKILL at the n-th pass (from 1) of `name`, ``name:n:enospc`` raises the error
    of a full disk there; unset, this costs one look-up.
    """
    wanted = os.environ.get("STACKYARD_FAULT")
    if wanted is None:
        return
    given = wanted.split(":")
    target, count, kind = [*given, *("", "1", "kill")[len(given) :]]
    if target != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] != int(count):
        return
    if kind == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    os.kill(os.getpid(), signal.SIGKILL)


def temporary(path: Path) -> Path:
    """Where this process makes what is then renamed to `path`: beside it, under a name that no other process has."""
    return path.with_name(f".{path.name}.{process_token()}")


def write_text(path: Path, text: str, *, mode: int | None = None, synced: bool = True) -> None:
    """Write a file completely or not at all.

    Args:
        mode: None follows the umask.
        synced: wait until it is on the disk; not for a file that is of no use after a crash of the machine.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        Path(name).chmod(file_mode() if mode is None else mode)
        fault_point("write")
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, *, checked: bool = False, mode: int | None = None, synced: bool = True) -> None:
    """Write a JSON file: indented by two spaces, sorted keys, newline at the end.

    Args:
        checked: with a checksum of itself, which `formats.load` compares.
        mode, synced: as for `write_text`.
    """
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_text(path, checksum.add(text) if checked else text, mode=mode, synced=synced)


def replace_symlink(link: Path, target: str) -> None:
    """Point `link` at `target` in one step, also where it exists."""
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.parent / f".{link.name}.{os.urandom(8).hex()}.tmp"
    temporary.symlink_to(target)
    try:
        fault_point("flip")
        os.replace(temporary, link)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
