"""Which rank has not joined a collective operation in which the others wait: from PyTorch's flight recorders. Pure.

Each process group numbers its collective operations on every rank in the same way. After a hang the rank with the
smaller last number is behind; with equal numbers the operations may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_NAMED = 8


@dataclass(frozen=True)
class Behind:
    """`ranks` have not joined operation `number` of a group, in which `waiting` wait; or joined another one."""

    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    number: int
    operation: str
    group: str
    instead: str = ""

    def __str__(self) -> str:
        """``rank 1 did not join all_reduce 17; rank 0 waits in it``."""
        what = f"{self.operation} {self.number}{self.group}"
        late, early = named(self.ranks), named(self.waiting)
        if self.instead:
            return f"{late} joined {self.instead} {self.number}, where {early} joined {what}"
        return f"{late} did not join {what}" + (
            f"; {early} wait{'s' * (len(self.waiting) == 1)} in it" if early else ""
        )


def named(ranks: Sequence[int]) -> str:
    """``rank 1``, or ``ranks 1, 2 and 30 more``; empty for none."""
    if len(ranks) < 2:
        return "".join(f"rank {rank}" for rank in ranks)
    more = len(ranks) - MOST_NAMED
    return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))}" + (f" and {more} more" if more > 0 else "")


def behind(recorders: Mapping[int, Mapping[str, Any]]) -> Behind | None:
    """The rank that the others wait for; None if that is not known.

    Args:
        recorders: for each rank that has answered, its groups as `stackyard.launch.probe.recorder` describes them.
    """
    names = dict.fromkeys(name for groups in recorders.values() for name in groups)
    found = [one for name in names if (one := _in_group(name, len(names) > 1, recorders)) is not None]
    waits = {rank for rank, groups in recorders.items() if any(group["waits"] for group in groups.values())}
    # a rank that waits in another group itself is behind because of that one
    return min(found, key=lambda one: (set(one.ranks) <= waits, not one.waiting), default=None)


def _in_group(name: str, several: bool, recorders: Mapping[int, Mapping[str, Any]]) -> Behind | None:
    there = {rank: groups[name] for rank, groups in recorders.items() if name in groups}
    members = set(there) | (_members(there.values()) & set(recorders))
    last = {rank: int(there[rank]["last"]) if rank in there else 0 for rank in sorted(members)}
    waiting = tuple(rank for rank in last if rank in there and there[rank]["waits"])
    if len(last) < 2 or not waiting:
        return None
    least = min(last.values())
    desc = str(next(iter(there.values()))["desc"])
    group = f" of the group {name} ({desc})" if several and desc != "default_pg" else ""
    if least < max(last.values()):
        ahead = [rank for rank in waiting if last[rank] > least]
        operation = _operation(least + 1, (there[rank] for rank in ahead or there))
        return Behind(tuple(r for r in last if last[r] == least), tuple(ahead), least + 1, operation, group)
    kinds = {rank: _operation(least, [there[rank]]) for rank in last}
    usual = max(kinds.values(), key=list(kinds.values()).count)
    odd = tuple(rank for rank in kinds if kinds[rank] != usual)
    if not odd:
        return None
    return Behind(odd, tuple(set(kinds) - set(odd)), least, usual, group, instead=kinds[odd[0]])


def _members(groups: Iterable[Mapping[str, Any]]) -> set[int]:
    """The ranks of a group, as PyTorch writes them: ``[0, 1]``."""
    texts = {str(group["ranks"]) for group in groups}
    try:
        return {int(rank) for text in texts for rank in json.loads(text or "[]")}
    except (ValueError, TypeError):
        return set()


def _operation(number: int, groups: Iterable[Mapping[str, Any]]) -> str:
    """The name of an operation, by those that still know it; JSON has made texts of the numbers."""
    return next((str(one["names"][str(number)]) for one in groups if str(number) in one["names"]), "operation")
