"""Searches by Optuna's sampler: the same after a stop, fast with a thousand trials, and as Optuna's own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from board.boardbed import asked, board, listening
from stackyard.core.errors import MissingError
from stackyard.inputs.api import Settings
from stackyard.launch.api.jobs import Workspace
from stackyard.study.tune import optimizer
from stackyard.study.tune.optimizer import sampler_of
from stackyard.study.tune.progress import SearchProgress
from stackyard.study.tune.request import load_space
from stackyard.study.tune.rungs import next_step
from stackyard.study.tune.store import SearchAbout, SearchPaths, StoredSearch
from study.tunebed import SPACE, TRAIN, events
from support import venvs
from support.cli import STACKYARD, stackyard

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return venvs.python("optuna-dashboard")
    except MissingError as error:
        pytest.skip(error.message)


@pytest.fixture
def study(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> StoredSearch:
    """A search whose sampler is asked in this process; the Python with Optuna is first on PATH, as a stack's is."""
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    (tmp_path / "space.yaml").write_text(SPACE + "search: tpe\ntrials: 2000\n")
    settings = Settings(tmp_path / "yard", None)
    place = Workspace(settings.site(), settings.yard(), None, tmp_path / "runs", os.environ, ("stackyard",))
    about = SearchAbout(7, "here", "", (), "", "")
    return StoredSearch(SearchPaths(tmp_path), load_space(tmp_path / "space.yaml"), about, place)


def loss(params: dict[str, Any]) -> float:
    return abs(float(params["lr"]) - 3e-3) * 50 + abs(params["width"] - 64) / 100 + (params["opt"] == "sgd") * 0.1


def carried_out(study: StoredSearch, count: int, stops: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """So many trials, one after the other; at `stops` the sampler is made anew, from the journal."""
    journal: list[dict[str, Any]] = []
    progress, sampler = SearchProgress(), sampler_of(study)
    for number in range(count):
        if number in stops:
            sampler.close()
            progress, sampler = SearchProgress(json.loads(json.dumps(journal))), sampler_of(study)
        params = sampler.ask(number, progress)
        fresh = [
            {"event": "asked", "trial": number, "params": params, "seed": 0, "known": len(journal)},
            {"event": "ended", "trial": number, "rung": 0, "state": "done", "value": loss(params), "seconds": 1.0},
        ]
        journal += fresh
        for event in fresh:
            progress.apply(event)
    sampler.close()
    return [event["params"] for event in journal if event["event"] == "asked"]


def test_a_sampler_that_is_made_anew_asks_for_the_same(study: StoredSearch) -> None:
    whole = carried_out(study, 40)
    assert carried_out(study, 40, stops=(13, 25)) == whole
    other = replace(study, about=replace(study.about, seed=8))
    assert carried_out(other, 12) != whole[:12]
    assert min(map(loss, whole[20:])) < min(map(loss, whole[:10])), "it learns"


def test_a_thousand_trials_are_rebuilt_and_the_next_is_asked_for_in_time(study: StoredSearch) -> None:
    """Half a second and a tenth of one, on a quiet machine; here against the import of Optuna in the same minute."""
    journal = []
    for number in range(1000):
        params = {"lr": round(10 ** -(1 + 4 * (number * 37 % 1000) / 1000), 8), "width": 8 + number % 248,
                  "opt": "sgd" if number % 2 else "adam"}  # fmt: skip
        journal += [
            {"event": "asked", "trial": number, "params": params, "seed": 0, "known": 2 * number},
            {"event": "ended", "trial": number, "rung": 0, "state": "done", "value": loss(params), "seconds": 1.0},
        ]
    text = "\n".join(map(json.dumps, journal))
    times: list[float] = [time.perf_counter()]
    progress = SearchProgress(map(json.loads, text.splitlines()))
    times.append(time.perf_counter())
    assert next_step(study.request, progress) is not None
    times.append(time.perf_counter())
    sampler = sampler_of(study)
    times.append(time.perf_counter())
    first = sampler.ask(1000, progress)
    times.append(time.perf_counter())
    second = sampler.ask(1001, progress)
    times.append(time.perf_counter())
    sampler.close()
    journal_s, step_s, start_s, rebuild_s, ask_s = (b - a for a, b in pairwise(times))
    print(f"1,000 trials: journal {journal_s:.3f} s, next step {step_s:.4f} s, Optuna's start {start_s:.2f} s, "
          f"rebuilt and asked {rebuild_s:.3f} s, asked {ask_s:.3f} s; load {os.getloadavg()[0]:.1f}")  # fmt: skip
    assert first != second
    assert journal_s + rebuild_s < 2 * start_s and ask_s < start_s / 2


def test_a_search_by_tpe_is_replayed_exported_and_shown(tmp_path: Path, python: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "train.py").write_text(TRAIN)
    own = {"STACKYARD_HOME": str(tmp_path / "yard"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    study = tmp_path / "studies" / "train"
    words = ("--search", "tpe", "--trials", "14", "--slots", "2", "--gpus-per-trial", "0", "--scheduler", "asha")
    stackyard("tune", "space.yaml", "train.py", *words, cwd=tmp_path, **own)
    assert len(events(study, "asked")) == 14
    assert "all the same" in stackyard("tune", "--verify", study, **own).out
    said = stackyard("tune", "--export", "journal", study, **own).out
    assert "JournalStorage" in said
    read = (
        "import json, sys, optuna\nfrom optuna.storages import JournalStorage\n"
        "from optuna.storages.journal import JournalFileBackend\n"
        "found = optuna.load_study(study_name='train', storage=JournalStorage(JournalFileBackend(sys.argv[1])))\n"
        "print(json.dumps([[t.user_attrs['trial'], t.state.name, t.params] for t in found.trials]))\n"
    )
    shown = subprocess.run([python, "-c", read, study / "optuna.journal"], capture_output=True, text=True, check=True)
    trials = {number: (state, params) for number, state, params in json.loads(shown.stdout.splitlines()[-1])}
    assert {number: params for number, (_, params) in trials.items()} == {
        event["trial"]: event["params"] for event in events(study, "asked")
    }
    assert {state for state, _ in trials.values()} == {"COMPLETE", "PRUNED"}

    def start(*words: str | Path, **options: object) -> subprocess.Popen[str]:
        environ = {**os.environ, **own}
        return subprocess.Popen(list(map(str, words)), text=True, env=environ, **options)  # type: ignore[call-overload, no-any-return]

    with board(start, STACKYARD, "board", study) as web:
        answer = subprocess.run(asked(web.socket, "/api/studies"), check=True, text=True, stdout=subprocess.PIPE)
        assert '"study_name": "train"' in answer.stdout
        assert listening(web.processes) == [] and len(web.processes) >= 2
    web.ended()


def test_without_optuna_it_is_said_before_anything_starts(tmp_path: Path) -> None:
    if optimizer.importlib.util.find_spec("optuna"):
        pytest.skip(f"{sys.executable} has Optuna")
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "train.py").write_text(TRAIN)
    failed = stackyard("tune", "space.yaml", "train.py", "--search", "tpe", cwd=tmp_path, expect=4,
                       STACKYARD_HOME=str(tmp_path / "yard"), PATH="/usr/bin:/bin")  # fmt: skip
    assert "optuna not found in" in failed.err and "stackyard[tune]" in failed.err
    assert not (tmp_path / "studies").exists()
