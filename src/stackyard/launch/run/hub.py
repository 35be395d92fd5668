"""The hub of a step: receives the messages of all agents, watches the launcher, and decides when and how the step ends.

One process, one thread, one selector for any number of nodes. Decisions are made in four places: `_begin` (all nodes
have reported), `_judge` (which failure was the first), `_silent` (a node is lost) with `_hang`, and `_end`.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.run import process
from stackyard.launch.node.machine import OF_USERS
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.outcome import State
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.asking.passing import Asking
from stackyard.launch.run.causes.verdict import TaskEnd, is_consequence
from stackyard.launch.run.door import Door
from stackyard.launch.run.go import bound, go_variables
from stackyard.launch.run.hang.watch import HangWatch
from stackyard.launch.run.inside import RanksInside
from stackyard.launch.run.launcher import Launcher
from stackyard.launch.run.link import Link
from stackyard.launch.run.reports import Reports
from stackyard.launch.run.seen import StepFacts
from stackyard.launch.run.stage import STAGING, StagingState
from stackyard.launch.run.start import WatchOptions

TICK_S = 0.05
COLLECT_S = 1.0
"""Seconds in which further failures may arrive, before the first one is named and the other ranks are ended."""
LEAVE_S = 3.0
"""After SIGKILL to ranks beside a lost node, time for the agents to disconnect before the launcher is ended too."""
HOLD_BYTES = 4 << 20
"""Output that the display has not taken yet, from which on the agents send no more."""


class Hub:
    """The event loop. Its observations are in `seen`; `seen.result` computes the outcome from them."""

    def __init__(
        self, step: StepPaths, file: StepFile, reports: Reports, options: WatchOptions,
        sockets: list[socket.socket], launcher: process.Child, signals: list[int], agents: process.Child | None = None,
    ) -> None:  # fmt: skip
        self.step, self.file, self.reports, self.options = step, file, reports, options
        self.signals = signals
        self.began = self.tick = self.expected_since = time.monotonic()
        self.seen = StepFacts(step, file, launcher)
        self.launcher = Launcher(launcher, self.seen)
        self.inside = RanksInside(agents, file, self.seen, self.launcher, self.began)
        self.links: dict[int, Link] = {}
        self.said: set[str] = set()
        self.held = False
        self.ports: dict[int, tuple[int, ...]] = {}
        self.selector = selectors.DefaultSelector()
        self.door = Door(self.selector, sockets, file)
        self.asking = Asking(self.door, self._send, self._flush)
        self.hang = HangWatch(self.seen, reports, options)
        self.staging = StagingState(file, reports, options.stall_s)
        self.state: State | None = None
        self.went = self.suspect = self.end_until = 0.0
        self.output_at = 0.0
        self.next_look = self.end_at = 0.0

    # the loop

    def loop(self) -> None:
        """Run until the launcher has exited and every agent has disconnected."""
        self._phase("queued" if self.options.queued else "nodes", f"0 of {self.file.nodes}")
        while not (self.launcher.ended and not self.links and self._drained()):
            for key, mask in self.selector.select(TICK_S):
                if key.data is None:
                    self.door.accept(key.fileobj, len(self.links))
                elif mask & selectors.EVENT_READ:
                    self._read(key.data)
                else:
                    self._flush(key.data)
            self._now(time.monotonic())
        self.seen.total_s, self.seen.staged = time.monotonic() - self.began, self.staging.result
        self.reports.event("exits", {"code": 0, "count": list(self.seen.codes.values()).count(0)})
        for sentence in (*self.seen.said(), *self.door.said()):
            self.reports.notice(sentence)

    def close(self) -> None:
        """Close every connection; agents that are still connected then terminate their ranks."""
        self.door.close()
        self.asking.close()
        for link in self.links.values():
            link.close()
        self.selector.close()

    def _drained(self) -> bool:
        """Whether all is over: shortly after the launcher has exited, so that a new agent still gets an answer."""
        return bool(self.seen.left == self.file.nodes or time.monotonic() > self.launcher.ended + 0.5)

    def _now(self, now: float) -> None:
        paused, self.tick = now - self.tick > self.file.lost_s / 2, now
        for link in self.links.values() if paused else ():  # this process was suspended, not the agents
            link.heard = max(link.heard, now)
        while self.signals:
            self._signal(self.signals.pop(0), now)
        self.launcher.look(now, alone=not self.links)
        for kind, value in self.staging.leave(self.seen, self.options.may_lose).items():
            self._send(kind, value)
        if not self.state and not self.went:
            self._begin(now)  # at once: every rank waits for it
        if now < self.next_look:
            return
        self.next_look = now + TICK_S
        self._hold()
        if self.end_at and now > self.end_at:
            self.end_at = 0.0
            self.signals.append(signal.SIGTERM)
        if not self.state:
            self._silent(now)
            self._judge(now)
            self._hang(now)
        elif now > self.end_until:
            self._give_up()

    # connections

    def _once(self, text: str) -> None:
        """Report a notice only once."""
        if text not in self.said:
            self.said.add(text)
            self.reports.notice(text)

    def _drop(self, link: Link) -> None:
        self.selector.unregister(link.socket)
        link.close()
        self.door.forget(link)
        self.asking.forget(link)
        if self.links.get(link.node) is link:
            del self.links[link.node]
            self.seen.left += 1

    def _read(self, link: Link) -> None:
        messages = link.receive()
        if messages is not None:
            link.heard = time.monotonic()
        for message in messages or ():
            if not self._take(link, message):
                return
        if messages is None:
            self._gone(link)
        elif link.waiting:
            self._flush(link)

    def _take(self, link: Link, message: dict[str, Any]) -> bool:
        """Handle one message; False if the connection was closed because of it."""
        if not link.proved:
            return self.door.prove(link, message)
        try:
            for kind, value in message.items():
                if kind == "hello" and link.node < 0:
                    self._hello(link, value)
                elif kind == "ask" and link.node < 0:
                    self.asking.begin(link, value, len(self.links) if self.went and not self.state else 0)
                elif link.node >= 0:
                    self._heard(link, kind, value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._once(f"invalid message from the agent on {link.host or link.peer}: {error!r}")
            self._gone(link)
            return False
        return link.socket.fileno() >= 0

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

    def _hello(self, link: Link, hello: dict[str, Any]) -> None:
        node = int(hello["node"])
        link.hello, link.host = hello, str(hello["host"])
        other = self.seen.hosts.get(node)
        if not 0 <= node < self.file.nodes or other is not None:
            what = f"both {other} and {link.host} report" if other else f"{link.host} reports"
            self._fail("no-start", f"{what} to be node {node} of {self.file.nodes}")
            self._drop(link)
            return
        link.node = node
        self.door.forget(link)
        self.links[node] = link
        if self.options.queued and not self.seen.hosts:  # the wait in the queue is over
            self.expected_since = time.monotonic()
        self.seen.hosts[node] = link.host
        facts = self.seen.facts_of(dict(hello["facts"]), time.time())
        self.reports.event("node", {"node": node, "host": link.host, "address": link.peer, "facts": facts})
        self.reports.nodes(len(self.seen.hosts), self.file.nodes)
        if self.state:
            link.send({"stop": "this launch has already ended"})
        elif hello.get("lacks"):
            self._fail("no-start", f"{link.host}: {hello['lacks']}", code=71, host=link.host)

    def _heard(self, link: Link, kind: str, value: Any) -> None:
        now = time.monotonic()
        if kind in STAGING:
            self.staging.heard(link, kind, value)
            self.end_until = max(self.end_until, self.staging.remove_until)
        # output, whether it is sent (`out`) or written to a file on the node (`grew`), shows that the step advances
        elif kind == "grew":
            self._output(now)
        elif kind == "out":
            self._output(now)
            self.reports.output(value["task"], value["text"])
        elif kind in ("start", "ends"):
            self._of_ranks(link, kind, value)
        elif kind == "exit":
            self._exit(link, value, now)
        elif kind == "ports":
            self.ports[link.node] = tuple(value)
        elif kind in ("stacks", "probed"):
            (self.hang if kind == "stacks" else self.asking).heard(link, value)
        elif kind == "signalled":
            self.seen.signalled[value["signal"]] = self.seen.signalled.get(value["signal"], 0) + value["processes"]
            self.reports.event("signal", {"host": link.host, **value})
        # once the step has an end, later failures follow from it and do not replace it
        elif kind == "sidecar" and not self.state:
            text = f"the helper program of rank 0 on {link.host} exited with status {value['status']}"
            self._fail("failed", text, code=value["code"], host=link.host, tail=tuple(value["tail"]))
        elif kind in ("tail", "energy"):
            self.seen.add(kind, link.node, value)
        elif kind == "unable" and not self.state:
            self._fail("no-start", f"{link.host}: {value}", host=link.host)
        elif kind == "bye":
            self.seen.unshown += int(value["unshown"])
            self._drop(link)

    def _output(self, now: float) -> None:
        if not self.output_at:
            self.seen.first_output_s = now - self.began
            self._phase("running")
        self.output_at = now

    def _exit(self, link: Link, value: dict[str, Any], now: float) -> None:
        task, code = int(value["task"]), int(value["code"])
        if task in self.seen.codes:
            return
        self.seen.ended(task, code, link.host, value.get("usage") or {})
        self.seen.edges.ended(task, value.get("edges") or {})
        if code:
            self.reports.event("exit", {"task": task, "host": link.host, "code": code})
        if code and not self.state:
            ended = TaskEnd(now, task, link.host, code, tuple(value.get("tail", ())), value.get("how", ""))
            self.seen.failures.append(ended)
            self.suspect = self.suspect or now + COLLECT_S

    def _of_ranks(self, link: Link, kind: str, value: Any) -> None:
        """Record a rank's start, or new connections; the agents learn which ranks are connected to another one."""
        if kind == "start":
            self.seen.started(value, link.host)
            return
        by_node: dict[int, list[int]] = {}
        for task in self.seen.edges.heard(value):
            by_node.setdefault(self.seen.node_of(task), []).append(task)
        for node in by_node.keys() & self.links.keys():
            self.links[node].send({"met": by_node[node]})
            if self.links[node].waiting:
                self._flush(self.links[node])

    def _gone(self, link: Link) -> None:
        """Handle a connection that ended without a ``bye``."""
        known = link.node >= 0
        running = known and self.seen.running_on(link.node)
        self._drop(link)
        if known and running and not self.state:
            self.seen.lost.append((link.host, f"lost connection to the agent on {link.host}: {link.why}"))
            self.suspect = self.suspect or time.monotonic() + COLLECT_S

    # decisions

    def _begin(self, now: float) -> None:
        """Send ``go`` once all nodes have reported and have the staged files; fail if some do not in time."""
        if len(self.links) == self.file.nodes and bound(self.file, self.ports):
            self.seen.nodes_s = self.seen.nodes_s or now - self.began
            if not self._staged(now) or not self._inside(now):
                return
            try:
                variables = go_variables(self.file, self.ports, self.links, self.options.interface)
            except StackyardError as error:
                self._fail("no-start", error.message)
                return
            self.went = now
            self._send("go", variables)
            self._phase("first output")
        elif why := self.inside.no_agents():
            self._fail("no-start", self.seen.not_there(why), code=71)
        elif self.launcher.ended and now > self.launcher.ended + self.inside.wait_s:
            self._fail("no-start", self.seen.not_there("the launcher exited"), code=self.seen.launcher_code or 1)
        elif not self.staging.begun and self._late(now):
            when = f"timed out after {self.options.start_s:g} s waiting for all nodes"
            self._fail("no-start", self.seen.not_there(when))

    def _inside(self, now: float) -> bool:
        """Whether all ranks are in their image, where they start in one: until then a container may still fail."""
        count = self.inside.count
        if count and (why := self.inside.failure(now)):
            self._fail("no-start", why, code=self.seen.launcher_code or 1)
        elif count and "image" not in self.said:
            self.said.add("image")
            self._phase("image", count)
        return not count

    def _late(self, now: float) -> bool:
        """Whether the time limit for all nodes to report is over; it begins when the nodes are allocated."""
        return now > self.expected_since + self.options.start_s and bool(self.seen.hosts or not self.options.queued)

    def _staged(self, now: float) -> bool:
        """Whether the nodes have the staged files; staging begins once all have reported."""
        if self.staging.wanted and not self.staging.begun:
            self.staging.begin(self.links, self.options.interface)
        trouble = self.staging.trouble(now, quiet=lambda: bool(self._quiet(now)))
        if trouble is not None:
            self._fail("no-start", trouble.text, host=trouble.host)
        return self.staging.done

    def _quiet(self, now: float) -> list[Link]:
        """The agents with a missing heartbeat, which will soon either send a message or be lost."""
        return [one for one in self.links.values() if now > one.heard + 2 * self.file.beat_s]

    def _silent(self, now: float) -> None:
        """Handle heartbeat timeouts, connections without hello, missing ranks, a launcher that exited early."""
        self.door.close_idle(now)
        for link in [one for one in self.links.values() if now > one.heard + self.file.lost_s]:
            text = f"heartbeat timeout: {link.host} (no message for {now - link.heard:.1f} s)"
            self.reports.event("node-lost", {"host": link.host, "silent_s": round(now - link.heard, 1)})
            self.seen.lost.append((link.host, text))
            self._drop(link)
            self.suspect = self.suspect or now
        if self.went and now > self.went + self.options.start_s and len(self.seen.places) < self.file.tasks:
            self._fail("no-start", self.seen.not_started())
        over = self.went and self.launcher.ended and now > self.launcher.ended + COLLECT_S + 1
        if over and any(map(self.seen.running_on, self.links)):  # an agent may leave late
            self._fail("failed", "the launcher exited while ranks were running", code=self.seen.launcher_code or 1)

    def _judge(self, now: float) -> None:
        """Determine the first failure, once all related messages can have arrived; or end roles that only serve."""
        if self.seen.served and not self.state:
            return self._end("done", self.options.grace_s)
        if not self.suspect or now < self.suspect or self.state:
            return
        if self._quiet(now) and not self.seen.lost and all(is_consequence(one) for one in self.seen.failures):
            return  # ranks lost a peer, and a node is silent: soon it sends something, or is the cause
        if self.seen.lost and all(is_consequence(one) for one in self.seen.failures):
            host, text = self.seen.lost[0]
            if self.launcher.ended:
                self.seen.lost.clear()  # the nodes are well
                self._fail("failed", f"the launcher exited, which ended the ranks on {host}",
                           code=self.seen.launcher_code or 1, host=host)  # fmt: skip
            else:
                self._fail("node-lost", text, host=host)
        else:
            self._fail("failed", "")

    def _hang(self, now: float) -> None:
        def ask(why: str) -> None:
            self._phase("stacks", why)
            self._send("stacks", True)

        hung = self.hang.look(now, max(self.went, self.output_at) if self.went else 0, ask)
        if hung is not None:
            self._fail("hung", hung.text, host=hung.host, tail=hung.tail)

    def _fail(self, state: State, message: str, *, code: int = 1, host: str = "", tail: tuple[str, ...] = ()) -> None:
        if self.state:
            return
        if message:
            self.seen.blame(host, code, message, tail)
        self._end(state, self.options.grace_s)

    # the end

    def _signal(self, number: int, now: float) -> None:
        name = signal.Signals(number).name
        self.reports.event("signal", {"received": name})
        if number in OF_USERS:
            self._send("signal", name[3:])
            if number == signal.SIGUSR1:
                self._warned(now)
        elif not self.state:
            self.seen.cancelled = number
            self._end("cancelled", self.options.grace_s)
        else:
            self._send("end", 0)
            self.end_until = min(self.end_until, now + 2)
            self.launcher.end(now)

    def _warned(self, now: float) -> None:
        """Handle the scheduler's warning before the time limit."""
        self.seen.warned = True
        if self.options.end_within_s and not self.end_at:
            self.end_at = now + self.options.end_within_s

    def _end(self, state: State, grace_s: float) -> None:
        """Terminate all ranks: the agents do it, and disconnect when none is left."""
        self.state = self.seen.state = state
        self._phase("ending", state)
        if self.went:
            self._send("end", grace_s)
        else:
            self._send("stop", self.seen.reason or "the launch was ended before it started")
        self.end_until = time.monotonic() + grace_s + 8
        if not self.links or self.seen.lost:
            self.launcher.end(time.monotonic() + (grace_s + LEAVE_S if self.links else 0))

    def _give_up(self) -> None:
        """Close the connections of agents that do not disconnect; they then terminate their ranks."""
        for link in list(self.links.values()):
            self.reports.notice(f"the agent on {link.host} did not confirm that its ranks have ended")
            self._drop(link)

    def _hold(self) -> None:
        """Ask the agents to pause output while the display is slow; the logs are complete anyway."""
        is_full = self.reports.waiting > (HOLD_BYTES // 2 if self.held else HOLD_BYTES)
        if is_full != self.held:
            self.held = is_full
            self._send("hold", is_full)

    def _phase(self, name: str, detail: str = "") -> None:
        self.reports.phase(name, detail)
        self.reports.event("phase", {"phase": name, "detail": detail})
