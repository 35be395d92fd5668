"""The programs that run images, and the kinds of images that each supports."""

from __future__ import annotations

from collections.abc import Mapping

from stackyard.core.errors import InputError, MissingError
from stackyard.host.run.command import which

PROGRAMS: Mapping[str, str] = {"apptainer": "apptainer", "singularity": "singularity", "charliecloud": "ch-run"}
"""Runtime: its program, searched in this order if the site names none."""

SRUN_OPTIONS: Mapping[str, str] = {
    "pyxis": "--container-image", "edf": "--environment", "uenv": "--uenv", "shifter": "--image",
}  # fmt: skip
"""Runtimes of the scheduler: the option by which srun shows that a cluster has one."""


def runtime_of(named: str, image: str, environ: Mapping[str, str] | None = None) -> str:
    """The site's runtime, else the first one on PATH that supports the image.

    Args:
        environ: its PATH is searched; None: this process's.

    Raises:
        InputError: the site's runtime does not support the image.
        MissingError: the site names none, and none is found.
    """
    sif = image.endswith(".sif")
    if named == "charliecloud" and sif:
        raise InputError(
            f"{image} is a SIF file, which this site's runtime, Charliecloud, does not support",
            hint="use a directory or a SquashFS file",
        )
    if named:
        return named
    for runtime, program in PROGRAMS.items():
        if which(program, environ) and not (sif and runtime == "charliecloud"):
            return runtime
    raise MissingError(
        f"cannot run {image}: none of {', '.join(PROGRAMS.values())} found on PATH",
        hint="set `launch.container.runtime` in site.yaml if the runtime exists only on the compute nodes",
    )
