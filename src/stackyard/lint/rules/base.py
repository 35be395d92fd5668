"""The definition of a rule, and its input: the script, the site if known, and the program's source if found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from stackyard.core.errors import Where
from stackyard.core.findings import Finding, Severity
from stackyard.inputs.sites.sitemodels import NodeKind, Site
from stackyard.lint.groups import Group, group_of
from stackyard.lint.launches import AGENTS, RANKS, Launch, launches_inside, python_program
from stackyard.lint.script import Script
from stackyard.lint.shell.commands import parse_shell
from stackyard.lint.shell.functions import uncalled
from stackyard.lint.shell.scope import ResolvedCommand, resolve
from stackyard.lint.shell.words import is_known, shown
from stackyard.lint.smallcommands import is_small
from stackyard.lint.source import Source, find_file, find_program, source_of

Evidence = Literal["script", "site", "source"]
_WHOLE_NODES = re.compile(r"(?:full|whole)[-_]?nodes?|exclusive", re.I)
"""Names of queues whose jobs have their nodes for themselves."""


@dataclass(frozen=True)
class Hit:
    """One occurrence that a rule found. `severity` overrides the rule's own, for a case without its evidence."""

    line: int
    message: str
    remedy: str = ""
    severity: Severity | None = None
    reason: str = ""


@dataclass(frozen=True)
class Step:
    """The size of a launch; unknown values are None."""

    nodes: int | None = None
    tasks: int | None = None
    per_node: int | None = None
    cpus: int | None = None


@dataclass
class Case:
    """One script with all available evidence. `directories` may contain the program's source."""

    script: Script
    site: Site | None = None
    directories: tuple[Path, ...] = ()
    _sources: dict[int, Source | None] = field(default_factory=dict)
    _groups: dict[int, Group | None] = field(default_factory=dict)
    _workers: dict[int, list[ResolvedCommand]] = field(default_factory=dict)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """All launches of the script, and those in the shell scripts that its tasks run, where these are found."""
        return tuple(member for launch in self.script.launches for member in (launch, *self._inside(launch)))

    def _inside(self, launch: Launch) -> list[Launch]:
        """The launches of the shell script that every task of a launch runs."""
        tasks = launch.kind in RANKS or launch.ranks_of
        if not self.directories or not tasks or any(launch in outer.via for outer in self.script.launches):
            return []
        text = self._worker_text(launch)
        commands = parse_shell(text)
        dead = {function.name for function in uncalled(commands, text)}
        return launches_inside(launch, [command for command in commands if not dead.intersection(command.functions)])

    @cached_property
    def steps(self) -> list[Launch]:
        """Launches that start tasks on nodes and are not inside another launch, without helpers such as hostname."""
        return [
            launch for launch in self.launches if launch.kind in RANKS and not launch.via and not self.is_helper(launch)
        ]

    @property
    def nodes(self) -> int | None:
        """Nodes of the job if the head requests a number; None if the scheduler chooses it."""
        request = self.script.request
        return request.nodes or (1 if request.tasks == 1 else None)

    @cached_property
    def node_kind(self) -> NodeKind | None:
        """The site's node kind for this job: that of its queue or constraint, or the only one."""
        if self.site is None:
            return None
        kinds = list(self.site.nodes.values())
        values = self.script.request.values
        queues = {values.get("partition"), values.get("q"), values.get("queue")} - {None, ""}
        chosen = [kind for kind in kinds if kind.queue and kind.queue in queues]
        feature = values.get("constraint") or ""
        chosen = [kind for kind in chosen or kinds if not feature or not kind.constraint or kind.constraint in feature]
        return chosen[0] if len(chosen) == 1 else None

    @cached_property
    def version(self) -> tuple[int, ...]:
        """The scheduler's version, e.g. (23, 11): from the site, else as named in the script; empty if unknown."""
        text = self.site.scheduler.version if self.site else ""
        if not text and self.script.scheduler == "slurm":
            named = re.search(r"\bslurm(?:[/ -]|version|\sv)*(\d{2}\.\d{2})\b", self.script.text, re.I)
            text = named[1] if named else ""
        return tuple(int(part) for part in re.findall(r"\d+", text)[:2])

    @property
    def in_turn(self) -> bool:
        """Whether all commands of the script run one after another."""
        return not any(command.command.background for command in self.script.commands)

    @property
    def slots(self) -> int | None:
        """Cores of the job on a shared node of PBS or LSF; None if unknown."""
        request = self.script.request
        if request.exclusive or self.script.scheduler not in ("pbs", "lsf"):
            return None
        one = request.tasks if request.tasks == 1 else None
        return request.node_cpus or request.tasks_per_node or one

    @property
    def shares_nodes(self) -> bool | None:
        """Whether other jobs can run on the same node; None if neither script nor site specifies it."""
        if self.script.request.exclusive is not None:
            return not self.script.request.exclusive
        if self.site and self.site.scheduler.kind:
            return not self.site.scheduler.exclusive
        return False if _WHOLE_NODES.search(self.script.request.queue) else None

    def source(self, launch: Launch) -> Source | None:
        """The facts about the Python program of a launch; None if its file is not found."""
        if id(launch) not in self._sources:
            self._sources[id(launch)] = source_of(self.python(launch) or (), self.directories)
        return self._sources[id(launch)]

    def group(self, launch: Launch) -> Group | None:
        """How a launch's Python program joins its process group; None if it joins none, or is not found."""
        if id(launch) not in self._groups:
            program = self.python(launch) or ()
            place = find_program(program, self.directories)
            self._groups[id(launch)] = group_of(program, *place) if place else None
        return self._groups[id(launch)]

    def python(self, launch: Launch) -> tuple[str, ...] | None:
        """The Python program of a launch, or of the shell or the worker script that its tasks start; else None."""
        direct = python_program(launch.program)
        if direct:
            return direct
        commands = [command.resolved for command in self.script.inner if command.launch is launch]
        programs = (python_program(command.argv) for command in (*commands, *self.worker(launch)))
        return next((program for program in programs if program and program[:1] != ("-c",)), None)

    def worker(self, launch: Launch) -> list[ResolvedCommand]:
        """The commands of the shell script that every task of a launch runs, if it is found."""
        if id(launch) not in self._workers:
            self._workers[id(launch)] = resolve(parse_shell(self._worker_text(launch)))
        return self._workers[id(launch)]

    def _worker_text(self, launch: Launch) -> str:
        texts = (self.text_of(word) for word in launch.program[:2] if word.endswith((".sh", ".bash")))
        return next((text for text in texts if text is not None), "")

    def program_source(self, program: tuple[str, ...] | None) -> str:
        """The text of the Python file of a program's words; empty if it is not found."""
        place = find_program(program, self.directories) if program else None
        return place[0].read_text(errors="replace") if place else ""

    def inside_agent(self, launch: Launch) -> bool:
        """Whether the ranks of a launch are started by an agent in it, such as torchrun, or by horovodrun."""
        return any(launch in inner.via and inner.kind in (*AGENTS, "horovodrun") for inner in self.launches)

    def text_of(self, name: str) -> str | None:
        """The text of a file that the script names; None if it is not found."""
        place = find_file(name, self.directories)
        return place[0].read_text(errors="replace") if place else None

    def is_helper(self, launch: Launch) -> bool:
        """Whether a launch only runs a small system command."""
        name = launch.program[0].rsplit("/", 1)[-1] if launch.program else ""
        inner = [command for command in self.script.inner if command.launch is launch]
        shell = name in ("bash", "sh") and inner and all(is_small(command.resolved.argv) for command in inner)
        return is_small(launch.program) or bool(shell)

    def chain(self, launch: Launch) -> list[Launch]:
        """A launch and those nested in it: ``srun``, the container in it, the torchrun in that.

        It ends before a wrapper script, which counts as the program.
        """
        inside = (inner for inner in reversed(self.launches) if launch in inner.via and not inner.wrapped)
        last = next(inside, launch)
        return [launch, *(outer for outer in last.via if launch in outer.via), *([last] if last is not launch else [])]

    def innermost(self, launch: Launch) -> bool:
        """Whether no launch is nested in this one."""
        return not any(launch in inner.via for inner in self.launches)

    def program_text(self, launch: Launch) -> str:
        """The program of a launch as one line, for matching."""
        return shown(" ".join(launch.program))

    def is_python(self, launch: Launch) -> bool:
        """Whether it runs Python, directly or in its shell."""
        if python_program(launch.program) or any(
            launch in inner.via and inner.kind == "torchrun" for inner in self.launches
        ):
            return True
        return bool(re.search(r"(?:^|[\s;])python[\d.]*\s", self.program_text(launch)))

    def step(self, launch: Launch) -> Step:
        """The size of an srun, mpirun or jsrun."""
        if launch.kind == "srun":
            return self._srun(launch)
        if launch.kind == "mpirun":
            ranks, per_host = launch.count("np"), launch.count("ppn")
            even = ranks and self.nodes and ranks % self.nodes == 0 and not launch.given("ppn")
            return Step(self.nodes, ranks, ranks // self.nodes if even and ranks and self.nodes else per_host)
        if launch.kind == "jsrun":
            sets, ranks, host = (launch.count(option) for option in ("nrs", "tasks_per_rs", "rs_per_host"))
            per_node = host * (ranks or 1) if host else None
            return Step(self.nodes, sets * (ranks or 1) if sets else None, per_node, launch.count("cpu_per_rs"))
        return Step(self.nodes)

    def _srun(self, launch: Launch) -> Step:
        request = self.script.request
        if launch.doubtful or launch.given("ntasks-per-gpu", "het-group"):
            return Step()
        nodes = launch.count("nodes") if launch.given("nodes") else self.nodes
        tasks, per_node = launch.count("ntasks"), launch.count("ntasks-per-node")
        if launch.given("nodelist") and not launch.given("nodes"):
            named = launch.get("nodelist") or ""
            nodes = 1 if "," not in named and "[" not in shown(named).replace("[0]", "").replace("[$i]", "") else None
        if tasks == 1:
            nodes, per_node = 1, 1
        if per_node is None and tasks and nodes and tasks % nodes == 0:
            per_node = tasks // nodes
        if not launch.given("ntasks", "ntasks-per-node"):
            per_node = self.head_tasks_per_node
            same = not launch.given("nodes") or nodes == self.nodes
            tasks = request.all_tasks if same else None
        if tasks is None and per_node and nodes and not launch.given("ntasks"):
            tasks = per_node * nodes
        cpus = launch.count("cpus-per-task") or request.cpus_per_task
        return Step(nodes, tasks, per_node, cpus)

    @property
    def head_tasks_per_node(self) -> int | None:
        """Tasks on each node by the head; one without an option about tasks (sbatch manual, --ntasks)."""
        request = self.script.request
        if request.node_tasks:
            return request.node_tasks
        options = request.values.keys() & {
            "ntasks",
            "ntasks-per-node",
            "ntasks-per-gpu",
            "ntasks-per-socket",
            "ntasks-per-core",
            "overcommit",
        }
        return 1 if not options and request.nodes else None


@dataclass(frozen=True)
class Rule:
    """One rule. `example` is a line with the problem, `instead` the corrected one."""

    name: str
    severity: Severity
    evidence: tuple[Evidence, ...]
    reason: str
    example: str
    instead: str
    check: Callable[[Case], Iterator[Hit]]

    @property
    def title(self) -> str:
        """The problem that it finds, in one sentence."""
        return (self.check.__doc__ or "").strip().splitlines()[0]

    def finding(self, hit: Hit, file: str) -> Finding:
        """A hit in `file` as a finding."""
        where = Where(file, hit.line)
        return Finding(
            self.name, hit.severity or self.severity, hit.message, hit.reason or self.reason, hit.remedy, where
        )


TABLE: dict[str, Rule] = {}


def rule(
    name: str,
    severity: Severity = "warning",
    *,
    evidence: tuple[Evidence, ...] = ("script",),
    why: str,
    example: str,
    instead: str,
) -> Callable[[Callable[[Case], Iterator[Hit]]], Callable[[Case], Iterator[Hit]]]:
    """Add a function to the table of rules under a stable name."""

    def put(check: Callable[[Case], Iterator[Hit]]) -> Callable[[Case], Iterator[Hit]]:
        TABLE[name] = Rule(name, severity, evidence, why, example, instead, check)
        return check

    return put


def is_alone(launch: Launch) -> bool:
    """Whether a launch is neither one of several concurrent ones nor in a loop."""
    command = launch.command.command
    return not (command.background or command.within("loop") or command.within("function") or launch.remote)


_TEMPLATE = re.compile(
    r"<.*>|\{|\}|@\w+@|#\w+#|\bX{2,}\b|\.\.\.|^\[[^|&*]*\]|%[A-Z_]{2,}%|^_+\w+_+$|\bYOUR|path/to|!\w+|\?{3}"
)


def is_template(text: str) -> bool:
    """Whether a value is a placeholder: ``<N>``, ``{{nodes}}``, ``@N@``, ``XXX``, ``[account]``, ``...``."""
    return bool(_TEMPLATE.search(text)) or not is_known(text)
