"""Several deploys and rollbacks of one yard at once, as people and hosts start them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import programs
from support.channel import Package, make_channel
from support.cli import stackyard

# The program with a short patience, so that no test waits for minutes.
QUICK = """
from stackyard.yard.write import lease
lease.PACE = lease.Pace(beat_s=0.1, stale_s=1)
from stackyard.cli.main import main
main()
"""
ANOTHER_HOST = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Words that run a program where nobody here can look it up, as on another host."""


@dataclass(frozen=True)
class Place:
    """A yard, its site and a channel."""

    directory: Path
    channel: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def gate(self) -> Path:
        """What builds wait for that have a gate."""
        return self.directory / "gate"

    def stack(self, name: str, *, gate: bool = False) -> Path:
        """A stack; with a gate its build goes on once that file exists."""
        file = self.directory / name / "stack.yaml"
        file.parent.mkdir()
        (file.parent / "post.sh").write_text(
            f"touch {file.parent}/building\nwhile [ ! -e {self.gate} ]; do sleep 0.05; done\n"
        )
        post = "post: post.sh\n" if gate else ""
        file.write_text(
            f'name: {name}\nversion: "1"\n{post}'
            f'environment: {{channels: ["{self.channel.as_uri()}"], dependencies: [tool]}}\n'
        )
        return file

    @property
    def site(self) -> Path:
        file = self.directory / "site.yaml"
        file.write_text("modules: {formats: [tcl]}\n")  # without Lua no spider cache is made, which takes seconds
        return file

    def run(self, *words: str | Path) -> Any:
        return stackyard("--yard", self.yard, "--site", self.site, *words)

    def start(self, *words: str | Path, host: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        argv = [*host, sys.executable, "-c", QUICK, "--yard", self.yard, "--site", self.site, *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    @property
    def published(self) -> set[str]:
        """What the modules show, which must be what the list says."""
        rows = self.run("list", "--json").value
        assert all((self.yard / "modules" / row["module"]).is_file() for row in rows)
        return {row["module"] for row in rows}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    tool = Package("tool", "1.0", files={"bin/tool": ("#!/bin/sh\n", 0o755)})
    made = Place(tmp_path, make_channel(tmp_path / "channel", [tool]))
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """All that it printed."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, out + err
    return out + err


def test_stacks_that_are_deployed_at_once_are_all_published(place: Place) -> None:
    files = [place.stack(name) for name in ("a", "b", "c")]
    for process in [place.start("deploy", file) for file in files]:
        assert "waiting for the stack" not in ended(process)
    assert place.published == {"a/1-default-1", "b/1-default-1", "c/1-default-1"}
    assert [path.name for path in place.yard.iterdir() if path.name.startswith(".")] == []


def test_rollback_and_other_deploys_do_not_wait_for_a_long_build(place: Place) -> None:
    place.run("deploy", place.stack("a"))
    long = place.stack("long", gate=True)
    building = place.start("deploy", long)
    until((long.parent / "building").exists, building)
    leftover = place.yard / "cache/wheels/.build-of-the-running-one"
    leftover.mkdir(parents=True)
    place.run("deploy", place.stack("b"))
    assert leftover.exists(), "it may be that of the running build"
    assert "- b/1-default-1  withdrawn" in place.run("rollback").out
    assert building.poll() is None and place.published == {"a/1-default-1"}
    place.gate.touch()
    ended(building)
    assert place.published == {"a/1-default-1", "long/1-default-1"}
    (place.yard / "cache/memo").rename(place.directory / "memo")
    place.run("deploy", long)
    assert not leftover.exists()


def test_the_same_stack_is_built_once_and_the_second_says_for_whom_it_waits(place: Place) -> None:
    file = place.stack("a", gate=True)
    one = place.start("deploy", file)
    until((file.parent / "building").exists, one)
    two = place.start("deploy", file)
    assert two.stderr is not None
    said = two.stderr.readline()
    me = subprocess.check_output(["id", "-un"], text=True).strip()
    assert f"waiting for the stack a: held by {me} on {os.uname().nodename}, process {one.pid}, since 20" in said
    place.gate.touch()
    assert "published" in ended(one)
    assert "already published" in ended(two) or "unchanged" in ended(two)
    assert place.published == {"a/1-default-1"}


def test_a_deploy_that_was_stopped_on_another_host_is_taken_over_and_publishes_nothing(place: Place) -> None:
    programs.need("unshare")
    if subprocess.run([*ANOTHER_HOST, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare cannot make a PID namespace here")
    file = place.stack("a", gate=True)
    stopped = place.start("deploy", file, host=ANOTHER_HOST)
    until((file.parent / "building").exists, stopped)
    (pid,) = map(int, Path(f"/proc/{stopped.pid}/task/{stopped.pid}/children").read_text().split())
    os.kill(pid, signal.SIGSTOP)
    place.run("deploy", place.stack("b"))
    other = place.start("deploy", file, "--json")
    time.sleep(2)
    place.gate.touch()
    (revision,) = json.loads(other.communicate(timeout=240)[0])["revisions"]
    assert (revision["module"], revision["status"]) == ("a/1-default-2", "published"), "1 may still be written to"
    os.kill(pid, signal.SIGCONT)
    assert "lost the lease of the stack a" in ended(stopped, 1)
    assert place.published == {"a/1-default-2", "b/1-default-1"}
    assert not (place.yard / "stacks/a/1-default-1/record.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_goes_on_or_is_left_after_a_signal(
    place: Place, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp = place.directory / "tmp"
    tmp.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp))
    file = place.stack("a", gate=True)
    post = file.parent / "post.sh"
    helper_of_it = f"[ -e {place.gate} ] || setsid sh -c 'echo $$ > {tmp}/new; mv {tmp}/new {tmp}/pid; sleep 100' &\n"
    post.write_text(helper_of_it + post.read_text())
    process = place.start("deploy", file)
    until((tmp / "pid").exists, process)
    helper = int((tmp / "pid").read_text())
    process.send_signal(number)
    if number == signal.SIGKILL:
        ended(process, -signal.SIGKILL)
    else:
        assert f"ended by {number.name}: published revisions are unchanged" in ended(process, 128 + number)
        assert not list(place.yard.glob("leases/*/*/owner.json"))
    deadline = time.monotonic() + 240
    while Path(f"/proc/{helper}/exe").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp / "pid").unlink()
    place.gate.touch()
    place.run("deploy", file)
    assert place.published == {"a/1-default-1"} and not list(tmp.glob("stackyard*"))


def test_who_locks_the_cache_is_named(place: Place) -> None:
    place.run("deploy", place.stack("a"))
    lock = place.yard / "cache/conda/.cache.lock"
    assert lock.stat().st_mode & 0o077 == 0, "a reader cannot open it"
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        waiting = place.start("deploy", place.stack("b"))
        assert waiting.stderr is not None
        said = next(line for line in waiting.stderr if "waiting" in line)
        assert f"waiting for the lock {lock}: held by" in said and f"process {os.getpid()}" in said
    ended(waiting)
    assert place.published == {"a/1-default-1", "b/1-default-1"}
