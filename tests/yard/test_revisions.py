"""Which revisions a yard has: what cannot be looked up is never taken for missing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.yard import contents, disk, revisions
from stackyard.yard.layout import Yard, is_yard


def test_a_file_where_a_directory_could_be_is_no_revision(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    assert not revisions.built(yard) and not list(revisions.folders(yard, "a"))
    yard.stack("a").mkdir(parents=True)
    for left in (yard.stacks / "file", yard.stack("a") / "file"):
        left.write_text("")
    assert not revisions.built(yard) and not list(revisions.folders(yard, "file"))
    assert not disk.is_there(yard.stack("a") / "file" / "below")


def test_a_file_system_that_does_not_answer_is_not_an_empty_yard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path, **_: object) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    yard = Yard(tmp_path)
    yard.revision("a", "1").record.mkdir(parents=True)
    monkeypatch.setattr(Path, "stat", stale)
    for question in (Path.exists, Path.is_dir):  # Python 3.14 takes every error for missing
        monkeypatch.setattr(Path, question.__name__, lambda _: False)
    calls: list[Callable[[], object]] = [
        lambda: revisions.built(yard),
        lambda: revisions.find(yard, "a/1"),
        lambda: disk.is_there(tmp_path),
        lambda: is_yard(tmp_path),
        lambda: contents.scan(tmp_path, ("stacks/",)),
    ]
    for call in calls:
        with pytest.raises(OSError, match="Stale file handle"):
            call()
