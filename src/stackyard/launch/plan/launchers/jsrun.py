"""jsrun: the launcher of IBM's Job Step Manager, used with LSF and CSM (Summit, Sierra).

Sources: IBM, *jsrun command* and *Explicit Resource File (ERF) format* (Job Step Manager 10.3); OLCF, Summit User Guide
and the tutorials *jsrun Quick Start Guide* and *ERF CPU Indexing*. IBM's default for -d is cyclic and OLCF's is packed:
it is always set. All resource sets of a step are alike; a layout that such sets cannot express is written as an
ERF file. Variables need no -E: jsrun passes its environment on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stackyard.core.findings import Finding, counted
from stackyard.core.late import dataclass
from stackyard.host.machine.ranges import ranges
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Layout, Slot
from stackyard.launch.plan.launchers.words import Words, equal, need_hosts, shares_cores
from stackyard.launch.plan.model import LaunchLine, LaunchRequest

Group = tuple[Slot, ...]
_SMPI = "--smpiargs="


@dataclass(frozen=True)
class ResourceSets:
    """Equal resource sets: `per_host` of them with `tasks` ranks, `cores` and `gpus` each, -b `bind`."""

    per_host: int
    tasks: int
    cores: int
    gpus: int
    bind: str


class Jsrun:
    """Ranks in resource sets, or placed by an ERF file."""

    name = "jsrun"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """Resource sets if equal sets express the layout, else an ERF file.

        Raises InputError if only some hosts of an allocation are used and their names are unknown.
        """
        layout = request.layout
        sets = resource_sets(layout, request.scheduler) if request.inside else None
        words = Words("jsrun", reason="starts the ranks on the compute nodes of the allocation")
        files: dict[str, str] = {}
        findings: tuple[Finding, ...] = ()
        if sets is None:
            hosts = () if request.inside else need_hosts(request, self.name)
            files["erf"] = "".join(erf_lines(layout, request.scheduler, hosts))
            words.add(
                "the placement of every rank, which equal resource sets cannot express", "--erf_input", "{step}/erf"
            )
            findings = (_ERF_NOTE,)
        else:
            self._sets(words, layout, sets)
        words.add("a failed rank terminates all ranks", "-X1")
        words.own(self._mpi(words, request))
        return LaunchLine(words.words, "jsrun", words.reasons, files, findings=findings)

    def _sets(self, words: Words, layout: Layout, sets: ResourceSets) -> None:
        in_all = layout.nodes * sets.per_host
        words.add(f"{counted(in_all, 'resource set')} on {counted(layout.nodes, 'node')}", f"-n{in_all}")
        words.add("resource sets per node", f"-r{sets.per_host}")
        if sets.gpus:
            words.add(f"{counted(sets.gpus, 'GPU')} per set, visible to all of its ranks", f"-g{sets.gpus}")
        words.add("ranks per set", f"-a{sets.tasks}")
        words.add("physical cores per set", f"-c{sets.cores}")
        words.add("binds consecutive cores to each rank", f"-b{sets.bind}")
        if layout.distribution == "cyclic":
            words.add("cyclic distribution over the sets", "-dcyclic")
        else:
            words.add("ranks fill a set before the next", "-dpacked")

    def _mpi(self, words: Words, request: LaunchRequest) -> LaunchRequest:
        """Add Spectrum MPI's options as one word, including the user's; returns the request without these."""
        options = request.scheduler.launcher_options
        arguments = " ".join(w.removeprefix(_SMPI) for w in (*options, *request.args) if w.startswith(_SMPI))
        gpu = request.mpi and request.gpu_aware_mpi and "-gpu" not in arguments.split()
        if arguments:
            more = "; with -gpu MPI accepts GPU pointers" if gpu else ""
            words.add(f"given by the site or for this launch{more}", f"{_SMPI}{'-gpu ' if gpu else ''}{arguments}")
        elif gpu:
            words.add("MPI accepts GPU pointers", f"{_SMPI}-gpu")
        elif not request.mpi:
            words.add("does not load Spectrum MPI: the ranks are not MPI processes", f"{_SMPI}off")
        scheduler = request.scheduler.model_copy(update={"launcher_options": _others(options)})
        return replace(request, scheduler=scheduler, args=_others(request.args))


_ERF_NOTE = Finding(
    "explicit-resource-file", "note", "an explicit resource file places the ranks",
    "equal resource sets cannot express this layout; OLCF has reported jsrun bugs with such files",
    "use a number of cores per rank that divides the cores of a socket",
)  # fmt: skip


def _others(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in words if not word.startswith(_SMPI))


def thread_level(node_smt: int, scheduler: Scheduler) -> int:
    """Hardware threads per core of a job: by the site's ``smt1``, ``smt2`` or ``smt4`` flag, else all."""
    for flag in scheduler.alloc_flags:
        match = re.fullmatch(r"smt(\d)", flag, re.IGNORECASE)
        if match:
            return int(match[1])
    return node_smt


def resource_sets(layout: Layout, scheduler: Scheduler) -> ResourceSets | None:
    """Equal resource sets that assign every rank exactly its cores, or None.

    One set per node if all ranks see all GPUs (which NCCL's peer access requires); one per group of ranks with the same
    GPUs if each sees its own; one per socket without GPUs if one set would not use all cores.
    """
    slots = layout.slots
    if shares_cores(layout) or layout.hosts_differ or not equal(layout):
        return None
    bind = _bind(layout, scheduler)
    for groups in _candidates(layout, slots):
        fitted = _fit(layout, groups, bind) if bind else None
        if fitted and (fitted.per_host == 1 or layout.nodes == 1 or layout.distribution == "block"):
            return fitted
    return None


def _bind(layout: Layout, scheduler: Scheduler) -> str:
    """The value of -b: whole cores, or hardware threads if the job has exactly as many as the layout uses."""
    if layout.smt == 1:
        return f"packed:{layout.cores_per_rank}"
    if layout.smt == thread_level(layout.node.smt, scheduler):
        return f"packed:smt:{layout.cores_per_rank * layout.smt}"
    return ""


def _candidates(layout: Layout, slots: Group) -> Iterator[list[Group]]:
    groups = _groups(layout, slots)
    yield groups
    if layout.gpus_per_rank == 0 and len(groups) == 1:
        by_socket: dict[int, list[Slot]] = {}
        for slot in slots:
            by_socket.setdefault(layout.node.socket_of(slot.cores[0]), []).append(slot)
        yield [tuple(group) for group in by_socket.values()]


def _groups(layout: Layout, slots: Group) -> list[Group]:
    """Ranks that see the same GPUs, in the order of their first rank."""
    if layout.gpu_visibility == "all" or not any(slot.gpus for slot in slots):
        return [slots]
    by_gpus: dict[tuple[int, ...], list[Slot]] = {}
    for slot in slots:
        by_gpus.setdefault(slot.gpus, []).append(slot)
    return [tuple(group) for group in by_gpus.values()]


def _fit(layout: Layout, groups: list[Group], bind: str) -> ResourceSets | None:
    tasks = len(groups[0])
    if [slot.local_rank for group in groups for slot in group] != list(range(len(groups) * tasks)):
        return None
    if any(len(group) != tasks for group in groups):
        return None
    own = len(groups) > 1
    cores = _cores_of_a_set(layout, len(groups)) if own else layout.node.cores
    starts = _starts(layout, len(groups), cores)
    for group, start in zip(groups, starts, strict=False):
        planned = [core for slot in group for core in slot.cores]
        if planned != list(range(start, start + len(planned))) or len(planned) > cores:
            return None
    if len(starts) != len(groups):
        return None
    gpus = _gpus_of_a_set(layout, groups)
    return None if gpus is None else ResourceSets(len(groups), tasks, cores, gpus, bind)


def _sockets(layout: Layout) -> list[list[int]]:
    """Usable cores by socket."""
    sockets: dict[int, list[int]] = {}
    for core in range(layout.node.cores):
        sockets.setdefault(layout.node.socket_of(core), []).append(core)
    return list(sockets.values())


def _cores_of_a_set(layout: Layout, sets: int) -> int:
    return min(len(cores) for cores in _sockets(layout)) // max(1, -(-sets // len(_sockets(layout))))


def _starts(layout: Layout, sets: int, cores: int) -> list[int]:
    """The first core of every set; fewer than `sets` if they do not divide evenly over the sockets."""
    if sets == 1:
        return [0]
    sockets = _sockets(layout)
    if sets % len(sockets) or len({len(socket) for socket in sockets}) > 1:
        return []
    return [socket[0] + i * cores for socket in sockets for i in range(sets // len(sockets))]


def _gpus_of_a_set(layout: Layout, groups: list[Group]) -> int | None:
    """GPUs per set; None if jsrun, which assigns them in order, would assign other ones."""
    if layout.gpus_per_rank == 0:
        return 0
    if len(groups) == 1:
        return layout.node.gpus if layout.gpu_visibility == "all" else len(groups[0][0].gpus)
    planned = [gpu for group in groups for gpu in group[0].gpus]
    per_socket = len(groups) // len(_sockets(layout))
    gpus: list[int] = []
    for socket in dict.fromkeys(domain.socket for domain in layout.node.domains):
        there = [gpu for domain in layout.node.domains if domain.socket == socket for gpu in domain.gpus]
        gpus += there[: per_socket * layout.gpus_per_rank]
    return layout.gpus_per_rank if planned == gpus else None


def erf_lines(layout: Layout, scheduler: Scheduler, hosts: tuple[str, ...] = ()) -> Iterator[str]:
    """The lines of an ERF file, one per resource set. Hosts are counted from 1 unless their names are given.

    CPU numbers are logical hardware threads: thread t of usable core c is c x s + t, where a job has s threads per core
    (ERF CPU Indexing: 0 to 41 under SMT1, 0 to 167 under SMT4). A rank that uses one thread per core owns all of them.
    """
    yield "cpu_index_using: logical\n"
    if shares_cores(layout):
        yield "overlapping_rs: allow\noversubscribe_cpu: allow\n"
    level = thread_level(layout.node.smt, scheduler)
    used = level if layout.smt == 1 else min(layout.smt, level)
    parts = layout.alike if layout.hosts_differ else (layout,) * len(layout.blocks)
    for part, block in zip(parts, layout.blocks, strict=True):
        sets = [_erf_set(part, group, level, used) for group in _groups(part, block.slots)]
        for host in range(block.first, block.first + block.count):
            name = hosts[host] if hosts else str(host + 1)
            for group, places in sets:
                ranks = ",".join(str(layout.rank(host, slot.local_rank)) for slot in group)
                yield f"rank: {ranks}: {{ host: {name}; {places} }}\n"


def _erf_set(layout: Layout, group: Group, level: int, used: int) -> tuple[Group, str]:
    cpus = ",".join("{" + ranges(core * level + t for core in slot.cores for t in range(used)) + "}" for slot in group)
    if not any(slot.gpus for slot in layout.slots):
        return group, f"cpu: {cpus}"
    seen = range(layout.node.gpus) if layout.gpu_visibility == "all" else group[0].gpus
    return group, f"cpu: {cpus}; gpu: {{{ranges(seen)}}}"
