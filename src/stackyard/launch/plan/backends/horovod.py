"""Horovod without horovodrun: its ranks are the launcher's tasks, connected by MPI or by its own rendezvous server.

horovodrun is not used: its jsrun path fails with an AttributeError (`horovod/runner/js_run.py`, 0.28.1, closes a file
descriptor as if it were a file), it starts ranks over ssh, and it guesses the network interface.
"""

from __future__ import annotations

from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends.base import HELPERS, UNBUFFERED, BackendContext, command
from stackyard.launch.plan.backends.started import nested
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.request.intent import Intent


class Horovod:
    """``hvd.init()`` through MPI or Gloo.

    `auto` is MPI with a launcher that provides PMI, and Gloo without one (``local``).
    """

    name = "horovod"

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """One task per rank; with Gloo also a rendezvous server on rank 0's node."""
        launcher = intent.launcher or context.launcher
        controller = intent.controller
        if controller == "auto":
            controller = "gloo" if launcher == "local" else "mpi"
        return _mpi(intent, layout) if controller == "mpi" else _gloo(intent, layout)


def _mpi(intent: Intent, layout: Layout) -> RankProgram:
    """HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS as `horovod/runner/launch.py` sets them for MPI."""
    variables = {**UNBUFFERED, "HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    reason = Reason(("HOROVOD_CONTROLLER=mpi",), "ranks connect through MPI, with the launcher's PMI")
    return RankProgram(layout, command(intent), variables, mpi=True, reasons=(reason,), findings=nested(intent, layout))


def _gloo(intent: Intent, layout: Layout) -> RankProgram:
    """The variables of `horovod/runner/gloo_run.py`.

    HOROVOD_GLOO_IFACE is always set: Horovod's own default is ``eth0`` (`horovod/common/utils/env_parser.cc`).
    """
    variables = {
        **UNBUFFERED,
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_RANK": "${RANK}", "HOROVOD_SIZE": "${WORLD_SIZE}",
        "HOROVOD_LOCAL_RANK": "${LOCAL_RANK}", "HOROVOD_LOCAL_SIZE": "${LOCAL_WORLD_SIZE}",
        "HOROVOD_CROSS_RANK": "${NODE_RANK}", "HOROVOD_CROSS_SIZE": "${STACKYARD_NODES}",
        "HOROVOD_HOSTNAME": "node${NODE_RANK}",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "${MASTER_ADDR}", "HOROVOD_GLOO_RENDEZVOUS_PORT": "${STACKYARD_PORT_1}",
        "HOROVOD_GLOO_IFACE": "${STACKYARD_INTERFACE}",
    }  # fmt: skip
    server = (
        "python", str(HELPERS / "horovod_rendezvous.py"), "${STACKYARD_PORT_1}", str(layout.nodes),
        str(layout.ranks_per_node), layout.distribution,
    )  # fmt: skip
    reasons = (
        Reason(("HOROVOD_CONTROLLER=gloo",), "ranks connect through Horovod's rendezvous server, without MPI"),
        Reason(server[:2], "the rendezvous server, on rank 0's node and its reserved port"),
    )
    return RankProgram(
        layout, command(intent), variables, ports=2, sidecar=server, reasons=reasons, findings=nested(intent, layout)
    )
