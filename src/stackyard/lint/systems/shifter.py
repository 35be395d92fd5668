"""Shifter of NERSC: ``shifter`` before the program, and ``#SBATCH --image`` (NERSC/shifter: shifter.c, VolumeMap.c)."""

from __future__ import annotations

from stackyard.launch.request.options import Table, names
from stackyard.lint.systems.base import Fault, Found, System, colon_binds, is_path, meant, slashed

_TYPES = ("docker", "custom", "id", "local")
_OWN = ("/etc", "/var", "/opt/udiImage")


def faults(image: str) -> list[Fault]:
    """What is wrong with ``[docker:]NAME[:TAG]``."""
    kind, separator, rest = image.partition(":")
    if rest.startswith("//"):
        return [Fault(f"Shifter takes {kind}:NAME, without slashes", f"{kind}:{rest[2:].replace('#', '/')}")]
    name = rest if separator and kind in _TYPES else image
    if "@sha256:" in name:
        return [Fault("Shifter knows tags, and no digests", name.partition("@")[0] + ":TAG")]
    return slashed(name, "Shifter")


def binds(value: str) -> Found:
    """``SRC:DST[:FLAGS]``, separated by semicolons; none below /etc, /var and /opt/udiImage."""

    def fault(entry: str, source: str, target: str) -> Fault | None:
        if target in ("/opt", *_OWN) or target.startswith(tuple(f"{each}/" for each in _OWN)):
            return Fault(f"Shifter mounts nothing at {target}", f"{source}:/mnt")
        return None if is_path(source) and is_path(target) else Fault(f"Shifter rejects the volume {entry}: SRC:DST")

    return colon_binds(value, ";", fault)


_VALUED = "image volume env env-file module workdir entrypoint-args modules"
SHIFTER = System(
    name="Shifter", runtime="shifter", programs={"shifter": ""}, binds=binds, faults=faults,
    table=Table(
        names(_VALUED, "i:image V:volume e:env m:module w:workdir"),
        names("clearenv help verbose entrypoint", "E:clearenv h:help v:verbose"),
    ),
    meanings={
        **meant(image="image", binds="volume", variables="env", workdir="workdir", kept="module", ours="verbose"),
        "env-file": "variables in a file of Shifter's",
        **dict.fromkeys(("entrypoint", "entrypoint-args"), "the image's own entrypoint: name its program in `program`"),
        "clearenv": "the empty environment, without the ranks' own variables",
    },
)  # fmt: skip
