"""The reserve of a yard: made whole or in part, given up, made again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from stackyard.host.files import at
from stackyard.yard.layout import Yard
from stackyard.yard.write import reserve


def sizes(yard: Yard) -> set[int]:
    return {path.stat().st_size for path in yard.reserve.iterdir()}


def test_it_is_made_where_there_is_room_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(reserve, "_has_room", lambda _: False)
        reserve.keep(yard)
    assert not yard.reserve.exists() and not reserve.give_up(yard)
    reserve.keep(yard)
    assert len(list(yard.reserve.iterdir())) == reserve.FILES and sizes(yard) == {reserve.BYTES}
    assert reserve.give_up(yard) and not list(yard.reserve.iterdir())
    assert not reserve.give_up(yard), "there was nothing"


def test_where_a_quota_ends_it_stays_in_part_and_is_completed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system has room, the account has not: that is seen only by the error of a write."""
    yard, plain, left = Yard(tmp_path), at.open_new, [5]

    def open_new(directory: int, name: str, mode: int) -> BinaryIO:
        left[0] -= 1
        stream = plain(directory, name, mode)
        if left[0] < 0:
            with stream:
                stream.write(b"a part")
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), name)
        return stream

    with monkeypatch.context() as quota:
        quota.setattr(at, "open_new", open_new)
        reserve.keep(yard)
    assert len(list(yard.reserve.iterdir())) == 5 and sizes(yard) == {reserve.BYTES}
    reserve.keep(yard)
    assert len(list(yard.reserve.iterdir())) == reserve.FILES and sizes(yard) == {reserve.BYTES}
