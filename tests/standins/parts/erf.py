"""Explicit resource files, as jsrun --erf_input reads them.

IBM   https://www.ibm.com/docs/en/SSWRJV_10.1.0/jsm/erf_format.html
OLCF  https://github.com/olcf-tutorials/ERF-CPU-Indexing (which number is which core)
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from . import ranks
from .grammar import Refused
from .machine import Machine, numbers

_CHOICES = ("error", "warn", "allow")
PREAMBLE = {
    "cpu_index_using": ("logical", "physical"),
    "overlapping_rs": _CHOICES,
    "skip_missing_cpu": _CHOICES,
    "skip_missing_gpu": _CHOICES,
    "skip_missing_mem": _CHOICES,
    "oversubscribe_cpu": _CHOICES,
    "oversubscribe_gpu": _CHOICES,
    "oversubscribe_mem": _CHOICES,
    "launch_distribution": ("packed", "cyclic"),
}
_LINE = re.compile(r"(?:(rank)\s*:\s*)?(\{[^{}]*\}|[0-9,\s-]+)\s*:\s*(\{.*\})\s*(?::\s*app\s+(\d+)\s*)?")


@dataclass
class File:
    """A file, read: settings, applications and lines of (line, ranks, host, cpu groups, gpus, application)."""

    settings: dict[str, str] = field(default_factory=dict)
    apps: dict[int, list[str]] = field(default_factory=dict)
    sets: list[tuple[int, list[int], str, list[str], str, int | None]] = field(default_factory=list)


def place(
    name: str, machine: Machine, hosts: tuple[str, ...], smt: int, command: list[str]
) -> tuple[list[ranks.Rank], list[str]]:
    """The ranks that a file asks for, and the one program that all of them run."""
    try:
        text = Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"Error: Unable to open ERF file {name}: {error.strerror}") from error
    file = _read(text)
    placed: list[ranks.Rank] = []
    used: dict[int, set[int]] = {}
    used_gpus: dict[int, set[int]] = {}
    for line, members, host, groups, gpu_text, _app in file.sets:
        node = _host(line, host, hosts)
        cpus = [_threads(file, line, group, machine, smt) for group in groups]
        gpus = _gpus(line, gpu_text, machine)
        _overlap(file, line, cpus, set(gpus), used.setdefault(node, set()), used_gpus.setdefault(node, set()))
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(str(i) for i in range(len(gpus)))} if gpus else {}
        for index, rank in enumerate(members):
            own = cpus[index if len(cpus) > 1 else 0]
            threads = {"OMP_NUM_THREADS": str(len(own))}
            placed.append(ranks.Rank(rank, 0, node, hosts[node], own, gpus, threads | variables))
    placed.sort(key=lambda rank: rank.rank)
    if [rank.rank for rank in placed] != list(range(len(placed))):
        raise Refused("Error: ERF: the ranks are not numbered from 0 without gaps and repetitions")
    programs = [file.apps[app] for app in dict.fromkeys(s[5] for s in file.sets if s[5] is not None)]
    if len(programs) > 1:
        raise Refused("Error: this stand-in starts one program only")
    return placed, command or (programs[0] if programs else [])


def _read(text: str) -> File:
    file = File()
    counted = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        app = re.fullmatch(r"app\s+(\d+)\s*:\s*(.+)", line)
        setting = re.fullmatch(r"([a-z_-]+)\s*:\s*([A-Za-z]+)", line)
        body = _LINE.fullmatch(line)
        if app:
            if int(app[1]) != len(file.apps):
                raise Refused(f"Error: ERF line {number}: app numbers start with 0 and increase by one")
            file.apps[int(app[1])] = shlex.split(app[2])
        elif setting:
            _setting(file, number, setting[1].replace("-", "_"), setting[2])
        elif body:
            members, counted = _members(file, number, body, counted)
            file.sets.append((number, members, *_keys(file, number, body, len(members))))
        else:
            raise Refused(f"Error: ERF line {number}: syntax error near '{line}'")
    if not file.sets:
        raise Refused("Error: ERF: no resource set in the file")
    return file


def _setting(file: File, number: int, key: str, value: str) -> None:
    if key not in PREAMBLE:
        raise Refused(f"Error: ERF line {number}: unknown symbol {key}")
    if value not in PREAMBLE[key]:
        raise Refused(f"Error: ERF line {number}: {key} must be one of {', '.join(PREAMBLE[key])}, not {value}")
    if file.sets:
        raise Refused(f"Error: ERF line {number}: {key} must stand before the first resource set")
    file.settings[key] = value


def _members(file: File, number: int, body: re.Match[str], counted: int) -> tuple[list[int], int]:
    text = body[2].strip().strip("{}")
    try:
        found = numbers(text)
    except ValueError as error:
        raise Refused(f"Error: ERF line {number}: '{text}' is not a list of ranks") from error
    how = body[1] or "count"
    if file.settings.setdefault(" form", how) != how:
        raise Refused(f"Error: ERF line {number}: only one format of rank specification can be used in a file")
    if body[1]:
        return found, counted
    if len(found) != 1 or found[0] < 1:
        raise Refused(f"Error: ERF line {number}: the number of ranks must be greater than 0")
    return list(range(counted, counted + found[0])), counted + found[0]


def _keys(file: File, number: int, body: re.Match[str], members: int) -> tuple[str, list[str], str, int | None]:
    found: dict[str, str] = {}
    for item in body[3].strip()[1:-1].split(";"):
        key, colon, value = item.partition(":")
        if item.strip() and (not colon or key.strip() not in ("host", "hosts", "hostname", "cpu", "gpu", "mem")):
            raise Refused(f"Error: ERF line {number}: unknown key '{item.strip()}'")
        if item.strip():
            found["host" if key.strip().startswith("host") else key.strip()] = value.strip()
    if "host" not in found or "cpu" not in found:
        raise Refused(f"Error: ERF line {number}: a resource set needs host and cpu")
    groups = re.findall(r"\{([^{}]*)\}", found["cpu"]) or [found["cpu"]]
    if len(groups) > 1 and len(groups) != members:
        raise Refused(f"Error: ERF line {number}: {len(groups)} groups of CPUs for {members} ranks")
    app = int(body[4]) if body[4] else None
    if app is not None and app not in file.apps:
        raise Refused(f"Error: ERF line {number}: app {app} is not defined")
    return found["host"], groups, found.get("gpu", ""), app


def _host(line: int, text: str, hosts: tuple[str, ...]) -> int:
    name = text.strip("{} ")
    if name in hosts:
        return hosts.index(name)
    if name.isdigit() and 1 <= int(name) <= len(hosts):
        return int(name) - 1
    raise Refused(f"Error: ERF line {line}: host {name} is not in the allocation of {len(hosts)} hosts")


def _threads(file: File, line: int, text: str, machine: Machine, smt: int) -> tuple[int, ...]:
    """Hardware threads as the kernel numbers them. Logical n is thread n % smt of usable core n // smt."""
    count = len(machine.cores) * smt
    logical = [t for core in machine.cores for t in machine.threads(core, smt)]
    if text.strip() == "*":
        return tuple(logical)
    try:
        wanted = numbers(text)
    except ValueError as error:
        raise Refused(f"Error: ERF line {line}: '{text}' is not a list of CPUs") from error
    if file.settings.get("cpu_index_using", "physical") == "logical":
        if max(wanted) >= count:
            raise Refused(f"Error: ERF line {line}: logical CPU {max(wanted)} does not exist; there are {count}")
        return tuple(logical[n] for n in wanted)
    missing = [n for n in wanted if n not in logical]
    if missing:
        raise Refused(f"Error: ERF line {line}: physical CPU {missing[0]} is not available to jobs")
    return tuple(wanted)


def _gpus(line: int, text: str, machine: Machine) -> tuple[int, ...]:
    inside = text.strip("{} ")
    if inside in ("", "*"):
        return machine.gpus if inside else ()
    try:
        wanted = numbers(inside)
    except ValueError as error:
        raise Refused(f"Error: ERF line {line}: '{text}' is not a list of GPUs") from error
    missing = [gpu for gpu in wanted if gpu not in machine.gpus]
    if missing:
        raise Refused(f"Error: ERF line {line}: GPU {missing[0]} does not exist")
    return tuple(wanted)


def _overlap(
    file: File, line: int, cpus: list[tuple[int, ...]], gpus: set[int], used: set[int], used_gpus: set[int]
) -> None:
    mine: set[int] = set()
    for group in cpus:
        if mine & set(group) and file.settings.get("oversubscribe_cpu", "error") == "error":
            raise Refused(f"Error: ERF line {line}: two ranks of a resource set are bound to the same CPU")
        mine |= set(group)
    if file.settings.get("overlapping_rs", "error") == "error":
        if mine & used:
            raise Refused(f"Error: ERF line {line}: CPU {min(mine & used)} is a member of two resource sets")
        if gpus & used_gpus:
            raise Refused(f"Error: ERF line {line}: GPU {min(gpus & used_gpus)} is a member of two resource sets")
    used |= mine
    used_gpus |= gpus
