"""A process that has imported the program, and forks for each command line, which saves the imports.

What runs is the same program in a process of its own, with the caller's directory, environment and umask; only the
start of Python and the imports are shared. Variables that Python itself reads when it starts need a real start
(`needs_a_start`); so does what a test calls by path.

python -m support.forkserver SOCKET     serves until its standard input ends
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

STACKYARD = Path(sys.executable).with_name("stackyard")
IS_WANTED = os.environ.get("STACKYARD_TEST_FORKS", "1") == "1"
"""``STACKYARD_TEST_FORKS=0`` starts each command line afresh, as a person does."""
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC", "MALLOC", "TZ", "COVERAGE")
_OF_OTHERS = ("stackyard.launch.node", "stackyard.launch.probe.", "stackyard.images.squashfs.launcher", "stackyard.__")
"""Modules that are not imported: they are programs for other processes, and act when they are."""
_LOCK = threading.Lock()
_SERVER: list[str] = []


def needs_a_start(environ: Mapping[str, str]) -> bool:
    """Whether one of the variables that differ from this process's is read by Python or the loader when they start."""
    names = {name for name in {*environ, *os.environ} if environ.get(name) != os.environ.get(name)}
    return any(name.startswith(READ_AT_START) for name in names)


def run(
    words: Sequence[str], environ: Mapping[str, str], directory: Path | None, streams: tuple[IO[bytes], IO[bytes]],
    timeout_s: float,
) -> int:  # fmt: skip
    """The exit status of ``stackyard WORDS...``; its output goes to the streams.

    Raises:
        subprocess.TimeoutExpired: it was killed after that time.
    """
    mask = os.umask(0)
    os.umask(mask)
    asked = {"words": list(words), "environ": dict(environ), "directory": str(directory or Path.cwd()), "umask": mask}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect(_server())
        handles = [0, *(stream.fileno() for stream in streams)]
        socket.send_fds(channel, [b"x"], handles)
        data = json.dumps(asked).encode()
        channel.sendall(len(data).to_bytes(4, "big") + data)
        pid = int.from_bytes(_read(channel, 4), "big")
        channel.settimeout(timeout_s)
        try:
            return int.from_bytes(_read(channel, 4), "big", signed=True)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["stackyard", *words], timeout_s) from None


def _read(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise RuntimeError("the server of command lines has ended")
        data += piece
    return data


def _server() -> str:
    """The socket of this process's server, which ends with it."""
    with _LOCK:
        if not _SERVER:
            directory = tempfile.mkdtemp(prefix="stackyard-fork-")
            path = f"{directory}/socket"
            argv = [sys.executable, "-m", "support.forkserver", path]
            own = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=own)
            assert process.stdout is not None
            if process.stdout.read(1) != b"+":
                raise RuntimeError("the server of command lines did not start")
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            _SERVER.append(path)
        return _SERVER[0]


# --------------------------------------------------------------------------- the server


def _serve(path: str) -> None:
    sys.argv = [str(STACKYARD)]
    import stackyard

    for module in pkgutil.walk_packages(stackyard.__path__, "stackyard."):
        if not module.name.startswith(_OF_OTHERS):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue  # a program for another interpreter
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that have ended are reaped by the kernel
    os.write(1, b"+")
    while True:
        channel, _ = listener.accept()
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(channel)
        channel.close()


def _attend(channel: socket.socket) -> None:
    """Carry out one request, in a process that waits for the command's end."""
    _, handles, _, _ = socket.recv_fds(channel, 1, 3)
    asked = json.loads(_read(channel, int.from_bytes(_read(channel, 4), "big")))
    pid = os.fork()
    if not pid:
        channel.close()
        _become(asked, handles)
    for handle in handles:
        os.close(handle)
    channel.sendall(pid.to_bytes(4, "big"))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    channel.sendall(code.to_bytes(4, "big", signed=True))
    os._exit(0)


def _become(asked: dict[str, object], handles: list[int]) -> None:
    """Be the command line."""
    code = 70
    try:
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
            os.close(handle)
        os.umask(int(str(asked["umask"])))
        os.chdir(str(asked["directory"]))
        os.environ.clear()
        os.environ.update(asked["environ"])  # type: ignore[call-overload]
        words = [str(word) for word in asked["words"]]  # type: ignore[attr-defined]
        sys.argv = [str(STACKYARD), *words]
        sys.orig_argv = [sys.executable, *sys.argv]
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the life of the process
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        from stackyard.cli.entry import main

        main()
        code = 0
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
