"""The TCP connections of the ranks of a node, from outside, until each rank has one to another rank.

Nothing is put into the program: each established connection is a line of /proc/PID/net/tcp or tcp6 (proc(5)), and the
link of a descriptor in /proc/PID/fd has its socket's inode. Both ends are sent to the hub, which joins them
(`stackyard.launch.run.alone`) and tells which ranks have met another one.

Looks are cheap: the tables are read when the numbers of sockets have changed, and each socket is looked for among the
ranks' descriptors a few times and not again. Part of the agent: any Python from 3.6 on, standard library alone, few
imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH116, PTH208

import contextlib
import os
import sys
import time

from stackyard.launch.node.machine import slurp
from stackyard.launch.node.processes import alive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from stackyard.launch.node.ranks import Rank

LOOK_SHARE, FREE_S = 1000, 0.25
"""Full looks take at most one part in so many of a CPU's time, besides this many seconds: reading a table takes 5 to 10
ms, since the kernel walks through all its buckets."""
FULL = (1, 2, 4, 8, 16, 32)
"""The looks that are full, and each further 32nd one, even if the numbers of sockets have not changed."""
AFTER = 3
"""Looks at a rank that has met another one: it may be the end that a third one is connected to."""
MOST_NEW, MOST = 16, 400
"""Connections of a rank that one look sends, and ends that all looks together send. Of the connections that share one
end only the first is sent: all that a server has accepted share the local one, all to one server the remote one."""
MPI_LOOKS = (4, 8, 32)
"""The looks at which a rank's libraries are searched for MPI, whose connections may not be TCP."""
UNCONNECTED = ("02", "03", "07", "0A")
"""States of sockets without a connection: SYN_SENT, SYN_RECV, CLOSE, LISTEN (include/net/tcp_states.h)."""
MAPPED, LOOPBACK = ("0" * 16 + "FFFF0000", "0" * 24 + "01000000")
if sys.byteorder == "big":
    MAPPED, LOOPBACK = ("0" * 20 + "FFFF", "0" * 31 + "1")
"""::ffff:0.0.0.0/96 and ::1, as the kernel prints them: words of 32 bits in the order of the machine."""
TABLE_BYTES, MAPS_BYTES = 16 << 20, 4 << 20
FOUND = (0, float("inf"))
"""The look at which a connection was first seen, and that at which it is looked for again."""
CLOSED = "0"
"""The inode of a connection that no process has open any more."""


class Edges:
    """The connections of this node's ranks; does nothing unless `on`."""

    def __init__(self, on: "bool") -> "None":
        self._on = on
        self._number = 0
        self._looks = {}  # type: dict[int, int]
        self._after = {}  # type: dict[int, int]
        self._sent = {}  # type: dict[int, set[str]]
        self._why = {}  # type: dict[int, str]
        self._mpi = set()  # type: set[int]
        self._seen = {}  # type: dict[int, dict[str, tuple[int, float]]]
        self._counts = None  # type: Any
        self._ports = ()  # type: tuple[str, ...]
        self._traced_at, self._traced = 0.0, False
        self._begun = self._spent = 0.0
        self._boot = slurp("/proc/sys/kernel/random/boot_id")[:8]
        self._own = 0
        with contextlib.suppress(OSError):  # then each rank is in doubt
            self._own = network("self")

    def began(self, variables: "dict[str, Any]") -> "None":
        """Remember the ports at which rank 0 may be reached."""
        self._ports = tuple(f":{int(value):04X}" for name, value in variables.items() if "PORT" in name)

    def met(self, tasks: "list[int]") -> "None":
        """Stop soon to look at ranks that have a connection to another one."""
        for task in tasks:
            self._after.setdefault(task, AFTER)

    def of(self, task: "int", now: "float", went: "float") -> "dict[str, Any]":
        """For an ended rank that has met no other: for how long and how often it was looked at, and doubts."""
        if not self._on or task in self._after:
            return {}
        self._look_for_traces(now)
        value = {"s": round(now - went, 1), "looks": self._looks.get(task, 0), "traced": self._traced}
        return dict(value, why=self._why.get(task, ""), mpi=task in self._mpi)

    def look(self, ranks: "list[Rank]", now: "float") -> "list[tuple[int, list[tuple[str, str]]]]":
        """New connections of each rank, as (local, remote) ends, if a look is due."""
        due = [rank for rank in ranks if self._after.get(rank.task, 1) > 0] if self._on else []
        if not due:
            return []
        start, self._begun = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID), self._begun or now
        number, counts = self._number + 1, numbers_of_sockets()
        full = counts != self._counts or not counts[0] or bool(self._why) or number in FULL or not number % FULL[-1]
        if full and self._spent > FREE_S + (now - self._begun) / LOOK_SHARE:
            return []
        self._number, self._counts = number, counts
        for rank in due:
            self._looks[rank.task] = self._looks.get(rank.task, 0) + 1
            if rank.task in self._after:
                self._after[rank.task] -= 1
        found = {}  # type: dict[int, list[tuple[str, str]]]
        for space, processes in (self._by_space(due) if full else {}).items():
            self._in_space(space, processes, found)
        self._spent += time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - start
        return list(found.items())

    def _by_space(self, ranks: "list[Rank]") -> "dict[int, list[tuple[int, int, int]]]":
        """(task, pid, start time) of the ranks' processes, by their network namespace."""
        spaces = {}  # type: dict[int, list[tuple[int, int, int]]]
        for rank in ranks:
            task, before, any_read = rank.task, self._why.pop(rank.task, ""), False
            if not rank.below:
                rank.refresh()
            for pid, born in rank.below.items():
                space = self._asked(task, pid, born, network, str(pid))
                if space:
                    any_read = True
                    spaces.setdefault(space, []).append((task, pid, born))
                    if space != self._own:
                        self._why[task] = "it has a network namespace of its own"
                    if self._number in MPI_LOOKS and "/libmpi" in slurp(f"/proc/{pid}/maps", MAPS_BYTES):
                        self._mpi.add(task)
            if len(self._sent.get(task, ())) >= MOST:
                self._why[task] = "it has opened too many connections to follow"
            elif before and not any_read:  # its processes have ended just now
                self._why.setdefault(task, before)
        return spaces

    def _asked(self, task: "int", pid: "int", born: "int", ask: "Any", *arguments: "Any") -> "Any":
        """What `ask` returns, or None; an error is a doubt about the rank, unless the process has ended."""
        try:
            return ask(*arguments)
        except OSError as error:
            if alive(pid, born):
                self._why[task] = f"its processes cannot be examined ({error.strerror})"
        return None

    def _in_space(
        self, space: "int", processes: "list[tuple[int, int, int]]", found: "dict[int, list[tuple[str, str]]]"
    ) -> "None":
        """Find the ranks that hold the connections of a network namespace which were not examined lately."""
        due = self._due(space, "self" if space == self._own else str(processes[0][1]))
        if space == self._own and not self._seen[space]:  # not even the agent's to the hub
            self._why.update((task, "no connections can be read on its node") for task, _, _ in processes)
        for task, pid, born in processes:
            if not due:
                return
            for inode in self._asked(task, pid, born, held, pid, due) or ():
                ends = due.pop(inode)
                sent, mine = self._sent.setdefault(task, set()), found.get(task, [])
                is_new = not sent.intersection(ends)
                if is_new and len(mine) < MOST_NEW and len(sent) < MOST:
                    sent.update(ends)
                    found[task] = [*mine, ends]
                elif is_new:
                    self._counts = None  # the others at the next look
                    continue
                self._seen[space][inode] = FOUND

    def _due(self, space: "int", pid: "str") -> "dict[str, tuple[str, str]]":
        """The ends of each connection that is looked for now, by its inode: at ages of 0, 1, 2, 4, 8 ... looks."""
        before, now = self._seen.get(space, {}), {}
        new = self._number, self._number
        due = {}  # type: dict[str, tuple[str, str]]
        scope = f"{self._boot}/{space}/"
        for inode, local, remote in connections(pid):
            if inode == CLOSED:
                continue
            now[inode] = first, then = before.get(inode, new)
            if then <= self._number:
                now[inode] = first, self._number + max(1, self._number - first)
                due[inode] = endpoint(local, scope), endpoint(remote, scope)
        self._seen[space] = now
        return due

    def _look_for_traces(self, now: "float") -> "None":
        """Whether a connection to rank 0's ports was closed in the last minute, in which its rank is not known."""
        if not self._traced and now > self._traced_at + 1:
            self._traced_at = now
            ends = (end for inode, *both in connections("self") if inode == CLOSED for end in both)
            self._traced = any(end.endswith(self._ports) for end in ends)


def network(pid: "str") -> "int":
    """The network namespace of a process. Raises OSError."""
    return os.stat(f"/proc/{pid}/ns/net").st_ino


def numbers_of_sockets() -> "tuple[list[str], list[str]]":
    """The TCP sockets in use here and those of all namespaces, and the IPv6 ones in use (proc(5), sockstat)."""
    words = slurp("/proc/self/net/sockstat").partition("TCP: ")[2].split()
    return words[1:8:6], slurp("/proc/self/net/sockstat6").partition("TCP6: ")[2].split()[1:2]


def connections(pid: "str") -> "Iterator[tuple[str, str, str]]":
    """Inode, local and remote end of each connection in the network namespace of a process."""
    for name in ("tcp", "tcp6"):
        for line in slurp(f"/proc/{pid}/net/{name}", TABLE_BYTES).splitlines()[1:]:
            words = line.split(None, 10)
            if len(words) > 9 and words[3] not in UNCONNECTED:
                yield words[9], words[1], words[2]


def held(pid: "int", due: "dict[str, tuple[str, str]]") -> "set[str]":
    """Those of these inodes that are of sockets which a process has open. Raises OSError."""
    inodes = set()  # type: set[str]
    directory = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(directory):
            try:
                link = os.readlink(name, dir_fd=directory)
            except OSError:  # closed meanwhile
                continue
            if link.startswith("socket:[") and link[8:-1] in due:
                inodes.add(link[8:-1])
    finally:
        os.close(directory)
    return inodes


def endpoint(text: "str", scope: "str") -> "str":
    """``ADDRESS:PORT`` in the kernel's hexadecimal digits; an IPv4 address in IPv6 as IPv4.

    Args:
        scope: put before a loopback address, which means another end in each network namespace.
    """
    if text.startswith(MAPPED):
        text = text[len(MAPPED) :]
    address = text.partition(":")[0]
    first = address[-2:] if sys.byteorder == "little" else address[:2]
    return scope + text if address == LOOPBACK or (len(address) == 8 and first == "7F") else text
