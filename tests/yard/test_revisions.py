"""Which revisions a yard has: what cannot be looked up is never taken for missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.yard import disk
from stackyard.yard.layout import Yard, is_yard
from stackyard.yard.revision import contents, revisions
from support.failing import nothing_answers


def test_a_file_where_a_directory_could_be_is_no_revision(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    assert not revisions.built(yard) and not list(revisions.directories(yard, "a"))
    yard.stack("a").mkdir(parents=True)
    for left in (yard.stacks / "file", yard.stack("a") / "file"):
        left.write_text("")
    assert not revisions.built(yard) and not list(revisions.directories(yard, "file"))
    assert not disk.is_there(yard.stack("a") / "file" / "below")


def test_a_file_system_that_does_not_answer_is_not_an_empty_yard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    yard.revision("a", "1").record.mkdir(parents=True)
    nothing_answers(monkeypatch)
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
