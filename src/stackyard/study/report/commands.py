"""The commands of a study: what started each run, said once for all runs that it is the same for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from stackyard.study.analysis import Results
from stackyard.study.report.document import said
from stackyard.study.report.words import nodes
from stackyard.study.store import Attempt

MOST_RUNS = 8
"""Runs that are named with a command; more are counted."""


def command_groups(found: Results) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of each size and variant, and each command if it has several: its runs, and its command lines."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    for record in found.records:
        if record.last and record.last.command:
            key = (record.point.nodes, record.point.variant, exact(record.last))
            groups.setdefault(key, []).append(record.point.id)
    several = [key[:2] for key in groups]
    for (size, variant, command), runs in groups.items():
        names = runs if len(runs) <= MOST_RUNS else [*runs[:MOST_RUNS], f"{len(runs) - MOST_RUNS} more"]
        which = f" ({', '.join(said(name, 120) for name in names)})" if several.count((size, variant)) > 1 else ""
        typed = found.typed.get((size, variant))
        yield f"{nodes(size)}, {said(variant, 80)}{which}", (*((typed,) if typed else ()), command)


def exact(attempt: Attempt) -> str:
    """The command that started the ranks, with RUN for the run directory where it can be told from the rest."""
    end = attempt.command.find(attempt.run)
    before = attempt.command[:end]
    start = max(before.rfind(letter) for letter in " '\"=") + 1
    path = attempt.command[start : end + len(attempt.run)]
    is_plain = (
        end >= 0 and path.startswith("/") and shlex.quote(path) == path and before[start - 1 : start] in (" ", "=", "")
    )
    return attempt.command.replace(path, "RUN") if is_plain else attempt.command
