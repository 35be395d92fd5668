"""Runs the program of one rank with your terminal, or your standard input: ``terminal.py FILE tty|pipe -- PROGRAM``.

It connects to `stackyard.launch.run.terminal`, which FILE names and whose secret it has, and passes bytes on. With
``tty`` the program gets a new pseudo-terminal as its controlling terminal: pdb works, and Ctrl-C interrupts it. The
input is then a sequence of messages: ``{"keys": text}``, one letter a byte, and ``{"size": [rows, columns]}`` of your
terminal. Its output goes to standard output too, which is the rank's log. The exit status is that of the program, 128 +
the signal's number after a signal. Any Python from 3.6 on, standard library alone.
"""
# ruff: noqa: PTH100, PTH118, PTH120, PTH123

import contextlib
import json
import os
import select
import signal
import sys
import time

if not __package__:  # started as a script with an empty path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from stackyard.launch.node.handshake import READY
from stackyard.launch.node.machine import OF_USERS
from stackyard.launch.node.messages import LINE_LIMIT, Decoder
from stackyard.launch.node.uplink import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""Signals that a launcher sends to this process and not to the program, which is in a session of its own."""
LOOK_S = 0.2


def main(arguments: "list[str]") -> "int":
    """Connect, run the program, return its exit status."""
    path, kind, _, *program = arguments
    with open(path) as stream:
        told = json.load(stream)
    uplink = find(told["hubs"], told["secret"], time.monotonic() + told["limit_s"], lambda: True, _say)
    if uplink is None:
        _say("cannot connect to the terminal at " + ", ".join(told["hubs"]))
        return 1
    uplink.socket.setblocking(True)
    uplink.socket.sendall(READY)
    return with_terminal(uplink.socket, program, told["size"]) if kind == "tty" else with_pipe(uplink.socket, program)


def with_terminal(user: "socket.socket", program: "list[str]", size: "list[int]") -> "int":
    """Run the program on a pseudo-terminal of `size` (rows, columns)."""
    import pty

    pid, master = pty.fork()
    if pid == 0:
        _become(program, size)
    _pass_signals(pid)
    ends: list[Any] = [master, user]
    typed = Decoder(LINE_LIMIT)
    status = None  # type: int | None
    while True:
        ready, _, _ = select.select(ends, [], [], LOOK_S)
        if master in ready and not _from_program(master, user):
            break
        if user in ready and not _from_user(master, user, typed):
            ends.remove(user)
        if not ready and status is not None:
            break  # what it has left running may hold the terminal
        status = _ended(pid) if status is None else status
    return _code(os.waitpid(pid, 0)[1] if status is None else status)


def _become(program: "list[str]", size: "list[int]") -> "None":
    """Replace the new process by the program. Line ends are left to the user's terminal, for the log's sake."""
    import termios

    try:
        attributes = termios.tcgetattr(0)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(0, termios.TCSANOW, attributes)
        _resize(0, size)
        os.execvp(program[0], program)
    except OSError as error:
        _say(f"{program[0]}: {error.strerror}")
    finally:
        os._exit(127)


def _resize(terminal: "int", size: "list[int]") -> "None":
    """Set rows and columns; the kernel notifies the program (SIGWINCH)."""
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[0], size[1], 0, 0))


def _pass_signals(pid: "int") -> "None":
    def forward(number: "int", _frame: "object") -> "None":
        with contextlib.suppress(OSError):
            os.killpg(pid, number)

    for number in PASSED:
        signal.signal(number, forward)
    for number in OF_USERS:  # the agent sends them to the program itself
        signal.signal(number, signal.SIG_IGN)


def _from_program(master: "int", user: "socket.socket") -> "bool":
    """Forward output; False at its end."""
    try:
        data = os.read(master, 1 << 16)
    except OSError:  # EIO: nothing has the terminal any more
        return False
    with contextlib.suppress(OSError):
        user.sendall(data)
    while data:
        data = data[os.write(1, data) :]
    return True


def _from_user(master: "int", user: "socket.socket", typed: "Decoder") -> "bool":
    """Forward input; False at its end."""
    try:
        data = user.recv(1 << 12)
    except OSError:
        return False
    for message in typed.feed(data):
        if "size" in message:
            _resize(master, message["size"])
        keys = message.get("keys", "").encode("latin-1")
        while keys:
            keys = keys[os.write(master, keys) :]
    return bool(data)


def _ended(pid: "int") -> "int | None":
    done, status = os.waitpid(pid, os.WNOHANG)
    return status if done else None


def _code(status: "int") -> "int":
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def with_pipe(user: "socket.socket", program: "list[str]") -> "int":
    """Run the program with the data from the other end as its standard input."""
    import subprocess

    started = subprocess.Popen(program, stdin=subprocess.PIPE)
    pipe = started.stdin
    while started.poll() is None and pipe is not None:
        if not select.select([user], [], [], LOOK_S)[0]:
            continue
        try:
            data = user.recv(1 << 16)
            pipe.write(data)
            pipe.flush()
        except OSError:
            data = b""
        if not data:
            break
    user.close()  # it was all, or is not wanted
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()
    code = started.wait()
    return 128 - code if code < 0 else code


def _say(text: "str") -> "None":
    sys.stderr.write(f"stackyard: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
