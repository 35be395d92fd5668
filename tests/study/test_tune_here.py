"""Searches on this machine, without a scheduler: carried out, killed, continued, and on bad days."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from study.tunebed import SPACE, TRAIN, events, results, rungs
from support.cli import STACKYARD, Done, stackyard
from support.watched import mentions

SLOTS = ("--slots", "2", "--gpus-per-trial", "0")


class Here:
    """A directory with a space and programs, in which searches are made."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.study = directory, directory / "studies" / "train"
        (directory / "space.yaml").write_text(SPACE)
        (directory / "train.py").write_text(TRAIN)
        self.own = {"STACKYARD_HOME": str(directory / "yard")}

    def tune(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        return stackyard("tune", *words, cwd=self.directory, expect=expect, **self.own, **variables)

    def search(self, *words: str | Path, expect: int | None = 0, program: str = "", **variables: str) -> Done:
        """A search of `program`, the text of a Python program in place of train.py."""
        if program:
            (self.directory / "train.py").write_text(program)
        return self.tune("space.yaml", "train.py", *SLOTS, "--seed", "5", *words, expect=expect, **variables)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen([str(STACKYARD), "tune", *map(str, words)], cwd=self.directory, text=True,
                                env={**os.environ, **self.own},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def until(good: Callable[[], Any], limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not good():
        assert time.monotonic() < end, f"waited for {limit_s} s"
        time.sleep(0.02)


def test_a_search_with_halving_finds_the_best_and_can_be_replayed(here: Here) -> None:
    shown = here.search("--trials", "9", "--scheduler", "halving", "--dry-run")
    assert "9 trials, random, halving at 1, 3, 9; 2 at a time on 1 node" in shown.out and not here.study.exists()
    done = here.search("--trials", "9", "--scheduler", "halving")
    assert results(here.study) == {(t, r): 1 for r, ts in rungs(here.study).items() for t in ts}
    assert [len(rungs(here.study)[rung]) for rung in range(3)] == [9, 3, 1]
    (last,) = rungs(here.study)[2]
    assert f"trial {last}" in done.out and re.search(
        r"stackyard launch .*train.py --lr \S+ --width \d+ --opt", done.out
    )
    log = [json.loads(line) for line in (here.study / f"trials/000{last}/log").read_text().splitlines()]
    assert [line["epoch"] for line in log] == list(range(1, 10)), "each epoch once: it went on from its checkpoint"
    assert [line["from"] for line in log] == [0, 1, 1, *[3] * 6]
    said = here.tune("--verify", here.study).out
    assert "9 trials asked for again, 4 promotions decided again" in said and "all the same" in said
    found = stackyard("report", here.study, "--json", **here.own).value
    assert found["best"]["trial"] == last and len(found["trials"]) == 9
    stackyard("report", here.study, "-o", here.directory / "r.html", **here.own)
    page = (here.directory / "r.html").read_text()
    assert "Parallel coordinates" in page and "Importance of the parameters" in page and "loss by epoch" in page
    journal = here.study / "journal.jsonl"
    text = journal.read_text()
    left = here.tune("--continue", here.study, "--dry-run")
    assert "0 trials to go on with, 0 of 9 trials not begun" in left.out
    lines = text.splitlines(keepends=True)
    journal.write_text("".join(lines[:2]))  # one trial was asked for and started
    shown = here.tune("--continue", here.study, "--dry-run", "--json").value
    assert shown == {"dry_run": True, "trials": 9, "open": 1, "missing": 8}
    assert journal.read_text() == "".join(lines[:2]), "nothing was run"
    journal.write_text(text.replace('"params":{"lr":', '"params":{"lr":1', 1))
    assert "would be" in here.tune("--verify", here.study, expect=3).out


@pytest.mark.long
def test_killed_at_three_moments_nothing_is_lost_or_twice_and_the_rungs_are_the_same(here: Here) -> None:
    words = ("--trials", "9", "--scheduler", "halving")
    here.search(*words, "--directory", "whole")
    run = here.start("space.yaml", "train.py", *SLOTS, "--seed", "5", *words, "--", "--sleep", "0.1")
    said: dict[int, dict[int, float]] = {}
    for moment in (2, 10, 12):
        until(lambda least=moment: len(results(here.study)) >= least)
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=60)
        assert all(rungs(here.study)[rung].items() >= values.items() for rung, values in said.items())
        said = rungs(here.study)
        until(lambda: not _left(here))
        run = here.start("--continue", here.study)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    assert rungs(here.study) == rungs(here.directory / "whole"), "the values too"
    assert set(results(here.study).values()) == {1}
    assert "all the same" in here.tune("--verify", here.study).out
    assert any(event["state"] == "interrupted" for event in events(here.study, "ended"))
    here.tune("--continue", here.study)
    assert set(results(here.study).values()) == {1}


def _left(here: Here) -> list[int]:
    return mentions(str(here.study / "worker.py")) + mentions(str(here.directory / "train.py"))


def test_a_report_that_was_only_logged_when_the_search_was_killed_counts(here: Here) -> None:
    here.search("--trials", "2")
    found = rungs(here.study)
    journal = here.study / "journal.jsonl"
    kept = [line for line in journal.read_text().splitlines(True) if '"trial":1' not in line or '"asked"' in line]
    journal.write_text("".join(kept) + json.dumps({"event": "started", "trial": 1, "rung": 0}) + "\n")
    here.tune("--continue", here.study)
    assert rungs(here.study) == found and set(results(here.study).values()) == {1}


def test_a_program_that_reports_nothing_stops_the_search(here: Here) -> None:
    failed = here.search(expect=1, program="print('training', flush=True)")
    assert "the first 4 trials ended without a value: loss is not in its output" in failed.err
    assert (
        re.search(r"hint: see \S*studies/train/trials/000\d/log; then", failed.err) and "--retry-failed" in failed.err
    )
    assert len(events(here.study, "asked")) <= 6
    (here.directory / "train.py").write_text(TRAIN)
    here.tune("--continue", here.study, "--retry-failed")
    assert len([e for e in events(here.study, "ended") if e["state"] == "done"]) == 16


def test_nan_a_failure_a_hang_and_children_end_one_trial_each(here: Here) -> None:
    program = """\
import json, os, subprocess, sys, time
trial = int(os.environ["STACKYARD_TRIAL"])
if trial == 0:
    for epoch in range(1, 1000):
        print(json.dumps({"epoch": epoch, "loss": 1.0 if epoch < 3 else float("nan")}))
        time.sleep(0.05)
if trial == 1:
    sys.exit("no such data")
if trial == 2:
    subprocess.Popen(["sleep", "987"], start_new_session=True)
    subprocess.Popen(["sleep", "987"])
    time.sleep(987)
if trial == 3:
    subprocess.Popen(["sleep", "987"], start_new_session=True)
print(json.dumps({"epoch": 9, "loss": trial}))
"""
    done = here.search("--trials", "5", "--time-per-trial", "0.05", program=program)
    ended = {event["trial"]: event for event in events(here.study, "ended")}
    assert [ended[trial]["state"] for trial in range(5)] == ["no-value", "failed", "timeout", "done", "done"]
    assert "loss is not a finite number at 3" in ended[0]["message"] and ended[1]["message"].endswith(": no such data")
    assert "trial 3" in done.out and "longer than 0.05 min" in done.out
    assert not mentions("sleep 987") and not _left(here)


def test_trials_may_take_variables_ranks_and_the_helper(here: Here) -> None:
    (here.directory / "space.yaml").write_text(SPACE + "pass_as: variables\ntrial: {ranks: 2}\n")
    program = """\
import os
from stackyard_trial import checkpoint, report
assert os.path.isdir(checkpoint()) and os.environ["WORLD_SIZE"] == "2"
for epoch in range(1, 100):
    if report(epoch=epoch, loss=float(os.environ["lr"])):
        break
print("stopped at", epoch, flush=True)
"""
    here.search("--trials", "3", "--scheduler", "halving", program=program)
    assert [len(rungs(here.study).get(rung, {})) for rung in range(3)] == [3, 1, 1]
    logs = [(here.study / f"trials/000{trial}/log").read_text() for trial in range(3)]
    assert all("stopped at 1\n" in log for log in logs) and any("stopped at 9\n" in log for log in logs)
    best = min(events(here.study, "asked"), key=lambda event: event["params"]["lr"])
    assert list(rungs(here.study)[2].values()) == [best["params"]["lr"]]


def test_two_continue_at_the_same_time_are_one_too_many(here: Here) -> None:
    run = here.start("space.yaml", "train.py", *SLOTS, "--trials", "2", "--", "--sleep", "2")
    until(lambda: events(here.study, "started"))
    second = here.tune("--continue", here.study, expect=1)
    assert "is being searched by" in second.err and "hint: wait for it" in second.err
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and f"stackyard tune --continue {here.study}" in err
    assert {event["state"] for event in events(here.study, "ended")} == {"interrupted"}
    assert not _left(here)


def test_a_full_disk_stops_the_search_and_loses_nothing(here: Here) -> None:
    failed = here.search("--trials", "4", expect=1, STACKYARD_FAULT="tune-journal:9:enospc")
    assert "no space left" in failed.err.lower() and "stackyard tune --continue" in failed.err
    before = events(here.study)
    here.tune("--continue", here.study)
    assert events(here.study)[: len(before)] == before
    assert set(results(here.study).values()) == {1} and len(results(here.study)) == 4


def test_what_does_not_fit_is_refused_before_anything_starts(here: Here) -> None:
    (here.directory / "site.yaml").write_text(
        "name: gpus\nnodes:\n  gpu: {cores: 8, gpu: {count: 4, vendor: nvidia}}\nscheduler: {kind: slurm}\n"
    )
    own = {"STACKYARD_SITE": str(here.directory / "site.yaml")}
    for words in (("--gpus-per-trial", "5"), ("--gpus-per-trial", "1", "--slots", "5"), ("--cores-per-trial", "9")):
        refused = here.tune("space.yaml", "train.py", *words, "-t", "10", "--dry-run", expect=2, **own)
        assert "gpu" in refused.err.lower() or "core" in refused.err.lower(), refused.err
    shown = here.tune("space.yaml", "train.py", "--gpus-per-trial", "2", "-t", "10", "--dry-run", **own).out
    assert "2 at a time on 1 node, 4 cores and 2 GPUs each" in shown, shown
    missing = here.tune("space.yaml", "nowhere.py", expect=2)
    assert "nowhere.py" in missing.err and not here.study.exists()
