"""Shared by the heads of all schedulers: directives with reasons, times, defaults of a request. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Set
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import Finding
from stackyard.launch.plan.model import BatchHead, BatchRequest, Reason

FOR_JOBS = 0.85
"""The part of a node's memory that jobs can request. LUMI-C: 1750 MiB for each of 128 cores, of 256 GiB (page
"LUMI-C example batch scripts"); other nodes keep less for the system."""
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~^-][A-Za-z0-9_@%+=:,./~^\[\]{}-]*")


class Directives:
    """A head under construction."""

    def __init__(self) -> None:
        self._reasons: list[Reason] = []
        self._findings: list[Finding] = []

    def add(self, reason: str, *words: str) -> None:
        """Append one directive with its reason: one sentence without a full stop."""
        self._reasons.append(Reason(words, reason))

    def add_given(self, value: object, reason: str, *words: str) -> None:
        """Append a directive if its value is given: not empty, not 0, not False."""
        if value:
            self.add(reason, *words)

    def note(self, rule: str, message: str, reason: str = "", remedy: str = "") -> None:
        """Add a note, which does not stop the job."""
        self._findings.append(Finding(rule, "note", message, reason, remedy))

    def own(self, request: BatchRequest) -> None:
        """Append the site's options and those passed through, each split into words like a shell."""
        for option in request.scheduler.options:
            self.add("batch option of this site", *_words(option))
        for option in request.options.scheduler_args:
            self.add("passed through unchanged", *_words(option))

    def head(self, prefix: str) -> BatchHead:
        """All directives."""
        reasons = tuple(self._reasons)
        return BatchHead(prefix, tuple(reason.words for reason in reasons), reasons, tuple(self._findings))


def own_options(request: BatchRequest) -> Set[str]:
    """The names of the options of the site and of those passed through: ``--mem`` for ``--mem=4G``."""
    options = (*request.scheduler.options, *request.options.scheduler_args)
    return {word.partition("=")[0] for option in options for word in _words(option)}


def _words(option: str) -> list[str]:
    try:
        return shlex.split(option)
    except ValueError as error:
        raise InputError(f"cannot split the scheduler option {option!r} into words: {error}") from error


def quoted_once(word: str) -> str:
    """A word for ``#BSUB`` and ``#PBS`` lines, which support both quotes but no escapes inside them.

    No shell reads these lines: words end at blanks, the first quote encloses the rest of a word, and a word that begins
    with # ends the line (parseLine in openlava's lsb.sub.c; make_argv in OpenPBS's qsub.c).

    Raises InputError for a word that needs quotes and contains both kinds, or spans lines.
    """
    if "\n" in word:
        raise InputError(f"a directive cannot contain a line break: {word!r}")
    if _PLAIN.fullmatch(word):
        return word
    for quote in ('"', "'"):
        if quote not in word:
            return f"{quote}{word}{quote}"
    raise InputError(
        f"a directive cannot contain both kinds of quotes: {word}", hint="use a name or a path without quotes"
    )


def hosts_file(name: str) -> str:
    """The text of an allocation's host file. Raises StackyardError."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise StackyardError(f"cannot read this job's host file: {error}") from error


def minutes(request: BatchRequest) -> int:
    """The wall time in whole minutes, rounded up; 0 if not set."""
    return -(-round(request.options.time_min * 60) // 60)


def clock(request: BatchRequest) -> str:
    """The wall time as ``hours:minutes:seconds``."""
    seconds = round(request.options.time_min * 60)
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def queue(request: BatchRequest) -> str:
    """The partition or queue: the user's, else the plan's, else the site's."""
    return request.options.queue or request.queue or request.scheduler.queue


def constraint(request: BatchRequest, both: str = "&") -> str:
    """The required node features; `both` joins the feature of the nodes and that of their local disks."""
    return both.join(features(request))


def features(request: BatchRequest) -> tuple[str, ...]:
    """The required features of the nodes and of their local disks."""
    return tuple(filter(None, (request.options.constraint or request.constraint, request.disk_constraint)))


def output(request: BatchRequest, index: str = "") -> str:
    """The output file of the script; `index` is the scheduler's placeholder for an array index."""
    return request.options.output or request.output.replace("{index}", index)


def name(request: BatchRequest) -> str:
    """The job's name."""
    return request.options.name or request.name


def exclusive(request: BatchRequest) -> bool:
    """Whether the job requests exclusive nodes."""
    own = request.options.exclusive
    return request.scheduler.exclusive if own is None else own


def memory(request: BatchRequest) -> tuple[int, str]:
    """Memory per node in MiB, with the reason: the requested amount, else on a shared node the job's share; 0: not set.

    A shared node gives a job that requests none the cluster's default, often 1 GiB per core or less. The share is that
    of the cores or of the GPUs, the larger one, of `FOR_JOBS` of the node's memory.
    """
    if amount := request.options.memory_gib:
        return round(amount * 1024), f"{amount:g} GiB of memory"
    node = request.layout.node
    if exclusive(request) or not node.memory_gib:
        return 0, ""
    share = max(cores(request) / node.cores, gpus(request) / node.gpus if node.gpus else 0)
    part = min(1.0, share) * FOR_JOBS * node.memory_gib
    return int(part * 1024), f"{part:.4g} GiB of memory (the share of the job's cores or GPUs in a shared node)"


def gpus(request: BatchRequest) -> int:
    """GPUs of all ranks of a node."""
    return len({gpu for slot in request.layout.slots for gpu in slot.gpus})


def cores(request: BatchRequest) -> int:
    """Cores of all ranks of a node."""
    return len({core for slot in request.layout.slots for core in slot.cores})


def racks(request: BatchRequest) -> int:
    """The fewest racks that can hold the nodes: nodes / nodes of a rack, rounded up; 0 if racks do not matter.

    Raises InputError if racks are requested and the site does not define the nodes per rack.
    """
    if request.options.pack != "racks":
        return 0
    if request.scheduler.rack_nodes == 0:
        raise InputError(
            "cannot pack nodes into racks: the site file does not define the number of nodes per rack",
            hint="set scheduler.rack_nodes in site.yaml, or leave out --pack racks",
        )
    return -(-request.nodes // request.scheduler.rack_nodes)


def unsupported(scheduler: str, what: str, hint: str) -> InputError:
    """A request that a scheduler has no option for."""
    return InputError(f"{scheduler} has no {what}", hint=hint)
