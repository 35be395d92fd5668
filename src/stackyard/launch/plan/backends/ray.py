"""A Ray cluster inside the allocation: one task per node, the program on the first one."""

from __future__ import annotations

from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends.base import HELPERS, UNBUFFERED, BackendContext, command
from stackyard.launch.plan.backends.started import nested
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.request.intent import Intent


class Ray:
    """``ray_node.py`` on every node: Ray's head and the program on node 0, workers on the others.

    The program runs once, when all nodes have joined, with RAY_ADDRESS; its exit status is that of the step.
    """

    name = "ray"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per node, with the cores and GPUs of all ranks of the node."""
        whole = layout.per_node()
        slot = whole.slots[0]
        options = (f"--cpus={len(slot.cores)}", f"--gpus={len(slot.gpus)}", f"--nodes={layout.nodes}")
        argv = ("python", str(HELPERS / "ray_node.py"), *options, "--", *command(intent))
        reasons = (
            Reason(argv[:2], "one task per node: Ray's head and the program on node 0, workers on the others"),
            Reason(options[:2], "resources of each node for Ray"),
            Reason(options[2:], "number of nodes that must join before the program starts"),
        )
        return RankProgram(
            whole, argv, dict(UNBUFFERED), ports=2, ranks_per_task=layout.ranks_per_node, reasons=reasons,
            findings=nested(intent, layout),
        )  # fmt: skip
