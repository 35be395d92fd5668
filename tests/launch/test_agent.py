"""The agent of a node: the port it holds, what it sees of processes and logs, and that old Pythons read it."""

from __future__ import annotations

import ast
import os
import signal
import socket
import socketserver
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from stackyard.core.errors import MissingError
from stackyard.launch.node import machine, processes, sockets
from stackyard.launch.node.logs import Log
from stackyard.launch.node.ranks import Rank
from support import torchstack
from support.processes import wait_for

NODE = Path(sockets.__file__).parent
PARTS = (
    "agent", "directory", "ends", "handshake", "logs", "machine", "messages", "processes", "ranks", "sockets",
    "terminal", "uplink", *(f"monitoring/{name}" for name in ("counters", "energy", "gpuprobe", "stacks", "usage")),
    *(f"staging/{name}" for name in ("pack", "stage", "staged", "stagedir", "unpack")),
)  # fmt: skip


@pytest.fixture
def held() -> Iterator[int]:
    port, opened = sockets.hold_port()
    yield port
    for one in opened:
        one.close()


@pytest.mark.parametrize("part", PARTS)
def test_python_3_6_reads_it(part: str) -> None:
    text = (NODE / f"{part}.py").read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {
        name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    allowed = {m for m in modules if m.startswith("stackyard.launch.node.") or m in ("typing", "collections.abc")}
    assert "__future__" not in modules, "Python 3.6 does not know `annotations`"
    assert modules == allowed
    assert imported <= set(sys.stdlib_module_names)


def test_it_imports_little() -> None:
    code = "import sys; sys.path.append(sys.argv[1]); import stackyard.launch.node.agent; print(*sys.modules)"
    argv = [sys.executable, "-I", "-S", "-c", code, str(NODE.parents[2])]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert "stackyard.launch.node.agent" in loaded
    assert not loaded & {"typing", "asyncio", "subprocess", "pathlib", "dataclasses", "threading", "pydantic"}
    assert "stackyard.launch.node.step" not in loaded


def test_nobody_else_is_given_the_port(held: int) -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert low <= held <= high
    taken: list[socket.socket] = []
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            for reuse in (0, 1):
                for _ in range(2000):
                    made = socket.socket(family)
                    taken.append(made)
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                    made.bind(("", 0))
                    assert made.getsockname()[1] != held
                while len(taken) > 500:
                    taken.pop().close()
    finally:
        for made in taken:
            made.close()


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1"])
def test_a_plain_bind_is_refused(held: int, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
        other.bind((address, held))


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::"])
def test_a_server_that_reuses_addresses_listens_there(held: int, address: str) -> None:
    class Server(socketserver.TCPServer):
        allow_reuse_address = True
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with Server((address, held), socketserver.BaseRequestHandler):
        target = "::1" if ":" in address else "127.0.0.1"
        socket.create_connection((target, held), 5).close()


@pytest.mark.real
def test_torch_listens_on_the_held_port(held: int) -> None:
    try:
        torch = torchstack.python(torchstack.torch_yard())
    except MissingError as error:
        pytest.skip(str(error))
    code = (
        "import sys, torch.distributed as d\n"
        "a = d.TCPStore('127.0.0.1', int(sys.argv[1]), 2, True, wait_for_workers=False)\n"
        "b = d.TCPStore('127.0.0.1', int(sys.argv[1]), 2, False)\n"
        "b.set('k', 'v'); print(a.get('k'))"
    )
    ran = subprocess.run([torch, "-c", code, str(held)], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "b'v'" in ran.stdout


def test_addresses_are_this_machines() -> None:
    every = [address for found in machine.addresses().values() for address in found]
    assert "127.0.0.1" in every
    for address in every:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as made:
            made.bind((address, 0))


def test_facts_are_real() -> None:
    found = machine.facts()
    assert found["memory_gib"] > 0.1
    assert found["threads"] == os.cpu_count()
    assert found["kernel"] == os.uname().release
    assert found["libc"].startswith(("glibc", ""))


def test_processes_below_a_shell() -> None:
    shell = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & (sleep 61; true); true"], start_new_session=True)
    try:
        wait_for(lambda: len(list(processes.descendants(shell.pid))) >= 3)
        below = dict(processes.descendants(shell.pid))
        assert len(below) == 3
        assert all(processes.alive(pid, born) for pid, born in below.items())
        assert not processes.alive(shell.pid, 1), "another start time is another process"
        assert os.getpid() not in processes.children(os.getppid()), "an agent is no rank of its own"
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    wait_for(lambda: not any(processes.alive(pid, born) for pid, born in below.items()))  # the kernel takes its time


def test_a_warning_reaches_only_who_handles_it(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (child.kill(), sys.exit(child.poll() is None and 5 or 6)))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    shell = subprocess.Popen(
        ["/bin/bash", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == "ready\n"
    rank = Rank(0, 0, shell.pid)
    assert rank.tell(signal.SIGUSR1) == 1
    assert shell.wait(60) == 5, "the handler ran, and the sleep beside it had not been hit"
    assert rank.tell(signal.SIGUSR1) == 0


def test_a_log_is_followed_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"erste Zeile\nzwei")
    rank = Log(str(log), True)
    rank.look()
    assert rank.text() == "erste Zeile\n"
    with log.open("ab") as stream:
        stream.write("te Zeile mit ü".encode()[:-1])
    rank.look()
    assert rank.text() == ""
    with log.open("ab") as stream:
        stream.write("ü".encode()[-1:] + b"\n")
    rank.look()
    assert rank.text() == "zweite Zeile mit ü\n"
    assert rank.tail() == ["erste Zeile", "zweite Zeile mit ü"]


def test_a_progress_bar_is_shown_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("stackyard.launch.node.logs.time", SimpleNamespace(monotonic=lambda: clock[0]))
    log = tmp_path / "log"
    log.write_bytes(b"50%\r")
    rank = Log(str(log), True)
    rank.look()
    assert rank.text() == ""
    clock[0] += 0.6
    assert rank.text() == "50%\r"


def test_the_first_hub_that_answers(held: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hubs = [f"192.0.2.77:{port}", f"127.0.0.1:{held}", f"127.0.0.1:{port}"]
        found = sockets.connect(hubs, time.monotonic() + 60, lambda: True)
        assert found is not None
        assert found[1] == hubs[2]
        found[0].close()
    assert sockets.connect([f"127.0.0.1:{held}"], time.monotonic() + 0.5, lambda: True) is None
