"""Requests that cannot be met: one error with a hint, exit status 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.cli.help import Duration
from support.cli import inside, stackyard

LAPTOP = "name: laptop\nscheduler: {kind: none}\nnodes: {here: {cores: 6, sockets: 2}}\n"
WRONG = {
    "no program": ([], "no program given"),
    "a program that is not there": (["nope.py"], "nope.py not found in"),
    "more nodes than one": (["-N", "3", "hello.py"], "no scheduler found: only this machine"),
    "more cores than there are": (["-r", "2", "-c", "9", "hello.py"], "a node has 6"),
    "a rank on two sockets": (["-r", "3", "-c", "2", "hello.py"], "two sockets"),
    "an unknown profiler": (["--profile", "nsysx", "hello.py"], "did you mean nsys?"),
    "an image that is not there": (["--container", "none.sif", "hello.py"], "image not found: none.sif"),
    "an unknown revision": (["--with", "nothing", "hello.py"], "no such revision in "),
    "an unknown node kind": (["--node-kind", "nix", "hello.py"], "no such node kind: nix"),
    "a variable that is not set": (["--env", "FOO", "hello.py"], "FOO is not set"),
    "no time": (["-t", "1:xx", "hello.py"], "is not a time"),
    "no number of days": (["-t", "x-5", "hello.py"], "is not a time"),
    "a negative time": (["-t", "-5", "hello.py"], "is not a time"),
    "a time of four parts": (["-t", "1:2:3:4", "hello.py"], "is not a time"),
    "more ranks than a node can have": (["--ranks-per-node", "20000", "hello.py"], "--ranks-per-node: input should be"),
    "more time than a job can have": (["-t", "9999999", "hello.py"], "--time: input should be"),
    "an unknown run": (["--again", "077"], "no such run: 077"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_refused_with_what_to_do(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, message = WRONG[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text(LAPTOP)
    (tmp_path / "hello.py").write_text("print('hello')\n")
    done = inside("--site", "site.yaml", "launch", *words, expect=2)
    assert message in done.err and "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("1:30", 90),
        ("1:30:30", 90.5),
        ("2-12", 3600),
        ("1-0:30", 1470),
        ("1-00:00:30", 1440.5),
    ],
)
def test_a_time_is_written_as_schedulers_write_it(text: str, minutes: float) -> None:
    assert Duration().convert(text, None, None) == minutes


@pytest.mark.parametrize("verb", ["launch", "submit"])
def test_a_submission_without_a_scheduler_names_the_other_way(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text(LAPTOP)
    (tmp_path / "hello.py").write_text("print('hello')\n")
    done = stackyard("--site", "site.yaml", verb, "-r", "1", "hello.py", expect=None)
    assert (done.code, "stackyard launch" in done.err) == ((0, False) if verb == "launch" else (4, True)), done.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("python", "train.py", "--nodes", "2"), "--nodes after train.py goes to train.py"),
        (("train.py", "--dry-run"), "--dry-run after train.py goes to train.py"),
        (("./app", "--partition=x"), "--partition after app goes to app"),
        (("--", "python", "train.py", "--nodes", "2"), ""),
        (("python", "train.py", "--epochs", "2", "--time", "9"), ""),
    ],
)
def test_an_option_behind_the_program_is_told(
    words: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text(LAPTOP)
    for name in ("train.py", "app"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    done = inside("--site", "site.yaml", "explain", *words)
    assert (f"note: {named}: for stackyard write it before" in done.err) if named else "goes to" not in done.err
