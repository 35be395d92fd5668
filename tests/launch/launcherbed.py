"""Nodes of well-known machines, described by hand, and the text of golden files."""

from __future__ import annotations

import sys
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Block, Layout, Node, NodeDomain, Slot
from stackyard.launch.layout.roles import place_roles, together
from stackyard.launch.plan.launchers import TABLE
from stackyard.launch.plan.launchers.local import SPAWN
from stackyard.launch.plan.model import LaunchLine, LaunchRequest
from stackyard.launch.request.intent import Intent

GOLDEN = Path(__file__).parent / "golden" / "launchers"


def span(first: int, last: int) -> tuple[int, ...]:
    """first to last, both included."""
    return tuple(range(first, last + 1))


def _mi250x(starts: tuple[int, ...]) -> tuple[NodeDomain, ...]:
    return tuple(NodeDomain(0, span(first, first + 6), (gcd,)) for gcd, first in enumerate(starts))


SUMMIT = Node(
    "summit", (NodeDomain(0, span(0, 20), (0, 1, 2)), NodeDomain(1, span(22, 42), (3, 4, 5))), 44, 4, "adjacent",
    "nvidia",
)  # fmt: skip
LUMI_G = Node("lumi-g", _mi250x((49, 57, 17, 25, 1, 9, 33, 41)), 64, 2, "split", "amd")
FRONTIER = Node(
    "frontier", tuple(NodeDomain(0, span(8 * n + 1, 8 * n + 7), (g,)) for n, g in enumerate((4, 5, 2, 3, 6, 7, 0, 1))),
    64, 2, "split", "amd",
)  # fmt: skip
PERLMUTTER = Node(
    "perlmutter", tuple(NodeDomain(0, span(16 * n, 16 * n + 15), (3 - n,)) for n in range(4)), 64, 2, "split", "nvidia"
)
CPU = Node("cpu", (NodeDomain(0, span(0, 23)), NodeDomain(1, span(24, 47))), 48)
WORKSTATION = Node("workstation", (NodeDomain(0, span(0, 15), (0, 1)),), 16, 2, "split", "nvidia")
HERE = Node("here", (NodeDomain(0, (0, 1)),), 2)

CSM = Scheduler(kind="lsf", csm=True)
SLURM = Scheduler(kind="slurm", version="23.11")


def placed(node: Node, cores: tuple[tuple[int, ...], ...], gpus: tuple[tuple[int, ...], ...] = ()) -> tuple[Slot, ...]:
    """Slots with these usable cores and GPUs."""
    return tuple(Slot(i, own, gpus[i] if gpus else ()) for i, own in enumerate(cores))


def packed(node: Node, ranks: int, each: int, nodes: int = 2, **changes: object) -> Layout:
    """`ranks` per node with `each` cores one after the other, and GPU i for rank i where there are GPUs."""
    cores = tuple(span(i * each, i * each + each - 1) for i in range(ranks))
    order = [gpu for domain in node.domains for gpu in domain.gpus]
    slots = placed(node, cores, tuple((gpu,) for gpu in order[:ranks]) if order else ())
    return Layout(node, (Block(0, nodes, slots),), **changes)  # type: ignore[arg-type]


def roles(node: Node, how: str, hosts: tuple[str, ...] = ()) -> Layout:
    """A server of two cores without GPU: on a node of its own, or beside the first workers; workers on two nodes."""
    cores = None if how == "uneven" else 2
    server: dict[str, object] = {"program": ("a",), "ranks_per_node": 1, "cores_per_rank": cores, "gpus_per_rank": 0}
    if how == "beside":
        server |= {"beside": "workers", "nodes": 1}
    workers: dict[str, object] = {"program": ("b",), "nodes": 2, "ranks_per_node": 4, "cores_per_rank": 2}
    intent = Intent.model_validate({"roles": {"server": server, "workers": workers}, "straddle": True})
    return together(place_roles(intent, node, hosts), hosts)


LAYOUTS: dict[str, tuple[Layout, Scheduler]] = {
    "summit": (packed(SUMMIT, 6, 7), CSM),
    "summit-own-gpus": (packed(SUMMIT, 6, 7, gpu_visibility="own"), CSM),
    "summit-four-ranks": (
        Layout(SUMMIT, (Block(0, 2, placed(SUMMIT, (span(0, 9), span(10, 19), span(21, 30), span(31, 40)),
                                           ((0,), (1,), (3,), (4,)))),)),
        CSM,
    ),
    "lumi-g": (packed(LUMI_G, 8, 7), SLURM),
    "frontier": (
        packed(FRONTIER, 8, 7, gpu_visibility="own"),
        Scheduler(kind="slurm", version="24.05", gpu_request="gpus-per-task", core_spec=8),
    ),
    "perlmutter": (packed(PERLMUTTER, 4, 16), SLURM),
    "perlmutter-smt": (packed(PERLMUTTER, 4, 16, smt=2, distribution="cyclic"), SLURM),
    "cpu": (packed(CPU, 2, 24, nodes=4, hosts=("c01", "c02", "c03", "c07")), Scheduler(kind="pbs")),
    "roles": (roles(PERLMUTTER, "block"), SLURM),
    "roles-beside": (roles(PERLMUTTER, "beside"), SLURM),
    "roles-uneven-cores": (roles(CPU, "uneven", ("c01", "c02", "c03")), Scheduler(kind="pbs")),
    "workstation": (packed(WORKSTATION, 2, 8, nodes=1), Scheduler()),
}  # fmt: skip


def text_of(layout: Layout, scheduler: Scheduler, **changes: object) -> str:
    """Every launcher's rendering: the whole line, then its words with their reasons, then the files."""
    parts = []
    for name, launcher in TABLE.items():
        try:
            line = launcher.line(LaunchRequest(layout, scheduler, **changes))  # type: ignore[arg-type]
        except InputError as error:
            parts.append(f"== {name}\nrefused: {error}\nhint: {error.hint}\n")
            continue
        parts.append(f"== {name}\n{shown(line)}")
    return "\n".join(parts)


def shown(line: LaunchLine) -> str:
    """The line, its groups of words with reasons, what is to be known of it, and its files."""
    rows = [_here(line.words), ""]
    rows += [f"  {_here(reason.words):<40} {reason.reason}" for reason in line.reasons]
    for finding in line.findings:
        rows.append(f"{finding.severity}: {finding.message} ({finding.reason}); {finding.remedy}")
    for name, text in line.files.items():
        rows += [f"-- {name}", text.rstrip("\n")]
    return "\n".join(rows) + "\n"


def _here(words: tuple[str, ...]) -> str:
    known = {sys.executable: "PYTHON", str(SPAWN): "SPAWN"}
    return " ".join(known.get(word, word) for word in words)


def ready(line: LaunchLine, step: Path) -> list[str]:
    """The words as they are started: files written to a step's directory, which the words then name."""
    step.mkdir(parents=True, exist_ok=True)
    for name, text in line.files.items():
        (step / name).write_text(text, encoding="utf-8")
    return [word.replace("{step}", str(step)) for word in line.words]
