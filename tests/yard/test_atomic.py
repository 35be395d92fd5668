"""Files are written whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from stackyard.yard import atomic


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "record.json"
    atomic.write_json(target, {"a": 1})
    monkeypatch.setenv("STACKYARD_FAULT", "write:1:enospc")
    monkeypatch.setattr(atomic, "_hits", {})
    with pytest.raises(OSError, match="No space left") as caught:
        atomic.write_json(target, {"a": 2})
    assert caught.value.errno == errno.ENOSPC
    assert target.read_text() == '{\n  "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["record.json"]


@pytest.mark.parametrize("mask", [0o022, 0o007, 0o077])
def test_the_umask_is_honoured(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        atomic.write_text(tmp_path / "f", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    atomic.replace_symlink(tmp_path / "modules", "one")
    atomic.replace_symlink(tmp_path / "modules", "two")
    assert os.readlink(tmp_path / "modules") == "two"
    assert os.listdir(tmp_path) == ["modules"]
