"""The layout of a job with several roles: each role placed as a separate job, on its own nodes or shared ones.

Roles that share nodes are placed one after the other on the remaining cores and GPUs: first those with explicit cores
and GPUs per rank, then the one without. Ranks are numbered node by node, and on a node in the order of the roles.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.launch.layout.cores import domain_cores
from stackyard.launch.layout.model import Block, Layout, Node, Slot
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.request.intent import Intent
from stackyard.launch.request.roles import nodes_of

IDLE = ("idle-cores", "idle-gpus", "ranks-do-not-divide-gpus")
"""Rules that hold for a whole node only: of roles that share one, the last that was placed is asked."""


@dataclass(frozen=True)
class PlacedRole:
    """A role with its own layout, whose ranks are counted from 0. `first`: its first node."""

    name: str
    first: int
    layout: Layout


def place_roles(intent: Intent, node: Node, hosts: tuple[str, ...] = ()) -> tuple[PlacedRole, ...]:
    """Every role placed, in the order of the job.

    Raises:
        InputError: more than one of the roles that share nodes leaves its cores open, or no core is left for a role.
    """
    nodes = nodes_of(intent.roles)
    done: dict[str, PlacedRole] = {}
    for group in _sharing(intent):
        open_ones = [name for name in group if not _settled(intent.of_role(name), node)]
        if len(group) > 1 and len(open_ones) > 1:
            raise InputError(
                f"the roles {' and '.join(open_ones)} share nodes, and it is open which cores are whose",
                hint=f"set cores_per_rank{' and gpus_per_rank' if node.gpus else ''} of all but one of them",
            )
        order = sorted(group, key=lambda name: name in open_ones)
        for name in order:
            first, count = nodes[name]
            taken = [done[other].layout for other in order[: order.index(name)]]
            layout = _beside(intent.of_role(name), node, taken, name, hosts[first : first + count])
            done[name] = PlacedRole(name, first, _judged(layout, name, alone=name == order[-1]))
    return tuple(done[name] for name in intent.roles)


def _sharing(intent: Intent) -> list[list[str]]:
    """The roles that share nodes, in the order of the job."""
    groups: dict[str, list[str]] = {}
    for name, role in intent.roles.items():
        groups.setdefault(role.beside or name, []).append(name)
    return list(groups.values())


def _settled(own: Intent, node: Node) -> bool:
    return own.cores_per_rank is not None and (not node.gpus or own.gpus_per_rank is not None)


def _beside(own: Intent, node: Node, taken: Sequence[Layout], name: str, hosts: tuple[str, ...]) -> Layout:
    """The layout of a role on the cores and GPUs of a node that earlier roles have left."""
    used = {core for layout in taken for slot in layout.slots for core in slot.cores}
    gpus = {gpu for layout in taken for slot in layout.slots for gpu in slot.gpus}
    rest, numbers = _without(node, used, gpus)
    if not used or (own.oversubscribe and not rest.cores):
        return plan_layout(own, node, hosts)
    if not rest.cores:
        raise InputError(f"no core is left for {name} on the nodes that it shares", hint="give it nodes of its own")
    layout = plan_layout(own, rest, hosts)
    slots = tuple(replace(slot, cores=tuple(numbers[core] for core in slot.cores)) for slot in layout.slots)
    return replace(layout, node=node, blocks=(Block(0, layout.nodes, slots),))


def _without(node: Node, cores: set[int], gpus: set[int]) -> tuple[Node, list[int]]:
    """A node without some of its cores and GPUs, and the original number of each remaining core."""
    domains, numbers = [], []
    for domain, usable in zip(node.domains, domain_cores(node), strict=True):
        left = [(number, core) for number, core in zip(usable, domain.cores, strict=True) if number not in cores]
        own = tuple(gpu for gpu in domain.gpus if gpu not in gpus)
        if left or own:
            domains.append(replace(domain, cores=tuple(core for _, core in left), gpus=own))
            numbers += [number for number, _ in left]
    return replace(node, domains=tuple(domains)), numbers


def _judged(layout: Layout, name: str, *, alone: bool) -> Layout:
    """The layout with the findings that concern this role, with the role's name in them."""
    findings = [finding for finding in layout.findings if alone or finding.rule not in IDLE]
    named = (replace(f, message=f"{name}: {f.message}", remedy=_as_keys(f.remedy)) for f in findings)
    return replace(layout, findings=tuple(named), reasons=tuple(f"{name}: {reason}" for reason in layout.reasons))


def _as_keys(remedy: str) -> str:
    """Options in the syntax of a role: ``--cores-per-rank 8`` is ``cores_per_rank: 8``."""
    return re.sub(r"--([a-z][a-z-]+) (\d+)", lambda match: f"{match[1].replace('-', '_')}: {match[2]}", remedy)


def together(roles: Sequence[PlacedRole], hosts: tuple[str, ...] = ()) -> Layout:
    """All ranks of a job, with a block for every range of hosts that have the same roles."""
    first = roles[0].layout
    bounds = sorted({at for role in roles for at in (role.first, role.first + role.layout.nodes)})
    blocks = tuple(_block(roles, start, end) for start, end in itertools.pairwise(bounds))
    return replace(
        first, blocks=blocks, hosts=hosts, gpu_visibility=blocks[0].gpu_visibility or "all", distribution="block",
        findings=_all(role.layout.findings for role in roles),
        reasons=tuple(reason for role in roles for reason in role.layout.reasons),
    )  # fmt: skip


def _block(roles: Sequence[PlacedRole], start: int, end: int) -> Block:
    here = {i: r.layout for i, r in enumerate(roles) if r.first <= start and end <= r.first + r.layout.nodes}
    places = [(index, slot) for index, layout in here.items() for slot in layout.slots]
    slots = tuple(replace(slot, local_rank=local) for local, (_, slot) in enumerate(places))
    return Block(start, end - start, slots, tuple(index for index, _ in places), _visibility(here))


def _visibility(here: Mapping[int, Layout]) -> Literal["all", "own"]:
    """The visibility that all roles share; if they differ, the launcher shows all GPUs, and rank.sh selects."""
    kinds = {(layout.gpu_visibility, layout.gpus_per_rank) for layout in here.values()}
    return next(iter(kinds))[0] if len(kinds) == 1 else "all"


def rank_in_role(layout: Layout, roles: Sequence[PlacedRole], rank: int) -> tuple[str, int]:
    """The role of a global rank, and its number within the role. Raises IndexError: no such rank."""
    for block in layout.blocks:
        per_node = len(block.slots)
        if rank < block.count * per_node:
            node, local = block.first + rank // per_node, rank % per_node
            own = roles[block.roles[local]]
            before = block.roles[:local].count(block.roles[local])
            return own.name, (node - own.first) * own.layout.ranks_per_node + before
        rank -= block.count * per_node
    raise IndexError(rank)


def _all(findings: Iterable[tuple[Finding, ...]]) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(finding for one in findings for finding in one))


def whole_nodes(layout: Layout) -> Layout:
    """One task per node with all cores and GPUs that any role uses, as the batch job requests."""
    if not layout.hosts_differ and len({(len(slot.cores), len(slot.gpus)) for slot in layout.slots}) == 1:
        return layout
    slots = [slot for block in layout.blocks for slot in block.slots]
    cores, gpus = ({item for slot in slots for item in getattr(slot, what)} for what in ("cores", "gpus"))
    whole = Slot(0, tuple(sorted(cores)), tuple(sorted(gpus)))
    return replace(layout, blocks=(Block(0, layout.nodes, (whole,)),), gpu_visibility="all")
