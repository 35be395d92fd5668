"""Pyxis: srun's options for containers of Enroot, in which the task itself starts.

Pyxis 0.24, its README and args.c: options and the grammar of their values; Enroot 3 and 4: what a container has.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from stackyard.core.errors import InputError, MissingError
from stackyard.core.findings import Finding
from stackyard.host.machine.runtimes import SRUN_OPTIONS
from stackyard.host.run.command import CommandError, run, which
from stackyard.inputs.reading.imagename import image_name, is_image_name
from stackyard.inputs.sites.library_directories import INSIDE
from stackyard.launch.plan.model import Reason, Wrapper
from stackyard.launch.plan.runtimes.base import Kind, Runtime, RuntimeInput, with_libraries

STEP = "{step}"
OF_ENROOT = ("/proc", "/sys", "/dev", "/dev/shm", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
"""What Enroot mounts from the host in every container."""
OF_DRIVER = ("libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*", "libnvcuvid.so*", "libnvoptix.so*")
"""What Enroot's hook 98-nvidia.sh brings from the host's driver."""
PAIRS = (
    ("--no-container-remap-root", "--container-remap-root", "your own account inside, as outside"),
    ("--no-container-mount-home", "--container-mount-home", "the home of the host stays outside, unless it is bound"),
    ("--no-container-entrypoint", "--container-entrypoint", "an ENTRYPOINT of the image does not get the program"),
)
"""Words against the defaults of a site's Pyxis, the opposite of each, and why."""


class Pyxis(Runtime):
    """Pyxis, for a SquashFS file or an image of a registry."""

    name = "pyxis"
    program = "srun"
    kind: Kind = "inside"
    apart = False
    pulls = True
    starts_in_image = True
    libraries = INSIDE

    def reads(self, image: str) -> bool:
        """Whether the image is not a SIF file."""
        return not image.endswith(".sif")

    def wires(self, mpi: bool) -> tuple[str, ...]:
        """None: PMI2 is a descriptor that is inherited, and directories of PMIx are unknown before the step."""
        return ()

    def require(self, environ: Mapping[str, str] | None) -> None:
        """Raise MissingError where srun is on PATH and has no option --container-image."""
        require_option(self.name, "Pyxis", environ)

    def check(self, inside: RuntimeInput) -> None:
        """Raise InputError for a directory, and for mounts with a comma or a colon in their paths."""
        require_file(inside.image)
        for bind in inside.binds:
            if "," in bind or bind.count(":") > 2:
                hint = "give the directory another name, or start from another one"
                raise InputError(f"Pyxis cannot mount {bind}: a comma separates mounts, a colon their parts", hint=hint)

    def wrapper(self, inside: RuntimeInput) -> Wrapper:
        """srun's words; inside.sh sets the variables."""
        mounts = dict(mounts_of(inside))
        text = ",".join(mounts)
        words = [
            Reason((f"--container-image={enroot_name(inside.image)}",), f"each task starts in {inside.image}"),
            Reason((f"--container-mounts={text}",), "the files of the host in it, each with its reason below"),
            *(Reason((no,), why) for no, yes, why in PAIRS if not {no, yes} & {*inside.policy.options}),
            *(Reason((option,), "an option of the site or of the job") for option in inside.policy.options),
        ]
        reasons = tuple(Reason((f"mount {mount}",), why) for mount, why in mounts.items())
        return Wrapper(
            (), variables=with_libraries(inside, INSIDE), reasons=reasons,
            findings=tuple(pulled_findings(inside.image)), launcher=tuple(words), inside=True,
            workdir=inside.cwd, pulled=is_image_name(inside.image),
        )  # fmt: skip


def enroot_name(image: str) -> str:
    """An image as Enroot takes it: a path, or ``REGISTRY#NAME:TAG``."""
    return image_name(image).enroot if is_image_name(image) else image


def mounts_of(inside: RuntimeInput) -> Iterator[tuple[str, str]]:
    """``SRC:DST[:FLAGS]`` of each mount, with its reason; without what the runtime brings by itself."""
    yield f"{STEP}:{STEP}", "the run directory: the ranks' script, and their logs"
    for bind in inside.binds:
        source, _, rest = bind.partition(":")
        target, _, flags = rest.partition(":")
        target = target or source
        if target == source and source in OF_ENROOT:
            continue  # it is mounted by every runtime of this kind
        mount = f"{source}:{target}" + (f":{flags.replace(',', '+')}" if flags else "")
        yield mount, inside.why.get(bind, "of launch.container in site.yaml")
    for library in inside.policy.libraries:
        for file in sorted(map(str, Path("/").glob(library.lstrip("/")))) if "*" in library else [library]:
            name = PurePath(file).name
            if not (inside.gpu == "nvidia" and any(fnmatch.fnmatch(name, one) for one in OF_DRIVER)):
                yield f"{file}:{INSIDE.libraries}/{name}:ro", "a library of the host that the site names"


def require_file(image: str) -> None:
    """Raise InputError for an image that is a directory, or a file that this account cannot read."""
    if is_image_name(image):
        return
    if Path(image).is_dir():
        hint = f"make a file of it: mksquashfs {image} {PurePath(image).name}.sqsh"
        raise InputError(f"{image} is a directory, and srun takes SquashFS files and images of registries", hint=hint)
    if not os.access(image, os.R_OK):
        raise InputError(f"cannot read {image}: permission denied", hint="ask its owner, or use a copy")


def require_option(runtime: str, product: str, environ: Mapping[str, str] | None) -> None:
    """Raise MissingError where srun is here and lacks the option of a runtime; without srun nothing is known."""
    srun, option = which("srun", environ), SRUN_OPTIONS[runtime]
    if srun is None:
        return
    try:
        text = run([srun, "--help"], timeout_s=20, env=dict(environ) if environ is not None else None).stdout
    except CommandError:
        return  # the launch line will say why
    if option not in text:
        raise MissingError(
            f"{product} not found on this cluster: srun has no option {option}",
            hint="`srun --help` lists the options of plug-ins; name another runtime: --runtime apptainer",
        )


def pulled_findings(image: str) -> Iterator[Finding]:
    """A note for an image of a registry: each node pulls it, and only a digest names the same bytes tomorrow."""
    if not is_image_name(image):
        return
    name = image_name(image)
    pinned = "" if name.digest else f"; the tag {name.tag or 'latest'} may be another image tomorrow"
    yield Finding(
        "image-pulled", "note", f"every node pulls {name.docker} before its ranks start{pinned}",
        "one file on a shared file system is read once, needs no login on the nodes and does not change",
        f"stackyard image pull {name.docker} --format sqsh -o {PurePath(name.repository).name}.sqsh",
    )  # fmt: skip
