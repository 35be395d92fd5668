"""The door to a kernel on a node: who has the key comes to a port of the kernel, nobody else."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, StackyardError
from stackyard.launch.api import kernels
from stackyard.launch.node.kernel import NONCE, PORTS, Door, address_towards, free_ports
from support.cli import STACKYARD
from support.processes import wait_for

KEY = "a key"
NO_PORTS = json.dumps({"transport": "tcp", "key": "", "ip": "", **dict.fromkeys(PORTS, "x")})


async def _talk(answer: bytes | None, word: bytes = b"hello") -> bytes:
    """What comes back through the door from a port that says everything twice. `answer` None: the right one."""

    async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(2 * await reader.read(100))
        writer.close()

    inner = await asyncio.start_server(twice, "127.0.0.1", 0)
    ports = {name: inner.sockets[0].getsockname()[1] for name in PORTS}
    outer = await asyncio.start_server(Door(KEY, ports).enter, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", outer.sockets[0].getsockname()[1])
    nonce = await reader.readexactly(NONCE)
    if answer is None:
        chosen = bytes([1])
        answer = chosen + hmac.new(KEY.encode(), nonce + chosen, hashlib.sha256).digest()
    writer.write(answer + word)
    try:
        return await asyncio.wait_for(reader.read(100), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        outer.close()
        inner.close()


def test_with_the_key_a_connection_comes_to_the_kernel() -> None:
    assert asyncio.run(_talk(None)) == b"hellohello"


@pytest.mark.parametrize("answer", [bytes(NONCE + 1), b"\x01" + b"x" * NONCE, b"\xff" * 100])
def test_without_the_key_it_is_closed(answer: bytes) -> None:
    assert asyncio.run(_talk(answer)) == b""


def test_the_way_to_this_machine_is_its_loopback() -> None:
    assert address_towards(["127.0.0.1"]) == address_towards([]) == "127.0.0.1"


def _connection(directory: Path, **ports: int) -> Path:
    file = directory / "c.json"
    told = {"transport": "tcp", "key": KEY, "ip": "127.0.0.1", **free_ports(), **ports}
    file.write_text(json.dumps(told))
    return file


def _launched(directory: Path, kernel: str, connection: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Launch a program in the place of Jupyter's kernel, on this machine; the exit status."""
    (directory / "ipykernel_launcher.py").write_text(kernel)
    (directory / "site.yaml").write_text(f"yard: {directory}/yard\n")
    monkeypatch.setenv("PYTHONPATH", str(directory))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(directory)
    words = [str(STACKYARD), "--site", "site.yaml", "launch", "-r", "1", "-N", "1", "--stdin", "0"]
    return kernels.run(connection, words)


def test_a_kernel_may_write_without_ending_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = "import os, time; time.sleep(0.2); os.write(1, b'y' * 200_000)"
    assert _launched(tmp_path, told, _connection(tmp_path), monkeypatch) == 0
    assert capfd.readouterr().err.count("y") >= 200_000


def test_a_launch_may_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = "head -c 200000 /dev/zero | tr '\\0' y; echo; exit 3"
    assert kernels.run(_connection(tmp_path), ["sh", "-c", script]) == 3
    assert capfd.readouterr().err == "y" * 200_000 + "\n"


def test_a_port_that_is_taken_ends_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = f"import os, time; open('{tmp_path}/pid', 'w').write(str(os.getpid())); time.sleep(300)"
    taken = pytest.raises(StackyardError, match="cannot listen on port")
    with socket.create_server(("127.0.0.1", 0)) as other, taken:
        connection = _connection(tmp_path, control_port=other.getsockname()[1])
        _launched(tmp_path, kernel, connection, monkeypatch)
    left = tmp_path / "pid"  # it may have ended before it began
    wait_for(lambda: not left.exists() or not Path(f"/proc/{left.read_text()}").exists())


def test_a_port_that_is_taken_ends_the_launch(tmp_path: Path) -> None:
    told = f"trap 'touch {tmp_path}/asked; kill $!; exit' TERM"
    script = f"sleep 100 > /dev/null & {told}; echo stackyard-kernel 127.0.0.1 1; wait $!"
    taken = pytest.raises(StackyardError, match="cannot listen on port")
    with socket.create_server(("127.0.0.1", 0)) as other, taken:
        kernels.run(_connection(tmp_path, hb_port=other.getsockname()[1]), ["sh", "-c", script])
    assert (tmp_path / "asked").exists()


@pytest.mark.parametrize("value", ["", "[]", "{}", '{"transport": "ipc"}', NO_PORTS])
def test_another_file_is_no_connection_file(tmp_path: Path, value: str) -> None:
    (tmp_path / "c.json").write_text(value)
    with pytest.raises(InputError, match="cannot read the connection file"):
        kernels.run(tmp_path / "c.json", ["false"])
