"""The hub's part of staging: the tree of nodes, and their progress.

One node reads the files, or has them from an earlier attempt; it passes them on to `FANOUT` others, and so on. Each
node forwards data as it arrives. The hub assigns each node its source; no file content passes through it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stackyard.core.findings import counted
from stackyard.launch.node.interfaces import offered
from stackyard.launch.node.machine import size_text
from stackyard.launch.node.step import StepFile
from stackyard.launch.records.outcome import StagedFiles
from stackyard.launch.run.addresses import with_port
from stackyard.launch.run.again import gone, starts_again
from stackyard.launch.run.link import Link
from stackyard.launch.run.reports import Reports
from stackyard.launch.run.seen import StepFacts

FANOUT = 2
COLLECT_S = 1.0
"""Seconds in which the node that is to blame may report, after one that has lost it."""
SHOW_S = 10.0
STAGING = ("staging", "staged", "unstaged", "unstaging")
"""The messages of agents that are for `StagingState`."""
REMOVE_S = 300.0
"""How long nodes may take to remove what was staged."""


@dataclass(frozen=True)
class Trouble:
    """Why the files cannot be staged. `host` is empty if the cause is not a single node."""

    host: str
    text: str
    is_consequence: bool = False


class StagingState:
    """The state of staging. `wanted`: there are files; `begun`: the nodes have the plan; `done`: all have the files."""

    def __init__(self, file: StepFile, reports: Reports, stall_s: float) -> None:
        self._file, self._reports, self._stall_s = file, reports, stall_s
        self.wanted, self.begun, self.told = bool(file.stage), False, False
        self._waiting: dict[int, int] = {}
        self._source, self._place = "", ""
        self._total = self._files = self._nodes = 0
        self._troubles: list[Trouble] = []
        self._began = self._moved = self._shown = self._judged = 0.0
        self.seconds = self.remove_until = 0.0

    @property
    def done(self) -> bool:
        """Whether the ranks may start."""
        return not self.wanted or (self.begun and not self._waiting and not self._troubles)

    def begin(self, links: Mapping[int, Link], interface: str) -> None:
        """Tell each node the source of its files. A node that has them from an earlier attempt passes them on."""
        self.begun = True
        self._began = self._moved = self._shown = time.monotonic()
        said = {node: dict(link.hello["stage"]) for node, link in links.items()}
        for node, link in links.items():
            if said[node].get("why"):
                self._trouble(Trouble(link.host, str(said[node]["why"])))
        if self._troubles:
            return
        need = [node for node in sorted(links) if not said[node]["have"]]
        self._waiting, self._nodes = dict.fromkeys(need, 0), len(need)
        order = [*[node for node in sorted(links) if said[node]["have"]][:1], *need] if need else []
        for index, node in enumerate(order):
            above = order[(index - 1) // FANOUT] if index else None
            come = () if above is None else with_port(_addresses(links[above], interface), int(said[above]["port"]))
            below = len(order[FANOUT * index + 1 : FANOUT * index + FANOUT + 1])
            links[node].send({"stage": {"from": come, "children": below, "needs": node in self._waiting}})
        if not order:
            self._finish(self._began)
        else:
            self._source, self._place = links[order[0]].host, str(said[order[0]]["place"])

    def heard(self, link: Link, kind: str, value: Any) -> None:
        """Handle a node's progress or failure."""
        now = self._moved = time.monotonic()
        if kind == "unstaging":
            self.remove_until = now + REMOVE_S
        elif kind == "unstaged":
            host = link.host if value["of_node"] or value["consequence"] else ""
            self._trouble(Trouble(host, str(value["why"]), bool(value["consequence"])))
        elif "total" in value:
            self._total, self._files = int(value["total"]), int(value["files"])
            self._show(f"{size_text(self._total)} to {counted(self._nodes, 'node')}")
        elif kind == "staged":
            self._waiting.pop(link.node, None)
            if not self._waiting and not self._troubles:
                self._finish(now)
        elif link.node in self._waiting:
            self._waiting[link.node] = int(value["bytes"])

    def trouble(self, now: float, *, quiet: Callable[[], bool]) -> Trouble | None:
        """The failure, once all related messages can have arrived.

        Args:
            quiet: whether a node has been silent for a while: it may be the cause of failures that others report.
        """
        if self._troubles and now > self._judged:
            causes = [one for one in self._troubles if not one.is_consequence]
            if not causes and quiet():
                return None
            return _first(causes or self._troubles)
        if self.begun and self._waiting and not self._troubles:
            self._progress(now)
            if now > self._moved + self._stall_s:
                return self._stalled(now)
        return None

    def leave(self, seen: StepFacts, may_lose: int) -> dict[str, bool]:
        """The messages to the nodes once the job is over on all of them; only once.

        Args:
            may_lose: as in `WatchOptions`.
        """
        over = seen.state is not None or len(seen.codes) == self._file.tasks
        if not over or self.told or self._file.stage is None or not self._file.stage.again:
            return {}
        self.told = True
        state = seen.state or ("failed" if any(seen.codes.values()) else "done")
        blamed = seen.blamed.host if seen.blamed else ""
        without = gone(state, self._file.hosts, lost=seen.lost_hosts, blamed=blamed, reported=list(seen.hosts.values()))
        return {"leave": starts_again(state, without, may_lose, warned=seen.warned)}

    @property
    def result(self) -> StagedFiles | None:
        """The staged files; None without files, or if staging is incomplete."""
        if not self.wanted or not self.done:
            return None
        counts = self._total, self._files, self._nodes, round(self.seconds, 3)
        return StagedFiles(*counts, self._source, self._place, self._summary())

    def _summary(self) -> str:
        if not self._nodes:
            return "all nodes had the files from an earlier attempt"
        rate = size_text(self._total / self.seconds if self.seconds else 0)
        where = f"on each of {self._nodes} nodes" if self._nodes > 1 else "on 1 node"
        return f"{size_text(self._total)} {where} in {self.seconds:.1f} s ({rate}/s per node)"

    def _trouble(self, trouble: Trouble) -> None:
        if not self._troubles:
            self._judged = time.monotonic() + COLLECT_S
        self._troubles.append(trouble)

    def _finish(self, now: float) -> None:
        self.seconds = now - self._began
        outcome = self.result
        if outcome is not None:
            self._reports.phase("staged", outcome.summary)
            self._reports.event("staged", outcome.to_json())

    def _progress(self, now: float) -> None:
        if now > self._shown + SHOW_S and self._total:
            least = min(self._waiting.values())
            self._show(f"{100 * least // max(1, self._total)} % of {size_text(self._total)}")

    def _show(self, text: str) -> None:
        self._shown = time.monotonic()
        self._reports.phase("staging", text)
        self._reports.event("phase", {"phase": "staging", "detail": text})

    def _stalled(self, now: float) -> Trouble:
        least, stage = min(self._waiting.values()), self._file.stage
        what = ", ".join(path for _, path in stage.items) if stage else ""
        whole = size_text(self._total) if self._total else "an unknown size"
        far = f"{size_text(least)} of {whole} are on all nodes; {self._source} reads {what}"
        return Trouble("", f"staging timed out: nothing has moved for {now - self._moved:.0f} s, {far}")


def _first(troubles: list[Trouble]) -> Trouble:
    """The first failure, with the names of the other nodes that report one."""
    first = troubles[0]
    more = sorted({one.host for one in troubles if one.host} - {first.host})
    where = f"{first.host}: " if first.host else ""
    also = f" (and on {', '.join(more[:8])}{' ...' if len(more) > 8 else ''})" if more else ""
    return Trouble(first.host, f"cannot stage: {where}{first.text}{also}")


def _addresses(link: Link, interface: str) -> list[str]:
    """The addresses at which other nodes reach this one: its listening addresses, the one used for the hub first."""
    every = offered(link.hello["facts"]["interfaces"], interface)
    return sorted(every, key=lambda one: bool(interface) or one != link.peer)
