"""What is kept of a run, and finding it again."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.cli.main import _hear
from stackyard.core.errors import InputError
from stackyard.host.run.identity import account_name, whoami
from stackyard.launch.records.find import compare, find_run, handle, known_runs
from stackyard.launch.records.follow import follow
from stackyard.launch.records.naming import names_directory, new_run, next_run
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.profiled import profiled
from stackyard.launch.records.record import (
    RunRecord,
    RunStatus,
    add_event,
    read_run,
    read_status,
    set_aside,
    write_record,
    write_status,
)
from stackyard.launch.records.status import cancel, current_status
from support.accounts import Accounts
from support.cli import inside


def make_run(directory: Path, **values: object) -> RunPaths:
    paths = new_run(directory)
    made = RunRecord(
        paths.name, "2026-01-01T00:00:00", "launch", ("stackyard", "launch"), {"nodes": 1, "program": ["a"]}
    )
    write_record(paths, replace(made, **values))  # type: ignore[arg-type]
    return paths


def test_a_run_says_which_profilers_ran(tmp_path: Path) -> None:
    asked = make_run(tmp_path, intent={"roles": {"a": {"profile": ["nsys:ranks=0", "torch"]}, "b": {}}})
    later = make_run(tmp_path)
    (later.main.profile / "py-spy\n").mkdir(parents=True)
    (later.main.profile / "notes.txt").touch()
    marks = [profiled(paths, read_run(paths)) for paths in (asked, later, make_run(tmp_path))]
    assert marks == [("nsys", "torch"), ("py-spy\\n",), ()]


def _several(directory: str, count: int) -> list[str]:
    return [new_run(Path(directory)).name for _ in range(count)]


def test_runs_made_at_once_get_different_directories(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        directories = [(str(tmp_path / name), 5) for name in ("a", "b", "a")]
        names = [n for part in pool.starmap(_several, directories) for n in part]
    assert len(set(names)) == 15
    assert next_run(tmp_path / "c").name == max(names)[:-3] + f"{int(max(names)[-3:]) + 1:03d}"


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


def test_runs_are_found_by_name_end_of_name_directory_and_last(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "runs"), make_run(tmp_path / "runs")
    here = tmp_path / "runs"
    assert find_run(first.name, here).root == first.root
    assert find_run("002", here).root == find_run("2", here).root == second.root
    assert find_run("last", here).root == second.root
    assert find_run(str(first.root), here).root == first.root
    assert find_run("002", tmp_path / "elsewhere").root == second.root  # through the index of all runs
    with pytest.raises(InputError, match="no such run: 077"):
        find_run("077", here)


def test_a_name_is_given_once_a_day_in_whichever_directory(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name) for name in ("a", "b", "a")]
    assert [run.name[-3:] for run in runs] == ["001", "002", "003"]
    for run in runs:
        assert find_run(run.name, tmp_path / "elsewhere").root == find_run(handle(run), tmp_path / "b").root == run.root


def test_a_name_that_several_runs_have_is_an_error_with_their_directories(tmp_path: Path) -> None:
    """Runs recorded before names were given once, or while the home could not be written."""
    first = make_run(tmp_path / "a")
    (names_directory() / first.name).unlink()
    second = make_run(tmp_path / "b")
    assert first.name == second.name
    for directory in ("a", "b", "c"):
        with pytest.raises(InputError, match="several runs match") as raised:
            find_run(first.name, tmp_path / directory)
        assert str(first.root) in str(raised.value) and str(second.root) in str(raised.value)
    assert find_run("001", tmp_path / "b").root == second.root  # the end of a name: first of all here
    assert handle(second) == str(second.root) == str(find_run(handle(second), tmp_path / "a").root)


def test_a_home_that_cannot_be_written_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "a")
    assert first.name != second.name
    assert handle(first) == str(first.root)  # the index could not be written


def test_an_account_without_a_home_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, with HOME unset and an account number that nobody has."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert handle(paths := make_run(tmp_path)) == str(paths.root)
    assert find_run("1", tmp_path).root == paths.root


def test_the_run_after_the_999th(tmp_path: Path) -> None:
    day = next_run(tmp_path).name[:-4]
    for number in (998, 999):
        (tmp_path / f"{day}-{number}").mkdir()
    made = [make_run(tmp_path) for _ in range(3)]
    assert [run.name for run in made] == [f"{day}-1000", f"{day}-1001", f"{day}-1002"]
    assert [run.name for run in known_runs(tmp_path)] == [run.name for run in made]
    assert find_run("last", tmp_path).root == made[2].root
    make_run(tmp_path / "b")
    (tmp_path / f"{day}-999" / "record.json").write_bytes(made[0].record.read_bytes())
    assert [run.name[11:] for run in known_runs(tmp_path)] == ["999", "1000", "1001", "1002"]
    assert find_run("1000", tmp_path).root == made[0].root
    with pytest.raises(InputError, match="no such run"):
        find_run("000", tmp_path)  # not the end of 1000


def test_names_of_past_days_are_forgotten(tmp_path: Path) -> None:
    names_directory().mkdir(parents=True)
    for name in ("2026-01-02-001", "2026-01-02-002"):
        (names_directory() / name).touch()
    os.utime(names_directory() / "2026-01-02-001", (0, 0))
    made = new_run(tmp_path)
    assert sorted(path.name for path in names_directory().iterdir()) == ["2026-01-02-002", made.name]


def test_a_run_directory_is_private_and_its_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        paths = make_run(tmp_path / "runs")
        write_status(paths, RunStatus())
    finally:
        os.umask(before)
    assert paths.root.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "runs").stat().st_mode & 0o777 == 0o755
    assert paths.status.stat().st_mode & 0o777 == 0o644


def test_runs_of_other_users_in_the_same_directory_are_left_out(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna", umask=0), accounts.user("bert", umask=0)
    work = common / "work"
    work.mkdir()
    work.chmod(0o777)
    (work / "x.py").write_text("")
    for who in (anna, bert):
        who.stackyard("launch", "--launcher", "local", "-r", "1", "x.py", cwd=work)
        assert [row["state"] for row in who.stackyard("runs", "--json", cwd=work).value] == ["done"]
        for run in (work / "runs").iterdir():
            run.chmod(0o755)  # as before run directories were private
    assert len(list((work / "runs").iterdir())) == 2


CARRIES_OUT = """
import os, sys, time
from pathlib import Path
from stackyard.host.run.identity import hostname
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunStatus, write_status
write_status(RunPaths(Path(sys.argv[1])), RunStatus(state="running", pid=os.getpid(), host=hostname()))
print("started", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def carried_out(paths: RunPaths) -> Iterator[subprocess.Popen[str]]:
    """A process that carries a run out, as its status says; killed in the end."""
    child = subprocess.Popen([sys.executable, "-c", CARRIES_OUT, paths.root], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def changed(paths: RunPaths, **values: object) -> None:
    """Other members of the ``process`` of a status."""
    status = json.loads(paths.status.read_text())
    status["process"].update(values)
    paths.status.write_text(json.dumps(status))


def test_a_run_whose_watcher_died_is_lost_and_one_that_lives_is_not(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    with carried_out(paths) as child:
        assert current_status(paths).state == "running"
    assert current_status(paths).state == "lost"
    assert read_status(paths).over
    with pytest.raises(InputError, match=f"already ended .lost.: launcher process {child.pid} has died"):
        cancel(paths)


def test_a_process_that_has_the_number_by_now_is_left_alone(tmp_path: Path) -> None:
    """The number of a launcher process that has died belongs to another process of yours."""
    paths = make_run(tmp_path)
    with carried_out(paths) as other:
        changed(paths, started="1")
        with pytest.raises(InputError, match="has died"):
            cancel(paths)
        assert other.poll() is None and read_status(paths).state == "lost"


@pytest.mark.parametrize("pid", [-1, 0, "1", None, 1 << 40])
def test_a_damaged_status_signals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: object) -> None:
    """-1 means every process of yours to kill(2), and 0 the group of the one that asks: so nothing is really sent."""
    sent: list[tuple[int, int]] = []
    paths = make_run(tmp_path)
    with carried_out(paths):
        status = json.loads(paths.status.read_text())
        broken = {**status, "process": {**status["process"], "pid": pid}, "pid": pid if type(pid) is int else 1}
        paths.status.write_text(json.dumps(broken))
        monkeypatch.setattr(os, "kill", lambda *signalled: sent.append(signalled))
        with pytest.raises(InputError, match="does not say which process runs it"):
            cancel(paths)
        monkeypatch.undo()
    assert sent == []


def test_a_run_of_another_boot_or_container(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    with carried_out(paths) as child:
        place = json.loads(paths.status.read_text())["process"]["place"]
        changed(paths, place=place.replace("pid:[", "pid:[9"))
        assert current_status(paths).state == "running"
        with pytest.raises(InputError, match="cannot be seen from here"):
            cancel(paths)
        changed(paths, place="another-boot " + place.split(" ", 1)[1])
        assert current_status(paths).state == "lost" and read_status(paths).state == "running"
        with pytest.raises(InputError, match="restarted"):
            cancel(paths)
        assert child.poll() is None


def test_the_user_of_a_record_is_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "another")
    monkeypatch.setenv("USER", "another")
    assert whoami() == account_name(os.getuid())


def test_cancel_interrupts_the_watcher_here_and_refuses_elsewhere(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    with pytest.raises(InputError, match="was never started"):
        cancel(paths)
    with carried_out(paths) as child:
        process = json.loads(paths.status.read_text())["process"]
        changed(paths, host="elsewhere", place="another")
        with pytest.raises(InputError, match="is on elsewhere") as raised:
            cancel(paths)
        assert raised.value.hint == f"cancel it there: `ssh elsewhere`, then `stackyard runs cancel {paths.root}`"
        changed(paths, **process)
        assert str(child.pid) in cancel(paths)
        assert child.wait(10) in (-signal.SIGINT, 1)
    write_status(paths, RunStatus(state="done", code=0))
    with pytest.raises(InputError, match="already ended"):
        cancel(paths)


def test_a_run_of_another_user_is_theirs_to_cancel(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    paths = make_run(common)
    for path, mode in ((paths.root, 0o777), (paths.record, 0o644)):
        path.chmod(mode)
    child = anna.popen(anna.bin / "python", "-c", CARRIES_OUT, paths.root, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        assert f"only {anna.name} can cancel it" in bert.stackyard("runs", "cancel", paths.root, expect=2).err
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


def test_the_id_of_a_job_is_never_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``scancel --me`` would cancel all jobs of yours."""
    (tmp_path / "scancel").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '17|RUNNING|None'\n")
    for name in ("scancel", "squeue"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    paths = make_run(tmp_path, how="submit", scheduler="slurm")
    for job in ("--me", "-u"):
        write_status(paths, RunStatus(state="running", job=job))
        with pytest.raises(InputError, match="is not the id of a job"):
            cancel(paths)
    assert not (tmp_path / "called").exists()
    write_status(paths, RunStatus(state="running", job="17_2"))
    assert "cancelled slurm job 17_2" in cancel(paths) and (tmp_path / "called").exists()


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
    assert status.ended_well and time.monotonic() - started < 120
    assert seen.text == "epoch 1\nepoch 2\n"
    assert seen.said == ["nodes", "running"]


def test_what_an_earlier_attempt_left_is_set_aside(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    paths.main.logs.mkdir()
    paths.main.rank_log(0).write_text("first attempt")
    (paths.main.profile / "torch").mkdir(parents=True)
    set_aside(paths, 1)
    assert not paths.main.logs.exists() and not paths.main.profile.exists()
    assert (paths.root / "attempts/1/logs/rank-00000.log").read_text() == "first attempt"


def test_following_a_run_that_has_ended_reports_no_phase(tmp_path: Path) -> None:
    """It was running last, and is not any more; what it printed is shown."""
    paths, seen = make_run(tmp_path), Seen()
    paths.main.logs.mkdir()
    paths.main.rank_log(0).write_text("epoch 1\n")
    add_event(paths, "phase", {"phase": "running", "detail": ""})
    write_status(paths, RunStatus(state="done", code=0))
    assert follow(paths, seen, poll_s=0.05).ended_well
    assert (seen.text, seen.said) == ("epoch 1\n", [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_before_its_ranks_start_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """As by scancel, which sends SIGTERM to a batch job in its first second."""

    def ended(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(60)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stackyard.launch.jobs.carry_out._plan", ended)
    heard = signal.getsignal(number)
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)
    try:
        _hear()
        done = inside("launch", "-r", "1", "-c", "1", "true", expect=128 + number)
    finally:
        signal.signal(number, heard)
    (directory,) = (tmp_path / "runs").iterdir()
    status = read_status(RunPaths(directory))
    assert (status.state, status.code, status.message) == ("cancelled", 128 + number, f"ended by {number.name}")
    assert f"ended by {number.name}\n" in done.err
