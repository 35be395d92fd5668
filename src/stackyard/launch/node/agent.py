"""The agent of a node, started by the shim of local task 0: ``python -I -S agent.py plan.json [directory]``.

It reports its node to the hub, passes the answer to the waiting shims, follows the ranks' logs, reports how ranks end,
and ends them when the hub asks for it or the connection to it is lost. `stackyard.launch.node.step` describes the
messages and the files of a node.

It and what it imports run on any Python from 3.6 on, with the standard library alone and few imports, because it starts
on every node, on the node's own Python, while ranks wait for it. So annotations are strings and paths are strings; the
parts are modules since Python keeps the compiled form of a module but not of a script.
"""
# ruff: noqa: PTH100, PTH118, PTH120, PTH123

import json
import os
import selectors
import signal
import socket
import sys
import time

if not __package__:  # started as a script with an empty path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))


from stackyard.launch.node.directory import NodeDirectory
from stackyard.launch.node.machine import detach, facts, slurp
from stackyard.launch.node.messages import LINE_LIMIT, Connection
from stackyard.launch.node.processes import alive, beside, end_rest, send_signal
from stackyard.launch.node.ranks import READ_MOST, TAIL_LINES, Rank
from stackyard.launch.node.sockets import connect, hold_port
from stackyard.launch.node.stacks import Stacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIRST_LOOK_S, LOOK_S, QUIET_LOOK_S = 0.03, 0.1, 0.5
"""Seconds between two looks at the logs: until the first output, while they are streamed, while they are not."""


class Agent:
    """The event loop of a node and its state."""

    def __init__(self, plan: "str", directory: "str" = "") -> "None":
        with open(plan) as stream:
            self.file = json.load(stream)  # type: dict[str, Any]
        self.host = socket.gethostname()
        self.logs = os.path.join(os.path.dirname(os.path.abspath(plan)), "logs")
        name = f"stackyard-{os.getuid()}-{self.file['token'][:8]}-{self.host}"
        self.directory = NodeDirectory(directory or os.path.join(os.environ.get("STACKYARD_TMP") or "/tmp", name))
        self.deadline = time.monotonic() + self.file["start_s"]
        self.selector = selectors.DefaultSelector()
        self.ranks = {}  # type: dict[int, Rank]
        self.node = int(os.environ.get("STACKYARD_NODE", "-1"))
        self.hub = None  # type: Connection | None
        self.unsent = []  # type: list[dict[str, Any]]
        self.acks = []  # type: list[int]
        self.starts = []  # type: list[dict[str, Any]]
        self.held = []  # type: list[socket.socket]
        self.sidecar = None  # type: Any
        self.gone_since = {}  # type: dict[int, float]
        self.went, self.output_seen, self.heard = False, False, False
        self.kill_at, self.leave_at = 0.0, 0.0
        self.next_beat = self.next_look = 0.0
        self.stacks = Stacks(self.directory.path, self.file["py_spy"])

    def log(self, text: "str") -> "None":
        """Write a line to the agent's own log, which is its stderr."""
        sys.stderr.write("{} {}\n".format(time.strftime("%H:%M:%S"), text))
        sys.stderr.flush()

    def run(self) -> "int":
        """Run until all ranks of this node have ended; 0, or 1 where the hub could not be reached."""
        self.selector.register(self.directory.pipe, selectors.EVENT_READ, self._from_pipe)
        if not self._connect():
            self._stop("cannot connect to the hub at " + ", ".join(self.file["hubs"]) + " from " + self.host)
            self._bye()
            return 1
        while not self._finished():
            for key, mask in self.selector.select(self._wait()):
                key.data(mask)
            self._tick(time.monotonic())
        self._bye()
        return 0

    def _connect(self) -> "bool":
        found = connect(self.file["hubs"], self.deadline, self._wanted)
        if found is None:
            return False
        made, self.hub_name = found
        self.hub = Connection(made, LINE_LIMIT)
        self.selector.register(made, selectors.EVENT_READ, self._from_hub)
        if self.node >= 0:
            self._hello()
        return True

    def _wanted(self) -> "bool":
        """Whether a shim still waits: the launcher may have ended them before the hub was reached."""
        self._from_pipe(0)
        if not self.ranks:
            return bool(time.monotonic() < self.deadline)
        return any(rank.shim_alive() for rank in self.ranks.values())

    # lines from the shims

    def _from_pipe(self, _: "int") -> "None":
        for line in self.directory.lines():
            words = line.split(" ")
            try:
                if words[0] == "start":
                    self._started(int(words[1]), int(words[2]), int(words[3]), words[4:])
                elif words[0] == "exit":
                    self._ended(int(words[1]), int(words[2]))
            except (ValueError, IndexError, KeyError):
                self.log(f"invalid line from a shim: {line!r}")

    def _started(self, local: "int", task: "int", pid: "int", more: "list[str]") -> "None":
        stream = self.file["stream"]
        path = os.path.join(self.logs, f"rank-{task:05d}.log")
        self.ranks[local] = Rank(task, local, pid, path, stream == "all" or (stream == "first" and task == 0))
        cpus, seen = [*more, "-", "-"][:2]
        place = {"task": task, "local": local, "pid": pid, "cpus": cpus.strip("-"), "gpus": seen}
        self.starts.append(place)
        if self.node < 0:
            cyclic = self.file["distribution"] == "cyclic"
            self.node = task % self.file["nodes"] if cyclic else task // self.file["tasks_per_node"]
            self._hello()
        elif self.hub is not None:
            self.send("start", place)

    def _ended(self, local: "int", code: "int", how: "str" = "") -> "None":
        rank = self.ranks[local]
        if rank.code is not None:
            return
        rank.code = code
        self._output(rank, True)
        end = {"task": rank.task, "code": code, "tail": rank.tail() if code else []}  # type: dict[str, Any]
        if how:
            end["how"] = how
        self.send("exit", end)
        self.acks.append(local)

    # messages to and from the hub

    def send(self, kind: "str", value: "Any") -> "None":
        """Send a message to the hub, or keep it until there is a connection."""
        if self.hub is None:
            self.unsent.append({kind: value})
            return
        self.hub.queue({kind: value})
        self._flush()

    def _hello(self) -> "None":
        """Report this node, what has started on it, and what could not be sent before."""
        if self.hub is None:
            return
        found = facts()
        every = [one for addresses in found["interfaces"].values() for one in addresses]
        hello = {
            "token": self.file["token"], "host": self.host, "addresses": every, "node": self.node,
            "pid": os.getpid(), "facts": found,
        }  # fmt: skip
        messages = [{"hello": hello}, *self._ports(), *({"start": one} for one in self.starts), *self.unsent]
        self.unsent = []
        for message in messages:
            self.hub.queue(message)
        self._flush()

    def _ports(self) -> "list[dict[str, Any]]":
        """The ports of the node of task 0, held from now on."""
        if self.node != 0:
            return []
        if not self.held:
            self.ports = []
            for _ in range(self.file["ports"]):
                port, held = hold_port()
                self.ports.append(port)
                self.held.extend(held)
        return [{"ports": self.ports}]

    def _flush(self) -> "None":
        if self.hub is None:
            return
        self.hub.flush()
        if self.hub.why:
            self._lost(self.hub.why)
        elif not self.hub.waiting:
            for local in self.acks:
                self.directory.acknowledge(local)
            self.acks = []

    def _from_hub(self, _: "int") -> "None":
        if self.hub is None:
            return
        messages = self.hub.receive()
        if messages is None:
            self._lost(self.hub.why)
        for message in messages or ():
            for kind, value in message.items():
                self.heard = True
                self._obey(kind, value)

    def _obey(self, kind: "str", value: "Any") -> "None":
        if kind == "go":
            self.went = True
            self._sidecar(value)
            self.directory.go(value)
        elif kind == "stop":
            self._stop(value)
            self._end(self.file["grace_s"])
        elif kind == "signal":
            number = getattr(signal, "SIG" + value)
            for rank in self._running():
                self.send("signalled", {"task": rank.task, "signal": value, "processes": rank.tell(number)})
        elif kind == "stacks":
            for rank in self._running():
                self.stacks.begin(rank)
        elif kind == "end":
            self._end(value)

    def _lost(self, why: "str") -> "None":
        if self.hub is not None:
            self.selector.unregister(self.hub.socket)
            self.hub.close()
        self.hub = None
        if not self.heard and len(self.file["hubs"]) > 1 and time.monotonic() < self.deadline:
            self.log(f"{self.hub_name} is not the hub of this launch: {why}")
            self.file["hubs"].remove(self.hub_name)
            if self._connect():
                return
        self.log(f"lost connection to the hub: {why}")
        self._stop(f"launcher process died or cannot be reached ({why}); ranks terminated")
        for rank in self.ranks.values():
            self.directory.acknowledge(rank.local)
        self._end(self.file["grace_s"])

    # time

    def _running(self) -> "list[Rank]":
        return [rank for rank in self.ranks.values() if rank.code is None]

    def _wait(self) -> "float":
        now = time.monotonic()
        if self.kill_at or self.stacks.open:
            return 0.05
        return max(0.0, min(self.next_beat, self.next_look) - now)

    def _tick(self, now: "float") -> "None":
        self._flush()
        if now >= self.next_look:
            self._look(now)
        if now >= self.next_beat:
            self.next_beat = now + self.file["beat_s"]
            self._watch(now)
            self._beat()
        for task, text in self.stacks.step():
            self.send("stacks", {"task": task, "text": text})
        if self.kill_at:
            self._ending(now)

    def _look(self, now: "float") -> "None":
        streamed = [rank for rank in self.ranks.values() if rank.streamed]
        for rank in self._running() if not self.output_seen else streamed:
            rank.look()
            if rank.size and not self.output_seen:
                self.output_seen, self.next_beat = True, now
            self._output(rank, False)
        waiting = self.went and not self.output_seen and self.node == 0
        self.next_look = now + (FIRST_LOOK_S if waiting else LOOK_S if streamed else QUIET_LOOK_S)

    def _output(self, rank: "Rank", everything: "bool") -> "None":
        if everything:
            rank.look()
        while rank.streamed and self._hub_keeps_up():
            text = rank.text(everything)
            if not text:
                return
            self.send("out", {"task": rank.task, "text": text})

    def _hub_keeps_up(self) -> "bool":
        """Whether more may be queued for the hub."""
        return self.hub is None or self.hub.waiting < READ_MOST

    def _beat(self) -> "None":
        sizes = {}
        for rank in self.ranks.values():
            rank.look()
            if rank.size != rank.told_size:
                sizes[rank.task] = rank.told_size = rank.size
        if self.hub is not None and self.node >= 0 and self._hub_keeps_up():
            self.send("beat", {"tasks": sizes})

    def _watch(self, now: "float") -> "None":
        for rank in self._running():
            rank.refresh()
            if rank.shim_alive():
                continue
            if now - self.gone_since.setdefault(rank.local, now) >= min(0.5, self.file["beat_s"]):
                left = [pid for pid, born in rank.below.items() if alive(pid, born)]
                self._ended(rank.local, 137, "orphaned" if left else "killed")
                for pid in left:
                    send_signal(pid, signal.SIGTERM)
            else:
                self.next_beat = now + 0.1
        if self.sidecar is not None and self.sidecar.poll() is not None:
            code, self.sidecar = self.sidecar.returncode, None
            if self._running() and not self.kill_at:
                self.send(
                    "sidecar",
                    {"code": code, "tail": slurp(os.path.join(self.logs, "sidecar.log")).splitlines()[-TAIL_LINES:]},
                )
        if not self.went and now > self.deadline and not self.kill_at:
            self._stop("timed out after {:g} s waiting for all nodes".format(self.file["start_s"]))
            self._end(self.file["grace_s"])

    def _sidecar(self, variables: "dict[str, Any]") -> "None":
        if self.node != 0 or not self.file["sidecar"]:
            return
        environ = dict(os.environ, **{name: str(value) for name, value in variables.items()})
        self.sidecar = beside(self.file["sidecar"], environ, os.path.join(self.logs, "sidecar.log"))

    # the end

    def _stop(self, message: "str") -> "None":
        if not self.went:
            self.directory.stop(message)

    def _end(self, grace_s: "float") -> "None":
        now = time.monotonic()
        if not self.kill_at:
            self._stop("the launch was ended before this rank started")
            self._signal_all(signal.SIGTERM)
        self.kill_at = min(self.kill_at or now + grace_s, now + grace_s)
        self.leave_at = self.kill_at + 5

    def _left(self) -> "dict[int, int]":
        found = {}  # type: dict[int, int]
        for rank in self.ranks.values():
            rank.refresh()
            found.update(rank.below)
        return found

    def _signal_all(self, number: "int") -> "None":
        for pid in self._left():
            send_signal(pid, number)
        if self.sidecar is not None:
            send_signal(self.sidecar.pid, number)

    def _ending(self, now: "float") -> "None":
        self._watch(now)
        if now < self.kill_at:
            return
        self._signal_all(signal.SIGKILL)
        if now > self.kill_at + 1:
            for rank in self._running():
                send_signal(rank.pid, signal.SIGKILL)
        if now > self.leave_at:
            self.log(f"still running after SIGKILL: {sorted(self._left())}")

    def _finished(self) -> "bool":
        now = time.monotonic()
        if self.kill_at and now > self.leave_at:
            return True
        if self._running() or self.stacks.open:
            return False
        if self.kill_at:
            return not self._left()
        return bool(len(self.ranks) == self.file["tasks_per_node"])

    def _bye(self) -> "None":
        """End what the ranks left behind and the helper program, and remove the node's directory."""
        end_rest(self.directory.path.encode(), {rank.pid for rank in self.ranks.values()}, self.sidecar, self.log)
        if self.hub is not None:
            self.hub.queue({"bye": {}})
            self.hub.finish(3)
        until = time.monotonic() + 2
        while time.monotonic() < until and any(rank.shim_alive() for rank in self.ranks.values()):
            time.sleep(0.05)
        self.directory.remove()


def main(arguments: "list[str]") -> "int":
    """Run the agent of this node."""
    plan = os.path.abspath(arguments[0])
    logs = os.path.join(os.path.dirname(plan), "logs")
    detach(os.path.join(logs, f"agent-{socket.gethostname()}.log"))
    return Agent(plan, *arguments[1:2]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
