"""The requirements of each kind of program on its launch: torchrun, Horovod, MPI, DeepSpeed, JAX, Ray, or none."""

from __future__ import annotations

from stackyard.core import plugins
from stackyard.core.errors import Where
from stackyard.launch.plan.backends import source, started
from stackyard.launch.plan.backends.base import HELPERS, Backend, BackendContext, command
from stackyard.launch.plan.backends.horovod import Horovod
from stackyard.launch.plan.backends.ray import Ray
from stackyard.launch.plan.backends.simple import AnyProgram, DeepSpeed, Jax, Mpi
from stackyard.launch.plan.backends.started import settled
from stackyard.launch.plan.backends.torchrun import Torchrun
from stackyard.launch.plan.model import Reason
from stackyard.launch.request.intent import Intent

TABLE: dict[str, Backend] = {
    backend.name: backend for backend in (Torchrun(), Horovod(), Mpi(), DeepSpeed(), Jax(), Ray(), AnyProgram())
}
GROUP = "stackyard.backends"
"""The entry points of plug-ins; each is a `Backend`."""
BY_IMPORT = {
    "horovod": "horovod", "deepspeed": "deepspeed", "ray": "ray", "mpi4jax": "mpi", "jax": "jax",
    **dict.fromkeys(source.MPI_PACKAGES, "mpi"),
    **dict.fromkeys(("torch", "accelerate", "transformers", "lightning", "pytorch_lightning"), "torchrun"),
}  # fmt: skip
"""The backend of each package, in order of precedence: a Horovod program imports torch too."""

__all__ = [
    "BY_IMPORT",
    "HELPERS",
    "TABLE",
    "Backend",
    "BackendContext",
    "choose",
    "command",
    "get",
    "needs_mpi",
    "settled",
]


def get(name: str) -> Backend:
    """The backend of this name, including those of plug-ins. Raises InputError with the known ones."""
    return plugins.find(GROUP, name, TABLE, Backend, "backend", "use one of auto, {}")


def needs_mpi(intent: Intent) -> bool:
    """Whether the ranks are certainly MPI processes: their launcher has to provide a PMI."""
    name, _ = choose(intent)
    return name == "mpi" or (name == "horovod" and intent.controller == "mpi")


def choose(intent: Intent) -> tuple[str, tuple[Reason, ...]]:
    """The backend of an intent and the reason: the requested one, else by the program's imports.

    The program and the modules next to it are parsed, never run. One that cannot be parsed, or that imports none of the
    packages, is `any`: RANK, WORLD_SIZE, MASTER_ADDR and the rest are set for it as well.
    """
    if intent.backend != "auto":
        return get(intent.backend).name, ()
    if found := started.per_node(intent):
        return "torchrun", (
            Reason(("--backend", "torchrun"), f"the program is {found.name}, which runs once per node"),
        )
    program_source = source.read(intent)
    if program_source.unread:
        uses, why = source.uses_mpi(intent)
        return ("mpi" if uses else "any"), (
            Reason(("--backend", "mpi" if uses else "any"), why or program_source.unread),
        )
    for package, name in BY_IMPORT.items():
        place = program_source.imported(package)
        if place is not None:
            return name, (Reason(("--backend", name), f"{Where(place.file, place.line)} imports {package}"),)
    return "any", (Reason(("--backend", "any"), f"{program_source.script} imports none of {', '.join(BY_IMPORT)}"),)
