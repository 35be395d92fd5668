"""Files staged on the nodes of a launch: by several agents on this machine, each with a disk of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.launch.node.handshake import Guest
from stackyard.launch.node.interfaces import offered
from stackyard.launch.node.machine import addresses
from stackyard.launch.node.messages import Connection
from stackyard.launch.node.staging import stage as staging
from stackyard.launch.node.staging.pack import key_of
from stackyard.launch.node.step import PlannedStage, StepFile
from stackyard.launch.plan.model import Plan, Stage
from stackyard.launch.run.addresses import with_port
from stackyard.launch.run.link import Link
from stackyard.launch.run.reports import Reports
from stackyard.launch.run.stage import StagingState
from support import programs
from support.bindfs import bindfs
from support.cli import STACKYARD, stackyard
from support.watched import Heard, Running, local_line, make_plan

HERE = offered(addresses(), "")[0]
"""Where agents on other nodes reach one on this machine."""
SHOW = "sha256sum $STACKYARD_STAGE/*; echo $STACKYARD_STAGE"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the nodes have their disks, one directory each."""
    (tmp_path / "disks").mkdir()
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path / "disks"))
    return tmp_path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.write_bytes(os.urandom(5_000_000))
    return made


def plan_of(nodes: int, path: Path, *argv: str) -> Plan:
    plan = make_plan(local_line(nodes, 1), nodes, 1, *(argv or ("sh", "-c", SHOW)))
    return replace(plan, stage=Stage(((path.name, str(path)),)))


def big(place: Path, size: int = 1 << 32) -> Path:
    """A file that takes its time."""
    made = place / "data"
    made.touch()
    os.truncate(made, size)
    return made


def nothing_staged(place: Path) -> bool:
    return not list(place.glob("disks/**/stackyard-stage-*"))


def agents(place: Path, node: int) -> list[int]:
    """The agent of a node, by its environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if f"STACKYARD_NODE={node}".encode() in environ and str(place).encode() in words and b"/agent.py" in words:
            found.append(int(pid))
    return found


def wait_for(heard: Heard, phase: str) -> None:
    end = time.monotonic() + 120
    while phase not in heard.all("phase"):
        assert time.monotonic() < end, heard.said
        time.sleep(0.005)


@pytest.mark.real
def test_seven_nodes_have_it_and_it_is_read_once(place: Path, data: Path) -> None:
    trace, plan = place / "trace", plan_of(7, data)
    words = ("strace", "-ff", "-qq", "-e", "trace=openat,open", "-o", str(trace), *plan.line.words)
    programs.need("strace")
    run = Running(place / "step", replace(plan, line=replace(plan.line, words=words)), start_s=120)
    result = run.end(240)
    assert result.state == "done", (result.first, result.launcher_output)
    sums = [log.read_text().split()[0] for log in run.step.logs.glob("rank-*.log")]
    assert sums == [hashlib.sha256(data.read_bytes()).hexdigest()] * 7
    assert len({log.read_text().split()[2] for log in run.step.logs.glob("rank-*.log")}) == 7
    opened = [text for file in place.glob("trace.*") for text in file.read_text().splitlines() if f'"{data}"' in text]
    assert len(opened) == 1, opened
    assert result.staged is not None
    assert (result.staged.size, result.staged.files, result.staged.nodes) == (5_000_000, 1, 7)
    assert nothing_staged(place)


@pytest.fixture
def shared(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The server of a file system, with a file that takes its time: stopped, no call there returns."""
    programs.need("bindfs")
    (place / "below").mkdir()
    big(place, 1 << 29).rename(place / "below/data")
    with bindfs(place / "below", place / "mounted") as server:
        yield server


@pytest.mark.real
def test_staging_may_take_longer_than_the_nodes_to_report(place: Path, shared: subprocess.Popen[bytes]) -> None:
    """The shims wait, and the nodes stay connected, while the first look at the files takes long."""
    shared.send_signal(signal.SIGSTOP)
    plan = plan_of(2, place / "mounted/data", "sh", "-c", "stat -c %s $STACKYARD_STAGE/data")
    run = Running(place / "step", plan, start_s=6)
    time.sleep(8)
    shared.send_signal(signal.SIGCONT)
    result = run.end(240)
    assert result.state == "done", (result.first, result.launcher_output)
    assert nothing_staged(place)


@pytest.mark.real
def test_a_full_disk_is_named_before_the_ranks_start(place: Path, data: Path) -> None:
    """The disk of the second of three nodes, which passes the files on to nobody, is too small."""
    programs.need("mount")
    disk = place / "disks/1"
    disk.mkdir()
    plan = plan_of(3, data)
    mount = f'mount -t tmpfs -o size=2m none {shlex.quote(str(disk))} && exec "$@"'
    words = ("unshare", "--mount", "sh", "-c", mount, "sh", *plan.line.words)
    run = Running(place / "step", replace(plan, line=replace(plan.line, words=words)), start_s=120)
    result = run.end()
    assert (result.state, result.code) == ("no-start", 1)
    assert result.first is not None
    needed = rf"4\.8 MiB \(5004096 bytes\) needed in {disk}, 2\.0 MiB \(\d+ bytes\) free: stage less, or .*"
    assert re.fullmatch(rf"cannot stage: {socket.gethostname()}: {needed}", result.first.message), result.first.message
    assert f"stackyard: {result.first.message}" in result.launcher_output
    assert not list(run.step.logs.glob("rank-*.log"))
    assert nothing_staged(place)


def test_what_cannot_be_read_ends_it(place: Path, data: Path) -> None:
    data.unlink()
    result = Running(place / "step", plan_of(3, data), start_s=120).end()
    assert (result.state, result.code) == ("no-start", 1)
    assert result.first is not None
    assert result.first.message == f"cannot stage: cannot read {data}: No such file or directory"
    assert not result.first.host
    assert nothing_staged(place)


def test_a_node_that_is_lost_meanwhile_is_named(place: Path) -> None:
    """The agent that passes the files on to two others is killed; these are not to blame."""
    run = Running(place / "step", plan_of(4, big(place)), start_s=120)
    wait_for(run.heard, "staging")
    (agent,) = agents(place, 1)
    os.kill(agent, signal.SIGKILL)
    result = run.end()
    assert result.state == "node-lost"
    assert result.first is not None
    assert "lost connection to the agent on" in result.first.message
    left = list(place.glob("disks/**/stackyard-stage-*"))
    assert [path.parent.name for path in left] == ["1"], "only what the killed one had"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_nothing_is_left_of_a_launch_that_ends_meanwhile(place: Path, number: int, code: int) -> None:
    argv = [str(STACKYARD), "launch", "--launcher", "local", "-r", "1", "-c", "1", "--stage", str(big(place)), "true"]
    with subprocess.Popen(argv, cwd=place, stderr=subprocess.PIPE, text=True) as made:
        assert made.stderr is not None
        while "staging" not in (line := made.stderr.readline()):
            assert line, "it has ended"
        made.send_signal(number)
        assert made.wait(120) == code
    end = time.monotonic() + 120
    while agents(place, 0) and time.monotonic() < end:
        time.sleep(0.05)
    assert nothing_staged(place)


@pytest.mark.real
def test_a_file_system_that_stalls_is_waited_for_and_named(place: Path, shared: subprocess.Popen[bytes]) -> None:
    """No node looks lost while it waits for the file system; after a limit the launch ends."""
    os.truncate(place / "below/data", 1 << 32)
    run = Running(place / "step", plan_of(2, place / "mounted/data"), start_s=120, lost_s=4, stall_s=4)
    wait_for(run.heard, "staging")
    shared.send_signal(signal.SIGSTOP)
    result = run.end()
    assert result.state == "no-start"
    assert result.first is not None
    said = r"staging timed out: nothing has moved for \d s, .* of 4\.0 GiB are on all nodes; .* reads .*/mounted/data"
    assert re.search(said, result.first.message), result.first.message
    assert not run.heard.all("node-lost")


@pytest.mark.parametrize(("again", "places"), [("1", 1), ("0", 0)])
def test_another_attempt_has_what_the_first_one_has_staged(place: Path, data: Path, again: str, places: int) -> None:
    marks = "echo $STACKYARD_ATTEMPT >> $STACKYARD_STAGE/attempts; cat $STACKYARD_STAGE/attempts"
    words = ("launch", "--launcher", "local", "-r", "1", "-c", "1", "--restarts", again, "--stage", data)
    program = ("sh", "-c", f"{marks}; [ -e twice ] || ! touch twice")
    disk = str(place / "disks")
    done = stackyard(*words, *program, cwd=place, expect=1 - places, STACKYARD_TMP=disk)
    if places:
        assert done.out == "1\n1\n2\n"
        assert "staged all nodes had the files from an earlier attempt" in done.err
        kept = json.loads(next(place.glob("runs/*/attempts/1/result.json")).read_text())
        assert kept["state"] == "failed"
    assert nothing_staged(place)


def test_only_a_node_that_does_not_have_it_gets_it(place: Path, data: Path) -> None:
    """Two attempts of one run, by hand: between them one of three nodes loses what it had."""
    plan = plan_of(3, data, "sh", "-c", "cat $STACKYARD_STAGE/data | wc -c; exit 3")
    options: dict[str, Any] = {"start_s": 120, "stage_key": "thesame"}
    first = Running(place / "step", plan, **options, may_lose=0).end()
    assert first.state == "failed"
    left = sorted(place.glob("disks/*/stackyard-stage-*-thesame-*"))
    assert len(left) == 3
    subprocess.run(["rm", "-r", str(left[1])], check=True)
    data.write_bytes(b"the shared file is not read again")
    second = Running(place / "again", plan, **options).end()
    assert second.staged is not None
    assert (second.staged.nodes, second.staged.size) == (1, 5_000_000)
    assert [log.read_text() for log in (place / "again/logs").glob("rank-*")] == ["5000000\n"] * 3
    assert nothing_staged(place)


@pytest.fixture
def parent(place: Path, data: Path) -> Iterator[tuple[staging.Stage, int]]:
    """The agent that reads, waiting for one other."""
    told = {"items": [["data", str(data)]], "key": "k", "base": "", "interface": "", "again": False}
    made = staging.Stage(told, "secret", "one", 10)
    port = made.hello(False)["port"]
    made.begin({"from": [], "children": 1, "needs": True})
    yield made, port
    made.close()


HOSTILE = (
    b"", b"GET / HTTP/1.0\r\n\r\n", b"[" * 60_000, b'{"answer":[]}\n', b"\xff\n", b'{"answer":{"nonce":"\\ud800"}}\n',
)  # fmt: skip


def cannot_rename(path: Path) -> None:
    (path / "files").touch()


def cannot_create(path: Path) -> None:
    path.rmdir()


@pytest.mark.parametrize(("harm", "why"), [(cannot_rename, "Not a directory"), (cannot_create, "No such file")])
def test_a_disk_that_does_not_take_the_files_is_the_nodes_fault(
    place: Path, data: Path, harm: Callable[[Path], None], why: str
) -> None:
    told = {"items": [["data", str(data)]], "key": "k", "base": "", "interface": "", "again": False}
    made = staging.Stage(told, "secret", "one", 10)
    harm(Path(made.hello(True)["place"]))
    made.begin({"from": [], "children": 0, "needs": True})
    found = heard_of(made, "unstaged")
    assert re.fullmatch(f"cannot write in {place}/disks/stackyard-stage-.*-k-one: {why}.*", found["why"]), found
    assert found["of_node"]
    made.close()


def heard_of(stage: staging.Stage, kind: str) -> Any:
    """What it tells the hub under this name."""
    said: dict[str, Any] = {}
    while kind not in said:
        assert select.select([stage.ready], [], [], 120)[0], f"timed out after 120 s: {said}"
        stage.report(said.__setitem__)
    return said[kind]


def test_strangers_get_nothing(parent: tuple[staging.Stage, int], data: Path) -> None:
    _, port = parent
    idle = [socket.create_connection((HERE, port), 60) for _ in range(20)]
    for sent in HOSTILE:
        with socket.create_connection((HERE, port), 60) as made:
            made.settimeout(60)
            try:
                made.sendall(sent)
                made.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: made.recv(65536), b""))
            except ConnectionError:
                continue
            assert len(answer) < 100, "the challenge, and no more"
    told = {"items": [["data", str(data)]], "key": "k", "base": "", "interface": "", "again": False}
    child = staging.Stage(told, "secret", "two", 10)
    child.hello(False)
    child.begin({"from": [*with_port([HERE], port)], "children": 0, "needs": True})
    heard_of(child, "staged")
    assert Path(child.variables["STACKYARD_STAGE"], "data").read_bytes() == data.read_bytes()
    child.close()
    for one in idle:
        one.close()


def test_what_proves_itself_to_the_hub_is_not_an_agent_to_agents(parent: tuple[staging.Stage, int]) -> None:
    """So nobody who stands between an agent and the hub is let in by what he hears there."""
    for secret, welcome in (("secret", False), (key_of("secret"), True)):
        with socket.create_connection((HERE, parent[1]), 60) as made:
            connection, guest = Connection(made), Guest(secret)
            made.settimeout(60)
            (challenge,) = connection.receive() or [{}]
            connection.send(guest.answer(challenge) or {})
            assert bool(connection.receive()) == welcome


def test_the_cause_is_named_whichever_is_heard_first() -> None:
    """A node whose disk is full leaves its children alone, and these may be heard first."""
    stage = PlannedStage((("data", "/data"),), "key")
    file = StepFile("r", "secret", "id", (), "stackyard", 2, 1, stage=stage)
    told = StagingState(file, Reports(Heard()), 300)
    with socket.create_server(("127.0.0.1", 0)) as server:
        links = {}
        for node in range(2):
            socket.create_connection(server.getsockname())
            links[node] = Link(server.accept()[0], "127.0.0.1", 0, "secret")
            links[node].host, links[node].node = f"n{node}", node
            links[node].hello = {"stage": {"have": False, "port": 1, "place": "/tmp"}, "facts": {"interfaces": {}}}
    told.begin(links, "")
    told.heard(links[1], "unstaged", {"why": "lost", "consequence": True, "of_node": False})
    told.heard(links[0], "unstaged", {"why": "full", "consequence": False, "of_node": True})
    assert told.trouble(time.monotonic(), quiet=lambda: False) is None, "more may be heard"
    found = told.trouble(time.monotonic() + 2, quiet=lambda: True)
    assert found is not None
    assert (found.host, found.text) == ("n0", "cannot stage: n0: full")
    for link in links.values():
        link.close()
