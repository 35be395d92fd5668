"""Files are written whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from stackyard.yard.write import atomic


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


def test_what_is_written_together_is_waited_for_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    names = [f"{number}" for number in range(20)]
    with atomic.together():
        for name in names:
            atomic.write_text(tmp_path / name, name)
        atomic.write_text(tmp_path / "never", "", synced=False)
        atomic.write_text(tmp_path / "gone", "")
        (tmp_path / "gone").unlink()
        assert synced == []
    assert sorted(synced) == sorted(str(tmp_path / name) for name in names)
    with pytest.raises(KeyError), atomic.together():
        atomic.write_text(tmp_path / "failed", "")
        raise KeyError
    atomic.write_text(tmp_path / "alone", "")
    assert len(synced) == 22 and "failed" in synced[-2] and "alone" in synced[-1]


def test_what_is_written_into_a_directory_that_is_renamed_then_is_waited_for_at_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    with atomic.together():
        atomic.write_text(tmp_path / "made" / "meta.json", "{}")
        atomic.write_text(tmp_path / "beside", "")
        atomic.rename_directory(tmp_path / "made", tmp_path / "place")
    assert sorted(synced) == [str(tmp_path / "beside"), str(tmp_path / "place/meta.json")]
