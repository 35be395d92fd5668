"""Temporary directories: removed at the end, or by the next process after a kill; an error where there is no room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.core.errors import ChecksFailed, StackyardError
from stackyard.host.files.scratch import _remove_left, scratch

HOLD = """
import sys
from stackyard.host.files.scratch import scratch
with scratch('test'): print(flush=True); sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def names(place: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in place.iterdir())


def test_one_that_module_systems_cannot_hold_is_passed_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifications load modules from it: Lmod does not find those below a directory with a blank."""
    (place / "t m p").mkdir()
    monkeypatch.setenv("TMPDIR", str(place / "t m p"))
    monkeypatch.setenv("TEMP", str(place))
    with scratch("test") as made:
        assert made.parent == place


def test_it_is_removed_at_the_end_whatever_happens(place: Path) -> None:
    with pytest.raises(KeyError), scratch("test") as directory:
        (directory / "file").write_text("")
        assert directory.parent == place and names(place) == ["stackyard.test"]
        raise KeyError
    assert names(place) == []


@pytest.mark.parametrize("before", [(), ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")])
def test_only_what_no_living_process_uses_is_removed(place: Path, before: tuple[str, ...]) -> None:
    if before and subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare cannot make a PID namespace here")
    pipe = subprocess.PIPE
    with subprocess.Popen([*before, sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with scratch("other"):
            assert names(place) == ["stackyard.other", "stackyard.test"], "its process is alive"
        (child,) = map(int, _children(process.pid).split()) if before else (process.pid,)
        os.kill(child, signal.SIGKILL)
    assert names(place) == ["stackyard.test"]
    _remove_left.cache_clear()  # as another process
    with scratch("other"):
        assert names(place) == ["stackyard.other"]


def _children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_names_of_others_and_of_former_versions(place: Path) -> None:
    for name, days in (("stackyard-verify-abc", 2), ("stackyard-modules-abc", 0), ("stackyard-4711", 2), ("other", 2)):
        (place / name).mkdir()
        os.utime(place / name, (os.path.getmtime(place) - days * 86400,) * 2)
    (place / "stackyard.link").symlink_to(place / "other")
    (place / "stackyard.foreign").mkdir()
    os.chown(place / "stackyard.foreign", 4711, -1)
    with scratch("test"):
        pass
    assert {path.name for path in place.iterdir()} == {
        "stackyard-modules-abc", "stackyard-4711", "other", "stackyard.link", "stackyard.foreign"
    }  # fmt: skip


@pytest.mark.parametrize("size", ["size=64k", "size=64k,nr_inodes=2"])
def test_a_full_file_system(place: Path, size: str) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    says = rf"cannot write to the temporary directory {place}: No space left on device"
    try:
        with pytest.raises(StackyardError, match=says) as caught, scratch("test") as directory:
            (directory / "file").write_bytes(b"x" * (1 << 17))
        assert caught.value.hint and "TMPDIR" in caught.value.hint
        assert not list(place.iterdir())
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize(("age_s", "stays"), [(3600, True), (2 * 86400, False)])
def test_that_of_another_machine_is_left_alone_for_a_day(place: Path, age_s: int, stays: bool) -> None:
    """Its process may be alive: not every file system shows locks to other hosts."""
    other = place / "stackyard.test-0123456789ab-xyz"
    other.mkdir()
    os.utime(other, (os.path.getmtime(place) - age_s,) * 2)
    with scratch("other"):
        assert other.exists() is stays


def test_a_full_one_does_not_hide_what_was_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.host.files.space.is_used_up", lambda _: True)
    with pytest.raises(ChecksFailed), scratch("test"):
        raise ChecksFailed("a check failed")
    with pytest.raises(StackyardError, match="No space left") as caught, scratch("test"):
        raise StackyardError("it failed", hint="do this")
    assert caught.value.hint and caught.value.hint.endswith("; do this") and caught.value.detail == "it failed"


def test_another_error_stays_what_it_is(place: Path) -> None:
    with pytest.raises(StackyardError, match="mine"), scratch("test"):
        raise StackyardError("mine")
    with pytest.raises(FileNotFoundError), scratch("test") as directory:
        (directory / "absent").read_text()
