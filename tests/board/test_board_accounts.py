"""Boards of real accounts on one node: only their own account can open them, and no port of the node is opened."""

from __future__ import annotations

import functools
import signal
import subprocess
from pathlib import Path

from board.boardbed import HTTP, ON_SOCKET, asked, board, listening
from support.accounts import Account, Accounts
from support.confined import confined

DENIED = 7
"""The exit status of curl: failed to connect."""


def refused(account: Account, socket: Path) -> None:
    """Hold that an account cannot open a socket, because of its permissions."""
    assert account.run(*asked(socket), expect=DENIED)
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({str(socket)!r})"
    assert "PermissionError" in account.python(connect, expect=1).err


def test_two_boards_on_a_node_which_their_accounts_alone_can_open(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    (common / "hello.txt").write_text("hello\n")
    with (
        board(functools.partial(anna.popen, anna.bin / "stackyard", "board"), common, *HTTP) as hers,
        board(functools.partial(bert.popen, bert.bin / "stackyard", "board"), common, *HTTP) as his,
    ):
        for shown, owner, other in ((hers, anna, bert), (his, bert, anna)):
            assert owner.run(*asked(shown.socket, "/hello.txt")).out == "hello\n"
            refused(other, shown.socket)
            assert shown.socket.parent.stat().st_mode & 0o777 == 0o700
            assert shown.socket.stat().st_mode & 0o777 == 0o600
            assert len(shown.processes) >= 3 and listening(shown.processes) == []
        hers.process.terminate()
        assert hers.ended() == 128 + signal.SIGTERM
        assert bert.run(*asked(his.socket, "/hello.txt")).out == "hello\n"


def test_the_same_tool_by_itself_is_open_to_every_account(accounts: Accounts, common: Path) -> None:
    """So the test above would notice a port."""
    anna, bert = accounts.user("anna"), accounts.user("bert")
    code = "import http.server as h\ns = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler)\n"
    code += "print(s.server_port, flush=True); s.serve_forever()"
    process = anna.popen("python", "-c", code, stdout=-1, stderr=-1)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert listening([process.pid]) and bert.run("curl", "-sS", f"http://127.0.0.1:{port}/")
    finally:
        process.kill()
        process.communicate()


def test_without_namespaces_a_tool_with_a_port_is_refused_and_one_with_a_socket_is_not(
    accounts: Accounts, common: Path
) -> None:
    anna = accounts.user("anna")
    (common / "tool.py").write_text(ON_SOCKET)

    def start(*tool: str | Path, **_: object) -> subprocess.Popen[str]:
        argv = confined(common / "root", [anna.bin / "stackyard", "board", common, *tool], anna)
        return subprocess.Popen(argv, cwd="/", env=anna.environment(), stdout=-1, stderr=-1, text=True)

    refused = start(*HTTP)
    said = refused.communicate(timeout=120)[1]
    assert refused.returncode == 4
    assert "cannot keep python from other accounts: it listens on a port" in said
    assert (
        "gets no network of its own: user and network namespace: Operation not permitted" in said
        and "user.max_user_namespaces" in said
    )
    with board(start, "--", "python", str(common / "tool.py"), "{socket}") as shown:
        assert anna.run(*asked(shown.socket)).out == "here\n"


TRAPS = r"""import os, sys
run, common = sys.argv[1:]
os.makedirs(f"{run}/events"), os.makedirs(f"{common}/evil/prefix/bin"), os.symlink("..", f"{run}/events/loop")
os.mkfifo(f"{run}/pipe.tfevents"), open(f"{run}/events/\x1b[2J.tfevents.1", "w").close()
open(f"{run}/record.json", "w").write(
    '{"format": 3, "run": "run", "created": "2026-11-28", "how": "launch", "command": ["stackyard"], "intent": '
    '{"program": ["train.py"]}, "stack": {"module": "evil/1", "folder": "%s/evil"}}' % common)
for name in ("python", "python3", "tensorboard"):
    open(f"{common}/evil/prefix/bin/{name}", "w").write(f"#!/bin/sh\ntouch {common}/trap\n")
    os.chmod(f"{common}/evil/prefix/bin/{name}", 0o755)
"""
"""A run whose record names a stack in a directory of the same account, with odd names, a loop and a pipe."""


def test_nothing_of_another_account_is_executed_or_obeyed(accounts: Accounts, common: Path) -> None:
    anna, bert = accounts.user("anna"), accounts.user("bert")
    common.chmod(0o777)
    run = common / "run\x1b[2J --evil {port}"
    bert.python(TRAPS, run, common)
    done = anna.stackyard("board", run, expect=4)
    assert "tensorboard not found in this shell" in done.err
    with board(functools.partial(anna.popen, anna.bin / "stackyard", "board"), run, *HTTP) as shown:
        assert "pipe.tfevents" in anna.run(*asked(shown.socket)).out
    assert "\x1b" not in done.out + done.err + shown.said and not (common / "trap").exists()
