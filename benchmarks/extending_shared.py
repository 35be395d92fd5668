"""The same as `extending` where users do it: yard, home and clones on a shared file system that answers late.

It is `slow_fs.c`: half a millisecond for every operation on names and attributes, and names are kept for five seconds.
What is read and written costs no more than on the local disk. The base is deployed before.
"""

from __future__ import annotations

from benchmarks import slow
from benchmarks.extending import Ways, deployed
from benchmarks.measure import Figure
from benchmarks.tools import scratch

DELAY_US, KEPT_S = 500, 5


def measure(pairs: int = 1) -> list[Figure]:
    """Seconds and operations of an extension against clones; a clone takes minutes."""
    with scratch("extend-shared") as directory:
        slow.build(directory / "slow_fs")
        place = directory / "shared"
        place.mkdir()
        ways = Ways(place, deployed(place))
        with slow.mounted(directory / "slow_fs", place, DELAY_US, KEPT_S) as operations:
            figures = [
                ways.compared(name, *way, pairs, meter=operations, what="operations on names and attributes", unit="#")
                for name, way in ways.clones().items()
            ]
        return [figure for both in figures for figure in both]
