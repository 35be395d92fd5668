"""Sarus 1 of CSCS: ``sarus run`` before the program (its user guide; src/cli/CommandRun.hpp)."""

from __future__ import annotations

from stackyard.launch.request.options import Table, names
from stackyard.lint.systems.base import Found, System, meant, slashed
from stackyard.lint.systems.podman import keyed


def binds(value: str) -> Found:
    """``type=bind,source=SRC,destination=DST[,readonly]``."""
    return keyed(value, "Sarus")


SARUS = System(
    name="Sarus", runtime="", programs={"sarus": "run"}, positional=True,
    binds=binds, faults=lambda image: slashed(image, "Sarus"),
    table=Table(
        names("annotation device entrypoint env mount mpi-type name pid workdir", "e:env n:name w:workdir"),
        names("centralized-repository glibc init mpi ssh tty", "m:mpi t:tty"),
    ),
    meanings=meant(image="image", binds="mount", workdir="workdir", variables="env", ours="tty name init"),
)  # fmt: skip
