"""The hub with real shims, agents and ranks: on this machine, and on a real Slurm of four nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.node import spawn
from stackyard.launch.node.interfaces import reachable
from stackyard.launch.node.machine import OF_USERS
from stackyard.launch.plan.backends.helpers import ray_node
from stackyard.launch.plan.model import LaunchLine
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run import seen
from stackyard.launch.run.addresses import master_address
from stackyard.launch.run.agentfile import plan_of
from stackyard.launch.run.causes.verdict import TaskEnd, first_of
from stackyard.launch.run.step import WatchOptions, run_step
from stackyard.launch.shim import rank_sh
from support import programs, venvs
from support.processes import wait_for
from support.slurm import SlurmCluster
from support.watched import (
    Heard,
    Running,
    local_line,
    make_plan,
    mentions,
    nothing_left,
    srun_line,
)  # fmt: skip

SLEEP = ("/bin/sh", "-c", "echo ready $$; exec sleep 300")
FAST = {"grace_s": 2.0, "start_s": 120.0, "lost_s": 60.0}
SEES_IT = {**FAST, "lost_s": 4.0}
"""Where a node is lost."""
BUSY = '(until [ -e "$0.$RANK" ]; do echo begins; sleep 0.2; done) & exec "$@"'
"""Not silent until its program has made a file, as its Python may take its time to begin."""


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))


def local(tmp_path: Path, per_node: int, *argv: str, **options: object) -> Running:
    return Running(tmp_path / "step", make_plan(local_line(1, per_node), 1, per_node, *argv), **{**FAST, **options})


def on_slurm(tmp_path: Path, *argv: str, **options: object) -> Running:
    return Running(tmp_path / "step", make_plan(srun_line(4, 2), 4, 2, *argv), **{**FAST, **options})


def clean(tmp_path: Path) -> None:
    assert nothing_left(str(tmp_path)) == []


def rank_pid(run: Running, rank: int) -> int:
    return int(run.step.rank_log(rank).read_text().split()[1])


def agents(tmp_path: Path) -> dict[int, int]:
    """Process of the agent of each node."""
    found = {}
    for pid in mentions(f"{tmp_path}/step/agent.py"):
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found[int(next(x for x in environ if x.startswith(b"STACKYARD_NODE=")).split(b"=")[1])] = pid
    return found


# on this machine


def test_ranks_meet_and_end(tmp_path: Path) -> None:
    code = 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"'
    run = local(tmp_path, 3, "/bin/sh", "-c", code, stream="all")
    result = run.end()
    assert (result.state, result.code, result.failed_tasks) == ("done", 0, 0)
    assert [place.task for place in result.placements] == [0, 1, 2]
    assert all(place.cpus and place.pid for place in result.placements)
    assert result.seconds["nodes"] <= result.seconds["first_output"] <= result.seconds["total"]
    said = {text.split(" at ")[1] for text in run.heard.text.values()}
    assert len(said) == 1, "all ranks were told the same address and port"
    assert run.heard.text[2].startswith("2 of 3 at 127.0.0.1:")
    assert [x for x in run.heard.all("phase") if isinstance(x, str)] == ["nodes", "first output", "running"]
    assert run.heard.all("nodes") == [(1, 1)]
    clean(tmp_path)
    assert not list(tmp_path.glob("stackyard-*")), "the node's folder is gone"


def test_only_the_first_rank_is_streamed(tmp_path: Path) -> None:
    run = local(tmp_path, 2, "/bin/sh", "-c", "for i in 1 2 3; do echo $RANK.$i; sleep 0.1; done")
    run.end()
    assert run.heard.text == {0: "0.1\n0.2\n0.3\n"}
    assert run.step.rank_log(1).read_text() == "1.1\n1.2\n1.3\n"


def test_the_first_failure_is_named_with_its_cause(tmp_path: Path) -> None:
    code = "echo ready; [ $RANK = 1 ] || exec sleep 300; python3 -c 'import nosuch_module_x'"
    run = local(tmp_path, 3, "/bin/sh", "-c", code)
    result = run.end()
    assert (result.state, result.code) == ("failed", 1)
    assert result.first is not None
    assert (result.first.task, result.first.message.split(" on ")[0]) == (1, "rank 1")
    assert "nosuch_module_x" in result.first.tail[-1]
    assert result.first.cause is not None
    assert result.first.cause.rule == "module-not-found"
    assert result.failed_tasks == 1
    clean(tmp_path)


def test_a_second_start_keeps_the_logs_of_the_first(tmp_path: Path) -> None:
    for word in ("one", "two"):
        assert local(tmp_path, 1, "/bin/sh", "-c", f"echo {word}").end().state == "done"
    assert (tmp_path / "step/logs-1/rank-00000.log").read_text() == "one\n"
    assert (tmp_path / "step/logs/rank-00000.log").read_text() == "two\n"


def old_pythons() -> list[str]:
    """Other interpreters of this machine, the oldest first: on PATH, and those of pyenv."""
    import pwd
    import shutil

    root = Path(os.environ.get("PYENV_ROOT") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pyenv")
    found = [shutil.which(f"python3.{minor}") for minor in range(6, 11)]
    found += [str(path) for minor in range(6, 11) for path in root.glob(f"versions/3.{minor}.*/bin/python")]
    return sorted({str(Path(path).resolve()) for path in found if path})


@pytest.mark.real
def test_the_agent_runs_on_the_nodes_own_python(tmp_path: Path) -> None:
    """On old ones too, from 3.6: the nodes' Python need not be that of the hub."""
    usable = [path for path in old_pythons() if subprocess.run([path, "-c", ""], check=False).returncode == 0]
    if not usable:
        pytest.skip("no Python from 3.6 to 3.10 on this machine")
    for number, python in enumerate(usable):
        place = tmp_path / str(number)
        run = local(place, 2, "/bin/sh", "-c", "echo $RANK; sleep 0.3; exit $RANK", python=python)
        result = run.end()
        assert outcome(result)[:3] == ("failed", 1, 1), python
        assert run.heard.text == {0: "0\n"}
        assert [log.read_text() for log in run.step.logs.glob("agent-*")] == [], python
    clean(tmp_path)


def test_a_rank_may_end_before_the_others(tmp_path: Path) -> None:
    run = local(tmp_path, 2, "/bin/sh", "-c", "[ $RANK = 1 ] && sleep 2; echo $RANK done")
    assert run.end().state == "done"
    assert "1 done" in run.step.rank_log(1).read_text()


def test_ranks_that_ignore_term_are_killed(tmp_path: Path) -> None:
    code = "trap '' TERM; echo ready; if [ $RANK = 0 ]; then exit 9; fi; while :; do sleep 0.2; done"
    result = local(tmp_path, 2, "/bin/sh", "-c", code, grace_s=0.5).end()
    assert result.code == 9
    clean(tmp_path)


def test_what_a_rank_leaves_behind_is_ended(tmp_path: Path) -> None:
    run = local(tmp_path, 1, "/bin/sh", "-c", "setsid sleep 300 & echo left it")
    assert run.end().state == "done"
    clean(tmp_path)


def test_a_launcher_that_cannot_start_it(tmp_path: Path) -> None:
    line = LaunchLine(("/bin/sh", "-c", "echo 'no slots here' >&2; exit 4"), "stackyard")
    result = Running(tmp_path / "step", make_plan(line, 2, 1, "true"), **FAST).end()
    assert (result.state, result.code) == ("no-start", 4)
    assert "no slots here" in result.launcher_output
    assert result.first is not None
    assert "the launcher exited: 0 of 2 nodes reported" in result.first.message


def test_nodes_that_never_come_are_named(tmp_path: Path) -> None:
    line = LaunchLine(("/bin/sh", "-c", "exec sleep 300"), "stackyard")
    plan = make_plan(line, 2, 1, "true")
    layout = plan.layout.on(("n1", "n2"))
    from dataclasses import replace

    plan = replace(plan, layout=layout, program=replace(plan.program, layout=layout))
    result = Running(tmp_path / "step", plan, grace_s=1.0, start_s=1.0).end()
    assert result.state == "no-start"
    assert result.first is not None
    assert "0 of 2 nodes reported; missing: n1, n2" in result.first.message
    clean(tmp_path)


def test_a_hang_is_noticed_and_stacks_are_kept(tmp_path: Path) -> None:
    code = f"import os, time\nopen('{tmp_path}/up.' + os.environ['RANK'], 'w').close()\ntime.sleep(300)"
    run = local(tmp_path, 2, "/bin/sh", "-c", BUSY, f"{tmp_path}/up", sys.executable, "-c", code, hang_min=0.02)
    result = run.end()
    assert (result.state, result.code) == ("hung", 1)
    text = (run.step.stacks / "rank-00001.txt").read_text()
    assert "time.sleep(300)" in text, "the command line is shown"
    assert "py-spy not found" in text, "and what could not be had"
    assert run.heard.all("hang")
    clean(tmp_path)


@pytest.mark.real
def test_stacks_by_py_spy(tmp_path: Path) -> None:
    try:
        spy = venvs.python("py-spy").with_name("py-spy")
    except MissingError as error:
        pytest.skip(str(error))
    code = "import sys, time\ndef stuck_here():\n    open(sys.argv[1], 'w').close()\n    time.sleep(300)\nstuck_here()"
    words = ("/bin/sh", "-c", BUSY, f"{tmp_path}/up", sys.executable, "-c", code, f"{tmp_path}/up.0")
    run = local(tmp_path, 1, *words, hang_min=0.02, py_spy=str(spy))
    assert run.end().state == "hung"
    assert "stuck_here" in (run.step.stacks / "rank-00000.txt").read_text()


def test_strangers_are_turned_away(tmp_path: Path) -> None:
    import socket

    run = local(tmp_path, 1, *SLEEP)
    run.until("ready", 1)
    plan = plan_of(run.step.agent.read_text())
    address, _, port = plan["hubs"][0].rpartition(":")
    assert run.step.agent.stat().st_mode & 0o077 == 0, "the token is its owner's"
    for words in (
        b'{"answer": {"nonce": "00", "proof": "wrong"}}\n',
        b"GET / HTTP/1.0\r\n\r\n",
        b'{"exit": {}}\n',
    ):
        with socket.create_connection((address, int(port)), 60) as made:
            made.sendall(words)
            made.settimeout(60)
            challenge, rest = made.recv(100), b"?"
            assert b"challenge" in challenge
            assert plan["secret"].encode() not in challenge
            while rest:
                rest = made.recv(100)
                assert b"go" not in rest
    os.kill(rank_pid(run, 0), signal.SIGKILL)
    assert run.end().code == 137


# this process is told to end

HUB = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.watched import Heard, local_line, make_plan
from stackyard.launch.run.step import WatchOptions, run_step
from stackyard.launch.records.paths import StepPaths
plan = make_plan(local_line(1, 2), 1, 2, *sys.argv[3:])
result = run_step(StepPaths(Path(sys.argv[2])), plan, Heard(), run="x", options=WatchOptions(grace_s=80))
print(result.state, result.code)
"""


def separate(tmp_path: Path, *argv: str, ignoring: tuple[signal.Signals, ...] = ()) -> subprocess.Popen[str]:
    """The hub as a process of its own, which begins with some signals ignored, as a shell's ``&`` and nohup do it."""
    step = tmp_path / "step"
    traps = "".join(f"trap '' {number.name[3:]}; " for number in ignoring)
    words = [sys.executable, "-c", HUB, str(Path(__file__).parents[1]), str(step), *argv]
    shell = ["/bin/sh", "-c", f'{traps}exec "$@"', "sh"]
    made = subprocess.Popen([*shell, *words], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: made.poll() is not None or sum("ready" in one.read_text() for one in step.glob("logs/rank-*")) > 1)
    assert made.poll() is None
    return made


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_one_signal_ends_all(tmp_path: Path, number: signal.Signals, code: int) -> None:
    made = separate(tmp_path, *SLEEP)
    made.send_signal(number)
    assert made.communicate(timeout=240)[0] == f"cancelled {code}\n"
    clean(tmp_path)


def test_an_ignored_interrupt_counts_an_ignored_hangup_does_not(tmp_path: Path) -> None:
    made = separate(tmp_path, *SLEEP, ignoring=(signal.SIGINT, signal.SIGHUP))
    made.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert made.poll() is None
    made.send_signal(signal.SIGINT)
    assert made.communicate(timeout=240)[0] == "cancelled 130\n"
    clean(tmp_path)


def test_a_second_one_at_once(tmp_path: Path) -> None:
    made = separate(tmp_path, "/bin/sh", "-c", "trap 'echo told' TERM; echo ready; while :; do sleep 1; done")
    made.send_signal(signal.SIGINT)
    wait_for(lambda: all("told" in log.read_text() for log in (tmp_path / "step/logs").glob("rank-*")))
    made.send_signal(signal.SIGINT)
    assert made.communicate(timeout=240)[0] == "cancelled 130\n", "the grace of 80 s was cut short"
    clean(tmp_path)


def test_ranks_end_when_the_hub_is_killed(tmp_path: Path) -> None:
    made = separate(tmp_path, *SLEEP)
    made.kill()
    made.communicate()
    assert nothing_left(str(tmp_path), timeout_s=240) == []


def test_the_end_of_time_is_announced(tmp_path: Path) -> None:
    code = "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.1; done"
    made = separate(tmp_path, "/bin/sh", "-c", code)
    made.send_signal(signal.SIGUSR1)
    assert made.communicate(timeout=240)[0] == "done 0\n"
    assert all("saved" in log.read_text() for log in (tmp_path / "step/logs").glob("rank-*"))


def test_other_signals_of_users_are_passed_on(tmp_path: Path) -> None:
    """SIGUSR2 is not the scheduler's warning, and ends nothing."""
    code = "trap 'echo heard; exit 0' USR2; echo ready; while :; do sleep 0.1; done"
    made = separate(tmp_path, "/bin/sh", "-c", code)
    made.send_signal(signal.SIGUSR2)
    assert made.communicate(timeout=240)[0] == "done 0\n"
    assert all("heard" in log.read_text() for log in (tmp_path / "step/logs").glob("rank-*"))


def test_every_program_in_between_passes_on_the_same_signals() -> None:
    for file in (spawn.__file__, ray_node.__file__):
        text = Path(file).read_text()
        assert all(f"signal.{number.name}" in text for number in OF_USERS), file
    assert all(number.name.removeprefix("SIG") in rank_sh._RUN.split("\n", 1)[0] for number in OF_USERS)


# on Slurm


def outcome(result: StepResult) -> tuple[str, int, int, str]:
    assert result.first is not None
    return result.state, result.code, result.first.task, result.first.host


@pytest.mark.real
def test_eight_ranks_on_four_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    run = on_slurm(tmp_path, "/bin/sh", "-c", 'echo "$RANK $MASTER_ADDR $MASTER_PORT"', stream="all")
    result = run.end()
    assert (result.state, result.code) == ("done", 0), result
    assert sorted(result.hosts) == sorted(slurm.hosts)[:4]
    assert len({text.split(" ", 1)[1] for text in run.heard.text.values()}) == 1
    assert len(run.heard.text) == 8
    assert not run.heard.text[0].split()[1].startswith("127.")
    clean(tmp_path)


@pytest.mark.real
def test_a_failing_rank_on_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    code = "echo ready; if [ $RANK = 5 ]; then sleep 0.3; echo bad luck; exit 3; fi; exec sleep 300"
    result = on_slurm(tmp_path, "/bin/sh", "-c", code).end()
    assert outcome(result) == ("failed", 3, 5, result.placements[5].host)
    assert result.first is not None
    assert result.first.tail[-1] == "bad luck"
    clean(tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("victim", ["program", "shim"])
def test_a_killed_rank(slurm: SlurmCluster, tmp_path: Path, victim: str) -> None:
    run = on_slurm(tmp_path, *SLEEP)
    run.until("ready", 8)
    time.sleep(1.2)
    pid = rank_pid(run, 3)
    if victim == "shim":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    result = run.end()
    assert outcome(result) == ("failed", 137, 3, result.placements[3].host)
    clean(tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_without_its_agent(slurm: SlurmCluster, tmp_path: Path, harm: signal.Signals) -> None:
    run = on_slurm(tmp_path, *SLEEP, **SEES_IT)
    run.until("ready", 8)
    pid = agents(tmp_path)[2]
    began = time.monotonic()
    os.kill(pid, harm)
    while not [x for x in run.heard.all("phase") if x == "ending"] and time.monotonic() < began + 60:
        time.sleep(0.02)
    noticed_s = time.monotonic() - began
    result = run.end()
    if harm == signal.SIGSTOP and pid in mentions(str(tmp_path)):
        os.kill(pid, signal.SIGCONT)
    assert outcome(result) == ("node-lost", 1, -1, result.hosts[2])
    assert noticed_s < 60, "4 s of silence, and a slow machine"
    clean(tmp_path)


# pure parts


def ended(at: float, task: int, code: int, *tail: str) -> TaskEnd:
    return TaskEnd(at, task, f"n{task}", code, tail)


@pytest.mark.parametrize(
    ("failures", "first"),
    [
        ([ended(2, 1, 1), ended(1, 0, 3)], 0),
        ([ended(1, 0, 143), ended(1.2, 1, 139)], 1),
        ([ended(1, 0, 1, "RuntimeError: Connection reset by peer"), ended(1.1, 4, 1, "ValueError: no")], 4),
        ([ended(1, 0, 1, "Connection closed by peer [10.0.0.1]:123"), ended(1.5, 4, 137)], 4),
        ([ended(1, 0, 143), ended(1.2, 1, 143)], 0),
    ],
)
def test_which_failure_was_first(failures: list[TaskEnd], first: int) -> None:
    assert first_of(failures)[0].task == first


@pytest.mark.parametrize(
    ("interface", "alone", "expected"),
    [
        ("", False, ["10.0.0.5", "192.168.1.5", "fd00::5"]),
        ("hsn", False, ["192.168.1.5", "10.0.0.5", "fd00::5"]),
        ("ib,hsn", True, ["192.168.1.5", "10.0.0.5", "fd00::5", "127.0.0.1"]),
    ],
)
def test_where_the_hub_is_reached(interface: str, alone: bool, expected: list[str]) -> None:
    found = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.5", "fd00::5"], "hsn0": ["192.168.1.5"]}
    assert reachable(found, interface, alone=alone) == expected


def test_rank_zero_is_never_at_localhost_for_others() -> None:
    from stackyard.core.errors import StackyardError

    alone = {"lo": ["127.0.0.1", "::1"]}
    with pytest.raises(StackyardError, match="n0, the node of rank 0, has only loopback addresses"):
        master_address("n0", alone, "127.0.0.1", "", 2)
    assert master_address("n0", alone, "127.0.0.1", "", 1) == "127.0.0.1"
    both = {"eth0": ["10.0.0.5"], "hsn0": ["192.168.1.5"]}
    assert master_address("n0", both, "10.0.0.5", "", 2) == "10.0.0.5"
    assert master_address("n0", both, "10.0.0.5", "hsn", 2) == "192.168.1.5"
    assert master_address("n0", both, "127.0.0.1", "", 2) == "10.0.0.5"


FAKES = """
import json, os, selectors, socket, sys, time
from stackyard.launch.node.handshake import Guest
from stackyard.launch.run.agentfile import plan_of
plan = plan_of(open(sys.argv[1] + "/agent.py").read())
address, _, port = plan["hubs"][0].rpartition(":")
links = []
for node in range(plan["nodes"]):
    link = socket.create_connection((address, int(port)))
    links.append(link)
    say = lambda link, kind, value: link.sendall(json.dumps({kind: value}).encode() + b"\\n")
    hear = link.makefile("r")
    guest = Guest(plan["secret"])
    link.sendall(json.dumps(guest.answer(json.loads(hear.readline()))).encode() + b"\\n")
    assert guest.accepts(json.loads(hear.readline()))
    say(link, "hello", {"host": "n%d" % node, "addresses": [], "node": node, "pid": 1,
                        "facts": {"interfaces": {"eth0": ["10.0.0.%d" % (node % 250)]}, "time": time.time()}})
    if node == 0:
        say(link, "ports", [1234])
    say(link, "start", {"task": node, "local": 0, "pid": 1, "cpus": "0", "gpus": "-"})
    if node % 100 == 0:
        [say(other, "beat", {}) for other in links]
buffers = {}
for link in links:
    text = b""
    while not text.endswith(b"\\n"):
        text += link.recv(4096)
    assert "go" in json.loads(text.decode()), text
for second in range(3 if len(links) > 1 else 0):
    for node, link in enumerate(links):
        say(link, "grew", True)
    time.sleep(1)
for node, link in enumerate(links):
    say(link, "exit", {"task": node, "code": 0, "tail": []})
for late_s in map(float, sys.argv[2:-1]):
    if os.fork():
        sys.exit(0)
    time.sleep(late_s)
for link in links:
    say(link, "bye", {"unshown": 0})
"""


def test_eight_hundred_nodes(tmp_path: Path) -> None:
    words = (sys.executable, "-c", FAKES, str(tmp_path / "step"))
    plan = make_plan(LaunchLine(words, "stackyard"), 800, 1, "true")
    heard = Heard()
    before = time.process_time()
    result = run_step(StepPaths(tmp_path / "step"), plan, heard, run="x", options=WatchOptions(start_s=120))
    assert (result.state, len(result.placements)) == ("done", 800), (result.first, result.launcher_output)
    assert time.process_time() - before < 6, "the hub's own work for some 6,000 messages"


def test_an_agent_may_leave_later_than_the_launcher(tmp_path: Path) -> None:
    """On a busy machine: its ranks have ended, so nothing is wrong."""
    words = (sys.executable, "-c", FAKES, str(tmp_path / "step"), "4")
    run = Running(tmp_path / "step", make_plan(LaunchLine(words, "stackyard"), 1, 1, "true"), **FAST)
    result = run.end()
    assert result.state == "done", (result.first, result.launcher_output)


def test_a_helper_beside_the_ranks(tmp_path: Path) -> None:
    """It has the rendezvous, it ends with the ranks, and its output is kept."""
    said = tmp_path / "said"
    code = f"echo rank at $STACKYARD_PORT_1; until [ -e {said} ]; do sleep 0.05; done"
    plan = make_plan(
        local_line(1, 2), 1, 2, "/bin/sh", "-c", code,
        sidecar=("/bin/sh", "-c", f"echo beside at ${{STACKYARD_PORT_1}}; touch {said}; exec sleep 300"), ports=2,
    )  # fmt: skip
    run = Running(tmp_path / "step", plan, **FAST)
    assert run.end().state == "done"
    assert run.step.sidecar_log.read_text().split()[-1] == run.heard.text[0].split()[-1]
    clean(tmp_path)


def test_a_helper_that_fails_ends_the_ranks(tmp_path: Path) -> None:
    plan = make_plan(local_line(1, 1), 1, 1, *SLEEP, sidecar=("/bin/sh", "-c", "sleep 0.5; echo no luck; exit 6"))
    result = Running(tmp_path / "step", plan, **FAST).end()
    assert (result.state, result.code) == ("failed", 6)
    assert result.first is not None
    assert result.first.tail[-1] == "no luck"
    clean(tmp_path)


def test_ranks_that_are_all_alone_have_failed(tmp_path: Path) -> None:
    result = local(tmp_path, 3, "/bin/sh", "-c", "echo Hello from rank 0 of 1").end()
    assert (result.state, result.code) == ("failed", 1)
    assert result.first is not None and result.first.cause is not None
    assert "each of the 3 ranks reported a world size of 1" in str(result.first.message)


def test_some_ranks_that_are_alone_are_noticed(tmp_path: Path) -> None:
    run = local(tmp_path, 3, "/bin/sh", "-c", "[ $RANK = 2 ] || echo Hello from rank 0 of 1")
    assert run.end().state == "done"
    assert any("no PMI" in text for text in run.heard.all("notice"))


def test_the_launchers_own_failure_counts(tmp_path: Path) -> None:
    line = local_line(1, 1)
    words = (*line.words[:2], line.words[2].replace("sys.exit(", "sys.exit(5 + "), *line.words[3:])
    result = Running(tmp_path / "step", make_plan(LaunchLine(words, "stackyard"), 1, 1, "true"), **FAST).end()
    assert (result.state, result.code) == ("failed", 5)


def test_a_stopped_hub_goes_on(tmp_path: Path) -> None:
    made = separate(tmp_path, "/bin/sh", "-c", "echo ready; sleep 7")
    made.send_signal(signal.SIGSTOP)
    time.sleep(5.5)
    made.send_signal(signal.SIGCONT)
    assert made.communicate(timeout=240)[0] == "done 0\n"


@pytest.mark.real
@pytest.mark.parametrize("program", ["mpirun.openmpi", "mpirun.mpich"])
def test_under_mpirun(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpirun ends the others itself; the rank that failed is still the one that is named."""
    programs.need(program)
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    openmpi = program.endswith("openmpi")
    words = (program, "--oversubscribe", "-n", "3") if openmpi else (program, "-n", "3")
    line = LaunchLine(words, "openmpi" if openmpi else "hydra")
    code = "echo ready; [ $RANK = 1 ] || exec sleep 300; sleep 0.5; echo oh no; exit 3"
    result = Running(tmp_path / "step", make_plan(line, 1, 3, "/bin/sh", "-c", code), **FAST).end()
    assert outcome(result)[:3] == ("failed", 3, 1), result
    clean(tmp_path)


@pytest.mark.real
@pytest.mark.slow
def test_a_node_that_is_cut_off(slurm_exclusive: SlurmCluster, tmp_path: Path) -> None:
    """Its network is gone: the hub names it within seconds, its agent ends its ranks by itself, Slurm knows nothing."""
    run = Running(tmp_path / "step", make_plan(srun_line(3, 1), 3, 1, *SLEEP), **SEES_IT)
    run.until("ready", 3)
    lost = run.heard.all("node")[-1]
    slurm_exclusive.lose_node(lost["host"], "cut")
    began = time.monotonic()
    while "ending" not in run.heard.all("phase") and time.monotonic() < began + 60:
        time.sleep(0.02)
    noticed_s = time.monotonic() - began
    result = run.end()
    assert outcome(result) == ("node-lost", 1, -1, lost["host"])
    assert noticed_s < 60, "4 s of silence, and a slow machine"
    assert nothing_left(str(tmp_path), timeout_s=240) == []


def test_a_launcher_that_is_killed_is_not_a_rank_out_of_memory(tmp_path: Path) -> None:
    line = local_line(1, 1)
    words = (*line.words[:2], "import os; os.kill(os.getpid(), 9)", *line.words[3:])
    result = Running(tmp_path / "step", make_plan(LaunchLine(words, "stackyard"), 1, 1, "true"), **FAST).end()
    assert result.code == 137
    assert result.first is not None and result.first.cause is not None
    assert result.first.cause.rule == "launcher-killed"


def test_ranks_that_end_because_another_failed_are_not_counted(tmp_path: Path) -> None:
    """Within the time in which the hub collects failures they end too, as of a launcher's SIGTERM."""
    code = "if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi; sleep 0.6; kill -TERM $$"
    result = local(tmp_path, 3, "/bin/sh", "-c", code).end()
    assert result.first is not None and result.first.code == 3
    assert result.failed_tasks == 1


def test_a_full_disk_under_a_run_has_a_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "_is_full", lambda _: True)
    result = local(tmp_path, 1, "/bin/sh", "-c", "exit 1").end()
    assert result.first is not None and result.first.cause is not None
    assert result.first.cause.rule == "run-directory-full"


def test_a_hang_without_py_spy_says_what_is_missing(tmp_path: Path) -> None:
    code = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
    result = local(tmp_path, 1, sys.executable, "-c", code, hang_min=0.05, py_spy="").end()
    assert result.state == "hung" and result.first is not None and result.first.cause is not None
    assert result.first.cause.rule == "hang-without-py-spy"
    assert "states of the processes (neither probe nor py-spy found)" in result.first.message
    (stacks,) = (tmp_path / "step" / "stacks").glob("*")
    text = stacks.read_text()
    assert "py-spy not found: add py-spy to the stack" in text and "[<0>]" not in text
