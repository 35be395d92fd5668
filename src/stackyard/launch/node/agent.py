"""The agent of a node, started by the shim of local task 0 from the one file that `launch.run.agentfile` makes of it.

It reports its node to the hub, passes the answer to the waiting shims, follows the ranks' logs, reports how ranks end,
and ends them when the hub asks for it or is lost. `stackyard.launch.node.step` has the messages and files of a node.

Three threads: this loop, which waits for sockets and pipes and reads /proc and the node's own directory; `logs`, for
files on the shared file system; and the heartbeat of `uplink`, which touches no file. A stalled or full file system
only delays operations on it.

It and what it imports run on any Python from 3.6 on, with the standard library alone and few imports, because it starts
on every node, on the node's own Python, while ranks wait for it. So annotations are strings and paths are strings.
"""
# ruff: noqa: PTH118, PTH120

import os
import re
import selectors
import signal
import socket
import time

from stackyard.launch.node.directory import NodeDirectory
from stackyard.launch.node.ends import Ends
from stackyard.launch.node.logs import READ_MOST, Logs, log_path
from stackyard.launch.node.machine import detach, facts
from stackyard.launch.node.monitoring.edges import Edges
from stackyard.launch.node.monitoring.probes import Probes
from stackyard.launch.node.monitoring.stacks import Stacks
from stackyard.launch.node.monitoring.usage import MpiLibraries, Usage
from stackyard.launch.node.processes import beside, end_rest, send_signal
from stackyard.launch.node.ranks import Rank, below, tasks_of
from stackyard.launch.node.sockets import hold_port
from stackyard.launch.node.staging.staged import NodeStaging
from stackyard.launch.node.uplink import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stackyard.launch.node.uplink import Uplink

SIDECAR = -1
"""What stands for a task's number where the helper program of rank 0's node is meant."""
RECORDER = "stacks/recorder/rank-{rank}"
"""Below the run directory: what `torchfrtrace` reads."""
REFRESH_SHARE = 400
"""The lists of processes are read so seldom that reading them takes at most one part in so many of the time."""
VARIABLE = re.compile("MASTER_ADDR|MASTER_PORT|STACKYARD_(?:ADDR|PORT)_[A-Z0-9_]+|STACKYARD_PEERS(?:_[A-Z0-9_]+)?")
"""What the hub may set; a shell reads it."""


class Agent:
    """The event loop of a node and its state."""

    def __init__(self, file: "dict[str, Any]", log_directory: "str") -> "None":
        self.file, self.log_directory = file, log_directory
        self.host = socket.gethostname()
        self.directory = NodeDirectory(os.environ["STACKYARD_DIR"])
        self.deadline = time.monotonic() + self.file["start_s"]
        self.selector = selectors.DefaultSelector()
        self.ranks = {}  # type: dict[int, Rank]
        self.node = int(os.environ["STACKYARD_NODE"])
        self.tasks = tasks_of(self.file, self.node)
        self.hub = None  # type: Uplink | None
        self.unsent = []  # type: list[dict[str, Any]]
        self.acks = []  # type: list[int]
        self.starts = []  # type: list[dict[str, Any]]
        self.held = []  # type: list[tuple[int, list[socket.socket]]]
        self.sidecar = None  # type: Any
        self.gone_since = {}  # type: dict[int, float]
        self.logs = Logs(os.path.join(log_directory, f"agent-{self.host}.log"), self.file["sizes_s"])
        self.ends = Ends(self.logs, self._report_end)
        self.hub_holds = False
        self.went = self.kill_at = self.leave_at = self.next_watch = self.next_refresh = 0.0
        self.probes = Probes(self.directory.path)
        recorder = os.path.join(os.path.dirname(log_directory), RECORDER)
        self.stacks = Stacks(self.directory.path, self.file["py_spy"], self.file["probe_signal"], self.probes, recorder)
        self.usage = Usage(self.file["gpu_vendor"], MpiLibraries(self.file["mpi_library"], self.file["mpi_names"]))
        self.edges = Edges(self.file["edges"])
        self.staged = NodeStaging(self.file, self.directory, self.host)

    def run(self) -> "int":
        """Run until all ranks of this node have ended; 0, or 1 where the hub could not be reached."""
        self.selector.register(self.directory.pipe, selectors.EVENT_READ, self._from_pipe)
        self.selector.register(self.logs.ready, selectors.EVENT_READ, self._from_logs)
        self.staged.watch(self.selector, self.send)
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
        uplink = find(self.file["hubs"], self.file["secret"], self.deadline, self._wanted, self.logs.write)
        if uplink is None:
            return False
        self._use(uplink)
        return True

    def _use(self, hub: "Uplink") -> "None":
        self.hub = hub
        self.selector.register(hub.socket, selectors.EVENT_READ, self._from_hub)
        self._hello(hub)
        hub.keep_alive(self.file["beat_s"])

    def _wanted(self) -> "bool":
        """Whether a shim still waits: the launcher may have terminated them before the hub was reached."""
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
                self.logs.write(f"invalid line from a shim: {line!r}")

    def _started(self, local: "int", task: "int", pid: "int", more: "list[str]") -> "None":
        stream = self.file["stream"]
        self.ranks[local] = Rank(task, local, pid)
        path = log_path(self.file, self.log_directory, self.directory.path, self.node, task)
        self.logs.watch(task, path, stream == "all" or (stream == "first" and task in self.file["shown"]))
        cpus, seen = [*more, "-", "-"][:2]
        place = {"task": task, "local": local, "pid": pid, "cpus": cpus.strip("-"), "gpus": seen}
        self.starts.append(place)
        self.usage.begin_energy(seen)
        if self.hub is not None:
            self.send("start", place)

    def _ended(self, local: "int", code: "int", how: "str" = "") -> "None":
        rank = self.ranks[local]
        if rank.code is not None:
            return
        rank.code = code
        value = {"task": rank.task, "code": code, "usage": self.usage.of(rank.task, bool(code))}
        value["edges"] = self.edges.of(rank.task, time.monotonic(), self.went)
        self.ends.begin("exit", rank.task, dict(value, **({"how": how} if how else {})))

    def _report_end(self, kind: "str", value: "dict[str, Any]") -> "None":
        self.send(kind, value)
        if kind == "exit":
            self.acks.extend(rank.local for rank in self.ranks.values() if rank.task == value["task"])
            self._flushed()

    # what the thread for the logs has found

    def _from_logs(self, _: "int") -> "None":
        grew = False
        for kind, task, value in self.logs.take():
            if kind == "output":
                self.send("out", {"task": task, "text": value})
            elif kind == "end":
                self.ends.read(task, value)
            grew = grew or kind == "grew"
        if grew:
            self.send("grew", True)
        self._hold()

    def _hold(self) -> "None":
        """Read output no faster than the hub receives it."""
        self.logs.hold(self.hub is not None and (self.hub_holds or self.hub.waiting > READ_MOST))

    # messages to and from the hub

    def send(self, kind: "str", value: "Any") -> "None":
        """Send a message to the hub, or keep it until there is a connection."""
        if self.hub is None:
            self.unsent.append({kind: value})
            return
        self.hub.send({kind: value})
        self._flushed()

    def _hello(self, hub: "Uplink") -> "None":
        """Report this node, its started ranks, and earlier unsent messages."""
        values = facts()
        every = [one for addresses in values["interfaces"].values() for one in addresses]
        hello = {
            "host": self.host, "addresses": every, "node": self.node, "pid": os.getpid(), "facts": values,
            "stage": self.staged.hello(), "lacks": os.environ.get("STACKYARD_LACKS", ""),
        }  # fmt: skip
        messages = [{"hello": hello}, *self._ports(), *({"start": one} for one in self.starts), *self.unsent]
        self.unsent = []
        hub.send(*messages)
        self._flushed()

    def _ports(self) -> "list[dict[str, Any]]":
        """The ports of the roles that begin on this node, as on that of task 0, and of its tasks; held from now on."""
        count = self.file["ports"] if self.node == 0 else dict(self.file["more_ports"]).get(self.node, 0)
        count += self.tasks if self.file["task_ports"] else 0
        if not count:
            return []
        self.held = [hold_port() for _ in range(count)]
        return [{"ports": [port for port, _ in self.held]}]

    def _flushed(self) -> "None":
        """Handle the acknowledgement of sent messages."""
        if self.hub is None:
            return
        if self.hub.why:
            self._lost(self.hub.why)
        elif not self.hub.waiting and (self._running() or len(self.ranks) < self.tasks):
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
                self._obey(kind, value)

    def _obey(self, kind: "str", value: "Any") -> "None":
        if kind == "go":
            self._go(value)
        elif kind == "stop":
            self._stop(value)
            self._end(self.file["grace_s"])
        elif kind == "signal":
            number = getattr(signal, "SIG" + value)
            for rank in self._running():
                self.send("signalled", {"task": rank.task, "signal": value, "processes": rank.tell(number)})
            self.probes.ask(("warned",), self._running(), {"do": "stop"})
        elif kind == "stacks":
            for rank in self._running():
                self.stacks.begin(rank)
        elif kind == "probe":
            self.probes.ask(("asked", value["number"]), self._running(), value["request"], value["only"])
        elif kind == "end":
            self._end(value)
        elif kind == "met":
            self.edges.met(value)
        elif kind == "hold":
            self.hub_holds = bool(value)
        elif kind in ("stage", "leave"):
            self.staged.obey(kind, value)

    def _go(self, variables: "dict[str, Any]") -> "None":
        if not all(VARIABLE.fullmatch(name) for name in variables):
            self.logs.write(f"unexpected variables: {sorted(variables)}")
            return
        self.went = time.monotonic()
        self.edges.began(variables)
        self.logs.hurry()
        try:
            self.directory.probe(self.file["probe_files"])
            self._sidecar(variables)
            self.directory.go(dict(variables, **self.staged.variables))
            self.directory.sweep(self.host)
        except OSError as error:
            self.send("unable", f"cannot write in {self.directory.path}: {error.strerror}")

    def _lost(self, why: "str") -> "None":
        if self.hub is None:
            return
        self.selector.unregister(self.hub.socket)
        self.hub.close()
        self.hub = None
        self.logs.hold(False)
        self.staged.obey("leave", False)
        self.logs.write(f"lost connection to the hub: {why}")
        self._stop(f"launcher process died or cannot be reached ({why}); ranks terminated")
        for rank in self.ranks.values():
            self.directory.acknowledge(rank.local)
        self._end(self.file["grace_s"])

    # time

    def _running(self) -> "list[Rank]":
        return [rank for rank in self.ranks.values() if rank.code is None]

    def _wait(self) -> "float":
        now = time.monotonic()
        if (
            self.kill_at
            or self.stacks.open
            or self.probes.open
            or self.ends.waiting
            or (self.hub is not None and self.hub.waiting)
        ):
            return 0.05
        return max(0.0, self.next_watch - now)

    def _tick(self, now: "float") -> "None":
        if self.hub is not None:
            self.hub.send()
            self._hold()
            self._flushed()
        self.ends.overdue(now)
        if now >= self.next_watch:
            self.next_watch = now + self.file["beat_s"]
            self._watch(now)
        for key, answers in self.probes.step():
            if key[0] == "recorder":
                self.stacks.recorded(key[1], answers)
            elif key[0] == "asked":
                self.send("probed", {"number": key[1], "answers": answers})
        for message in self.stacks.step():
            self.send("stacks", message)
        if self.kill_at:
            self._ending(now)

    def _watch(self, now: "float") -> "None":
        self._refresh(now)
        ranks = self._running() if self.went else []
        self.usage.look(ranks, now)
        ends = self.edges.look(ranks, now)
        if ends:
            self.send("ends", ends)
        for rank in self._running():
            if rank.shim_alive():
                continue
            if now - self.gone_since.setdefault(rank.local, now) >= min(0.5, self.file["beat_s"]):
                left = rank.orphans(self.directory.path)
                self._ended(rank.local, 137, "orphaned" if left else "killed")
                for pid in left:
                    send_signal(pid, signal.SIGTERM)
            else:
                self.next_watch = now + 0.1
        if self.sidecar is not None and self.sidecar.poll() is not None:
            code, self.sidecar = self.sidecar.returncode, None
            if self._running() and not self.kill_at:
                self.ends.begin("sidecar", SIDECAR, {"code": code or 1, "status": code})
        if not (self.went or self.staged.begun or self.kill_at) and now > self.deadline:
            self._stop("timed out after {:g} s waiting for all nodes".format(self.file["start_s"]))
            self._end(self.file["grace_s"])

    def _refresh(self, now: "float") -> "None":
        """Update the ranks' lists of processes; not too often, since hundreds of threads each take time to read."""
        if now < self.next_refresh:
            return
        for rank in self._running():
            rank.refresh()
        self.next_refresh = now + REFRESH_SHARE * (time.monotonic() - now)

    def _sidecar(self, variables: "dict[str, Any]") -> "None":
        if self.node != 0 or not self.file["sidecar"]:
            return
        environ = dict(os.environ, **{name: str(value) for name, value in variables.items()})
        path = os.path.join(self.log_directory, "sidecar.log")
        self.sidecar = beside(self.file["sidecar"], environ, path)
        self.logs.watch(SIDECAR, path, False)

    # the end

    def _stop(self, message: "str") -> "None":
        if not self.went:
            try:
                self.directory.stop(message)
            except OSError as error:
                self.logs.write(f"cannot write in {self.directory.path}: {error.strerror}")

    def _end(self, grace_s: "float") -> "None":
        now = time.monotonic()
        if not self.kill_at:
            self._stop("the launch was ended before this rank started")
            self.usage.look(self._running(), now, True)
            self._signal_all(signal.SIGTERM)
        self.kill_at = min(self.kill_at or now + grace_s, now + grace_s)
        self.leave_at = self.kill_at + 5

    def _signal_all(self, number: "int") -> "None":
        for pid in below(self.ranks.values()):
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
            self.logs.write(f"still running after SIGKILL: {sorted(below(self.ranks.values()))}")

    def _finished(self) -> "bool":
        now = time.monotonic()
        if self.kill_at and now > self.leave_at:
            return True
        if self._running() or self.stacks.open or self.ends.unread(now, self.file["lost_s"]):
            return False
        gone = not below(self.ranks.values()) if self.kill_at else len(self.ranks) == self.tasks
        return gone and self.staged.may_leave

    def _bye(self) -> "None":
        """Terminate remaining processes of the ranks and the helper program, and remove the node's directory."""
        end_rest(self.directory.path, {rank.pid for rank in self.ranks.values()}, self.sidecar, self.logs.write)
        self.usage.end_energy(self.went, self.send)
        self._from_logs(0)
        self.staged.close(self.send)
        until = time.monotonic() + 2
        while time.monotonic() < until and any(rank.shim_alive() for rank in self._running()):
            time.sleep(0.02)  # shims may still have to read why it is over
            self._from_pipe(0)
        if self.hub is not None:
            self.hub.finish(3)
        self.directory.remove()  # while the last shims wait for it, and the hub keeps the launcher
        if self.hub is not None:
            self.hub.send({"bye": {"unshown": self.logs.unshown}})
            self.hub.finish(3)
        self.logs.drain(1)


def main(file: "dict[str, Any]", step: "str") -> "int":
    """Run the agent of this node: the plan of the step, without hosts, and its directory."""
    detach()
    agent = Agent(file, os.path.join(step, "logs"))
    try:
        return agent.run()
    except Exception as error:
        agent.logs.write(f"internal error: {error!r}")
        agent.logs.drain(5)
        raise
