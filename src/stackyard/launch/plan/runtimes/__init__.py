"""The container runtimes: one class each with the words before the ranks' program. `TABLE` names them all."""

from __future__ import annotations

from collections.abc import Mapping

from stackyard.core import plugins
from stackyard.core.errors import InputError
from stackyard.host.machine.runtimes import runtime_of
from stackyard.inputs.reading.imagename import image_name, is_image_name
from stackyard.launch.plan.runtimes.apptainer import Apptainer
from stackyard.launch.plan.runtimes.base import Runtime
from stackyard.launch.plan.runtimes.charliecloud import Charliecloud
from stackyard.launch.plan.runtimes.edf import Edf
from stackyard.launch.plan.runtimes.podman_hpc import PodmanHpc
from stackyard.launch.plan.runtimes.pyxis import Pyxis
from stackyard.launch.plan.runtimes.shifter import Shifter
from stackyard.launch.plan.runtimes.uenv import Uenv

GROUP = "stackyard.runtimes"
"""The entry points of plug-ins; each is a `Runtime`."""
TABLE: dict[str, Runtime] = {
    one.name: one
    for one in (
        Apptainer("apptainer"), Apptainer("singularity"), Charliecloud(),
        Pyxis(), PodmanHpc(), Edf(), Uenv(), Shifter(),
    )
}  # fmt: skip


def named(name: str) -> Runtime:
    """The runtime of this name, including those of plug-ins. Raises InputError, which lists the known ones."""
    hint = "set launch.container.runtime in site.yaml to one of {}"
    return plugins.find(GROUP, name, TABLE, Runtime, "container runtime", hint)


def choose(name: str, image: str, environ: Mapping[str, str] | None = None) -> Runtime:
    """The runtime that was named, else the first one on PATH that supports the image.

    Args:
        environ: its PATH is searched; None: this process's.

    Raises:
        InputError: it is unknown, or does not support the image.
        MissingError: none is named, and none is found.
    """
    if not name:
        _require_file(image)
        return TABLE[runtime_of("", image, environ)]
    runtime = named(name)
    if not runtime.pulls:
        _require_file(image)
    if not runtime.reads(image):
        raise InputError(
            f"the container runtime of this site, {runtime.name}, does not read {image}", hint=_OTHERS[runtime.pulls]
        )
    return runtime


_OTHERS = {
    False: "use a directory or a SquashFS file, or name another one in launch.container.runtime",
    True: "use docker://REGISTRY/NAME:TAG, or another runtime (--runtime, or launch.container.runtime)",
}


def _require_file(image: str) -> None:
    if is_image_name(image):
        name = image_name(image)
        raise InputError(
            f"{image} is not a file: every rank would pull and convert it",
            hint=f"convert it once: apptainer build image.sif {name.docker}",
        )
