"""`Role`: one of several programs of a job, with its own nodes, ranks, variables and image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from stackyard.core.secrets import is_secret
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import OptionalPath, RoleName, VariableName, Variables, Word

Count = Annotated[int, Field(ge=1, le=10_000)]
"""Something counted on one node."""
MOST_NODES = 200_000


class RankOptions(LateModel):
    """What a role or a variant may say of its ranks instead of the job. None or empty: the job's value."""

    ranks_per_node: Count | None = None
    cores_per_rank: Count | None = None
    threads_per_rank: Count | None = None
    gpus_per_rank: int | None = Field(None, ge=0, le=1000)
    gpu_visibility: Literal["", "auto", "all", "own"] = ""
    backend: Word = ""
    container: OptionalPath = Field("", description="An image to run in: a file, a directory, or that of a registry")
    variables: Variables = Field({}, description="Environment variables of its ranks, besides those of the job")


class Role(RankOptions):
    """One program of a job with several. None or empty: the job's value, else as for a job with one program."""

    program: tuple[str, ...] = Field(
        min_length=1, description="The command of every rank; a *.py file is run by python"
    )
    nodes: int | None = Field(
        None, ge=1, le=MOST_NODES, description="None: one; with `beside` all of that role's nodes"
    )
    beside: RoleName | Literal[""] = Field("", description="A role on whose first nodes this one runs too")
    serves: bool = Field(False, description="It is ended when all ranks of the other roles have ended")
    profile: tuple[str, ...] = Field((), description="e.g. nsys:ranks=0; ranks are counted within the role")
    passed: tuple[VariableName, ...] = Field((), description="Variables of your shell for its ranks, never recorded")
    cwd: OptionalPath = ""

    def recorded(self) -> Role:
        """The role for files: for variables that may be secret only the name, in `passed`."""
        return self.model_copy(update=without_secrets(self.variables, self.passed))


def without_secrets(variables: Mapping[str, str], passed: Iterable[str]) -> dict[str, Any]:
    """The fields `variables` and `passed` for files: for variables that may be secret only the name."""
    secret = [name for name, value in variables.items() if is_secret(name, value)]
    plain = {name: value for name, value in variables.items() if name not in secret}
    return {"variables": plain, "passed": tuple(dict.fromkeys((*passed, *secret)))}


OWN = (
    "ranks_per_node", "cores_per_rank", "threads_per_rank", "gpus_per_rank", "gpu_visibility", "backend", "container",
    "profile", "cwd",
)  # fmt: skip
"""What a role says instead of the job."""


def problem(roles: Mapping[str, Role]) -> str:
    """The error in the roles of a job, or an empty string."""
    for name, role in roles.items():
        if not role.beside:
            continue
        other = roles.get(role.beside)
        if other is None or other.beside:
            return f"{name}.beside: {role.beside} is not a role with nodes of its own"
        if role.nodes is not None and role.nodes > (other.nodes or 1):
            return f"{name}.nodes: {role.nodes}, but {role.beside} has {other.nodes or 1}"
    if roles and all(role.serves for role in roles.values()):
        return "every role serves: nothing would end the job"
    return ""


def nodes_of(roles: Mapping[str, Role]) -> dict[str, tuple[int, int]]:
    """The first node and the number of nodes of each role; roles with nodes of their own in the order given."""
    counts: dict[str, tuple[int, int]] = {}
    first = 0
    for name, role in roles.items():
        if not role.beside:
            counts[name] = (first, role.nodes or 1)
            first += role.nodes or 1
    for name, role in roles.items():
        if role.beside:
            start, most = counts[role.beside]
            counts[name] = (start, role.nodes or most)
    return {name: counts[name] for name in roles}
