"""Requests for batch scripts of well-known machines, and their golden files. Run this file to write those anew."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Node, NodeDomain
from stackyard.launch.layout.placing import plan_layout
from stackyard.launch.plan import schedulers
from stackyard.launch.plan.model import BatchHead, BatchRequest
from stackyard.launch.request.intent import BatchOptions, Intent

GOLDEN = Path(__file__).parent / "golden" / "batch"


def _node(kind: str, sizes: list[range], gpus: list[tuple[int, ...]], all_cores: int, **more: Any) -> Node:
    sockets = [0] * len(sizes) if more.pop("one_socket", False) else list(range(len(sizes)))
    domains = tuple(NodeDomain(s, tuple(c), g) for s, c, g in zip(sockets, sizes, gpus, strict=True))
    return Node(kind, domains, all_cores, **more)


SUMMIT = _node("batch", [range(21), range(22, 43)], [(0, 1, 2), (3, 4, 5)], 44, smt=4, smt_numbering="adjacent")
PERLMUTTER = _node("gpu", [range(16 * n, 16 * n + 16) for n in range(4)], [(3 - n,) for n in range(4)], 64,
                   smt=2, one_socket=True)  # fmt: skip
POLARIS = _node("polaris", [range(8 * n, 8 * n + 8) for n in range(4)], [(3 - n,) for n in range(4)], 32,
                smt=2, one_socket=True)  # fmt: skip
TUOLUMNE = _node("mi300a", [range(24 * n, 24 * n + 24) for n in range(4)], [(n,) for n in range(4)], 96, smt=2)
PLAIN = _node("cpu", [range(24), range(24, 48)], [(), ()], 48)

SLURM = Scheduler(kind="slurm")
CSM = Scheduler(kind="lsf", csm=True, rack_nodes=18)
LSF = Scheduler(kind="lsf")
PBS = Scheduler(kind="pbs", rack_group="tier0", rack_nodes=4)
FLUX = Scheduler(kind="flux")
EVERYTHING: dict[str, Any] = {
    "account": "PROJ", "queue": "batch", "dependency": "", "name": "train", "output": "/runs/1/batch.log",
    "time_min": 90, "requeue": True, "memory_gib": 200, "mail": "me@example.org",
    "mail_events": ("begin", "end", "fail"),
}  # fmt: skip


def request(node: Node, scheduler: Scheduler, nodes: int = 2, intent: dict[str, Any] | None = None, **options: Any
            ) -> BatchRequest:  # fmt: skip
    """What the planner would ask of a scheduler for a job of `nodes` nodes."""
    layout = plan_layout(Intent(nodes=nodes, **(intent or {})), node)
    said = BatchOptions(**options)
    return BatchRequest(layout, said, scheduler, nodes=nodes, output="/runs/1/batch.log", name="train")


REQUESTS: dict[str, BatchRequest] = {
    "slurm-usual": request(PERLMUTTER, SLURM, time_min=60, account="PROJ", qos="regular", constraint="gpu"),
    "slurm-everything": request(
        PERLMUTTER, SLURM, 4, **EVERYTHING | {"dependency": "afterok:12:13", "qos": "low", "reservation": "r one"},
        constraint="gpu&hbm80g", signal_s=90, array="0-9%2", scheduler_args=("--comment='a \"b\" #c'",),
    ),
    "slurm-gres-shared": request(
        PERLMUTTER, SLURM.model_copy(update={"gpu_request": "gres", "gres_type": "a100", "exclusive": False}),
        time_min=0.5, memory_gib=1.5,
    ),
    "slurm-racks": request(
        PLAIN, SLURM.model_copy(update={"rack_nodes": 18, "rack_wait_min": 60}), 144, pack="racks", time_min=1500,
    ),
    "slurm-segment": request(PLAIN, SLURM.model_copy(update={"rack_nodes": 16, "rack": "segment"}), 32, pack="racks"),
    "slurm-frontier": request(
        PERLMUTTER, SLURM.model_copy(update={"gpu_request": "gpus-per-task", "core_spec": 8, "options": ("-C nvme",)}),
        time_min=120,
    ),
    "lsf-easy": request(
        SUMMIT, CSM.model_copy(update={"alloc_flags": ("smt4", "gpumps")}), account="ABC123", time_min=180,
    ),
    "lsf-racks-2": request(SUMMIT, CSM, pack="racks", account="PROJ", time_min=60),
    "lsf-racks-144": request(SUMMIT, CSM, 144, pack="racks", account="<PROJECT>", time_min=60, queue="batch",
                             name="<PROJECT>", output="/ccs/home/user/job%J.out"),
    "lsf-plain": request(PLAIN, LSF, time_min=60, constraint="model==EPYC", memory_gib=8, array="1-10%2"),
    "lsf-gpus": request(
        PERLMUTTER, LSF, **EVERYTHING | {"dependency": "done(12) && ended(13)"}, reservation="user#1", signal_s=100,
    ),
    "pbs-usual": request(POLARIS, PBS, time_min=60, account="PROJ", queue="debug"),
    "pbs-everything": request(
        POLARIS, PBS, 4, **EVERYTHING | {"dependency": "afterok:12.pbs:13.pbs", "name": "a name that is too long"},
        pack="racks", array="0-9", constraint="system=polaris", scheduler_args=("-l filesystems=home:eagle",),
    ),
    "pbs-shared": request(
        PLAIN, PBS.model_copy(update={"exclusive": False}), intent={"ranks_per_node": 4}, time_min=10,
    ),
    "flux-usual": request(TUOLUMNE, FLUX, time_min=60, account="guests", queue="pbatch"),
    "flux-everything": request(
        TUOLUMNE, FLUX, name="my job", time_min=90.5, dependency="afterok:ƒ2Tz1", constraint="mi300a,hosts:t[1-4]",
        requeue=True, signal_s=90, output="it's {{id}}.out",
    ),
}  # fmt: skip
REQUESTS["lsf-disk"] = replace(REQUESTS["lsf-easy"], node_local_disk=True)


def head(name: str) -> tuple[BatchHead, str]:
    """The head of a request, and its text."""
    asked = REQUESTS[name]
    scheduler = schedulers.get(asked.scheduler.kind, asked.scheduler)
    made = scheduler.head(asked)
    return made, scheduler.head_text(made)


def golden(name: str) -> str:
    """What a golden file holds: the directives, and below them what each asks for."""
    made, text = head(name)
    reasons = "".join(f"# {' '.join(reason.words)}\n#     {reason.reason}\n" for reason in made.reasons)
    notes = "".join(f"# {finding.severity}: {finding.message} ({finding.reason})\n" for finding in made.findings)
    return f"{text}\n{reasons}{notes}"


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for known in sys.argv[1:] or REQUESTS:
        (GOLDEN / f"{known}.txt").write_text(golden(known), encoding="utf-8")
