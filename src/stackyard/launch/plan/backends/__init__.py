"""The requirements of each kind of program on its launch: torchrun, Horovod, MPI, JAX, TensorFlow, Ray, or none."""

from __future__ import annotations

from stackyard.core import plugins
from stackyard.core.errors import Where
from stackyard.launch.plan.backends import source, started
from stackyard.launch.plan.backends.base import HELPERS, Backend, BackendContext, command
from stackyard.launch.plan.backends.horovod import Horovod
from stackyard.launch.plan.backends.ray import Ray
from stackyard.launch.plan.backends.simple import AnyProgram, DeepSpeed, Jax, Mpi
from stackyard.launch.plan.backends.tensorflow import TensorFlow
from stackyard.launch.plan.backends.torchrun import Torchrun
from stackyard.launch.plan.model import Reason
from stackyard.launch.request.intent import Intent

TABLE: dict[str, Backend] = {
    backend.name: backend
    for backend in (Torchrun(), Horovod(), Mpi(), DeepSpeed(), Jax(), TensorFlow(), Ray(), AnyProgram())
}
GROUP = "stackyard.backends"
"""The entry points of plug-ins; each is a `Backend`."""
BY_IMPORT = {
    "horovod": "horovod", "deepspeed": "deepspeed", "ray": "ray", "mpi4jax": "mpi", "jax": "jax",
    **dict.fromkeys(source.MPI_PACKAGES, "mpi"),
    **dict.fromkeys(("torch", "accelerate", "lightning", "pytorch_lightning"), "torchrun"),
    "tensorflow": "tensorflow", "transformers": "torchrun", "keras": "tensorflow",
}  # fmt: skip
"""The backend of each package, in order of precedence: a Horovod program imports torch too, and programs for torch and
JAX read data or write logs with TensorFlow."""
OF_KERAS = {"jax": "jax", "torch": "torchrun"}
"""The backend of a program that imports only keras, by the name of Keras' own; else tensorflow, which suits JAX too."""

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


def settled(intent: Intent) -> Intent:
    """The request with what its program decides before ranks are placed.

    That are the ranks per node in the options of torchrun or accelerate; and that a rank of TensorFlow, which takes all
    GPUs that it sees, sees only its own.
    """
    if intent.roles:
        own = {name: settled(intent.of_role(name)).gpu_visibility for name in intent.roles}
        roles = {name: role.model_copy(update={"gpu_visibility": own[name]}) for name, role in intent.roles.items()}
        return intent.model_copy(update={"roles": roles})
    intent = started.settled(intent)
    if intent.gpu_visibility != "auto" or choose(intent)[0] != "tensorflow":
        return intent
    return intent.model_copy(update={"gpu_visibility": "own"})


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
    for package, usual in BY_IMPORT.items():
        place = program_source.imported(package)
        if place is not None:
            name = OF_KERAS.get(source.keras_backend(intent), usual) if package == "keras" else usual
            return name, (Reason(("--backend", name), f"{Where(place.file, place.line)} imports {package}"),)
    return "any", (Reason(("--backend", "any"), f"{program_source.script} imports none of {', '.join(BY_IMPORT)}"),)
