"""The private directory of a node, used by its shims and its agent; `stackyard.launch.node.step` lists its files.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH102, PTH110, PTH208, PTH116, PTH118, PTH123

import _thread
import contextlib
import os

from stackyard.launch.node.left import locked, remove, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NodeDirectory:
    """The agent's view of the directory. `pipe` is the descriptor of the FIFO.

    Raises:
        OSError: the directory belongs to another user, others may enter it, or it has no FIFO.
    """

    def __init__(self, path: "str") -> "None":
        self.path = path
        status = os.stat(path)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise OSError(f"{path} is not a private directory of this user")
        self._lock = locked(os.path.join(path, "lock"), os.O_CREAT)
        self.pipe = os.open(os.path.join(path, "pipe"), os.O_RDWR | os.O_NONBLOCK)
        self._partial = b""
        gates = [name for name in os.listdir(path) if name.startswith("gate.")]
        self._gates = {int(name[5:]): os.open(os.path.join(path, name), os.O_RDWR | os.O_NONBLOCK) for name in gates}

    def lines(self) -> "list[str]":
        """The complete lines that shims have written."""
        try:
            *lines, self._partial = (self._partial + os.read(self.pipe, 65536)).split(b"\n")
        except BlockingIOError:
            return []
        return [line.decode("utf-8", "replace") for line in lines]

    def go(self, variables: "dict[str, Any]") -> "None":
        """Let the shims start their programs, with these variables."""
        self.put("go", "".join(f"{name}={_quoted(str(value))}\n" for name, value in variables.items()))
        self._tell("go", *self._gates)

    def probe(self, files: "dict[str, str]") -> "None":
        """Write the files of the probe, which the programs import. Raises OSError."""
        if files:
            os.mkdir(os.path.join(self.path, "probe"), 0o700)
        for name, text in files.items():
            self.put(os.path.join("probe", name), text)

    def stop(self, message: "str") -> "None":
        """Make the shims exit without starting their programs. The first message counts: others follow from it."""
        if not os.path.exists(os.path.join(self.path, "stop")):
            self.put("stop", message + "\n")
            self._tell("stop", *self._gates)

    def acknowledge(self, local: "int") -> "None":
        """Let a shim exit: the hub has its exit status. If this fails, the shim exits by itself."""
        with contextlib.suppress(OSError):
            self.put(f"ack.{local}", "")
        self._tell("ack", local)

    def _tell(self, word: "str", *tasks: "int") -> "None":
        """Say a word to tasks inside an image, which read it from a FIFO of their own (`shim.inside_sh`)."""
        for local in tasks:
            with contextlib.suppress(OSError):
                os.write(self._gates.get(local, -1), word.encode() + b"\n")

    def put(self, name: "str", text: "str") -> "None":
        """Write a file atomically. Raises OSError."""
        path = os.path.join(self.path, name)
        with open(path + ".new", "w") as stream:
            stream.write(text)
        os.rename(path + ".new", path)

    def sweep(self, host: "str") -> "None":
        """Remove leftovers of this user's killed agents on this node, in a thread."""
        _thread.start_new_thread(sweep, (self.path, f"stackyard-{os.getuid()}-", host, "lock"))

    def remove(self) -> "None":
        """Remove the directory with everything in it."""
        remove(self.path)


def _quoted(value: "str") -> "str":
    """A value quoted as one shell word."""
    return "'" + value.replace("'", "'\\''") + "'"
