"""Backends whose ranks are the launcher's own tasks: any program, MPI, DeepSpeed, JAX."""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.core.findings import Finding
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.backends import source
from stackyard.launch.plan.backends.base import UNBUFFERED, BackendContext, command, direct_grpc
from stackyard.launch.plan.backends.started import nested
from stackyard.launch.plan.model import RankProgram, Reason
from stackyard.launch.request.intent import Intent


class AnyProgram:
    """Any program: RANK, WORLD_SIZE and the rest are set in its environment."""

    name = "any"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank, with PMI unless it is known that MPI is not used."""
        uses = source.uses_mpi(intent)[0]
        return RankProgram(
            layout,
            command(intent),
            dict(UNBUFFERED),
            mpi=uses is not False,
            certain=uses is not None,
            findings=nested(intent, layout),
        )


class Mpi:
    """A program that calls MPI_Init: the launcher provides PMI."""

    name = "mpi"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank, with PMI."""
        program_source = source.read(intent)
        argv = _aborting(command(intent)) if intent.mpi_abort and _uses_mpi4py(program_source) else command(intent)
        reasons = [Reason(argv[:1], "one MPI process per rank, with the launcher's PMI")]
        if argv != command(intent):
            reasons.append(Reason(MPI4PY, "an exception on one rank aborts all, which may wait for it in MPI"))
        return RankProgram(
            layout, argv, dict(UNBUFFERED), mpi=True, reasons=tuple(reasons), findings=nested(intent, layout)
        )


MPI4PY = ("-m", "mpi4py")
"""``python -m mpi4py``, https://mpi4py.readthedocs.io/en/stable/mpi4py.run.html: MPI_Abort after an exception. Without
it, such a rank waits in MPI_Finalize for the others, which wait for it."""
_PLAIN = re.compile(r"-[bBdEiIOPqsSuvx]+")
"""Options of Python without a value."""


def _uses_mpi4py(program_source: source.Source) -> bool:
    """Whether the program imports mpi4py unconditionally."""
    return any(one.name == "mpi4py" and one.surely for one in program_source.imports)


def _aborting(words: tuple[str, ...]) -> tuple[str, ...]:
    """The Python program run through mpi4py, so that exceptions abort; unchanged if its command cannot be parsed."""
    at = next((i for i, word in enumerate(words) if i and not _PLAIN.fullmatch(word)), 0)
    is_python = Path(words[0]).name.startswith("python")
    is_program = is_python and at and (words[at].endswith(".py") or words[at] == "-m")
    return (*words[:at], *MPI4PY, *words[at:]) if is_program and words[at : at + 2] != MPI4PY else words


class DeepSpeed:
    """DeepSpeed without its launcher, host file and ssh.

    ``deepspeed.init_distributed`` reads RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT if all are set
    (else it detects MPI); its launcher also sets CROSS_RANK, CROSS_SIZE and LOCAL_SIZE, and ``--local_rank`` as an
    option (deepspeed/comm/comm.py, deepspeed/launcher/launch.py).
    """

    name = "deepspeed"

    def program(self, intent: Intent, layout: Layout, _: BackendContext) -> RankProgram:
        """One task per rank, with the variables of DeepSpeed's launcher."""
        variables = {
            **UNBUFFERED,
            "CROSS_RANK": "${NODE_RANK}", "CROSS_SIZE": "${STACKYARD_NODES}", "LOCAL_SIZE": "${LOCAL_WORLD_SIZE}",
        }  # fmt: skip
        argv = command(intent)
        reasons = [Reason(("CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE"), "set by DeepSpeed's own launcher too")]
        options = source.read(intent).words() & {"--local_rank", "--local-rank"}
        if options and not any(word.split("=")[0] in options for word in argv):
            option = f"{sorted(options)[-1]}=${{LOCAL_RANK}}"
            argv = (*argv, option)
            reasons.append(Reason((option,), "the program parses this option, which DeepSpeed's launcher passes"))
        return RankProgram(
            layout, argv, variables, mpi=source.uses_mpi(intent)[0] is True, reasons=tuple(reasons),
            findings=nested(intent, layout),
        )  # fmt: skip


KERAS = {
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "${STACKYARD_MASTER}",
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "${WORLD_SIZE}",
    "KERAS_DISTRIBUTION_PROCESS_ID": "${RANK}",
}
"""For ``keras.distribution.initialize()``, which only Keras' JAX backend has; of several addresses it uses the first
(keras/src/backend/jax/distribution_lib.py, 3.15)."""

DETECTED = ("", "srun", "mpirun")
"""Launchers under which ``jax.distributed.initialize()`` detects the number and IDs of its processes."""


class Jax:
    """JAX with one process per rank.

    ``jax.distributed.initialize`` (jax/_src/distributed.py, 0.10) reads JAX_COORDINATOR_ADDRESS,
    JAX_COORDINATOR_BIND_ADDRESS and JAX_LOCAL_DEVICE_IDS. It reads *no* variable for the number and the ID of
    processes: those come from its arguments, or from variables of Slurm or Open MPI. JAX_NUM_PROCESSES and
    JAX_PROCESS_ID are set for programs that pass them on. ``keras.distribution.initialize`` reads `KERAS`.
    """

    name = "jax"

    def program(self, intent: Intent, layout: Layout, context: BackendContext) -> RankProgram:
        """One task per rank, the coordinator on rank 0's node."""
        variables = {
            **UNBUFFERED,
            "JAX_COORDINATOR_ADDRESS": "${STACKYARD_MASTER}",
            "JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:${MASTER_PORT}",
            "JAX_NUM_PROCESSES": "${WORLD_SIZE}", "JAX_PROCESS_ID": "${RANK}", **KERAS,
            **direct_grpc(intent),
        }  # fmt: skip
        if layout.gpus_per_rank == 1:
            variables["JAX_LOCAL_DEVICE_IDS"] = "${STACKYARD_DEVICE}"
        reason = Reason(("JAX_COORDINATOR_ADDRESS",), "jax.distributed.initialize() reads rank 0's address from it")
        findings = (*nested(intent, layout), *(() if context.launcher in DETECTED else (_UNDETECTED,)))
        mpi = source.uses_mpi(intent)[0] is True
        return RankProgram(layout, command(intent), variables, mpi=mpi, reasons=(reason,), findings=findings)


_UNDETECTED = Finding(
    "jax-undetected", "note", "jax.distributed.initialize() does not detect this launcher",
    "it detects the number and IDs of its processes only under Slurm and Open MPI",
    'jax.distributed.initialize(num_processes=int(os.environ["WORLD_SIZE"]), process_id=int(os.environ["RANK"]))',
)  # fmt: skip
