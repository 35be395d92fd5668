"""Backends whose ranks are the launcher's own tasks: any program, MPI, DeepSpeed, JAX."""

from __future__ import annotations

from stackyard.findings import Finding
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends import source
from stackyard.launch.plan.backends.base import UNBUFFERED, BackendContext, command, nested
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.request.intent import Intent


class Any:
    """Any program: it finds RANK, WORLD_SIZE and the rest in its environment, or it does not care."""

    name = "any"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank; MPI is not wired up."""
        return RankProgram(layout, command(intent), dict(UNBUFFERED), findings=nested(intent))


class Mpi:
    """A program that calls MPI_Init: the launcher wires the ranks up."""

    name = "mpi"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank, wired up."""
        forks = source.fork_findings(source.read(intent))
        reason = Reason(command(intent)[:1], "an MPI process for each rank, wired up by the launcher")
        return RankProgram(
            layout, command(intent), dict(UNBUFFERED), mpi=True, reasons=(reason,), findings=(*nested(intent), *forks)
        )


class DeepSpeed:
    """DeepSpeed without its launcher, host file and ssh.

    ``deepspeed.init_distributed`` takes RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT where all are set
    (else it looks for MPI); its launcher also gives CROSS_RANK, CROSS_SIZE and LOCAL_SIZE, and ``--local_rank`` as an
    option (deepspeed/comm/comm.py, deepspeed/launcher/launch.py).
    """

    name = "deepspeed"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank, with the variables of its launcher."""
        variables = {
            **UNBUFFERED,
            "CROSS_RANK": "${NODE_RANK}", "CROSS_SIZE": "${STACKYARD_NODES}", "LOCAL_SIZE": "${LOCAL_WORLD_SIZE}",
        }  # fmt: skip
        argv = command(intent)
        reasons = [Reason(("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE"), "what DeepSpeed's own launcher would have set")]
        asked = source.read(intent).words() & {"--local_rank", "--local-rank"}
        if asked and not any(word.split("=")[0] in asked for word in argv):
            option = f"{sorted(asked)[-1]}=${{LOCAL_RANK}}"
            argv = (*argv, option)
            reasons.append(Reason((option,), "the program parses this option, which DeepSpeed's launcher gives"))
        return RankProgram(layout, argv, variables, reasons=tuple(reasons), findings=nested(intent))


DETECTED = ("", "srun", "mpirun")
"""Launchers under which ``jax.distributed.initialize()`` finds number and id of its processes by itself."""


class Jax:
    """JAX with one process per rank.

    ``jax.distributed.initialize`` (jax/_src/distributed.py, 0.10) reads JAX_COORDINATOR_ADDRESS,
    JAX_COORDINATOR_BIND_ADDRESS and JAX_LOCAL_DEVICE_IDS. It reads *no* variable for the number and the id of
    processes: those come from its arguments, or from Slurm's or Open MPI's variables. JAX_NUM_PROCESSES and
    JAX_PROCESS_ID are set for programs that pass them on.
    """

    name = "jax"

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """One task per rank, the coordinator on rank 0's node."""
        variables = {
            **UNBUFFERED,
            "JAX_COORDINATOR_ADDRESS": "${MASTER_ADDR}:${MASTER_PORT}",
            "JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:${MASTER_PORT}",
            "JAX_NUM_PROCESSES": "${WORLD_SIZE}", "JAX_PROCESS_ID": "${RANK}",
        }  # fmt: skip
        if layout.gpus_per_rank == 1:
            variables["JAX_LOCAL_DEVICE_IDS"] = "${STACKYARD_DEVICE}"
        reason = Reason(("JAX_COORDINATOR_ADDRESS",), "jax.distributed.initialize() finds rank 0 by itself")
        findings = nested(intent) if context.launcher in DETECTED else (*nested(intent), _UNDETECTED)
        return RankProgram(layout, command(intent), variables, reasons=(reason,), findings=findings)


_UNDETECTED = Finding(
    "jax-undetected", "note", "jax.distributed.initialize() does not know this launcher",
    "it finds number and id of its processes by itself under Slurm and Open MPI only",
    'jax.distributed.initialize(num_processes=int(os.environ["WORLD_SIZE"]), process_id=int(os.environ["RANK"]))',
)  # fmt: skip
