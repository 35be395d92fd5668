"""Nothing that only reports decides: stalled and full file systems, closed pipes, agents and hubs that were stopped."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stackyard.launch.records.outcome import ListenerGroup
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.run.reports import Reports
from support import programs
from support.bindfs import UNCACHED, bindfs
from support.cli import STACKYARD
from support.processes import wait_for
from support.watched import Heard, Running, local_line, make_plan, mentions, nothing_left

TICKS = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.25; done; echo line $RANK >> $OUT/$RANK; exit 0"


@dataclass
class Site:
    """A working directory with a launch in it; `tmp` is the node's own disk."""

    directory: Path
    tmp: Path

    @property
    def environ(self) -> dict[str, str]:
        own = {"HOME": str(self.tmp), "STACKYARD_TMP": str(self.tmp), "OUT": str(self.tmp), "NO_COLOR": "1"}
        return {**os.environ, **own}

    def argv(self, *words: str) -> list[str]:
        return [str(STACKYARD), "launch", "-r", "2", "-c", "1", "--oversubscribe", *words]

    @property
    def run(self) -> RunPaths:
        (found,) = (self.directory / "runs").iterdir()
        return RunPaths(found)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "work").mkdir()
    (tmp_path / "own").mkdir()
    return Site(tmp_path / "work", tmp_path / "own")


@pytest.fixture
def stalling(tmp_path: Path) -> Iterator[tuple[Site, int]]:
    """A launch's directory on a file system whose server is this process: stopped, no call there returns."""
    programs.need("bindfs")
    below, mounted, own = (tmp_path / name for name in ("below", "work", "own"))
    own.mkdir()
    with bindfs(below, mounted, *UNCACHED) as server:
        yield Site(mounted, own), server.pid


@pytest.mark.real
def test_a_file_system_that_stalls_ends_nothing(stalling: tuple[Site, int]) -> None:
    """Ranks work on while nobody can read or write the run directory; the record is complete afterwards."""
    site, server = stalling
    wait = "until [ -e $OUT/stopped ]; do sleep 0.05; done"
    code = f"echo begun; touch $OUT/begun$RANK; {wait}; touch $OUT/over$RANK; echo ended"
    argv = site.argv("--lost-timeout", "5", "--stream", "all", "sh", "-c", code)
    with subprocess.Popen(argv, cwd=site.directory, env=site.environ, stdout=subprocess.PIPE, text=True) as made:
        wait_for((site.tmp / "begun0").exists)
        wait_for((site.tmp / "begun1").exists)
        os.kill(server, signal.SIGSTOP)
        (site.tmp / "stopped").touch()
        wait_for((site.tmp / "over0").exists)
        wait_for((site.tmp / "over1").exists)
        time.sleep(6)  # more than the silence that is allowed
        assert made.poll() is None, "it waits for its file system"
        os.kill(server, signal.SIGCONT)
        out, _ = made.communicate(timeout=240)
    assert made.returncode == 0
    assert sorted(out.split("\n")) == ["", "[0] begun", "[0] ended", "[1] begun", "[1] ended"]
    assert json.loads(site.run.status.read_text())["state"] == "done"
    events = [json.loads(line)["event"] for line in site.run.events.read_text().splitlines()]
    assert events[-1] == "end"
    assert "node-lost" not in events
    assert site.run.main.rank_log(1).read_text() == "begun\nended\n"


@pytest.mark.parametrize("ending", ["exit 0", "exit 7"])
def test_a_full_disk_ends_nothing(site: Site, ending: str, tmp_path: Path) -> None:
    """The run directory is on a disk that is full from the first line of the ranks on."""
    programs.need("mount")
    script = (
        f"cd {shlex.quote(str(site.directory))} && mount -t tmpfs -o size=600k none . && cd $PWD || exit 99\n"
        '"$@" & pid=$!\n'
        f"while ! [ -e {shlex.quote(str(site.tmp))}/begun1 ]; do sleep 0.05; done\n"
        f"dd if=/dev/zero of=filler bs=1k 2>/dev/null; touch {shlex.quote(str(site.tmp))}/full\n"
        "wait $pid; code=$?; df -k . | tail -1 >&2; exit $code\n"
    )
    code = f"touch $OUT/begun$RANK; until [ -e $OUT/full ]; do sleep 0.05; done; touch $OUT/over$RANK; {ending}"
    words = ["unshare", "--mount", "sh", "-c", script, "sh", *site.argv("sh", "-c", code)]
    done = subprocess.run(words, env=site.environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == int(ending[-1]), done.stderr
    assert (site.tmp / "over0").exists()
    assert (site.tmp / "over1").exists()
    assert "Traceback" not in done.stderr
    assert "the end of this run is not recorded: cannot write" in done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(("stream", "ending"), [("stdout", 7), ("stderr", 7), ("both", 0)])
def test_a_closed_pipe_ends_nothing(site: Site, stream: str, ending: int) -> None:
    code = f"for i in 1 2 3; do echo some output; sleep 0.3; done; touch $OUT/over$RANK; exit {ending}"
    read, write = os.pipe()
    os.close(read)
    null = subprocess.DEVNULL
    done = subprocess.run(
        site.argv("--stream", "all", "sh", "-c", code), cwd=site.directory, env=site.environ, timeout=300, check=False,
        stdout=null if stream == "stderr" else write, stderr=null if stream == "stdout" else write,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == ending
    assert (site.tmp / "over1").exists()


@pytest.mark.parametrize("ending", [7])
def test_a_full_standard_output_ends_nothing(site: Site, ending: int) -> None:
    code = f"echo some output; sleep 0.5; touch $OUT/over$RANK; exit {ending}"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            site.argv("sh", "-c", code),
            cwd=site.directory,
            env=site.environ,
            timeout=300,
            stdout=full,
            stderr=full,
            check=False,
        )
    assert done.returncode == ending
    assert (site.tmp / "over1").exists()


def test_head_takes_one_line_and_the_job_goes_on(site: Site) -> None:
    words = shlex.join(
        site.argv("--stream", "all", "sh", "-c", "for i in 1 2 3 4; do echo $i; sleep 0.2; done; touch $OUT/over$RANK")
    )
    script = f"set -o pipefail; {words} 2>&1 | head -1"
    done = subprocess.run(
        ["bash", "-c", script], cwd=site.directory, env=site.environ, timeout=300, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert (site.tmp / "over0").exists()
    assert (site.tmp / "over1").exists()


@pytest.fixture
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    return tmp_path


def test_an_agent_that_was_stopped_is_waited_for(own_tmp: Path) -> None:
    run = Running(own_tmp / "step", make_plan(local_line(1, 2), 1, 2, "sh", "-c", "echo ready; sleep 5"), lost_s=20)
    run.until("ready", 2)
    (agent,) = mentions(f"{own_tmp}/step/agent.py")
    os.kill(agent, signal.SIGSTOP)
    time.sleep(4)
    os.kill(agent, signal.SIGCONT)
    assert run.end().state == "done"
    assert nothing_left(str(own_tmp)) == []


def test_an_agent_may_use_all_cpus(own_tmp: Path) -> None:
    """It inherits the mask of local rank 0, and must not share that rank's core."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU only")
    line = local_line(1, 1)
    line = type(line)(("taskset", "-c", str(min(os.sched_getaffinity(0))), *line.words), line.family)
    run = Running(own_tmp / "step", make_plan(line, 1, 1, "sh", "-c", "echo ready $$; exec sleep 60"))
    run.until("ready", 1)
    (agent,) = mentions(f"{own_tmp}/step/agent.py")
    try:
        assert os.sched_getaffinity(agent) == os.sched_getaffinity(0)
    finally:
        os.kill(int(run.step.rank_log(0).read_text().split()[1]), signal.SIGKILL)
    assert run.end().code == 137


def test_the_display_is_slow_and_no_line_is_lost(own_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents hold back what the display has not taken; they do not fall silent, and nothing is left out."""
    monkeypatch.setattr("stackyard.launch.run.hub.HOLD_BYTES", 1 << 20)

    class Slow(Heard):
        def output(self, task: int, text: str) -> None:
            time.sleep(0.02)
            super().output(task, text)

    code = f"yes {'x' * 99} | head -c 12000000"
    run = Running(own_tmp / "step", make_plan(local_line(1, 1), 1, 1, "sh", "-c", code), heard=Slow(), lost_s=60)
    assert run.end().state == "done"
    assert len(run.heard.text[0]) == 12_000_000


def test_what_the_display_does_not_take_in_time_is_said(own_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.launch.run.hub.HOLD_BYTES", 1 << 19)

    gone = threading.Event()

    class Stuck(Heard):
        def output(self, task: int, text: str) -> None:
            gone.wait(240)
            super().output(task, text)

    code = f"for i in 1 2 3 4 5 6; do yes {'x' * 99} | head -c 2000000; sleep 0.3; done"
    run = Running(own_tmp / "step", make_plan(local_line(1, 1), 1, 1, "sh", "-c", code), heard=Stuck(), lost_s=4)
    run.until("x", 1)
    (agent,) = mentions(f"{own_tmp}/step/agent.py")
    wait_for(lambda: not Path(f"/proc/{agent}/exe").exists())  # it does not wait for ever
    gone.set()
    result = run.end()
    assert result.state == "done", (result.first, result.launcher_output)
    left = 12_000_000 - len(run.heard.text[0])
    assert left
    assert f"output not shown: {left} bytes; see {run.step.rank_log(0)}" in run.heard.all("notice")


def test_an_error_of_one_listener_reaches_no_other() -> None:
    class Broken(Heard):
        def notice(self, text: str) -> None:
            raise OSError(28, "No space left on device")

        phase = notice  # type: ignore[assignment]

    heard, broken = Heard(), Broken()
    reports = Reports(ListenerGroup(broken, heard))
    for number in range(3):
        reports.notice(str(number))
    reports.phase("running")
    reports.close()
    assert heard.all("notice") == ["0", "1", "2"]
    assert heard.all("phase") == ["running"]


def test_who_waits_for_a_file_system_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.launch.run.reports.LATE_S", 0.6)

    heard = Heard()

    class Stalled(Heard):
        def event(self, kind: str, data: dict[str, object]) -> None:
            wait_for(lambda: heard.all("notice"))

    reports = Reports(ListenerGroup(Stalled(), heard))
    reports.event("end", {})
    reports.close()
    assert heard.all("notice") == ["all ranks have ended; waiting for the file system of the run directory"]
