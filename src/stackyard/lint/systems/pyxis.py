"""Pyxis, the plug-in of Slurm that starts Enroot: options of srun and sbatch (NVIDIA/pyxis 0.24: README, args.c)."""

from __future__ import annotations

import re

from stackyard.launch.request.options import Table, names
from stackyard.lint.systems.base import HOLE, Fault, Found, System, colon_binds, is_path, meant, pieces, registry_of

VALUED = names(
    "container-image container-mounts container-workdir container-name container-save container-env container-unshare"
)
FLAGS = names(
    "container-mount-home no-container-mount-home container-remap-root no-container-remap-root container-entrypoint "
    "no-container-entrypoint container-entrypoint-log container-writable container-readonly"
)
MEANINGS = {
    **meant(image="container-image", binds="container-mounts", workdir="container-workdir"),
    **meant(variables="container-env", ours="container-entrypoint-log"),
    "container-name": "a container that outlives its step: with the image alone it is made anew for each step",
    "container-save": "the image that a step leaves behind: make it once, with enroot export or `image build`",
    "container-unshare": "namespaces of the container",
}


def faults(image: str) -> list[Fault]:
    """What is wrong with an image: a path begins with ``/`` or ``.``, and ``#`` ends the registry."""
    if is_path(image):
        return []
    scheme, separator, rest = image.partition("://")
    if separator and scheme not in ("docker", "dockerd"):
        return [Fault(f"Enroot imports docker:// and dockerd://, and no {scheme}://", f"docker://{rest}")]
    name = (rest if separator else image).rpartition("@")[2] if "@sha256:" not in image else rest or image
    registry = registry_of(name) if "#" not in name and scheme != "dockerd" else ""
    if registry:
        better = image.replace(f"{registry}/", f"{registry}#", 1)
        text = f"Enroot before 4.0 takes {registry} for a directory of Docker Hub: # ends a registry"
        return [Fault(text, better, "note")]
    return []


def binds(value: str) -> Found:
    """``SRC[:DST[:FLAG+FLAG]]``, separated by commas: paths begin with ``/`` or ``.``."""

    def fault(entry: str, source: str, target: str) -> Fault | None:
        if not source or (len(pieces(entry, ":")) > 1 and not pieces(entry, ":")[1]):
            return Fault(f"an empty mount in {value}", re.sub(",{2,}", ",", value).strip(",:"))
        if re.search(r"\s", HOLE.sub("", entry.strip())):
            return Fault(f"Enroot splits {entry} at its blank", "a directory without blanks in its name")
        if not is_path(source) and source not in ("tmpfs", "umount"):
            begins = "~ is not expanded behind =" if source.startswith("~") else "a source begins with / or ."
            better = source.replace("~", "$HOME", 1) if source.startswith("~") else f"./{entry}"
            return Fault(f"Pyxis rejects the mount {entry}: {begins}", better)
        return None if is_path(target) else Fault(f"Pyxis rejects the mount {entry}: a target begins with / or .")

    return colon_binds(value, ",", fault)


PYXIS = System(
    name="Pyxis", runtime="pyxis", table=Table(VALUED, FLAGS), meanings=MEANINGS, binds=binds, faults=faults,
    encloses=True,
    environment={f"PYXIS_{name.upper().replace('-', '_')}": name for name in (*VALUED, *FLAGS) if name[:3] != "no-"},
)  # fmt: skip
