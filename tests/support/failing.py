"""A file system that does not answer, as a network file system whose server lost the handle."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest


def stale(path: Path, *_: object, **__: object) -> NoReturn:
    """What a method of a path does there."""
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))


def nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No path can be looked up, and Path says nothing of it, as Python 3.14, which takes every error for missing."""
    monkeypatch.setattr(Path, "stat", stale)
    for question in ("exists", "is_dir"):
        monkeypatch.setattr(Path, question, lambda _: False)
