"""The container engine of CSCS: ``--environment`` names an EDF, a TOML file (its reference; it has Pyxis' options)."""

from __future__ import annotations

from stackyard.launch.request.options import Table, names
from stackyard.lint.systems import pyxis
from stackyard.lint.systems.base import Fault, System, is_path, registry_of

_ANOTHER = "an image in place of that of the EDF: name it in an EDF of its own"


def faults(environment: str) -> list[Fault]:
    """What is wrong with an EDF: a path begins with ``/`` or ``./``, and a name has no ``.toml``."""
    if is_path(environment):
        return []
    if "#" in environment or "://" in environment or registry_of(environment):
        return [Fault(f"{environment} is an image, and --environment names an EDF", "./NAME.toml with image = ...")]
    if environment.endswith(".toml") or "/" in environment:
        text = f"{environment} is searched for in EDF_PATH under this name: a path begins with / or ./"
        return [Fault(text, f"--environment=./{environment}")]
    return []


EDF = System(
    name="the container engine", runtime="edf", table=Table({**pyxis.VALUED, **names("environment")}, pyxis.FLAGS),
    meanings={**pyxis.MEANINGS, "environment": "image", "container-image": _ANOTHER},
    environment=pyxis.PYXIS.environment, binds=pyxis.binds, faults=faults, registry=False, encloses=True,
)  # fmt: skip
