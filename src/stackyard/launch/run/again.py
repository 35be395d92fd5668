"""Whether another attempt follows in the same allocation, and which nodes it does without.

Decided twice with the same facts: by the hub, whose nodes keep what was staged for the next attempt, and after the
step by the process that starts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.core.hostlist import same_host
from stackyard.launch.records.outcome import State

RESTARTABLE: tuple[State, ...] = ("failed", "node-lost", "hung", "no-start")


def gone(
    state: State, hosts: Sequence[str], *, lost: Sequence[str], blamed: str, reported: Sequence[str]
) -> tuple[str, ...]:
    """The nodes that cannot be used again: lost ones, and if the launch did not start, the cause or unreported ones.

    Args:
        hosts: the nodes of the attempt, as the allocation names them; empty where they are not named.
        blamed: the host of the first failure; empty if it is not due to a single node.
        reported: the nodes that have reported. None: the launcher itself failed, which is not due to a node.
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
        without: the result of `gone`. A launch that has not started would fail again on the same nodes.
        may_lose: the number of nodes that another attempt can do without; -1: no attempt is left.
        warned: the scheduler has announced the time limit.
    """
    if state not in RESTARTABLE or warned or (state == "no-start" and not without):
        return False
    return len(without) <= may_lose


def _among(hosts: Sequence[str], named: Sequence[str]) -> tuple[str, ...]:
    return tuple(host for host in hosts if any(same_host(host, one) for one in named))
