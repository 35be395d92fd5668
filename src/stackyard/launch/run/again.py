"""Whether an attempt is followed by another in the same allocation, and which nodes that one does without.

Decided twice with the same facts: by the hub, whose nodes keep what was staged for the next attempt, and after the
step by the process that starts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.launch.plan.schedulers.hostlist import same_host
from stackyard.launch.records.outcome import State

RESTARTABLE: tuple[State, ...] = ("failed", "node-lost", "hung", "no-start")


def gone(
    state: State, hosts: Sequence[str], *, lost: Sequence[str], blamed: str, reported: Sequence[str]
) -> tuple[str, ...]:
    """The nodes that cannot be used again: lost ones, and where the launch has not started the one that is to blame, or
    those that have not reported.

    Args:
        hosts: the nodes of the attempt, as the allocation names them; empty where they are not named.
        blamed: the host of the first failure; empty where no single node is to blame.
        reported: the nodes that have. None: the launcher does not work at all, and no node is to blame.
    """
    if lost or state != "no-start":
        return _among(hosts, lost)
    if blamed:
        return _among(hosts, (blamed,))
    there = _among(hosts, reported)
    return tuple(host for host in hosts if host not in there) if there else ()


def starts_again(state: State, without: Sequence[str], may_lose: int, *, warned: bool) -> bool:
    """Whether another attempt follows.

    Args:
        without: as `gone` returns them. A launch that has not started would fail again on the same nodes.
        may_lose: how many nodes another attempt can do without; -1: no other is left.
        warned: the scheduler has said that the time limit is near.
    """
    if state not in RESTARTABLE or warned or (state == "no-start" and not without):
        return False
    return len(without) <= may_lose


def _among(hosts: Sequence[str], named: Sequence[str]) -> tuple[str, ...]:
    return tuple(host for host in hosts if any(same_host(host, one) for one in named))
