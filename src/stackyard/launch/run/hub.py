"""The hub of a step: receives the messages of all agents, watches the launcher, and decides when and how it all ends.

One process, one thread, one selector for any number of nodes. Decisions are made in four places: `_begin` (all nodes
have reported), `_judge` (which failure was the first), `_silent` (a node is lost) with `_hang`, and `_end`.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from typing import Any

from stackyard.errors import StackyardError
from stackyard.host import process
from stackyard.launch.node.sockets import accept
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.outcome import Listener, State
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run import seen
from stackyard.launch.run.addresses import master_address
from stackyard.launch.run.link import Link
from stackyard.launch.run.seen import Seen
from stackyard.launch.run.start import WatchOptions
from stackyard.launch.run.verdict import Ended, is_consequence

TICK_S = 0.05
COLLECT_S = 1.0
"""Seconds in which further failures may arrive, before the first one is named and the other ranks are ended."""
STACKS_S = 30.0
"""Time limit for the stack traces of hanging ranks."""
HELLO_S = 10.0
"""Time limit for a connection to authenticate itself."""
LAUNCHER_S = 3.0
"""Time in which a launcher exits by itself after its last task, before it is signalled (`LAUNCHER_SIGNALS`)."""
LAUNCHER_SIGNALS = ((0.0, signal.SIGTERM), (1.5, signal.SIGTERM), (8.0, signal.SIGKILL))
"""Signals for a launcher that does not exit, with the seconds: srun requires SIGTERM twice, and releases its allocation
before it exits."""


class Hub:
    """The event loop. Its observations are in `seen`, from which `seen.result` makes the outcome."""

    def __init__(
        self, step: StepPaths, file: StepFile, listener: Listener, options: WatchOptions,
        sockets: list[socket.socket], launcher: process.Child, signals: list[int],
    ) -> None:  # fmt: skip
        self.step, self.file, self.listener, self.options = step, file, listener, options
        self.launcher = launcher
        self.began = self.tick = self.expected_since = time.monotonic()
        self.seen = Seen(step, file, launcher)
        self.links: dict[int, Link] = {}
        self.unauthenticated: set[Link] = set()
        self.ports: tuple[int, ...] = ()
        self.selector = selectors.DefaultSelector()
        for one in sockets:
            self.selector.register(one, selectors.EVENT_READ, None)
        self.state: State | None = None
        self.signals = signals
        self.went = self.suspect = self.stacks_until = self.end_until = 0.0
        self.output_at = 0.0
        self.launcher_ended = 0.0
        self.launcher_signals: list[tuple[float, int]] = []
        self.next_look = 0.0

    # the loop

    def loop(self) -> None:
        """Run until the launcher has exited and every agent has disconnected."""
        self._phase("queued" if self.options.queued else "nodes", f"0 of {self.file.nodes}")
        while not (self.launcher_ended and not self.links and self._drained()):
            for key, mask in self.selector.select(TICK_S):
                if key.data is None:
                    self._accept(key.fileobj)
                elif mask & selectors.EVENT_READ:
                    self._read(key.data)
                else:
                    self._flush(key.data)
            self._now(time.monotonic())
        self.seen.total_s = time.monotonic() - self.began

    def close(self) -> None:
        """Close every connection: agents that are still connected end their ranks."""
        for link in [*self.links.values(), *self.unauthenticated]:
            link.close()
        self.selector.close()

    def _drained(self) -> bool:
        """Shortly after the launcher has exited, so that an agent that was just started is still answered."""
        return bool(self.seen.left == self.file.nodes or time.monotonic() > self.launcher_ended + 0.5)

    def _now(self, now: float) -> None:
        paused, self.tick = now - self.tick > self.file.lost_s / 2, now
        if paused:  # this process was suspended, not the agents
            for link in self.links.values():
                link.heard = max(link.heard, now)
        while self.signals:
            self._signal(self.signals.pop(0), now)
        self._launcher(now)
        if not self.state and not self.went:
            self._begin(now)  # at once: every rank waits for it
        if now < self.next_look:
            return
        self.next_look = now + TICK_S
        if not self.state:
            self._silent(now)
            self._judge(now)
            self._hang(now)
        elif now > self.end_until:
            self._give_up()

    # connections

    def _accept(self, listening: Any) -> None:
        try:
            for connection, address in accept(listening):
                link = Link(connection, address, time.monotonic())
                self.unauthenticated.add(link)
                self.selector.register(connection, selectors.EVENT_READ, link)
        except OSError as error:
            self.listener.notice(f"cannot accept a connection: {error.strerror}")

    def _drop(self, link: Link) -> None:
        self.selector.unregister(link.socket)
        link.close()
        self.unauthenticated.discard(link)
        if self.links.get(link.node) is link:
            del self.links[link.node]
            self.seen.left += 1

    def _read(self, link: Link) -> None:
        messages = link.receive()
        if messages is not None:
            link.heard = time.monotonic()
        for message in messages or ():
            for kind, value in message.items():
                if link.node < 0 and not (kind == "hello" and self._hello(link, value)):
                    self._drop(link)
                    return
                if kind != "hello":
                    self._heard(link, kind, value)
        if messages is None:
            self._gone(link)
        elif link.waiting:
            self._flush(link)

    def _flush(self, link: Link) -> None:
        link.flush()
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.waiting else 0)
        self.selector.modify(link.socket, mask, link)

    def _send(self, kind: str, value: Any) -> None:
        """Send a message to all agents."""
        for link in list(self.links.values()):
            link.send({kind: value})
            if link.waiting:
                self._flush(link)

    # messages of the agents

    def _hello(self, link: Link, hello: Any) -> bool:
        if not isinstance(hello, dict) or not seen.same(str(hello.get("token")), self.file.token):
            return False
        node = hello["node"]
        link.trust()
        link.hello, link.host = hello, str(hello["host"])
        other = self.seen.hosts.get(node)
        if not 0 <= node < self.file.nodes or other is not None:
            what = f"both {other} and {link.host} report" if other else f"{link.host} reports"
            self._fail("no-start", f"{what} to be node {node} of {self.file.nodes}")
            return False
        link.node = node
        self.unauthenticated.discard(link)
        self.links[node] = link
        if self.options.queued and not self.seen.hosts:  # the wait in the queue is over
            self.expected_since = time.monotonic()
        self.seen.hosts[node] = link.host
        facts = hello.get("facts", {})
        if "time" in facts:
            facts["clock_offset_s"] = round(facts.pop("time") - time.time(), 3)
        self.listener.event("node", {"node": node, "host": link.host, "address": link.peer, "facts": facts})
        self.listener.nodes(len(self.seen.hosts), self.file.nodes)
        if self.state:
            link.send({"stop": "this launch has already ended"})
        return True

    def _heard(self, link: Link, kind: str, value: Any) -> None:
        now = time.monotonic()
        if kind == "beat":
            self._beat(value["tasks"], now)
        elif kind == "out":
            self._output(now)
            self.listener.output(value["task"], value["text"])
        elif kind == "start":
            self.seen.started(value, link.host)
        elif kind == "exit":
            self._exit(link, value, now)
        elif kind == "ports":
            self.ports = tuple(value)
        elif kind == "stacks":
            self.seen.stack(value["task"], link.host, value["text"])
        elif kind == "signalled":
            self.seen.signalled[value["signal"]] = self.seen.signalled.get(value["signal"], 0) + value["processes"]
            self.listener.event("signal", {"host": link.host, **value})
        elif kind == "sidecar" and not self.state:
            text = f"the helper program of rank 0 on {link.host} exited with status {value['code']}"
            self._fail("failed", text, code=value["code"] or 1, host=link.host, tail=tuple(value["tail"]))
        elif kind == "bye":
            self._drop(link)

    def _beat(self, sizes: dict[str, int], now: float) -> None:
        if any(sizes.values()):
            self._output(now)

    def _output(self, now: float) -> None:
        if not self.output_at:
            self.seen.first_output_s = now - self.began
            self._phase("running")
        self.output_at = now

    def _exit(self, link: Link, value: dict[str, Any], now: float) -> None:
        task, code = int(value["task"]), int(value["code"])
        if task in self.seen.codes:
            return
        self.seen.codes[task] = code
        self.listener.event("exit", {"task": task, "host": link.host, "code": code})
        if code and not self.state:
            ended = Ended(now, task, link.host, code, tuple(value.get("tail", ())), value.get("how", ""))
            self.seen.failures.append(ended)
            self.suspect = self.suspect or now + COLLECT_S

    def _gone(self, link: Link) -> None:
        """A connection has ended without a ``bye``."""
        known = link.node >= 0
        running = known and self.seen.running_on(link.node)
        self._drop(link)
        if known and running and not self.state:
            self.seen.lost.append((link.host, f"lost connection to the agent on {link.host}: {link.why}"))
            self.suspect = self.suspect or time.monotonic() + COLLECT_S

    # decisions

    def _begin(self, now: float) -> None:
        """Send ``go`` once all nodes have reported; fail where some do not in time."""
        if len(self.links) == self.file.nodes and len(self.ports) == self.file.ports:
            first = self.links[0]
            found = first.hello.get("facts", {}).get("interfaces", {})
            try:
                address = master_address(first.host, found, first.peer, self.options.interface, self.file.nodes)
            except StackyardError as error:
                self._fail("no-start", error.message)
                return
            names = ["MASTER_PORT", *(f"STACKYARD_PORT_{i}" for i in range(1, len(self.ports)))]
            self.went = now
            self.seen.nodes_s = now - self.began
            self._send("go", {"MASTER_ADDR": address, **dict(zip(names, self.ports, strict=True))})
            self._phase("first output")
        elif self.launcher_ended and now > self.launcher_ended + 0.3:
            self._fail("no-start", self.seen.not_there("the launcher exited"), code=self.seen.launcher_code or 1)
        elif now > self.expected_since + self.options.start_s and (self.seen.hosts or not self.options.queued):
            when = f"timed out after {self.options.start_s:g} s waiting for all nodes"
            self._fail("no-start", self.seen.not_there(when))

    def _silent(self, now: float) -> None:
        """Heartbeat timeouts, connections without hello, ranks that did not start, a launcher that exited too early."""
        for link in [one for one in self.unauthenticated if now > one.since + HELLO_S]:
            self._drop(link)
        for link in [one for one in self.links.values() if now > one.heard + self.file.lost_s]:
            text = f"heartbeat timeout: {link.host} (no message for {now - link.heard:.1f} s)"
            self.listener.event("node-lost", {"host": link.host, "silent_s": round(now - link.heard, 1)})
            self.seen.lost.append((link.host, text))
            self._drop(link)
            self.suspect = self.suspect or now
        if self.went and now > self.went + self.options.start_s and len(self.seen.places) < self.file.tasks:
            self._fail("no-start", self.seen.not_started())
        if self.went and self.launcher_ended and now > self.launcher_ended + COLLECT_S + 1 and self.links:
            self._fail("failed", "the launcher exited while ranks were running", code=self.seen.launcher_code or 1)

    def _judge(self, now: float) -> None:
        """Name the first failure, once all that belongs to it can have arrived."""
        if not self.suspect or now < self.suspect or self.state:
            return
        quiet = [one for one in self.links.values() if now > one.heard + 2 * self.file.beat_s]
        if quiet and not self.seen.lost and all(is_consequence(one) for one in self.seen.failures):
            return  # ranks lost a peer, and a node is silent: soon it sends something, or is the cause
        if self.seen.lost and all(is_consequence(one) for one in self.seen.failures):
            host, text = self.seen.lost[0]
            if self.launcher_ended:
                self._fail("failed", f"the launcher exited, which ended the ranks on {host}",
                           code=self.seen.launcher_code or 1, host=host)  # fmt: skip
            else:
                self._fail("node-lost", text, host=host)
        else:
            self._fail("failed", "")

    def _hang(self, now: float) -> None:
        limit_s = self.options.hang_min * 60
        if self.stacks_until:
            if now > self.stacks_until or self.seen.stacks_of >= set(self.seen.running):
                text = f"hang timeout: no output for {self.options.hang_min:g} min; stack traces: {self.step.stacks}"
                self.listener.event("hang", {"minutes": self.options.hang_min, "stacks": sorted(self.seen.stacks_of)})
                self._fail("hung", text)
        elif limit_s and self.went and now > max(self.went, self.output_at) + limit_s:
            self.stacks_until = now + STACKS_S
            self._phase("stacks", f"no output for {self.options.hang_min:g} min")
            self._send("stacks", True)

    def _fail(self, state: State, message: str, *, code: int = 1, host: str = "", tail: tuple[str, ...] = ()) -> None:
        if self.state:
            return
        if message:
            self.seen.blame(host, code, message, tail)
        self._end(state, self.options.grace_s)

    # the end

    def _signal(self, number: int, now: float) -> None:
        name = signal.Signals(number).name
        self.listener.event("signal", {"received": name})
        if number == signal.SIGUSR1:
            self._send("signal", name[3:])
        elif not self.state:
            self.seen.cancelled = number
            self._end("cancelled", self.options.grace_s)
        else:
            self._send("end", 0)
            self.end_until = min(self.end_until, now + 2)
            self._end_launcher(now)

    def _end(self, state: State, grace_s: float) -> None:
        """End all ranks: the agents do it, and disconnect when none is left."""
        self.state = self.seen.state = state
        self._phase("ending", state)
        if self.went:
            self._send("end", grace_s)
        else:
            self._send("stop", self.seen.reason or "the launch was ended before it started")
        self.end_until = time.monotonic() + grace_s + 8
        if not self.links or self.seen.lost:
            self._end_launcher(time.monotonic() + (grace_s if self.links else 0))

    def _give_up(self) -> None:
        """Close the connections of agents that do not disconnect; they end their ranks then."""
        for link in list(self.links.values()):
            self.listener.notice(f"the agent on {link.host} did not confirm that its ranks have ended")
            self._drop(link)

    def _end_launcher(self, now: float) -> None:
        """See `LAUNCHER_SIGNALS`."""
        if not self.launcher_signals:
            self.launcher_signals = [(now + after_s, number) for after_s, number in LAUNCHER_SIGNALS]

    def _launcher(self, now: float) -> None:
        if not self.launcher_ended:
            code = self.launcher.poll()
            if code is not None:
                self.launcher_ended, self.seen.launcher_code = now, code
            elif self.seen.hosts and not self.links and not self.launcher_signals:
                self._end_launcher(now + LAUNCHER_S)
            elif self.launcher_signals and (now > self.launcher_signals[0][0] or self._only_launcher_left()):
                _, number = self.launcher_signals.pop(0)
                self.seen.launcher_ended_by_us = True
                self.launcher.signal(number, whole=number != signal.SIGKILL)  # see Child.end

    def _only_launcher_left(self) -> bool:
        """Whether all agents have disconnected and the launcher has not been signalled yet."""
        return self.state is not None and not self.links and len(self.launcher_signals) == len(LAUNCHER_SIGNALS)

    def _phase(self, name: str, detail: str = "") -> None:
        self.listener.phase(name, detail)
        self.listener.event("phase", {"phase": name, "detail": detail})
