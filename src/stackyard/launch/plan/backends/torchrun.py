"""PyTorch distributed: the ranks' variables set directly, or torchrun itself with one task per node."""

from __future__ import annotations

from pathlib import Path

from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends import source
from stackyard.launch.plan.backends.base import BackendContext, command, of_torch
from stackyard.launch.plan.backends.started import agent_options, nested, per_node, program
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.request.intent import Intent

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")
"""Packages that load mpi4py, if it is installed, to see whether MPI started the ranks: without a PMI that aborts them
(lightning/fabric/plugins/environments/mpi.py, 2.6)."""


class Torchrun:
    """``init_process_group("nccl")`` with the default ``env://``: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

    Directly, the launcher's tasks are the ranks: no second Python runs on each node, and binding, signals and exit
    statuses are the launcher's. With torchrun, one task per node starts the node's ranks; the rendezvous is static,
    with the node rank and the reserved port, and nothing restarts: a restart inside a step would hide the first
    failure (`torchrun --help`, PyTorch 2.x).
    """

    name = "torchrun"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank, or one per node that runs torchrun, also the program's own."""
        if found := per_node(intent):
            return program(intent, layout, found)
        if intent.direct:
            reason = Reason(("RANK", "WORLD_SIZE", "MASTER_ADDR"), "set as by torchrun, without its agent processes")
            may = any(map(source.read(intent).imported, LIGHTNING))
            return RankProgram(
                layout, command(intent), of_torch(layout), mpi=may, certain=not may, reasons=(reason,),
                findings=nested(intent, layout),
            )  # fmt: skip
        options = (*agent_options(layout), "--max-restarts=0")
        argv = ("python", "-m", "torch.distributed.run", *options, *_script(intent))
        reasons = (
            Reason(argv[1:3], "torchrun, run by the stack's python"),
            Reason(
                options[:3], f"{layout.ranks_per_node} ranks on each of {layout.nodes} nodes, and the rank of this node"
            ),
            Reason(options[3:5], "address and reserved port on rank 0's node"),
            Reason(options[5:], "no restarts: the first failure ends the step and is reported"),
        )
        return RankProgram(
            layout.per_node(), argv, of_torch(layout), ranks_per_task=layout.ranks_per_node, reasons=reasons,
            findings=nested(intent, layout),
        )  # fmt: skip


def _script(intent: Intent) -> tuple[str, ...]:
    """The program for torchrun: a script or a module that its python runs, or ``--no-python`` and a command."""
    words = intent.program
    if Path(words[0]).name.startswith("python"):
        words = words[1:]
    if words and (words[0].endswith(".py") or words[0] == "-m"):
        return words
    return ("--no-python", *intent.program)
