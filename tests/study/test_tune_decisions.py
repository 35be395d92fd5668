"""What a search decides, as pure functions: spaces, samples, the journal, rungs, importance."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import InputError, ManyErrors
from stackyard.study.tune.content import search_document
from stackyard.study.tune.importance import importances
from stackyard.study.tune.journal import Event, JournalWriter, read_journal
from stackyard.study.tune.progress import SearchProgress
from stackyard.study.tune.reports import Report, ReportReader
from stackyard.study.tune.request import SearchRequest, load_space, space_text, words_of
from stackyard.study.tune.results import search_results
from stackyard.study.tune.rungs import Ask, Start, is_done, next_step
from stackyard.study.tune.sampling import drawn, grid_point, key_of
from study.tunebed import SPACE

ROOT = Path(__file__).parents[2]
DATA, EXAMPLES = ROOT / "tests" / "data", ROOT / "examples"


def space(tmp_path: Path, more: str = "", text: str = SPACE) -> SearchRequest:
    file = tmp_path / "space.yaml"
    file.write_text(text + more)
    return load_space(file)


def changed(request: SearchRequest, **values: Any) -> SearchRequest:
    found: SearchRequest = request.model_copy(update=values)
    return found


def test_a_space_is_read_and_written_the_same(tmp_path: Path) -> None:
    request = space(tmp_path)
    (tmp_path / "again.yaml").write_text(space_text(request))
    assert load_space(tmp_path / "again.yaml") == request
    assert request.better == "lower" and request.budgets == (9,) and request.count == 16


def test_what_is_wrong_with_a_space_is_said_with_its_place(tmp_path: Path) -> None:
    wrong = """\
format: 1
parameters:
  lr: {loguniform: [0, 1]}
  width: {intt: [8, 256]}
  mom: {uniform: [x, 1]}
  two: {int: [1, 2], choice: [a]}
  down: {int: [9, 1]}
metric: {name: loss}
"""
    with pytest.raises(ManyErrors) as caught:
        space(tmp_path, text=wrong)
    said = [str(problem.where) + ": " + problem.message for problem in caught.value.problems]
    assert [line.partition("space.yaml:")[2].partition(":")[0] for line in said] == ["3", "4", "5", "6", "7"], said
    assert "both numbers have to be above 0" in said[0] and "unknown key 'intt'" in said[1]
    for more, why in (
        ("metric: {name: thing}\nparameters: {a: {int: [1, 2]}}\n", "whether lower or higher is better"),
        ("metric: {name: loss}\nparameters: {budget: {int: [1, 2]}}\n", "has a meaning of its own"),
        ("metric: {name: loss}\nparameters: {a: {int: [1, 2]}}\nscheduler: asha\n", "add rungs"),
    ):
        with pytest.raises(InputError, match=why):
            space(tmp_path, text="format: 1\n" + more)


def test_a_metric_in_the_wrong_direction_is_remarked(tmp_path: Path) -> None:
    request = space(tmp_path, text=SPACE.replace("{name: loss}", "{name: loss, better: higher}"))
    assert any("usually lower" in remark for remark in request.remarks)
    assert not space(tmp_path).remarks


def test_parameters_follow_from_seed_and_number_alone(tmp_path: Path) -> None:
    request = space(tmp_path)
    first = [drawn(request, number, 7) for number in range(20)]
    assert first == [drawn(request, number, 7) for number in range(20)]
    assert first != [drawn(request, number, 8) for number in range(20)]
    assert all(1e-5 <= one["lr"] <= 0.1 and 8 <= one["width"] <= 256 and one["opt"] in ("sgd", "adam") for one in first)


def test_an_exhausted_space_has_each_point_once(tmp_path: Path) -> None:
    text = "format: 1\nparameters: {a: {int: [1, 4]}, b: {choice: [x, y, z]}}\nmetric: {name: loss}\ntrials: 100\n"
    request = space(tmp_path, text=text)
    assert request.count == 12 and any("12 trials in place of 100" in remark for remark in request.remarks)
    taken: list[str] = []
    for number in range(12):
        taken.append(key_of(drawn(request, number, 3, taken)))
    assert len(set(taken)) == 12
    grid = [key_of(grid_point(changed(request, search="grid"), number)) for number in range(12)]
    assert set(grid) == set(taken) and grid[:2] == [key_of({"a": 1, "b": "x"}), key_of({"a": 1, "b": "y"})]


def test_words_of_a_program_get_their_parameters(tmp_path: Path) -> None:
    request = space(
        tmp_path, "job: {program: [train.py, '--rate={lr}', --stop, '{budget}', '{\"a\": 1}', '${HOME}']}\n"
    )
    words = words_of(request, {"lr": 0.001, "width": 64, "opt": "sgd"}, {"budget": "3"})
    assert words == ["train.py", "--rate=0.001", "--stop", "3", '{"a": 1}', "${HOME}", "--width", "64", "--opt", "sgd"]


def test_reports_are_lines_of_json_or_of_a_pattern(tmp_path: Path) -> None:
    reader = ReportReader(space(tmp_path))
    assert reader.read('x {"epoch": 3, "loss": -0.5}') == Report(3, -0.5)
    assert reader.read('{"loss": 0}') == Report(None, 0.0) and reader.read('{"epoch": 3}') is None
    assert reader.read("no") is None and reader.read('{"loss": "a"}') is None
    text = SPACE.replace("{name: loss}", r"{name: loss, pattern: 'loss (\S+)'}").replace("epoch", r"'epoch (\d+)'")
    assert ReportReader(space(tmp_path, text=text)).read("epoch 12 loss 1e-3") == Report(12, 0.001)
    with pytest.raises(InputError, match="resource"):
        ReportReader(space(tmp_path, text=text.replace(r"(\d+)", r"\d+")))


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    whole = '{"event":"asked","trial":0,"seed":1,"known":0,"params":{"a":1}}\n'
    file.write_text(whole + '{"event":"start')
    assert read_journal(file).torn == 15 and len(read_journal(file).events) == 1
    assert file.read_text().endswith("start"), "a reader changes nothing"
    writer = JournalWriter(file)
    assert writer.torn == 15
    writer.append([{"event": "started", "trial": 0, "rung": 0}])
    writer.close()
    assert [event["event"] for event in read_journal(file).events] == ["asked", "started"]
    file.write_text(whole + '{"event":"start\n' + whole)
    with pytest.raises(InputError, match=r"journal.jsonl:2: not an event"):
        read_journal(file)


@pytest.mark.parametrize("line", [
    '{"event":"asked","trial":-1,"params":{}}', '{"event":"asked","trial":1,"params":[]}',
    '{"event":"report","trial":1}',
    '{"event":"ended","trial":1,"rung":0,"state":"well","seconds":1}', '{"event":"started","trial":1,"rung":1e99}',
    '{"event":"report","trial":1,"resource":1,"value":1e999}', "[]", "7", '{"event":[]}' + "[" * 100_000,
])  # fmt: skip
def test_damaged_lines_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "journal.jsonl").write_text(line + "\n")
    with pytest.raises(InputError):
        read_journal(tmp_path / "journal.jsonl")


def simulated(
    request: SearchRequest, slots: int, salt: str, stop_after: tuple[int, ...] = (), end: Callable[[], bool] = bool
) -> list[Event]:
    """A search in no time: what runs ends in an order drawn by `salt`; after some results all that runs is stopped."""
    generator, journal, progress, ended = random.Random(salt), list[Event](), SearchProgress(), 0

    def write(**event: Any) -> None:
        journal.append(event)
        progress.apply(event)

    running: list[Start] = []
    while not is_done(request, progress):
        while len(running) < slots and (step := next_step(request, progress)):
            if isinstance(step, Ask):
                params = drawn(request, step.trial, 7)
                write(event="asked", trial=step.trial, seed=0, known=len(journal), params=params)
                step = Start(step.trial, 0)
            write(event="started", trial=step.trial, rung=step.rung)
            running.append(step)
        if ended in stop_after:
            stop_after = tuple(number for number in stop_after if number != ended)
            for step in running:
                write(event="ended", trial=step.trial, rung=step.rung, state="interrupted", value=None, seconds=0.0)
            running = []
            progress = SearchProgress(json.loads(json.dumps(journal)))  # as another process reads it
            continue
        step = running.pop(generator.randrange(len(running)))
        value = random.Random(f"{step.trial}").random() + random.Random(f"{step.trial}/{step.rung}").random() / 10
        write(event="ended", trial=step.trial, rung=step.rung, state="done", value=value, seconds=1.0)
        ended += 1
    return journal


def reached(journal: list[Event], rungs: int) -> list[list[int]]:
    progress = SearchProgress(journal)
    assert not progress.repeated
    return [sorted(progress.at(rung)) for rung in range(rungs)]


@pytest.mark.parametrize("number", range(20))
def test_halving_and_one_slot_of_asha_are_the_same_after_any_stop(tmp_path: Path, number: int) -> None:
    base = changed(space(tmp_path), rungs=space(tmp_path).rungs, trials=27)
    halving, asha = changed(base, scheduler="halving"), changed(base, scheduler="asha")
    whole = reached(simulated(halving, 4, "a"), 3)
    assert [len(rung) for rung in whole] == [27, 9, 3]
    assert reached(simulated(halving, 3, f"x{number}", stop_after=(number, number + 9)), 3) == whole
    one = simulated(asha, 1, "a")
    stopped = simulated(asha, 1, f"y{number}", stop_after=(number, number + 11))
    kept = [event for event in stopped if event["event"] == "ended" and event["state"] == "done"]
    assert kept == [event for event in one if event["event"] == "ended"], "also the order"


def test_asha_decides_each_trial_and_rung_once_whatever_the_timing(tmp_path: Path) -> None:
    asha = changed(space(tmp_path), scheduler="asha", trials=27)
    for number in range(20):
        journal = simulated(asha, 4, f"z{number}", stop_after=(number, 2 * number + 1))
        done = [(e["trial"], e["rung"]) for e in journal if e["event"] == "ended" and e["state"] == "done"]
        assert len(done) == len(set(done))
        assert len(reached(journal, 3)[0]) == 27 and reached(journal, 3)[2]


def test_failed_trials_do_not_go_on_and_do_not_hold_a_rung(tmp_path: Path) -> None:
    request, progress = changed(space(tmp_path), scheduler="halving", trials=3), SearchProgress()
    for number in range(3):
        progress.apply({"event": "asked", "trial": number, "params": {"lr": number}})
        progress.apply({"event": "started", "trial": number, "rung": 0})
    for number, state in enumerate(("failed", "done", "no-value")):
        assert next_step(request, progress) is None
        value = 5.0 if state == "done" else None
        progress.apply({"event": "ended", "trial": number, "rung": 0, "state": state, "value": value, "seconds": 1.0})
    assert next_step(request, progress) == Start(1, 1)


def test_a_trial_that_was_asked_for_and_not_started_when_the_search_was_killed_is_started(tmp_path: Path) -> None:
    request = changed(space(tmp_path), scheduler="halving", trials=1)
    progress = SearchProgress([{"event": "asked", "trial": 0, "params": {"lr": 1}}])
    assert next_step(request, progress) == Start(0, 0) and not is_done(request, progress)


def test_a_report_counts_once_for_a_trial_and_a_resource() -> None:
    progress = SearchProgress([{"event": "asked", "trial": 0, "params": {}}])
    for value in (1.0, 2.0):
        progress.apply({"event": "report", "trial": 0, "resource": 3, "value": value})
    assert progress.trials[0].reports == {3: 1.0} and progress.repeated == 1


def test_importance_names_the_parameter_that_matters(tmp_path: Path) -> None:
    request = space(tmp_path)
    params = [drawn(request, number, 7) for number in range(60)]
    found = importances(request, [(one, abs(one["width"] - 100) + (one["opt"] == "sgd") * 5) for one in params])
    assert next(iter(found)) == "width" and found["width"] > 0.5 and found["lr"] < 0.2
    assert importances(request, [(one, 1.0) for one in params]) == {"lr": 0.0, "width": 0.0, "opt": 0.0}
    assert importances(request, [(params[0], 1.0)]) == {}


def test_a_search_of_the_first_format_is_still_read() -> None:
    found = search_results(DATA / "formats/search-1")
    assert found.best is not None and found.best.number == 4 and len(found.ended) == 9
    assert found.typed == "stackyard launch --ranks-per-node 1 train.py --lr 0.0034344 --width 62 --opt adam"
    assert len(search_document(found).figures()) == 3


def test_the_space_of_the_example_is_read(tmp_path: Path) -> None:
    request = load_space(EXAMPLES / "resnet/space.yaml")
    assert request.budgets == (20, 60, 180) and request.count == 27 and not request.remarks
    words = words_of(request, drawn(request, 0, 1), {"budget": "20", "checkpoint": "C"})
    assert words[:5] == ["train.py", "--steps", "20", "--checkpoint", "C/resnet.pt"] and "--batch" in words
