"""`Layout`: which rank runs on which host, cores and GPUs. Pure; blocks of hosts with one node pattern.

Cores are counted in *usable* cores, 0 to `Node.cores` - 1, in the order of the site's domains; `Node` translates them
into the operating system's numbers and into hardware threads. Ranks are numbered by block distribution (rank = host *
ranks_per_node + local rank) or cyclically (rank = local rank * hosts + host).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Literal

from stackyard.core.findings import Finding
from stackyard.core.late import dataclass


@dataclass(frozen=True)
class NodeDomain:
    """Neighbouring cores and GPUs. `cores` are the operating system's numbers, ascending."""

    socket: int
    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """The resources of one node of a kind. Made by `stackyard.launch.layout.nodes.node_of`.

    `assumed` lists, in sentences, the defaults assumed for what the site file omits (an even split over sockets).
    """

    kind: str
    domains: tuple[NodeDomain, ...]
    all_cores: int
    smt: int = 1
    smt_numbering: Literal["adjacent", "split"] = "split"
    gpu_vendor: str = ""
    gpu_peers: bool = True
    memory_gib: float = 0
    assumed: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        """Usable cores."""
        return sum(len(domain.cores) for domain in self.domains)

    @property
    def gpus(self) -> int:
        """GPUs of the node."""
        return sum(len(domain.gpus) for domain in self.domains)

    @property
    def sockets(self) -> int:
        """Sockets with usable cores."""
        return len({domain.socket for domain in self.domains})

    def os_core(self, usable: int) -> int:
        """The operating system's number of a usable core."""
        for domain in self.domains:
            if usable < len(domain.cores):
                return domain.cores[usable]
            usable -= len(domain.cores)
        raise IndexError(usable)

    def socket_of(self, usable: int) -> int:
        """The socket of a usable core."""
        for domain in self.domains:
            if usable < len(domain.cores):
                return domain.socket
            usable -= len(domain.cores)
        raise IndexError(usable)

    def os_threads(self, usable: int, smt: int = 1) -> tuple[int, ...]:
        """The operating system's numbers of the first `smt` hardware threads of a usable core."""
        core = self.os_core(usable)
        if self.smt_numbering == "adjacent":
            return tuple(core * self.smt + t for t in range(smt))
        return tuple(core + t * self.all_cores for t in range(smt))


@dataclass(frozen=True)
class Slot:
    """The place of one rank on a node.

    `cores` are usable-core numbers; `gpus` are the rank's own GPUs, the nearest ones, as the driver numbers them; which
    of the node's GPUs it *sees* is the layout's `gpu_visibility`.
    """

    local_rank: int
    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Block:
    """`count` hosts from host index `first` on, all with the same slots.

    In a job with several roles, `roles` has the index of each slot's role, and `gpu_visibility` is the launcher's
    setting on these hosts.
    """

    first: int
    count: int
    slots: tuple[Slot, ...]
    roles: tuple[int, ...] = ()
    gpu_visibility: Literal["", "all", "own"] = ""


@dataclass(frozen=True)
class Layout:
    """The placement of all ranks. `hosts` may be empty (unknown before the allocation): then hosts are indices.

    `threads` is OMP_NUM_THREADS of every rank; `smt` the hardware threads used per core. Where hosts differ, ranks
    are numbered host by host.
    """

    node: Node
    blocks: tuple[Block, ...]
    gpu_visibility: Literal["all", "own"] = "all"
    distribution: Literal["block", "cyclic"] = "block"
    threads: int = 1
    smt: int = 1
    hosts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = field(default=())

    @property
    def nodes(self) -> int:
        """Number of hosts."""
        return sum(block.count for block in self.blocks)

    @property
    def ranks(self) -> int:
        """The world size."""
        return sum(block.count * len(block.slots) for block in self.blocks)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of a host; all hosts are alike in a layout of `plan_layout`, and in each of `alike`."""
        return self.blocks[0].slots

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each host."""
        return len(self.slots)

    @property
    def cores_per_rank(self) -> int:
        """Usable cores of each rank."""
        return len(self.slots[0].cores)

    @property
    def gpus_per_rank(self) -> int:
        """Own GPUs of each rank."""
        return len(self.slots[0].gpus)

    def host(self, index: int) -> str:
        """The name of a host, or its index as text while names are unknown."""
        return self.hosts[index] if self.hosts else str(index)

    def rank(self, host: int, local_rank: int) -> int:
        """The global rank of a local rank on a host."""
        if self.distribution == "cyclic":
            return local_rank * self.nodes + host
        before = 0
        for block in self.blocks:
            if host < block.first + block.count:
                return before + (host - block.first) * len(block.slots) + local_rank
            before += block.count * len(block.slots)
        raise IndexError(host)

    @property
    def parts(self) -> tuple[Layout, ...]:
        """The layout of each block alone."""
        return tuple(
            replace(
                self, blocks=(replace(block, first=0),), hosts=self.hosts[block.first : block.first + block.count],
                gpu_visibility=block.gpu_visibility or self.gpu_visibility,
            )
            for block in self.blocks
        )  # fmt: skip

    @property
    def alike(self) -> tuple[Layout, ...]:
        """Layouts of hosts with the same slots, in the order of hosts: only this one if all hosts are alike."""
        if len({(block.slots, block.gpu_visibility or self.gpu_visibility) for block in self.blocks}) == 1:
            return (self,)
        return self.parts

    @property
    def hosts_differ(self) -> bool:
        """Whether the hosts differ in their ranks."""
        return len(self.alike) > 1

    def places(self) -> Iterator[tuple[int, int, Slot]]:
        """Every (rank, host index, slot) in the order of hosts. Lazy: nothing is kept per rank."""
        for block in self.blocks:
            for host in range(block.first, block.first + block.count):
                for slot in block.slots:
                    yield self.rank(host, slot.local_rank), host, slot

    def per_node(self) -> Layout:
        """The layout with one task per node, with the cores and GPUs of all ranks: for torchrun, Ray, an agent."""
        cores = tuple(sorted({core for slot in self.slots for core in slot.cores}))
        gpus = tuple(sorted({gpu for slot in self.slots for gpu in slot.gpus}))
        whole = Slot(0, cores, gpus)
        return replace(self, blocks=(Block(0, self.nodes, (whole,)),), gpu_visibility="all", distribution="block")

    def on(self, hosts: tuple[str, ...]) -> Layout:
        """The layout on exactly these hosts."""
        return replace(self, blocks=(Block(0, len(hosts), self.slots),), hosts=hosts)
