"""A hub's observations of a step, and the result computed from them."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.hostlist import short_host
from stackyard.core.progress import Listener
from stackyard.host.run.process import Child
from stackyard.launch.node.step import StepFile
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.outcome import Cause, Failure, Placement, StagedFiles, State, StepResult
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.run.alone import Edges, Verdict, verdicts
from stackyard.launch.run.causes.verdict import TaskEnd, describe, first_of, is_consequence, left_early
from stackyard.launch.run.energy import gpu_energy
from stackyard.launch.run.usage import oom_kills, ranks_usage, with_usage
from stackyard.yard.kinds.payload import IMAGES

if TYPE_CHECKING:
    from stackyard.launch.run.causes.table import Rule

RANK_ZERO = re.compile(
    r"\b(?:rank|process|processor|task)\s*[:#=]?\s*0\s*(?:of|/|out of|,?\s*(?:world[ _]?)?size\s*[:=]?)\s*1\b",
    re.IGNORECASE,
)
"""How programs print a world size of 1: what every task of an MPI program does after a PMI mismatch."""
LOGS_READ = 32


def expand(cpus: str) -> tuple[int, ...]:
    """``0-3,8`` as numbers: the format of Cpus_allowed_list in /proc."""
    numbers: list[int] = []
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


class StepFacts:
    """The observed facts of one step. No decisions are made here."""

    def __init__(self, step: StepPaths, file: StepFile, launcher: Child) -> None:
        self.step, self.file, self.launcher = step, file, launcher
        self.hosts: dict[int, str] = {}
        self.places: dict[int, Placement] = {}
        self.codes: dict[int, int] = {}
        self.usage: dict[int, tuple[str, dict[str, Any]]] = {}
        self.energy: dict[int, Any] = {}
        self.edges = Edges()
        self.facts: dict[str, Any] = {}
        self._serves = any(role.serves for role in file.roles)
        self._awaited = set(_to_end(file)) if self._serves else set()
        self.failures: list[TaskEnd] = []
        self.lost: list[tuple[str, str]] = []
        self.stacks_of: set[int] = set()
        self.signalled: dict[str, int] = {}
        self.left = self.unshown = 0
        self.state: State | None = None
        self.cancelled = 0
        self.warned = False
        self.reason = ""
        self.blamed: Failure | None = None
        self.launcher_code: int | None = None
        self.launcher_ended_by_us = False
        self.staged: StagedFiles | None = None
        self.nodes_s = self.first_output_s = self.total_s = 0.0

    @property
    def running(self) -> list[int]:
        """Tasks that have started and not ended."""
        return [task for task in self.places if task not in self.codes]

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        """The lost nodes, in order of loss."""
        return tuple(host for host, _ in self.lost)

    def running_on(self, node: int) -> bool:
        """Whether a task of a node has not ended."""
        return any(task not in self.codes for task in self.file.tasks_of(node))

    def node_of(self, task: int) -> int:
        """The planned node of a task."""
        return self.file.place(task)[0]

    @property
    def served(self) -> bool:
        """Whether all tasks have succeeded except those of roles that only serve the others."""
        return self._serves and not self._awaited

    def facts_of(self, facts: dict[str, Any], now: float) -> dict[str, Any]:
        """A node's facts for the record: complete for the first node, for others only the differences from it."""
        facts["clock_offset_s"] = round(facts.pop("time") - now, 3)
        if not self.facts:
            self.facts = facts
            return facts
        return {name: value for name, value in facts.items() if self.facts.get(name) != value}

    def started(self, start: Mapping[str, object], host: str) -> None:
        """Record that a shim has started."""
        gpus = str(start["gpus"])
        place = Placement(
            int(str(start["task"])),
            host,
            int(str(start["pid"])),
            expand(str(start["cpus"])),
            "" if gpus == "-" else gpus,
        )
        self.places.setdefault(place.task, place)

    def ended(self, task: int, code: int, host: str, usage: dict[str, Any]) -> None:
        """Record that a task has ended on a host, with its agent's data on the memory and the GPUs that it used."""
        self.codes[task] = code
        if code == 0:
            self._awaited.discard(task)
        if usage:
            self.usage[task] = host, usage

    def add(self, kind: str, node: int, value: Any) -> None:
        """Record what arrives after a rank's end: the last lines of a failed one, or the energy of its node's GPUs."""
        if kind == "energy":
            self.energy[node] = value
            return
        task, tail = int(value["task"]), tuple(value["tail"])
        self.failures = [replace(one, tail=tail) if one.task == task else one for one in self.failures]

    def blame(self, host: str, code: int, message: str, tail: tuple[str, ...]) -> None:
        """Record a first failure other than the end of a rank."""
        self.reason = message
        self.blamed = Failure(-1, host, code, tail, None, message)

    def missing(self) -> list[str]:
        """Planned hosts that have not reported; empty if the plan does not name hosts."""
        there = {short_host(host) for host in self.hosts.values()}
        return [host for host in self.file.hosts if short_host(host) not in there]

    def not_there(self, when: str) -> str:
        """A description of the nodes that have not reported; `when` says after what."""
        missing = self.missing()
        shown = ", ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
        names = f"; missing: {shown}" if missing else ""
        return f"{when}: {len(self.hosts)} of {self.file.nodes} nodes reported{names}"

    def not_started(self) -> str:
        """A description of the nodes with fewer tasks than planned."""
        gaps = [
            f"task {task} on {self.hosts.get(self.node_of(task), '?')}"
            for task in range(self.file.tasks) if task not in self.places
        ]  # fmt: skip
        return f"{len(gaps)} of {self.file.tasks} tasks did not start: {', '.join(gaps[:8])}"

    def said(self) -> list[str]:
        """Messages for the user at the end, about output that the display has not accepted in time."""
        if not self.unshown:
            return []
        alone = self.file.stream == "first" and len(self.file.shown) == 1
        where = self.step.rank_log(self.file.shown[0]) if alone else self.step.logs
        return [f"output not shown: {self.unshown} bytes; see {where}"]

    @property
    def seconds(self) -> dict[str, float]:
        """Times since the start of the launcher, for events that have happened."""
        staging = self.staged.seconds if self.staged else 0.0
        times = {"nodes": self.nodes_s, "staging": staging, "first_output": self.first_output_s, "total": self.total_s}
        return {name: round(value, 3) for name, value in times.items() if value}


def _to_end(file: StepFile) -> Iterator[int]:
    """The tasks of roles that end by themselves."""
    first = 0
    for block in file.blocks:
        ends = [local for local, role in enumerate(block.roles) if not file.roles[role].serves]
        for node in range(block.nodes):
            yield from (first + node * len(block.slots) + local for local in ends)
        first += block.nodes * len(block.slots)


def result(seen: StepFacts, plan: Plan, listener: Listener, causes: Sequence[str] = ()) -> StepResult:
    """The result of the step, with a known cause if one matches.

    Args:
        causes: the site's files of known causes.
    """
    output = seen.launcher.output()
    state, code, first = _end(seen)
    # ranks that each report to be alone in the world have failed, whatever their exit status
    facts = _facts(seen, plan, launcher_failed=first is not None and first.task < 0)
    found = verdicts(seen.edges, seen.file, plan) if state in ("done", "cancelled") else []
    if state == "done" and (alone := _trained_alone(found, facts) or _all_alone(seen, facts)):
        state, code, first = "failed", 1, alone
    for one in found:
        if first is None or one.text != first.message:
            listener.notice(one.text)
    # the cause of a failure, of an end by the scheduler, or a warning about a success
    if first is not None:
        rules = _site_rules(causes, listener)
        cause = with_usage(_cause(first, output, facts, rules), first.task, seen.usage.get(first.task, ("", {}))[1])
        first = Failure(first.task, first.host, first.code, first.tail, cause, first.message)
    elif state == "cancelled" and (cause := _by_scheduler(code, output, facts)):
        first = Failure(-1, "", code, (), cause)
    elif facts["ranks_claiming_zero"]:
        _warn(_cause(Failure(-1, "", 0, ()), output, facts, _site_rules(causes, listener)), listener)
    hosts = tuple(seen.hosts[node] for node in sorted(seen.hosts))
    placements = tuple(seen.places[task] for task in sorted(seen.places))
    return StepResult(
        state, code, first, placements, hosts, seen.seconds, output, _failed(seen), seen.warned,
        usage=ranks_usage(seen.file, seen.usage), staged=seen.staged, lost=seen.lost_hosts,
        gpu_energy=gpu_energy(seen.file, placements, seen.energy),
    )  # fmt: skip


def _trained_alone(found: Sequence[Verdict], facts: dict[str, object]) -> Failure | None:
    """The failure of a step whose ranks were never connected to each other; its rule finds it in `facts`."""
    for one in found:
        if one.kind == "error":
            facts["trained_alone"] = one.backend
            return Failure(-1, "", 1, (), None, one.text)
    return None


def _all_alone(seen: StepFacts, facts: Mapping[str, object]) -> Failure | None:
    """The failure of a step in which every rank worked alone: each printed that it is rank 0 of 1."""
    read = min(LOGS_READ, seen.file.tasks)
    if read < 2 or facts["ranks_claiming_zero"] != read:
        return None
    text = f"each of the {seen.file.tasks} ranks reported a world size of 1: they ran as separate programs"
    return Failure(-1, "", 1, (), None, text)


def _failed(seen: StepFacts) -> int:
    """The number of ranks that failed by themselves; those that ended as a consequence are not counted."""
    return max(min(1, len(seen.failures)), sum(1 for one in seen.failures if not is_consequence(one)))


def _end(seen: StepFacts) -> tuple[State, int, Failure | None]:
    if seen.state == "cancelled":
        return "cancelled", 128 + seen.cancelled, None
    if seen.state == "done":
        return "done", 0, None
    if seen.blamed is not None and seen.state is not None:
        return seen.state, seen.blamed.code, seen.blamed
    if seen.failures:
        one, why = first_of(seen.failures)
        message = describe(one, seen.file.who(one.task)) + (f" ({why})" if why else "")
        if early := _early(seen):
            host = seen.hosts.get(seen.node_of(early[0]), "?")
            gone = describe(TaskEnd(0, early[0], host, 0), seen.file.who(early[0]))
            message = f"{gone} while others still worked, which then failed: {message}"
        return "failed", one.code, Failure(one.task, one.host, one.code, one.tail, None, message)
    unknown = [task for task in range(seen.file.tasks) if task not in seen.codes]
    launcher_code = seen.launcher_code or 0
    if unknown:
        text = f"the launcher exited with status {launcher_code} before {len(unknown)} of {seen.file.tasks} tasks"
        return "failed", launcher_code or 1, Failure(-1, "", launcher_code or 1, (), None, text)
    if launcher_code and not seen.launcher_ended_by_us:
        text = f"all ranks exited with status 0, but the launcher with status {launcher_code}"
        return "failed", launcher_code, Failure(-1, "", launcher_code, (), None, text)
    return "done", 0, None


def _early(seen: StepFacts) -> tuple[int, ...]:
    return left_early(seen.codes, first_of(seen.failures)[0]) if seen.failures else ()


def _address_limit() -> bool:
    """Whether the address space of processes is limited (ulimit -v), which ranks inherit."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _is_full(directory: Path) -> bool:
    """Whether the file system of the run directory has no space left for users."""
    with suppress(OSError):
        return os.statvfs(directory).f_bavail == 0
    return False


def _facts(seen: StepFacts, plan: Plan, *, launcher_failed: bool) -> dict[str, object]:
    layout = plan.program.layout
    plans = (plan, *(role.plan for role in plan.roles))
    return {
        "state": seen.state or "", "nodes": seen.file.nodes, "tasks": seen.file.tasks, "family": seen.file.family,
        "launcher": plan.line.words[0], "launcher_code": seen.launcher_code, "mpi": plan.program.mpi,
        "gpus_per_node": layout.node.gpus, "gpu_visibility": layout.gpu_visibility,
        "gpu_vendor": layout.node.gpu_vendor, "left_early": len(_early(seen)),
        "oom_kills": oom_kills(seen.usage, seen.failures),
        "container": any(one_plan.wrappers for one_plan in plans),
        "image": any(getattr(one, "variable", "") == IMAGES for one_plan in plans for one in one_plan.change),
        "ranks_claiming_zero": _claiming_zero(seen), "nodes_there": len(seen.hosts),
        "whose": "launcher" if launcher_failed else "rank", "address_limit": _address_limit(),
        "disk_full": _is_full(seen.step.root), "py_spy": bool(seen.file.py_spy or seen.file.probe_signal),
        "trained_alone": "",
    }  # fmt: skip


def _claiming_zero(seen: StepFacts) -> int:
    """The number of first ranks that print that they are rank 0 of 1; 0 with one task, where that is correct."""
    if seen.file.tasks < 2:
        return 0
    heads = (_head(seen.step.rank_log(rank)) for rank in range(min(LOGS_READ, seen.file.tasks)))
    return sum(1 for head in heads if RANK_ZERO.search(head))


def _head(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(8192).decode("utf-8", "replace")
    except OSError:
        return ""


def _site_rules(files: Sequence[str], listener: Listener) -> tuple[Rule, ...]:
    """The site's own rules. A mistake in their file is a notice: it must not hide the result of the step."""
    from stackyard.launch.run.causes.table import mistakes, site_rules  # late: most runs end well

    wrong = mistakes(files)
    for error in wrong:
        listener.notice(f"the site's causes of failures are not tried: {error}")
    return () if wrong else site_rules(files)


def _by_scheduler(code: int, output: str, facts: Mapping[str, object]) -> Cause | None:
    """The cause of the end of a job that its scheduler has ended, if the launcher says so."""
    from stackyard.launch.run.causes.table import BY_SCHEDULER, explain

    return explain(tail=(), code=code, launcher_output=output, facts=facts, only=BY_SCHEDULER)


def _cause(first: Failure, output: str, facts: Mapping[str, object], rules: Sequence[Rule]) -> Cause | None:
    from stackyard.launch.run.causes.table import explain

    return explain(tail=first.tail, code=first.code, launcher_output=output, facts=facts, first=rules)


def _warn(cause: Cause | None, listener: Listener) -> None:
    if cause is not None:
        listener.notice(f"{cause.cause}. {cause.remedy}")
