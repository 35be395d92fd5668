"""The one way to run programs: what a result is, and what its failures are called."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.run import command
from stackyard.host.run.command import GUARDED_FROM_S, CommandError, run
from support.processes import wait_for


def ignored(status: str) -> int:
    """The signals that a process ignores, a bit each."""
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), 16)


def test_a_result_has_both_streams(tmp_path: Path) -> None:
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False, log=tmp_path / "deep/log")
    assert (result.returncode, result.output) == (3, "out\nerr")
    assert (tmp_path / "deep/log").read_text().startswith("$ sh -c ")


@pytest.mark.parametrize(
    ("script", "ending"),
    [("exit 3", "exited with status 3"), ("kill -9 $$", r"killed by signal 9 \(SIGKILL\)"),
     ("kill -40 $$", "killed by signal 40")],
)  # fmt: skip
def test_a_failure_says_how_the_program_ended(script: str, ending: str) -> None:
    with pytest.raises(CommandError, match=ending):
        run(["sh", "-c", script])


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(CommandError, match=r"sleep 60 timed out after 0\.1 s"):
        run(["sleep", "60"], timeout_s=0.1)


def test_what_fails_to_start(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no-such-program not found on PATH"):
        run(["no-such-program"])
    with pytest.raises(StackyardError, match="cannot run true: no such directory: /nowhere"):
        run(["true"], cwd=Path("/nowhere"))
    (tmp_path / "script").write_text("")
    with pytest.raises(StackyardError, match=r"permission denied: .*script is not executable"):
        run([tmp_path / "script"])


@pytest.mark.parametrize("limit_s", [50, GUARDED_FROM_S])
def test_words_environment_input_and_status_reach_the_program_as_they_are(limit_s: float, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "A": "x=\n'\"", "B": "\udcff", "EMPTY": ""}
    script = 'printf "%s|" "$@" "$A" "$B" "$EMPTY" "$PWD"; cat; env | wc -l; exit 7'
    done = run(
        ["sh", "-c", script, "sh", "", "a b", "é"], env=env, cwd=tmp_path, stdin="in\n", timeout_s=limit_s, check=False
    )
    assert done.stdout.startswith(f"|a b|é|x=\n'\"|\ufffd||{tmp_path}|in\n") and done.returncode == 7
    of_python = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1  # it ignores these two, which its children must not
    there = run(["cat", "/proc/self/status"], timeout_s=limit_s).stdout
    assert ignored(there) == ignored(Path("/proc/self/status").read_text()) & ~of_python


def test_what_fails_to_start_under_a_guard(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("")
    (tmp_path / "other").write_bytes(b"\0")
    (tmp_path / "other").chmod(0o755)
    for word, kind, says in (
        ("no-such-program", MissingError, "not found on PATH"),
        (tmp_path / "script", StackyardError, "is not executable"),
        (tmp_path / "other", StackyardError, "Exec format error"),
    ):
        for limit_s in (50, GUARDED_FROM_S):
            with pytest.raises(kind, match=says):
                run([word], timeout_s=limit_s)


ESCAPES = "setsid sh -c 'echo $$ >&2; trap \"\" TERM; sleep 300' & "
"""Starts a process in a session of its own, which keeps the streams open."""


def alive(pids: str) -> list[int]:
    """Those of these processes that still run."""
    return [int(pid) for pid in pids.split() if Path(f"/proc/{pid}/exe").exists()]


def test_a_time_limit_holds_whoever_keeps_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    with pytest.raises(CommandError, match=r"timed out after 2 s") as caught:
        run(["sh", "-c", f"echo before; {ESCAPES} sleep 300"], timeout_s=2)
    assert time.monotonic() - started < 60 and caught.value.result.stdout == "before\n"
    os.kill(int(caught.value.result.stderr), signal.SIGKILL)
    monkeypatch.setattr(command, "GUARDED_FROM_S", 2)
    with pytest.raises(CommandError, match=r"timed out after 2 s") as caught:
        run(["sh", "-c", f"{ESCAPES} sleep 300"], timeout_s=2)
    assert caught.value.result.stderr
    wait_for(lambda: not alive(caught.value.result.stderr))  # guarded: it ends too


@pytest.mark.parametrize("limit_s", [50, 100])
def test_a_program_that_has_ended_is_not_waited_for(limit_s: float) -> None:
    started = time.monotonic()
    done = run(["sh", "-c", f"{ESCAPES} echo done"], timeout_s=limit_s)
    assert (done.stdout, done.returncode) == ("done\n", 0) and time.monotonic() - started < 40
    wait_for(lambda: bool(alive(done.stderr)) == (limit_s < GUARDED_FROM_S))
    for pid in alive(done.stderr):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_all_that_was_started_ends_with_this_process(number: int, tmp_path: Path) -> None:
    script = f"echo $$ >> {tmp_path}/pids; setsid sh -c 'echo $$ >> {tmp_path}/pids; sleep 600' & sleep 600"
    code = f"from stackyard.host.run.command import run; run(['sh', '-c', {script!r}], timeout_s=240)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
        pids = (tmp_path / "pids").read_text()
        process.send_signal(number)
    wait_for(lambda: not alive(pids))


def test_much_output_and_much_input() -> None:
    text = "line\n" * 200_000
    for limit_s in (50, GUARDED_FROM_S):
        assert run(["cat"], stdin=text, timeout_s=limit_s).stdout == text
