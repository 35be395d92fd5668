"""Ranks that train alone: which connections count as one to another rank, and what is said at the end of a run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stackyard.launch.jobs.restarts import Attempts
from stackyard.launch.node.monitoring import edges as agents_edges
from stackyard.launch.node.monitoring.edges import endpoint
from stackyard.launch.node.processes import descendants
from stackyard.launch.node.ranks import Rank
from stackyard.launch.records.outcome import Cause, Failure, StepResult
from stackyard.launch.run import alone
from stackyard.launch.run.alone import Edges, verdicts
from support import programs
from support.watched import Running, local_line, make_plan

MEETS = str(Path(__file__).parent / "programs" / "meets.py")
LEAST_S, LIVES_S = 1.5, "3.4"
EACH = "each of the 3 ranks trained alone: no connection between them was seen"


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    monkeypatch.setattr(alone, "LEAST_S", LEAST_S)
    monkeypatch.setattr(alone, "LEAST_LOOKS", 2)


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server that is not a rank, such as a tracker's or one of parameters."""
    with socket.create_server(("127.0.0.1", 0)) as here:
        yield here.getsockname()[1]


def ran(tmp_path: Path, *words: str, nodes: int = 1, backend: str = "torchrun", **options: Any) -> tuple[str, str, str]:
    """State, message and notices of a run of three ranks on one node, or on three."""
    plan = make_plan(local_line(nodes, 3 // nodes), nodes, 3 // nodes, sys.executable, MEETS, *words, backend=backend)
    run = Running(tmp_path / "step", plan, start_s=60, **options)
    result = run.end()
    return result.state, result.first.message if result.first else "", "\n".join(run.heard.all("notice"))


@pytest.mark.parametrize("how", ["store", "ipv6", "mapped", "fork", "late"])
def test_ranks_that_meet(tmp_path: Path, how: str) -> None:
    """By one connection, which may be IPv6 at one end or at both, a grandchild's, or so short that no look sees it."""
    assert ran(tmp_path, how, LIVES_S) == ("done", "", "")


def test_ranks_of_several_nodes_meet(tmp_path: Path) -> None:
    assert ran(tmp_path, "store", LIVES_S, nodes=3) == ("done", "", "")


@pytest.mark.parametrize("how", ["none", "itself", "server"])
def test_ranks_that_train_alone_have_failed(tmp_path: Path, server: int, how: str) -> None:
    """Neither a connection to itself counts nor one to another program."""
    assert ran(tmp_path, how, LIVES_S, str(server)) == ("failed", EACH, "")


def test_a_rank_without_the_others_is_a_warning(tmp_path: Path) -> None:
    state, _, notices = ran(tmp_path, "some", LIVES_S)
    assert state == "done"
    assert notices.startswith("warning: rank 2 of 3 had no connection to another rank and may have trained alone")


def test_a_short_run_is_a_note(tmp_path: Path) -> None:
    state, _, notices = ran(tmp_path, "none", "0.2")
    assert state == "done"
    assert notices.startswith("no connection between the 3 ranks was seen")


@pytest.mark.parametrize(("backend", "options"), [("any", {}), ("mpi", {}), ("torchrun", {"world_check": False})])
def test_others_are_not_asked(tmp_path: Path, backend: str, options: dict[str, bool]) -> None:
    assert ran(tmp_path, "none", "1.8", backend=backend, **options) == ("done", "", "")


def test_ranks_in_networks_of_their_own_are_not_known(tmp_path: Path) -> None:
    """As in containers with an address behind NAT: that no connection is seen says nothing."""
    if os.geteuid():
        pytest.skip("needs root, for a network namespace")
    plan = make_plan(local_line(1, 2), 1, 2, "unshare", "-n", "sleep", LIVES_S, backend="torchrun")
    run = Running(tmp_path / "step", plan, start_s=60)
    assert run.end().state == "done"
    (notice,) = run.heard.all("notice")
    assert notice.startswith("whether all of the 2 ranks were connected is not known")
    assert notice.endswith("it has a network namespace of its own")


LOOKS = """\
import json, os, sys, time
from stackyard.launch.node.monitoring.edges import Edges
from stackyard.launch.node.ranks import Rank
os.setgid(65534); os.setuid(65534)
rank, edges = Rank(0, 0, int(sys.argv[1])), Edges(True)
edges.look([rank], 1.0)
print(json.dumps(edges.of(0, 1.0, 0.0)))
"""


def test_processes_of_another_account_are_not_known() -> None:
    if os.geteuid():
        pytest.skip("needs root, for another account")
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as shim:
        try:
            done = subprocess.run([sys.executable, "-c", LOOKS, str(shim.pid)], capture_output=True, check=True)
        finally:
            for pid, _ in descendants(shim.pid):
                os.kill(pid, signal.SIGKILL)
    assert json.loads(done.stdout)["why"] == "its processes cannot be examined (Permission denied)"


def test_a_look_examines_only_new_connections(monkeypatch: pytest.MonkeyPatch, server: int) -> None:
    """Sockets of others are looked for more and more seldom, those of a rank once; many looks read no table."""
    examined: list[set[str]] = []
    really = agents_edges.held

    def held(pid: int, due: dict[str, tuple[str, str]]) -> set[str]:
        examined.append(set(due))
        return really(pid, due)

    monkeypatch.setattr(agents_edges, "held", held)
    monkeypatch.setattr(agents_edges, "numbers_of_sockets", lambda: (["1", "1"], ["0"]))
    both = f"a, b = (socket.create_connection(('127.0.0.1', {server})) for _ in '12')"
    code = f"import os, socket; {both}; print(*(os.fstat(one.fileno()).st_ino for one in (a, b)), flush=True); input()"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    with (
        subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as shim,
        socket.create_connection(("127.0.0.1", server)) as not_a_ranks,
    ):
        assert shim.stdout is not None
        mine = set(shim.stdout.readline().split())
        rank, edges = Rank(0, 0, shim.pid), agents_edges.Edges(True)
        looks = [edges.look([rank], float(now)) for now in range(1, 18)]
        found = [ends for look in looks for _, ends in look]
        assert [len(ends) for ends in found] == [1], "to one server, the first counts"
        assert sum(str(os.fstat(not_a_ranks.fileno()).st_ino) in one for one in examined) == 5, "at full looks"
        assert [one & mine for one in examined if one & mine] == [mine]
        monkeypatch.setattr(agents_edges, "numbers_of_sockets", lambda: (["2", "1"], ["0"]))
        edges._spent = 1.0
        assert edges.look([rank], 64.0) == [] and edges.of(0, 64.0, 0.0)["looks"] == 17, "too dear: not now"
        edges._spent = 0.0
        edges.met([0])
        seen = len(examined)
        for now in range(70, 90):
            edges.look([rank], float(now))
        assert len(examined) <= seen + agents_edges.AFTER
        shim.communicate("\n")


ENDS = ("""\
import socket, time
kept = socket.create_server(("fd00::1", 7001), family=socket.AF_INET6).accept()
time.sleep(60)
""", """\
import socket, time
while True:
    try:
        kept = socket.create_connection(("fd00::1", 7001))
        break
    except OSError:
        time.sleep(0.1)
time.sleep(60)
""")  # fmt: skip
LOOKS_UNTIL = """\
import json, os, signal, subprocess, sys, time
from stackyard.launch.node.monitoring.edges import Edges
from stackyard.launch.node.ranks import Rank
shim = subprocess.Popen(["sh", "-c", '"$0" -c "$1" & wait', sys.executable, sys.argv[2]])
edges, rank, found, until = Edges(True), Rank(int(sys.argv[1]), 0, shim.pid), [], time.monotonic() + 60
while not found and time.monotonic() < until:
    time.sleep(0.3)
    rank.refresh()
    found = edges.look([rank], time.monotonic())
print(json.dumps(found), flush=True)
sys.stdin.read()
for pid in rank.below:
    os.kill(pid, signal.SIGKILL)
"""


def test_two_nodes_that_have_ipv6_only() -> None:
    """Each in a network of its own, as on two machines; neither has an IPv4 address."""
    ip = programs.need("ip")
    if os.geteuid():
        pytest.skip("needs root, for network namespaces")
    names = [f"sy6-{os.getpid()}-{number}" for number in range(2)]
    link = ("link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", names[1])
    looking = []
    try:
        for name in names:
            subprocess.run([ip, "netns", "add", name], check=True)
        subprocess.run([ip, "-n", names[0], *link], check=True)
        for number, name in enumerate(names):
            address = ("addr", "add", f"fd00::{number + 1}/64", "dev", "v0", "nodad")
            subprocess.run([ip, "-n", name, *address], check=True)
            subprocess.run([ip, "-n", name, "link", "set", "v0", "up"], check=True)
        for number, name in enumerate(names):
            words = [ip, "netns", "exec", name, sys.executable, "-c", LOOKS_UNTIL, str(number), ENDS[number]]
            looking.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        edges = Edges()
        found = [json.loads(one.stdout.readline()) for one in looking if one.stdout]
        assert edges.heard(found[0]) == []
        assert sorted(edges.heard(found[1])) == [0, 1]
    finally:
        for one in looking:
            one.communicate("", timeout=60)
        for name in names:
            subprocess.run([ip, "netns", "del", name], check=False)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("0100007F:1F90", "here/0100007F:1F90"),
        ("0A00000A:1F90", "0A00000A:1F90"),
        ("0000000000000000FFFF00000A00000A:1F90", "0A00000A:1F90"),
        ("0000000000000000FFFF00000100007F:1F90", "here/0100007F:1F90"),
        ("00000000000000000000000001000000:1F90", "here/00000000000000000000000001000000:1F90"),
    ],
)
@pytest.mark.skipif(sys.byteorder == "big", reason="the texts are of a little-endian machine")
def test_the_ends_of_connections(text: str, end: str) -> None:
    assert endpoint(text, "here/") == end


def test_ends_are_joined_in_whatever_order_they_come() -> None:
    edges = Edges()
    assert edges.heard([(1, [["b:1", "a:9"]])]) == []
    assert edges.heard([(3, [["d:1", "x:9"]]), (2, [["c:1", "a:9"]])]) == []
    assert sorted(edges.heard([(0, [["a:9", "e:5"]])])) == [0, 1, 2], "all that wait for this end"
    assert edges.heard([(4, [["e:4", "a:9"]])]) == [4], "one that comes when rank 0 is no longer looked at"
    assert edges.heard([(3, [["d:2", "d:9"], ["d:9", "d:2"]])]) == [], "a connection to itself"
    assert edges.met == {0, 1, 2, 4}


def test_joining_ends_is_linear() -> None:
    """Ten times as many ranks take about ten times as long, not a hundred times; 10,000 ranks 0.03 s."""

    def operations(ranks: int) -> int:
        edges, count = Edges(), 0

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        sys.settrace(trace)
        try:
            for rank in range(1, ranks):
                edges.heard([(rank, [[f"{rank}:1", "0:9"]])])
            edges.heard([(0, [["0:9", "1:1"]])])
        finally:
            sys.settrace(None)
        assert len(edges.met) == ranks
        return count

    assert operations(2000) < 12 * operations(200)


def told(**ends: dict[str, Any]) -> list[tuple[str, str]]:
    """The verdicts on four ranks of which two have met, or none, with these ends by number."""
    seen = Edges()
    for name, value in ends.items():
        seen.ended(int(name[1:]), {"s": 20, "looks": 9, "traced": False, "why": "", "mpi": False, **value})
    seen.met = {task for task in range(4) if f"r{task}" not in ends}
    file: Any = SimpleNamespace(edges=True, roles=(), tasks=4, who=lambda task: f"rank {task}")
    plan = make_plan(local_line(1, 4), 1, 4, "true", backend="jax")
    return [(one.kind, one.text) for one in verdicts(seen, file, plan)]


def test_verdicts() -> None:
    every: dict[str, dict[str, Any]] = {f"r{task}": {} for task in range(4)}
    assert told() == []
    assert told(**every)[0][0] == "error"
    assert told(**{**every, "r2": {"traced": True}}) == []
    assert told(**{**every, "r1": {"s": 1}})[0][0] == "error", "the run was long enough"
    assert told(**{**every, "r1": {"mpi": True}})[0][0] == "warning"
    assert told(**{**every, "r1": {"why": "w"}}) == [
        ("note", "whether all of the 4 ranks were connected is not known: rank 1: w")
    ]
    assert told(r1={}, r3={})[0][1].startswith("warning: ranks 1, 3 of 4 had no connection to another rank")
    assert told(r1={"s": 1}) == [], "it may have had no time for one"


def test_it_is_not_tried_again() -> None:
    first = Failure(-1, "", 1, (), Cause("trained-alone-torch", "c", "r"), "each alone")
    again = Attempts(3, ("n1",), 1, 1)
    assert not again.go_on(StepResult("failed", 1, first, hosts=("n1",)))
    assert again.why_not == "not restarted: the ranks would be alone again"
