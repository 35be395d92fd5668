"""A crash of Python leaves a stack trace in the rank's log, and the first failure shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.launch.node.logs import STACK_LINES, TAIL_LINES, Log
from support.cli import stackyard
from support.slurmcli import SHAPE, Work

CRASH = """\
import ctypes, os, threading, time
for _ in range(50):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
def reads_nothing():
    ctypes.string_at(0)
def rank_one():
    thread = threading.Thread(target=reads_nothing)
    thread.start()
    thread.join()
print("before", flush=True)
rank_one() if os.environ["RANK"] == "1" else time.sleep(60)
"""


def crashed(err: str) -> None:
    assert "was killed by signal 11 (SIGSEGV)" in err
    assert "Fatal Python error: Segmentation fault" in err
    assert ", line 5 in reads_nothing" in err
    assert ", line 9 in rank_one" not in err  # the thread that waits
    assert "cause: segmentation fault" in err


def test_a_crash_shows_the_thread_that_crashed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CRASH)
    done = stackyard("launch", "-r", "2", "train.py", cwd=tmp_path, expect=139, timeout_s=240)
    crashed(done.err)
    assert "before" in done.err


@pytest.mark.parametrize("how", ["option", "shell"])
def test_your_own_choice_counts(tmp_path: Path, how: str) -> None:
    (tmp_path / "train.py").write_text("import sys, faulthandler\nprint('on', faulthandler.is_enabled())\n")
    words = ("--env", "PYTHONFAULTHANDLER=") if how == "option" else ()
    own = {"PYTHONFAULTHANDLER": ""} if how == "shell" else {}
    done = stackyard("launch", "-r", "1", *words, "train.py", cwd=tmp_path, expect=0, timeout_s=240, **own)
    assert "on False" in done.out


def test_explain_shows_it(tmp_path: Path) -> None:
    done = stackyard("explain", cwd=tmp_path, expect=0, timeout_s=240)
    assert "PYTHONFAULTHANDLER=1" in done.out
    assert "a crash (SIGSEGV) of Python leaves a stack trace" in done.out


FRAMES = [f'  File "a.py", line {n} in f' for n in range(100)]
OTHER = ["Thread 0x00007f (most recent call first):", *FRAMES, ""]
CURRENT = ["Current thread 0x00007e (most recent call first):", *FRAMES[:5], ""]
FATAL = ["Fatal Python error: Aborted", ""]


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        ([*FATAL, *CURRENT, *OTHER, "Extension modules: a"], [FATAL[0], *CURRENT[:6]]),
        ([*FATAL, *OTHER, *CURRENT], [FATAL[0], *CURRENT[:6]]),
        ([*FATAL, CURRENT[0], *FRAMES], [FATAL[0], CURRENT[0], *FRAMES[: STACK_LINES - 1]]),
        ([*FATAL, "x"], [*FATAL, "x"]),
        ([*CURRENT], [*CURRENT]),
    ],
    ids=["current first", "current last", "deep", "without a stack", "not fatal"],
)  # fmt: skip
def test_the_last_lines_of_a_crash(tmp_path: Path, lines: list[str], last: list[str]) -> None:
    before = [f"step {n}" for n in range(100)]
    (tmp_path / "log").write_text("\n".join([*before, *lines]) + "\n")
    tail = Log(str(tmp_path / "log"), False).tail()
    assert len(tail) == TAIL_LINES
    assert tail == [*before, *last][-TAIL_LINES:]


@pytest.mark.real
def test_a_crash_on_another_node(work: Work) -> None:
    (work.directory / "crash.py").write_text(CRASH)
    crashed(work.allocated("launch", *SHAPE, "crash.py", expect=139).err)
    work.nothing_left()
