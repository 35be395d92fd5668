"""Runs as the command line shows them, without any scheduler: arrays, repeated and compared runs, what is followed."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stackyard.cli.publish.deployjob import without_job
from stackyard.launch.api.handles import Run
from stackyard.launch.api.runs import followed_logs
from stackyard.launch.jobs.batch import without_dry_run
from stackyard.launch.jobs.requeue import job_id
from stackyard.launch.plan.context import PlanContext
from stackyard.launch.plan.model import Allocation
from stackyard.launch.records import arrays
from stackyard.launch.records import follow as following
from stackyard.launch.records.find import known_runs
from stackyard.launch.records.follow import follow
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, RunStatus, add_event, read_run, write_record, write_status
from support.cli import stackyard
from support.watched import Heard


def made(directory: Path, name: str = "2026-11-21-001", *, array: str = "", job: str = "", **status: Any) -> RunPaths:
    """A run on a machine without a scheduler."""
    paths = RunPaths(directory / "runs" / name)
    paths.root.mkdir(parents=True)
    intent = {"program": ["train.py"], "nodes": 1, "batch": {"array": array}}
    command = {"command": f"srun -n 1 {paths.root}/rank.sh"}
    write_record(paths, RunRecord(name, "2026-11-21", "submit", ("stackyard",), intent, plan=command))
    if status:
        write_status(paths, RunStatus(job=job, **status))
    return paths


def task(paths: RunPaths, index: str, **status: Any) -> RunPaths:
    """A task of an array that has begun."""
    found = arrays.begin_task(paths, read_run(paths), index)
    write_status(found, RunStatus(**status))
    return found


@pytest.mark.parametrize(("text", "found"), [
    ("0-2", (0, 1, 2)), ("1,4,4,6-7", (1, 4, 6, 7)), ("0-9:3", (0, 3, 6, 9)), ("1-100%4", tuple(range(1, 101))),
    ("5", (5,)),
])  # fmt: skip
def test_indices(text: str, found: tuple[int, ...]) -> None:
    assert arrays.indices(text) == found


DONE = RunStatus(state="done", code=0, started=1, ended=2)
FAILED = RunStatus(state="failed", code=3, started=1, ended=3, first={"message": "rank 0 on n1 ended with code 3"})
KILLED = RunStatus(state="cancelled", code=143, started=1, ended=2.5)


@pytest.mark.parametrize(("parts", "state", "code"), [
    ((DONE, DONE), "done", 0), ((DONE, FAILED), "failed", 3), ((KILLED, FAILED, DONE), "failed", 3),
    ((DONE, KILLED), "cancelled", 143), ((DONE, RunStatus("running")), "running", None),
    ((RunStatus("queued"), RunStatus()), "queued", None), ((DONE, RunStatus("queued")), "running", None),
    ((FAILED, replace(DONE, state="node-lost", code=1)), "node-lost", 1),
])  # fmt: skip
def test_an_array_as_a_whole(parts: tuple[RunStatus, ...], state: str, code: int | None) -> None:
    whole = arrays.together(RunStatus("queued", job="7"), {str(i): part for i, part in enumerate(parts)})
    assert (whole.state, whole.code, sum(whole.tasks.values()), whole.job) == (state, code, len(parts), "7")
    if state == "failed":
        assert whole.first["message"].endswith("rank 0 on n1 ended with code 3")


def test_an_array_that_has_ended_needs_no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = made(tmp_path, array="0-1", job="7", state="queued")
    task(paths, "0", state="done", code=0, ended=5)
    task(paths, "1", state="failed", code=9, ended=4, first={"message": "rank 2 was lost"})
    monkeypatch.chdir(tmp_path)
    (row,) = stackyard("runs", "--json").value
    assert (row["state"], row["code"], row["tasks"]) == ("failed", 9, {"done": 1, "failed": 1})
    assert row["message"] == "task 1: rank 2 was lost"
    assert "failed (9), 1 of 2 done" in stackyard("runs").out
    assert stackyard("runs", "show", "last.0", "--json").value["record"]["run"] == "2026-11-21-001.0"
    ended = stackyard("runs", "show", "last.0", "--json").value["status"]["ended"]
    assert datetime.fromisoformat(ended).timestamp() == 5 and re.search(r"[+-]\d\d:\d\d$", ended)
    assert "has not started" in stackyard("runs", "show", "last.5", expect=2).err


def test_what_a_task_of_an_array_was_started_with(tmp_path: Path) -> None:
    paths = made(tmp_path, array="0-1", job="7", state="queued")
    command = read_run(task(paths, "1", state="running")).plan["command"]
    assert command == f"srun -n 1 {paths.root}/array/1/rank.sh"
    assert [run.name for run in known_runs(tmp_path / "runs")] == ["2026-11-21-001"]


@pytest.mark.parametrize(("scheduler", "job", "environ", "found"), [
    ("slurm", "12", {}, "12"),
    ("slurm", "12", {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "12"}, "12_2"),  # the last: the array's number
    ("slurm", "13", {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "12"}, "12_0"),
    ("lsf", "12", {"LSB_JOBINDEX": "3"}, "12[3]"), ("lsf", "12", {"LSB_JOBINDEX": "0"}, "12"),
    ("pbs", "12[3].head", {"PBS_ARRAY_INDEX": "3"}, "12[3].head"),
])  # fmt: skip
def test_the_id_of_a_task_is_not_that_of_its_array(
    scheduler: Any, job: str, environ: dict[str, str], found: str
) -> None:
    assert job_id(PlanContext(scheduler, Allocation(scheduler, job, ("n1",)), environ=environ)) == found


def test_two_runs_do_not_differ_by_their_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, "2026-11-21-001", state="done")
    made(tmp_path, "2026-11-21-002", state="done")
    monkeypatch.chdir(tmp_path)
    assert stackyard("runs", "diff", "001", "002", "--json").value == []
    assert "no differences" in stackyard("runs", "diff", "001", "002").out


def test_runs_differ_by_what_they_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (rate, peak) in enumerate([(256.0, 5 << 20), (512.0, 6 << 20)], 1):
        paths = made(tmp_path, f"2026-11-21-00{number}", state="done")
        paths.main.logs.mkdir()
        rows = ({"step": i, "seconds": 0.5, "images_per_s": rate} for i in range(20))
        paths.main.rank_log(0).write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.usage.write_text(json.dumps({"format": 1, "ranks": [{"task": 0, "peak_bytes": peak}]}))
    assert stackyard("runs", "diff", "001", "002", "--json").value == [
        {"what": "metric images_per_s", "a": "256 images/s", "b": "512 images/s"},
        {"what": "peak memory", "a": "5 MiB", "b": "6 MiB"},
    ]
    assert [" ".join(line.split()) for line in stackyard("runs", "diff", "001", "002").out.splitlines()] == [
        "what 2026-11-21-001 2026-11-21-002",
        "metric images_per_s 256 images/s 512 images/s",
        "peak memory 5 MiB 6 MiB",
    ]


def test_a_run_shows_its_texts_in_a_notebook(tmp_path: Path) -> None:
    paths = made(tmp_path, state="failed", code=3, message="<script>alert(1)</script> & more", job="17")
    shown = Run(paths.root)._repr_html_()
    assert "failed (3)" in shown and "train.py" in shown and "&lt;script&gt;alert(1)" in shown
    assert "<script" not in shown and ElementTree.fromstring(shown).tag == "div"


def test_the_logs_that_are_followed(tmp_path: Path) -> None:
    """One of each rank, of many ranks that of each node; the first one of each role."""
    paths = made(tmp_path, "2026-11-21-001", state="queued")

    def followed(stream: str, layout: dict[str, int], **more: Any) -> dict[str, str]:
        write_record(paths, replace(read_run(paths), plan={"layout": layout, **more}))
        return {path.name: label for path, label in followed_logs(paths, stream).items()}

    small, large = {"nodes": 2, "ranks": 4}, {"nodes": 251, "ranks": 1004}
    assert followed("first", small) == {"rank-00000.log": "0"} and followed("none", small) == {}
    assert list(followed("all", small).values()) == ["0", "1", "2", "3"]
    assert (len(followed("all", large)), followed("all", large)["node-00250.log"]) == (252, "node 250")
    roles = [{"name": "server", "first_rank": 0}, {"name": "worker", "first_rank": 1}]
    assert followed("first", small, roles=roles) == {"rank-00000.log": "server 0", "rank-00001.log": "worker 0"}
    assert list(followed("all", small, roles=roles).values()) == ["server 0", "worker 0", "2", "3"]


def test_a_follower_hears_the_last_phase_and_the_whole_output(tmp_path: Path) -> None:
    """Of a run that still runs when it comes; one that has ended is in no phase."""

    class Ending(Heard):
        def notice(self, text: str) -> None:
            super().notice(text)
            write_status(paths, RunStatus(state="done", code=0))

    paths = made(tmp_path, state="running")
    for phase in ("nodes", "first output", "running"):
        add_event(paths, "phase", {"phase": phase, "detail": ""})
    add_event(paths, "notice", {"text": "as planned"})
    paths.main.logs.mkdir()
    paths.main.rank_log(0).write_text("one\ntwo\n")
    for phases in (["running"], []):
        heard = Ending()
        assert follow(paths, heard).state == "done"
        assert heard.all("phase") == phases
        assert heard.all("notice") == ["as planned"]
        assert heard.text == {0: "one\ntwo\n"}


def test_a_log_that_was_replaced_by_a_longer_one_is_shown_whole(tmp_path: Path) -> None:
    from stackyard.launch.records.follow import _Tail

    log = tmp_path / "log"
    log.write_text("first\n")
    tail = _Tail(log)
    assert tail.new() == "first\n"
    (tmp_path / "attempt").mkdir()
    os.rename(log, tmp_path / "attempt" / "log")
    log.write_text("second attempt\n")
    assert tail.new() == "second attempt\n"
    assert tail.new() == ""


def test_a_follower_hears_an_attempt_that_was_over_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log that it reads is put aside, and the next one is complete before its name is looked up again."""
    monkeypatch.setattr(following, "LOOK_S", 3600.0)
    paths = made(tmp_path, state="running")
    paths.main.logs.mkdir()
    log = paths.main.rank_log(0)
    log.write_text("begins at 0\n")

    class Starter(Heard):
        def output(self, rank: int, text: str) -> None:
            super().output(rank, text)
            if text.startswith("begins"):  # the open file is looked up now
                with log.open("a") as out:
                    out.write("saved 9\n")
            elif text.startswith("saved"):
                with log.open("a") as out:
                    out.write("ended\n")
                log.rename(tmp_path / "rank-00000.log")
                log.write_text("went on from 9\n")
                write_status(paths, RunStatus(state="done", code=0))

    heard = Starter()
    assert follow(paths, heard, poll_s=0.05).state == "done"
    assert heard.text == {0: "begins at 0\nsaved 9\nended\nwent on from 9\n"}


@pytest.mark.parametrize(("words", "program", "left"), [
    (["submit", "--dry-run", "-N", "2", "a.py"], ["a.py"], ["submit", "-N", "2", "a.py"]),
    (["submit", "a.py", "--dry-run"], ["a.py", "--dry-run"], ["submit", "a.py", "--dry-run"]),
    (["submit", "--dry-run", "--again", "last"], [], ["submit", "--again", "last"]),
])  # fmt: skip
def test_a_script_does_not_show_that_it_was_a_dry_run(words: list[str], program: list[str], left: list[str]) -> None:
    assert without_dry_run(words, program) == left


@pytest.mark.parametrize("options", [
    ["--on", "gpu"], ["--on=gpu", "-t", "30"], ["--on", "gpu", "-t30", "-AP1", "--queue=q"],
    ["--scheduler-arg", "-x y", "--on", "gpu", "--json"], ["--dry-run", "--on", "gpu", "--account", "deploy"],
])  # fmt: skip
def test_the_job_of_a_deploy_is_the_deploy_without_the_job(options: list[str]) -> None:
    argv = ["stackyard", "--yard", "y", "deploy", "--name", "n", *options, "stack.yaml"]
    assert without_job(argv) == ["--name", "n", "stack.yaml"]


@pytest.mark.parametrize("words", [
    ("launch", "--launcher", "local", "-r", "1", "-c", "1"), ("launch", "--dry-run", "--launcher", "local", "-r", "1"),
])  # fmt: skip
def test_json_alone_on_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hello.py").write_text("print('hello')\n")
    done = stackyard(*words, "--json", "hello.py")
    assert isinstance(json.loads(done.out), dict)
    assert (tmp_path / "runs").exists() == ("--dry-run" not in words)
