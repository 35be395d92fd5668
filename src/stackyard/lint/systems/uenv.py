"""uenv of CSCS: images that srun mounts at /user-environment, and views of them (its documentation, "Slurm")."""

from __future__ import annotations

import re

from stackyard.launch.request.options import Table, names
from stackyard.lint.systems.base import Fault, System, is_path, meant, pieces


def faults(uenv: str) -> list[Fault]:
    """What is wrong with a list of labels ``name/version:tag@system%uarch`` or files, each with ``:MOUNT``."""
    found = list[Fault]()
    for one in pieces(uenv, ","):
        if not one:
            found.append(Fault(f"an empty name in {uenv}", re.sub(",{2,}", ",", uenv).strip(",")))
        elif "#" in one or "://" in one:
            found.append(
                Fault(f"{one} is an image of a registry: uenv takes a label or a SquashFS file", "NAME/VERSION")
            )
        elif re.search(r"\.sq(?:uash|s)\w*(?::|$)", one) and not is_path(one):
            found.append(Fault(f"{one} is taken for a label: a file begins with / or ./", f"./{one}"))
    return found


UENV = System(
    name="uenv", runtime="uenv", table=Table(names("uenv view repo uenv-passthrough"), names("no-default-view")),
    meanings=meant(image="uenv", kept="view repo no-default-view", ours="uenv-passthrough"), faults=faults,
    registry=False, environment={"SLURM_UENV": "uenv", "SLURM_UENV_VIEW": "view", "SLURM_UENV_REPO": "repo"},
)  # fmt: skip
