"""podman-hpc of NERSC: ``podman-hpc run``, a container for each rank.

Its documentation and source, 1.1: switches come from the site's modules.d (``--gpu``, ``--mpi``, ``--nccl``,
``--openmpi-pmi2``, ``--openmpi-pmix``); of the environment only what ``-e`` names is passed (podman-run(1): a ``*`` at
the end stands for any names), besides SLURM_*, PALS_* and PMI_* by modules for MPI.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.inputs.reading.imagename import image_name, is_image_name
from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.plan.runtimes.base import BOUND, WIRE_UP, Runtime, RuntimeInput
from stackyard.launch.plan.runtimes.pyxis import pulled_findings

PASSED = (
    "STACKYARD_*", "SLURM_*", "PMI*", "PALS_*", "OMPI_*", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "LANG", "USER",
)  # fmt: skip
"""The variables of a rank, which rank.sh sets on the host."""
HOST = ("--network=host", "--ipc=host", "--pid=host")


class PodmanHpc(Runtime):
    """podman-hpc, for an image of a registry that was pulled or migrated before, or a root directory."""

    name = "podman-hpc"
    program = "podman-hpc"
    pulls = starts_in_image = True

    def reads(self, image: str) -> bool:
        """Whether it is a name or a directory: podman takes no file as a root."""
        return is_image_name(image) or Path(image).is_dir()

    def wires(self, mpi: bool) -> tuple[str, ...]:
        """Each directory separately."""
        return WIRE_UP if mpi else WIRE_UP[:1]

    def check(self, inside: RuntimeInput) -> None:
        """Raise InputError for a path with a colon, which separates the parts of a volume, and with a stack."""
        if inside.path:
            hint = "leave out --with and use the image's own programs, or use --runtime apptainer"
            raise InputError(
                "podman-hpc passes no environment of a stack, and cannot put it before the image's", hint=hint
            )
        for bind in inside.binds:
            if bind.count(":") > 2:
                raise InputError(f"podman cannot mount {bind}: a colon separates its parts", hint="use another name")

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The run command; the image's own PATH stays, with the stack's programs before it where there are some."""
        is_name = is_image_name(inside.image)
        words = [self.program, "run", "--rm", *(("--gpu",) if inside.gpu == "nvidia" else ()), *HOST]
        for bind in inside.binds:
            source, _, rest = bind.partition(":")
            words += ["-v", f"{source}:{rest or source}"]
        for name in (*PASSED, *inside.names):
            words += ["-e", name]
        for name, value in inside.variables.items():
            words += ["-e", f"{name}={value}"]
        words += [*(("-w", inside.cwd) if inside.cwd else ()), "--entrypoint="]
        words += [
            *inside.policy.options,
            *((image_name(inside.image).plain,) if is_name else ("--rootfs", inside.image)),
        ]
        reasons: tuple[Reason, ...] = (
            Reason((self.program, "run"), f"runs in {inside.image}, in a container for each rank"),
            Reason(HOST, "the network, shared memory and processes of the node"),
            Reason(("-v",), BOUND),
            Reason(("-e",), "podman passes no other variable of a rank"),
            Reason(("--entrypoint=",), "an ENTRYPOINT of the image does not get the program"),
        )
        if inside.gpu == "nvidia":
            reasons = (*reasons, Reason(("--gpu",), "the site's module that binds the host's GPU driver"))
        return Wrapper(tuple(words), reasons=reasons, findings=tuple(pulled_findings(inside.image)) if is_name else ())
