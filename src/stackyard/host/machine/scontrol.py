"""Reads the text that scontrol(1) prints, which all versions of Slurm have; its JSON came later and changes with them.

Pure: nothing is started here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_FIELD = re.compile(r"\s+(?=(?:[A-Z][A-Za-z_]*|MCS_label)=)")
"""A record's fields begin with a capital; the values of OS= and Reason= have blanks."""


def record(text: str) -> dict[str, str]:
    """The fields of one record of ``scontrol show``, on one line (``-o``) or several; the first value of each name."""
    fields: dict[str, str] = {}
    for word in _FIELD.split(text.strip()):
        name, equals, value = word.partition("=")
        if equals:
            fields.setdefault(name, value.strip())
    return fields


def records(text: str, first: str) -> list[dict[str, str]]:
    """All records, each of which begins with the field `first`."""
    parts = re.split(rf"^(?={first}=)", text, flags=re.MULTILINE)
    return [fields for fields in map(record, parts) if fields.get(first)]


def settings(text: str) -> dict[str, str]:
    """``scontrol show config``: a name and a value per line."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def number(fields: Mapping[str, str], name: str) -> int:
    """A number of a record; 0 without one, as for UNLIMITED and (null)."""
    return int(fields[name]) if fields.get(name, "").isdigit() else 0


class Shape(NamedTuple):
    """The cores of a node: those for jobs and all, its sockets, and the CPUs that Slurm counts for each core."""

    cores: int
    all_cores: int
    sockets: int
    smt: int


def shape(fields: Mapping[str, str], cpus: int = 0) -> Shape:
    """The cores of a record of ``show node``.

    Slurm's CPUs are hardware threads, or cores if so configured: as many as sockets times cores. A node configured only
    by ``CPUs=`` is shown with as many sockets as CPUs, which is not its topology. CPUEfctv (since 22.05) and
    CoreSpecCount tell what is reserved for the system.

    Args:
        cpus: of a node of which the record tells none.
    """
    in_all = number(fields, "CPUTot") or cpus or 1
    per_socket = number(fields, "CoresPerSocket")
    all_cores = per_socket * number(fields, "Sockets") or in_all
    smt = max(1, in_all // all_cores)
    usable = number(fields, "CPUEfctv") or in_all
    cores = min(usable // smt, all_cores - number(fields, "CoreSpecCount"))
    return Shape(max(1, cores), all_cores, max(1, number(fields, "Sockets")) if per_socket > 1 else 1, smt)


def gpus(gres: str) -> list[tuple[str, int]]:
    """The GPUs of a Gres: ``gpu:a100:4(S:0-1),shard:8`` as [("a100", 4)], ``gpu:8`` as [("", 8)]."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    return [(model or "", int(count)) for model, count in re.findall(r"(?:^|,)gpu(?::([^:,]+))?:(\d+)", plain)]


def minutes(text: str) -> float:
    """A time limit, ``3-00:00:00``, ``04:00:00`` or ``90``, in minutes; 0: none, as UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        return 0
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None:
        return days * 1440 + first * 60 + second + third / 60
    return first * 60 + second + third / 60 if match[4] else first + second / 60
