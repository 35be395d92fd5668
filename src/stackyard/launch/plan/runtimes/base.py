"""`Runtime`: the interface to a container runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.library_directories import APPTAINER, Place
from stackyard.launch.plan.model import Wrapper

WIRED = ("${STACKYARD_WIRED}",)
WIRE_UP = ("${STACKYARD_STEP}", "${STACKYARD_WIRE_1}", "${STACKYARD_WIRE_2}")
"""Directories that the shim knows at run time: the run directory and the directories of the launcher's PMIx or PALS
server. Without them every rank inside is "rank 0 of 1" or hangs in MPI_Init. `WIRED` is all of them, each once, joined
by commas: Apptainer takes that, and says something on each rank about a directory that is bound twice."""


@dataclass(frozen=True)
class RuntimeInput:
    """The input of one runtime: the image, working directory, binds and variables."""

    image: str
    cwd: str
    policy: ContainerPolicy
    gpu: str = ""
    binds: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    """The reason of binds that are not the site's."""
    names: tuple[str, ...] = ()
    """The variables of the plan, for a runtime that passes only what is named."""


BOUND = "the site's directories, the working directory, the run directory, the launcher's PMI server"
"""Why directories are bound."""


Kind = Literal["wraps", "words", "inside"]
"""What of a task a runtime puts into the image.

wraps   the program: words before it; rank.sh and the agent run on the host
words   mounts by words of the launcher, and the root stays the host's: rank.sh and the agent see them too
inside  the task itself, by words of the launcher: nothing of the host runs in it, so the agents are a step of their own
"""


class Runtime:
    """A container runtime. Each runtime is a subclass, also in plug-ins.

    Attributes:
        name: its name in ``launch.container.runtime`` of site.yaml.
        program: the program that must be on PATH on the nodes.
        kind: what it puts into the image; of all but ``wraps``, `Wrapper.launcher` has the words.
        apart: whether the ranks of a node get user namespaces of their own, and cannot read each other's memory.
        pulls: whether it takes images of registries.
        labels: whether an image may be a word of the site's own, which is neither a path nor a name of a registry.
        libraries: its directory for the host's libraries in the image.
        starts_in_image: whether it can start in the directory that the image names, with an empty `cwd`.
    """

    name: str
    program: str
    kind: Kind = "wraps"
    apart: bool = True
    pulls: bool = False
    labels: bool = False
    libraries: Place = APPTAINER
    starts_in_image: bool = False

    def require(self, environ: Mapping[str, str] | None) -> None:
        """Raise MissingError where this machine shows that the cluster does not have it."""

    def reads(self, image: str) -> bool:
        """Whether it supports this image: a file or a directory, by its name."""
        return True

    def wires(self, mpi: bool) -> tuple[str, ...]:
        """The entries of `WIRED` and `WIRE_UP` that must be bound."""
        return WIRED

    def check(self, inside: RuntimeInput) -> None:
        """Raise InputError if the image lacks something that the runtime needs."""

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """The words before the program, or those of the launcher, and the variables of the job."""
        raise NotImplementedError


def with_libraries(inside: RuntimeInput, place: Place) -> dict[str, str]:
    """The variables, with the directory of the site's libraries at the end of LD_LIBRARY_PATH, if it is not in it."""
    path = inside.variables.get("LD_LIBRARY_PATH", "")
    if not inside.policy.libraries or place.libraries in path:
        return inside.variables
    added = f"{path}:{place.libraries}" if path else place.libraries + place.rest
    return {**inside.variables, "LD_LIBRARY_PATH": added}


def cleaned(inside: RuntimeInput) -> tuple[Finding, ...]:
    """A warning if the site's options remove the ranks' variables."""
    cleaning = inside.policy.cleaning
    if not cleaning:
        return ()
    return (
        Finding(
            "container-cleanenv", "warning", f"{cleaning} removes the ranks' variables inside the container",
            "RANK, WORLD_SIZE, MASTER_ADDR and the launcher's own PMI variables do not reach the program",
            "remove it from `launch.container.options`",
        ),
    )  # fmt: skip
