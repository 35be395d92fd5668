"""Other programs and other users around a launch: what they send, what they listen on, what they put in its way."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stackyard.launch.node import uplink
from stackyard.launch.node.handshake import Guest, Host
from stackyard.launch.node.messages import Connection, encode
from stackyard.launch.run.addresses import hub_addresses, master_address
from stackyard.launch.run.agentfile import plan_of
from stackyard.launch.run.door import STRANGERS
from support.processes import wait_for
from support.watched import Running, local_line, make_plan, mentions

SLEEP = "echo ready; while [ ! -e $STACKYARD_STEP/over ]; do sleep 0.05; done"
HOSTILE = (
    b'{"hello":{"token":"\\ud800"}}\n',
    b'{"answer":{"nonce":"' + b"0" * 32 + b'","proof":"\\ud800"}}\n',
    b'{"answer":{"nonce":"\\ud800","proof":5}}\n',
    b'{"answer":[]}\n',
    b"[" * 60_000,
    b"{" * 500 + b"\n",
    b"\xff\xfe\x00\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b'{"exit":{"task":0,"code":1}}\n',
    b"\n" * 1000,
    b"",
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Two ranks that end when a file appears; it does, at the latest, when the test is over."""
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    made = Running(tmp_path / "step", make_plan(local_line(1, 2), 1, 2, "sh", "-c", SLEEP), start_s=120, grace_s=2)
    made.until("ready", 2)
    yield made
    (tmp_path / "step/over").touch()
    made.end()


def hub_of(run: Running) -> tuple[str, int]:
    address, _, port = json.loads(run.step.plan.read_text())["hubs"][0].rpartition(":")
    return address, int(port)


def test_what_strangers_send_ends_no_job(run: Running) -> None:
    for data in HOSTILE:
        with socket.create_connection(hub_of(run), 60) as made:
            made.settimeout(60)
            try:
                made.sendall(data)
                made.shutdown(socket.SHUT_WR)
                while made.recv(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                continue
    run.step.root.joinpath("over").touch()
    assert run.end().state == "done"
    notices = [text for text in run.heard.all("notice") if "refused" in text]
    assert len(notices) == 1, notices


def test_idle_connections_end_no_job_and_are_few(run: Running) -> None:
    """1,100 of them, opened at once: the hub keeps a limited number, and its job goes on."""
    opened = [socket.create_connection(hub_of(run), 60) for _ in range(1100)]
    hub = os.getpid()
    wait_for(lambda: sockets_at(hub, hub_of(run)[1]) <= STRANGERS + 4)
    for one in opened:
        one.close()
    run.step.root.joinpath("over").touch()
    assert run.end().state == "done"
    assert len([text for text in run.heard.all("notice") if "refused" in text]) == 1


def sockets_at(pid: int, port: int) -> int:
    """How many established connections a process has at one of its ports."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if int(row[1].split(":")[1], 16) == port and row[3] == "01"}
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        found += target.startswith("socket:") and target[8:-1] in inodes
    return found


def test_an_agent_comes_through_beside_idle_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger fills the hub before its agent comes."""
    monkeypatch.setenv("STACKYARD_TMP", str(tmp_path))
    line = local_line(1, 1)
    wait = f'until [ -e {tmp_path}/full ]; do sleep 0.1; done; exec "$@"'
    slow = type(line)(("sh", "-c", wait, "sh", *line.words), line.family)
    run = Running(tmp_path / "step", make_plan(slow, 1, 1, "echo", "here"), start_s=120)
    wait_for(run.step.plan.exists)
    opened = [socket.create_connection(hub_of(run), 60) for _ in range(400)]
    (tmp_path / "full").touch()
    assert run.end().state == "done"
    for one in opened:
        one.close()


def test_the_hub_of_one_node_is_reached_from_this_machine_only(run: Running) -> None:
    _, port = hub_of(run)
    listening = {
        line.split()[1].split(":")[0] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == port
    }  # fmt: skip
    assert listening == {"0100007F"}
    assert not [
        line for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == port
    ]  # fmt: skip


def test_the_secret_is_in_no_script_and_no_name(run: Running, tmp_path: Path) -> None:
    plan = plan_of(run.step.agent.read_text())
    assert run.step.agent.stat().st_mode & 0o077 == 0
    assert plan["secret"] not in run.step.plan.read_text()
    names = "\n".join(path.name for path in tmp_path.rglob("*"))
    for other in (run.step.shim.read_text(), names, *(log.read_text() for log in run.step.logs.iterdir())):
        assert plan["secret"][:8] not in other
    for pid in mentions(str(tmp_path)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            assert plan["secret"][:8].encode() not in shown


# a false hub


class FalseHub:
    """Listens where agents connect, says what it likes, and keeps what it is told."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.heard = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                made, _ = self._server.accept()
            except OSError:
                return
            self._answer(made)
            made.settimeout(1)
            try:
                while data := made.recv(65536):
                    self.heard += data
            except OSError:
                pass

    def close(self) -> None:
        self._server.close()


def _knows_another_secret(made: socket.socket) -> None:
    made.sendall(encode({"challenge": "0" * 32}))
    made.recv(4096)
    made.sendall(encode({"welcome": "0" * 64}))


def _reflects(made: socket.socket) -> None:
    """It sends the agent's own proof back as its own."""
    made.sendall(encode({"challenge": "0" * 32}))
    answer = json.loads(made.recv(4096))["answer"]
    made.sendall(encode({"welcome": answer["proof"]}))


FALSE: dict[str, Callable[[socket.socket], None]] = {
    "a command at once": lambda made: made.sendall(encode({"go": {"MASTER_ADDR": "$(touch /tmp/x)"}})),
    "a challenge, then a command": lambda made: made.sendall(encode({"challenge": "0" * 32}) + encode({"end": 0})),
    "its own proof": _reflects,
    "a guess": _knows_another_secret,
    "other text": lambda made: made.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
}


@pytest.mark.parametrize("how", FALSE)
def test_an_agent_obeys_no_false_hub(how: str) -> None:
    false, said = FalseHub(FALSE[how]), list[str]()
    try:
        found = uplink.find([false.address], "the secret", time.monotonic() + 60, lambda: not said, said.append)
        assert found is None
        assert "the secret" not in false.heard.decode("latin-1")
        assert said, "the agent's log names it"
    finally:
        false.close()


def test_an_agent_finds_its_hub_behind_a_false_one() -> None:
    def proves(made: socket.socket) -> None:
        connection, host = Connection(made), Host("the secret")
        connection.send(host.challenge())
        for message in connection.receive() or ():
            welcome = host.welcome(message)
            assert welcome is not None
            connection.send(welcome)

    false, true = FalseHub(FALSE["other text"]), FalseHub(proves)
    try:
        hubs = [false.address, true.address]
        found = uplink.find(hubs, "the secret", time.monotonic() + 60, lambda: True, lambda _: None)
        assert found is not None
        assert found.name == true.address
        found.close()
    finally:
        false.close()
        true.close()


def test_both_ends_prove_that_they_know_the_secret() -> None:
    host, guest = Host("s"), Guest("s")
    answer = guest.answer(host.challenge())
    assert answer is not None
    welcome = host.welcome(answer)
    assert welcome is not None
    assert guest.accepts(welcome)
    assert not Guest("s").accepts(welcome), "a proof is for one connection"
    assert guest.answer(host.challenge()) is None, "one challenge only"
    assert Host("t").welcome(answer) is None
    assert Host("s").welcome(answer) is None, "an answer is for one challenge"
    assert not guest.accepts({"welcome": answer["answer"]["proof"]}), "nor is its own proof taken"


@pytest.mark.parametrize("name", ["MASTER_ADDR=x; touch /tmp/x; A", "LD_PRELOAD", "PATH", "MASTER_ADDR\n"])
def test_a_hub_sets_only_its_own_variables(name: str) -> None:
    from stackyard.launch.node.agent import VARIABLE

    assert not VARIABLE.fullmatch(name)
    assert VARIABLE.fullmatch("STACKYARD_PORT_12")


# addresses


def test_the_hub_listens_on_the_named_interface_only() -> None:
    found = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.5", "fd00::5"], "hsn0": ["192.168.1.5"], "docker0": ["172.17.0.1"]}
    assert hub_addresses(found, "hsn", alone=False) == ["192.168.1.5"]
    assert hub_addresses(found, "", alone=True) == ["127.0.0.1"]
    assert hub_addresses({"lo": ["127.0.0.1"], "eth0": ["10.0.0.5"]}, "hsn", alone=False) == ["10.0.0.5"]


def test_rank_zero_is_not_at_an_address_that_each_node_has() -> None:
    found = {"lo": ["127.0.0.1"], "docker0": ["172.17.0.1"], "eth0": ["10.0.0.5"]}
    others = {"127.0.0.1", "172.17.0.1", "10.0.0.6"}
    assert master_address("n0", found, "172.17.0.1", "", 2, others=others) == "10.0.0.5"
    two = {"ib0": ["10.9.0.5"], "eth0": ["10.0.0.5"]}
    assert master_address("n0", two, "10.9.0.5", "", 2, met=["10.0.0.5"]) == "10.0.0.5", "others have reached it there"


def test_a_misspelt_interface_is_an_error() -> None:
    from stackyard.core.errors import StackyardError

    found = {"lo": ["127.0.0.1"], "hsn0": ["192.168.1.5"]}
    with pytest.raises(StackyardError, match=r"launch.interface hsm not found on n0, .* it has hsn0"):
        master_address("n0", found, "192.168.1.5", "hsm", 2)
