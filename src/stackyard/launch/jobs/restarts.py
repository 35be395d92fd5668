"""Restarts after a failure within the allocation: the nodes for the next attempt, or why none follows.

After the loss of a rank or a node, the job keeps its allocation: the program starts again from its own checkpoint on
the remaining and the spare nodes, without returning to the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, field

from stackyard.core.findings import counted
from stackyard.core.hostlist import same_host
from stackyard.core.late import dataclass
from stackyard.launch.records import record
from stackyard.launch.records.outcome import StepResult
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.run.again import RESTARTABLE, gone, starts_again
from stackyard.launch.run.alone import ALONE
from stackyard.yard.write import atomic

SUSPECT = 2
"""The first failure so many times on one node: it is used again only where no other is left."""


@dataclass
class Attempts:
    """The attempts of one run.

    Attributes:
        restarts: the number of further attempts allowed.
        hosts: the nodes of the allocation that are not lost, those in use first; empty if unnamed.
        wanted: the number of nodes of the job; `least`: the smallest acceptable number.
    """

    restarts: int
    hosts: tuple[str, ...]
    wanted: int
    least: int
    lost: list[str] = field(default_factory=list)
    why_not: str = ""
    _failures: Counter[str] = field(default_factory=Counter)

    @property
    def may_lose(self) -> int:
        """The number of nodes that another attempt can do without; -1: no attempt is left."""
        return max(0, len(self.hosts) - self.least) if self.restarts else -1

    @property
    def chosen(self) -> tuple[str, ...] | None:
        """The nodes of the attempt; None if they are not named."""
        return self.hosts[: self.wanted] if self.hosts else None

    def go_on(self, result: StepResult) -> bool:
        """Whether another attempt follows this result; otherwise `why_not` has the reason."""
        if self.restarts and result.first and result.first.cause and result.first.cause.rule.startswith(ALONE):
            self.why_not = "not restarted: the ranks would be alone again"
            return False
        without = gone(result.state, self.chosen or (), lost=result.lost, reported=result.hosts,
                       blamed=result.first.host if result.first else "")  # fmt: skip
        if not starts_again(result.state, without, self.may_lose, warned=result.warned):
            self.why_not = self._why_not(result, without)
            return False
        self.lost += without
        if result.first is not None and result.first.host:
            self._failures[result.first.host] += 1
        self.hosts = tuple(sorted((host for host in self.hosts if host not in without), key=self._is_suspect))
        self.restarts -= 1
        return True

    def _why_not(self, result: StepResult, without: Sequence[str]) -> str:
        if not self.restarts or result.warned or result.state not in RESTARTABLE:
            return ""
        if not without:
            return "not restarted: " + ("it would fail again" if result.hosts else "no node has reported")
        fewer = "; -N MIN:MAX lets a job go on with fewer, --spare N requests more" if self.least > 1 else ""
        left = counted(len(self.hosts) - len(without), "node")
        return f"not restarted: {left} left, {self.least} needed{fewer}"

    def _is_suspect(self, host: str) -> bool:
        return any(count >= SUSPECT and same_host(host, one) for one, count in self._failures.items())


def keep(paths: RunPaths, number: int, result: StepResult) -> None:
    """Move the files of an attempt to ``attempts/<n>``, with its result. Restarts do not depend on it."""
    with suppress(OSError):
        record.set_aside(paths, number)
        values = {"state": result.state, "code": result.code, "hosts": result.hosts, "seconds": result.seconds}
        first = asdict(result.first) if result.first else {}
        staged = result.staged.to_json() if result.staged else {}
        atomic.write_json(paths.attempt(number) / "result.json", {**values, "first": first, "staged": staged})
