"""Whether ranks trained alone: which of them ever had a TCP connection to another rank, as their agents have seen.

A program that never starts its distributed part, or whose ranks each form a world of one, ends with status 0 and looks
done. Each framework that communicates has at least one connection between ranks, if only to the store on rank 0
through which they find each other; data may go through InfiniBand, NVLink or shared memory. MPI needs none, so its own
check is another (`stackyard.launch.run.seen`).

The ends of connections are joined by dictionaries: each costs the same, however many ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from stackyard.core.late import dataclass
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan, RankProgram
from stackyard.launch.run.hang.behind import named

COMMUNICATING = frozenset({"torchrun", "deepspeed", "horovod", "jax", "tensorflow"})
"""The backends whose ranks connect to each other."""
LEAST_S, LEAST_LOOKS = 10.0, 4
"""From when on a rank without a connection has had the time for one."""
ALONE = "trained-alone"
"""The names of the rules for it begin with this."""
SWITCH = "if each rank is meant to work alone: --no-world-check"


class Edges:
    """The ranks that have met another one; for the others what their agents have said at their end."""

    def __init__(self) -> None:
        self.met: set[int] = set()
        self.ends: dict[int, Mapping[str, Any]] = {}
        self.traced = False
        self._owners: dict[str, tuple[int, ...]] = {}
        self._waiting: dict[str, set[int]] = {}

    def heard(self, found: Iterable[tuple[int, Sequence[tuple[str, str]]]]) -> list[int]:
        """Take new (local, remote) ends of ranks; returns the ranks that have now met another one.

        Two ranks have met where the remote end of one is a local end of the other: also one of its earlier
        connections, since all that a server has accepted share one local end. Two owners of an end are enough to know
        that one is another rank; an end that the rank has too is its connection to itself.
        """
        news: list[int] = []
        for task, pairs in found:
            for local, remote in pairs:
                owners = self._owners.get(local, ())
                if task not in owners and len(owners) < 2:
                    self._owners[local] = owners = (*owners, task)
                others = self._owners.get(remote, ())
                if others and task not in others:
                    news += [task, *others]
                elif task not in self.met:
                    self._waiting.setdefault(remote, set()).add(task)
                if waiting := self._waiting.pop(local, set()) - {task}:
                    news += [task, *waiting]
        new = list(dict.fromkeys(one for one in news if one not in self.met))
        self.met.update(new)
        return new

    def ended(self, task: int, value: Mapping[str, Any]) -> None:
        """Record what the agent of a rank that has met no other says at its end."""
        if value:
            self.ends[task] = value
            self.traced = self.traced or bool(value["traced"])


@dataclass(frozen=True)
class Verdict:
    """What is wrong with the ranks of a program. `tasks`: those that had no connection; `backend`: theirs."""

    kind: Literal["error", "warning", "note"]
    text: str
    backend: str


def checked(plan: Plan) -> Iterator[tuple[int, RankProgram]]:
    """The programs of more than one task that communicate without MPI, each with the index of its role."""
    for index, program in enumerate([role.plan.program for role in plan.roles] or [plan.program]):
        over_mpi = program.mpi or program.variables.get("HOROVOD_CONTROLLER") == "mpi"
        if program.backend in COMMUNICATING and not over_mpi and program.layout.ranks > 1:
            yield index, program


def verdicts(edges: Edges, file: StepFile, plan: Plan) -> list[Verdict]:
    """What is wrong with each program, the errors first; nothing where every rank has met another one."""
    found = []
    for index, program in checked(plan):
        if not file.edges:
            return []
        role = file.roles[index] if file.roles else None
        tasks = [file.task_of(role, rank) for rank in range(role.tasks)] if role else list(range(file.tasks))
        whose = f" of {role.name}" if role else ""
        if verdict := _verdict(edges, tasks, whose, program.backend, file):
            found.append(verdict)
    return sorted(found, key=lambda one: ("error", "warning", "note").index(one.kind))


def _verdict(edges: Edges, tasks: list[int], whose: str, backend: str, file: StepFile) -> Verdict | None:
    ends = {task: edges.ends.get(task, {}) for task in tasks if task not in edges.met}
    if not ends or (len(ends) == len(tasks) and edges.traced):
        return None
    ranks = f"the {len(tasks)} ranks{whose}"
    lived = {task: end for task, end in ends.items() if end.get("s", 0) >= LEAST_S and end["looks"] >= LEAST_LOOKS}
    doubts = {task: end["why"] for task, end in ends.items() if end.get("why")}
    if doubts:
        task, why = next(iter(doubts.items()))
        text = f"whether all of {ranks} were connected is not known: {file.who(task)}: {why}"
        return Verdict("note", text, backend) if lived else None
    if len(ends) < len(tasks):
        who = named(list(lived)) + whose
        text = f"warning: {who} of {len(tasks)} had no connection to another rank and may have trained alone; {SWITCH}"
        return Verdict("warning", text, backend) if lived else None
    if not lived:
        seconds = max((end["s"] for end in ends.values() if end), default=0)
        text = f"no connection between {ranks} was seen, in {seconds:g} s; a run of {LEAST_S:g} s without one fails"
        return Verdict("note", text, backend)
    if any(end.get("mpi") for end in ends.values()):
        text = f"warning: no TCP connection between {ranks} was seen; they have loaded MPI, which needs none; {SWITCH}"
        return Verdict("warning", text, backend)
    text = f"each of {ranks} trained alone: no connection between them was seen"
    return Verdict("error", text, backend)
