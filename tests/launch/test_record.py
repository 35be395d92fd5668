"""What is kept of a run, and finding it again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.errors import InputError
from stackyard.host.identity import account_name, hostname, whoami
from stackyard.launch.records.find import compare, find_run
from stackyard.launch.records.follow import follow
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import (
    RunRecord,
    RunStatus,
    new_run,
    next_run,
    read_run,
    read_status,
    set_aside,
    write_record,
    write_status,
)
from stackyard.launch.records.status import cancel, current_status


def make_run(folder: Path, **values: object) -> RunPaths:
    paths = new_run(folder)
    made = RunRecord(
        paths.name, "2026-01-01T00:00:00", "launch", ("stackyard", "launch"), {"nodes": 1, "program": ["a"]}
    )
    write_record(paths, replace(made, **values))  # type: ignore[arg-type]
    return paths


def _several(folder: str, count: int) -> list[str]:
    return [new_run(Path(folder)).name for _ in range(count)]


def test_runs_made_at_once_get_different_folders(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        names = [n for part in pool.starmap(_several, [(str(tmp_path), 5)] * 3) for n in part]
    assert len(set(names)) == 15
    assert next_run(tmp_path).name.endswith("-016")


def test_record_and_status_come_back_as_written(tmp_path: Path) -> None:
    paths = make_run(tmp_path, scheduler="slurm", stack={"module": "pytorch/2.13-1"})
    assert read_run(paths).stack == {"module": "pytorch/2.13-1"}
    assert read_status(paths).state == "planned"
    status = RunStatus(state="failed", code=3, hosts=("n1", "n2"), first={"task": 5})
    write_status(paths, status)
    assert read_status(paths) == status


def test_a_damaged_or_newer_record_says_so(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    value = json.loads(paths.record.read_text())
    paths.record.write_text(json.dumps({**value, "format": 99}))
    with pytest.raises(InputError, match="format 99; this version of stackyard reads up to 3"):
        read_run(paths)
    paths.record.write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*record\.json"):
        read_run(paths)
    with pytest.raises(InputError, match="is not a run"):
        read_run(RunPaths(tmp_path / "nothing"))


def test_runs_are_found_by_name_end_of_name_folder_and_last(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "runs"), make_run(tmp_path / "runs")
    here = tmp_path / "runs"
    assert find_run(first.name, here).root == first.root
    assert find_run("002", here).root == second.root
    assert find_run("last", here).root == second.root
    assert find_run(str(first.root), here).root == first.root
    assert find_run("002", tmp_path / "elsewhere").root == second.root  # through the index of all runs
    make_run(tmp_path / "other")
    with pytest.raises(InputError, match="several runs"):
        find_run("001", tmp_path / "elsewhere")
    with pytest.raises(InputError, match="no such run: 077"):
        find_run("077", here)


def test_a_run_whose_watcher_died_is_lost_and_one_that_lives_is_not(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    write_status(paths, RunStatus(state="running", pid=child.pid, host=hostname()))
    assert current_status(paths).state == "running"
    child.kill()
    child.wait()
    assert current_status(paths).state == "lost"
    assert read_status(paths).over


def test_the_user_of_a_record_is_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "another")
    monkeypatch.setenv("USER", "another")
    assert whoami() == account_name(os.getuid())


def test_cancel_interrupts_the_watcher_here_and_refuses_elsewhere(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    write_status(paths, RunStatus(state="running", pid=child.pid, host="elsewhere"))
    with pytest.raises(InputError, match="is on elsewhere"):
        cancel(paths)
    write_status(paths, RunStatus(state="running", pid=child.pid, host=hostname()))
    assert str(child.pid) in cancel(paths)
    assert child.wait(10) in (-signal.SIGINT, 1)
    write_status(paths, RunStatus(state="done", code=0))
    with pytest.raises(InputError, match="already ended"):
        cancel(paths)


def test_two_runs_differ_where_they_differ(tmp_path: Path) -> None:
    a = make_run(tmp_path, intent={"nodes": 2, "variables": {"A": "1"}}, versions={"stackyard": "1"})
    b = make_run(tmp_path, intent={"nodes": 4, "variables": {"A": "1"}}, versions={"stackyard": "1"})
    write_status(b, RunStatus(state="failed", code=1))
    assert compare(a, b) == [
        ("intent.nodes", "2", "4"),
        ("state", "planned", "failed"),
        ("exit code", "", "1"),
    ]
    assert compare(a, a) == []


class Seen:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.text = ""

    def phase(self, name: str, detail: str = "") -> None:
        self.said.append(f"{name} {detail}".strip())

    def nodes(self, there: int, expected: int) -> None: ...

    def output(self, task: int, text: str) -> None:
        self.text += text

    def event(self, kind: str, data: dict[str, object]) -> None: ...

    def notice(self, text: str) -> None: ...


WRITER = """
import sys, time
from pathlib import Path
from stackyard.launch.records import record
from stackyard.launch.records.paths import RunPaths
paths = RunPaths(Path(sys.argv[1]))
log = paths.main.rank_log(0)
log.parent.mkdir()
for state, phase, text in (("running", "nodes", ""), ("running", "running", "epoch 1\\n"), ("done", "", "epoch 2\\n")):
    with log.open("a") as stream:
        stream.write(text)
    if phase:
        record.add_event(paths, "phase", {"phase": phase, "detail": ""})
    record.write_status(paths, record.RunStatus(state=state, phase=phase, code=0 if state == "done" else None))
    time.sleep(0.6)
"""


def test_following_sees_phases_and_output_of_another_process(tmp_path: Path) -> None:
    paths, seen = make_run(tmp_path), Seen()
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(paths.root)], env={**os.environ})
    started = time.monotonic()
    status = follow(paths, seen, poll_s=0.05)
    child.wait()
    assert status.ended_well and time.monotonic() - started < 30
    assert seen.text == "epoch 1\nepoch 2\n"
    assert seen.said == ["nodes", "running"]


def test_what_an_earlier_attempt_left_is_set_aside(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    paths.main.logs.mkdir()
    paths.main.rank_log(0).write_text("first attempt")
    set_aside(paths, 1)
    assert not paths.main.logs.exists()
    assert (paths.root / "attempts/1/logs/rank-00000.log").read_text() == "first attempt"
