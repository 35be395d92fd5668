"""The request in a batch script's head, with plain numbers where possible."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stackyard.lint.dialect import COUNTS, TEXTS, Dialect
from stackyard.lint.directives import Directive

TASK_OPTIONS = {"ntasks", "ntasks-per-node", "ntasks-per-gpu", "n", "nslots", "l.select", "l.nodes"}
"""Options that determine the number of tasks."""
OTHER_CORES = {"cpus-per-gpu", "mincpus", "nnodes", "csm", "l.ncpus", "tres-per-task"}
"""Options that determine cores in another way than by tasks."""


@dataclass
class Request:
    """Nodes, tasks, cores, GPUs, time and names. None and "": not given, or not a plain number.

    `node_cpus`: cores of each node, if the head has these instead of cores per task (PBS, ncpus). `lines` has the line
    of each option by its canonical name; `values` the last value of each.
    """

    scheduler: str = ""
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    memory_mib: float | None = None
    node_cpus: int | None = None
    time_min: float | None = None
    exclusive: bool | None = None
    account: str = ""
    queue: str = ""
    name: str = ""
    lines: dict[str, int] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    def line(self, *names: str) -> int:
        """The line of the first of these options that is given; 1 if none is."""
        return next((self.lines[name] for name in names if name in self.lines), 1)

    @property
    def node_tasks(self) -> int | None:
        """Tasks on each node, if the head determines it."""
        if self.tasks_per_node:
            return self.tasks_per_node
        per_gpu = number(self.values.get("ntasks-per-gpu"))
        if per_gpu and self.gpus_per_node:
            return per_gpu * self.gpus_per_node
        if self.tasks and self.nodes and self.tasks % self.nodes == 0:
            return self.tasks // self.nodes
        return 1 if self.tasks == 1 else None

    @property
    def all_tasks(self) -> int | None:
        """Total tasks, if the head determines it."""
        if self.tasks:
            return self.tasks
        return self.nodes * self.tasks_per_node if self.nodes and self.tasks_per_node else None

    @property
    def cores(self) -> int | None:
        """Cores of the whole job, if the head determines them: by default one for each task."""
        if self.node_cpus:
            return self.node_cpus * self.nodes if self.nodes else None
        if self.values.keys() & OTHER_CORES or self.scheduler not in ("slurm", "flux", "lsf", "pbs"):
            return None
        counted = self.values.keys() & TASK_OPTIONS
        alone = self.nodes or (1 if self.scheduler == "slurm" else None)
        tasks = self.all_tasks or (None if counted or self.scheduler in ("lsf", "pbs") else alone)
        return tasks * (self.cpus_per_task or 1) if tasks else None

    @property
    def names_gpus(self) -> bool:
        """Whether the head requests GPUs, with or without a plain number."""
        named = self.values.keys() & {
            "gpu",
            "gpus",
            "gpus-per-node",
            "gpus-per-socket",
            "gpus-per-task",
            "gpus-per-slot",
        }
        texts = (self.values.get(name) or "" for name in ("gres", "tres-per-task", "R", "l.select", "l.nodes"))
        return bool(named or "l.ngpus" in self.values) or any(re.search(r"gpus?\b", text) for text in texts)

    @property
    def node_gpus(self) -> int | None:
        """GPUs of each node, if the head determines it."""
        if self.gpus_per_node is not None:
            return self.gpus_per_node
        return self.gpus_per_task * self.node_tasks if self.gpus_per_task and self.node_tasks else None


def number(text: str | None) -> int | None:
    """A plain positive number, else None (ranges, placeholders and variables are not guessed)."""
    return int(text) if text and text.isdecimal() else None


def minutes(text: str, scheduler: str) -> float | None:
    """A wall time in minutes; None if the scheduler would reject it.

    Slurm: minutes, minutes:seconds, h:m:s, d-h, d-h:m, d-h:m:s (sbatch manual, --time). LSF: [h:]m. PBS: seconds or
    [[h:]m:]s[.ms]. Flux: a number of minutes, or with s, m, h, d.
    """
    readers: dict[str, Callable[[str], float | None]] = {
        "slurm": _slurm_minutes, "lsf": _lsf_minutes, "pbs": _pbs_minutes, "flux": _flux_minutes,
    }  # fmt: skip
    return readers[scheduler](text) if scheduler in readers else None


def _slurm_minutes(text: str) -> float | None:
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return float("inf")
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        return None
    days, parts = match[1], [int(group) for group in match.groups()[1:] if group is not None]
    if days is not None:
        hours, mins, secs = [*parts, 0, 0][:3]
        return int(days) * 1440 + hours * 60 + mins + secs / 60
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + parts[2] / 60
    return parts[0] + (parts[1] / 60 if len(parts) == 2 else 0)


def _lsf_minutes(text: str) -> float | None:
    match = re.fullmatch(r"(?:(\d+):)?(\d+)(?:/\S+)?", text)
    return int(match[1] or 0) * 60 + int(match[2]) if match else None


def _pbs_minutes(text: str) -> float | None:
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d+)?", text)
    return int(match[1] or 0) * 60 + int(match[2] or 0) + int(match[3]) / 60 if match else None


def _flux_minutes(text: str) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text)
    unit = {None: 1.0, "ms": 1 / 60000, "s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0}
    return float(match[1]) * unit[match[2]] if match else None


def mebibytes(text: str) -> float | None:
    """Slurm's --mem: an integer, in MiB without a unit; K, M, G, T. None if Slurm rejects it."""
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text, re.I)
    return int(match[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[match[2].upper()] if match else None


def read_request(scheduler: str, directives: Sequence[Directive], dialect: Dialect | None = None) -> Request:
    """The request in the directives that the scheduler reads."""
    request = Request(scheduler)
    chosen = [directive for directive in directives if directive.kind == scheduler and directive.state == "read"]
    for directive in chosen:
        for option in directive.options:
            if option.name:
                request.lines[option.name] = directive.line
                before = request.values.get(option.name, "") if (scheduler, option.name) == ("lsf", "R") else ""
                request.values[option.name] = f"{before} {option.value}".strip()  # several -R add up
                if scheduler == "pbs" and option.name == "l":
                    _pbs_resources(request, option.value, directive.line)
    {"slurm": _slurm, "lsf": _lsf, "pbs": _pbs, "flux": _flux}.get(scheduler, lambda _: None)(request)
    if dialect and dialect.kind == scheduler:
        _of_dialect(request, dialect)
    return request


def _of_dialect(request: Request, dialect: Dialect) -> None:
    for name in dialect.meanings.keys() & request.values.keys():
        for meaning, text in zip(dialect.meanings[name], request.values[name].split(), strict=False):
            if meaning in COUNTS and number(text):
                setattr(request, meaning, number(text))
            elif meaning in TEXTS:
                setattr(request, meaning, text)
            elif meaning == "time":
                request.time_min = dialect.minutes(text)
            elif meaning == "memory":
                request.memory_mib = mebibytes(text)


def gpus_of(gres: str) -> int | None:
    """GPUs in ``--gres=gpu:v100:4``, ``gpu:4``, ``gpu``; None without a GPU or a plain number."""
    for part in gres.split(","):
        match = re.fullmatch(r"(?:gres/)?gpu(?::[A-Za-z_][\w.-]*|:\d+(?=:))?(?::(\d+))?(?:\(.*\))?", part.strip())
        if match:
            return int(match[1] or 1)
    return None


def _slurm(request: Request) -> None:
    get = request.values.get
    request.nodes = number(get("nodes"))
    request.tasks = number(get("ntasks"))
    request.tasks_per_node = number(get("ntasks-per-node"))
    if "nodes" not in request.values and request.tasks and request.tasks_per_node:
        request.nodes = -(-request.tasks // request.tasks_per_node)
    request.cpus_per_task = number(get("cpus-per-task"))
    request.gpus_per_task = number((get("gpus-per-task") or "").split(":")[-1])
    per_node = number((get("gpus-per-node") or "").split(":")[-1])
    request.gpus_per_node = per_node if per_node is not None else gpus_of(get("gres") or "")
    total = number((get("gpus") or "").split(":")[-1])
    nodes = request.nodes or (1 if total == 1 or ((request.tasks or 1) == 1 and not request.tasks_per_node) else None)
    if request.gpus_per_node is None and total and nodes and total % nodes == 0:
        request.gpus_per_node = total // nodes
    request.memory_mib = mebibytes(get("mem") or "")
    request.time_min = minutes(get("time") or "", "slurm")
    request.exclusive = (
        True if "exclusive" in request.values else (False if "oversubscribe" in request.values else None)
    )
    request.account, request.queue = get("account") or "", get("partition") or ""
    request.name = get("job-name") or ""


_EXPERT_NODES = re.compile(r"(\d+)\*\{[^}]*\bCN\b[^}]*\bptile\s*=\s*(\d+)")
"""Slots on compute nodes and slots on each of them, in the -R of LSF's expert mode."""


def _lsf(request: Request) -> None:
    get = request.values.get
    request.nodes = number(get("nnodes"))
    request.tasks = number(get("n")) if not request.nodes and "csm" not in request.values else None
    spread = re.search(r"span\[\s*ptile\s*=\s*(\d+)", get("R") or "")
    request.tasks_per_node = int(spread[1]) if spread and request.tasks else None
    if request.tasks and re.search(r"span\[\s*hosts\s*=\s*1\b", get("R") or ""):
        request.tasks_per_node = request.tasks
    if request.tasks and request.tasks_per_node:
        request.nodes = -(-request.tasks // request.tasks_per_node)
    if expert := _EXPERT_NODES.search(get("R") or "") if "csm" in request.values and not request.nodes else None:
        request.nodes = -(-int(expert[1]) // int(expert[2]))
    gpus = re.search(r"\bnum=(\d+)", get("gpu") or "")
    request.gpus_per_node = int(gpus[1]) if gpus else None
    request.time_min = minutes((get("W") or "").split()[0] if get("W") else "", "lsf")
    request.exclusive = True if request.values.keys() & {"nnodes", "x", "csm"} else None
    request.account, request.queue, request.name = get("P") or "", get("q") or "", get("J") or ""


def _pbs_resources(request: Request, text: str, line: int) -> None:
    for item in re.split(r",(?=[\w.]+=)", text):
        name, _, value = item.partition("=")
        request.values[f"l.{name}"] = value
        request.lines[f"l.{name}"] = line


def _pbs(request: Request) -> None:
    get = request.values.get
    request.time_min = minutes(get("l.walltime") or "", "pbs")
    days = re.fullmatch(r"(\d+):(\d+:\d+:\d+)", get("l.walltime") or "") if "l.nodes" in request.values else None
    if days:  # in the form of Torque's scripts, which may give days
        request.time_min = int(days[1]) * 1440 + (_pbs_minutes(days[2]) or 0)
    request.account, request.queue, request.name = get("A") or get("P") or "", get("q") or "", get("N") or ""
    place = get("l.place") or ""
    request.exclusive = True if "excl" in place else (False if place == "shared" else None)
    chunk = get("l.select")
    if chunk and (alike := alike_chunks(chunk)):
        request.nodes, resources = alike
        _pbs_chunk(request, dict(resource.partition("=")[::2] for resource in resources))
    elif not chunk and "l.nodes" not in request.values and request.values.keys() & {"l.ncpus", "l.ngpus", "l.mem"}:
        request.nodes = 1
        _pbs_chunk(request, {name: get(f"l.{name}") or "" for name in ("ncpus", "ngpus", "mpiprocs", "mem")})
    nodes = re.fullmatch(r"(\d+)((?::[\w=.-]+)*)", get("l.nodes") or "")
    if nodes and not chunk:
        items = dict(node.partition("=")[::2] for node in nodes[2].split(":"))
        request.nodes, request.tasks_per_node = int(nodes[1]), number(items.get("ppn"))
        request.gpus_per_node = number(items.get("gpus"))
        request.memory_mib = pbs_mebibytes(get("l.mem") or "") if request.nodes == 1 else None


def alike_chunks(text: str) -> tuple[int | None, list[str]] | None:
    """All chunks of a ``select`` as one, if their resources are equal: ``1:ncpus=4+2:ncpus=4`` is 3 of them."""
    every = [chunk_of(part) for part in text.split("+")]
    counts = [count for count, _ in every if count is not None]
    if any(set(items) != set(every[0][1]) for _, items in every):
        return None
    return sum(counts) if len(counts) == len(every) else None, every[0][1]


def chunk_of(text: str) -> tuple[int | None, list[str]]:
    """The number of a chunk, 1 by default, and its resources; None if it is not a known number."""
    count, *items = text.split(":")
    return (1, [count, *items]) if re.match(r"[A-Za-z]\w*=", count) else (number(count), items)


def _pbs_chunk(request: Request, items: Mapping[str, str]) -> None:
    request.tasks_per_node = number(items.get("mpiprocs"))
    request.gpus_per_node = number(items.get("ngpus"))
    request.memory_mib = pbs_mebibytes(items.get("mem") or "")
    cpus = request.node_cpus = number(items.get("ncpus"))
    if cpus and request.tasks_per_node and cpus % request.tasks_per_node == 0:
        request.cpus_per_task = cpus // request.tasks_per_node


def pbs_mebibytes(text: str) -> float | None:
    """PBS sizes: a number with kb, mb, gb, tb (or without b)."""
    return mebibytes(text[:-1] if text[-1:] in "bB" and not text[-2:-1].isdigit() else text)


def _flux(request: Request) -> None:
    get = request.values.get
    request.nodes, request.tasks = number(get("nodes")), number(get("ntasks") or get("nslots"))
    request.cpus_per_task = number(get("cores-per-task") or get("cores-per-slot"))
    request.gpus_per_task = number(get("gpus-per-task") or get("gpus-per-slot"))
    request.gpus_per_node = number(get("gpus-per-node"))
    request.time_min = minutes(get("time-limit") or "", "flux")
    whole = "nodes" in request.values and not request.values.keys() & {"nslots", "ntasks"}  # flux-core, cli/batch.py
    request.exclusive = True if whole or "exclusive" in request.values else None
    request.account, request.queue, request.name = get("bank") or "", get("queue") or "", get("job-name") or ""


def slurm_variables(request: Request) -> dict[str, str]:
    """The SLURM_* variables of the batch script that follow from its head (sbatch manual, OUTPUT ENVIRONMENT)."""
    gpus = request.values.get("gpus-per-node")
    values = {
        "SLURM_NNODES": request.nodes, "SLURM_JOB_NUM_NODES": request.nodes,
        "SLURM_NTASKS": request.all_tasks, "SLURM_NPROCS": request.all_tasks,
        "SLURM_NTASKS_PER_NODE": request.tasks_per_node, "SLURM_TASKS_PER_NODE": None,
        "SLURM_CPUS_PER_TASK": request.cpus_per_task, "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_GPUS": request.values.get("gpus"),
        "SLURM_GPUS_ON_NODE": request.node_gpus, "SLURM_GPUS_PER_TASK": request.gpus_per_task,
    }  # fmt: skip
    return {name: str(value) for name, value in values.items() if value is not None}
