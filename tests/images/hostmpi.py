"""Two MPIs for one program: MPICH's wheels of two releases, and an image that has the older one."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from stackyard.host.run.command import run
from support import images, programs, systems
from support.testbed import kept, wheels

HERE = Path(__file__).parent
RING = HERE / "ring.c"


def mpich(whose: str) -> Path:
    """The prefix of a release of MPICH (``of-host`` 5.0.2, ``of-image`` 4.3.2): bin, include, lib.

    Raises:
        MissingError: the package index cannot be reached.
    """
    requirements = HERE / f"mpich-{whose}.txt"
    directory = wheels(requirements)

    def unpack(scratch: Path) -> None:
        with zipfile.ZipFile(next(directory.glob("*.whl"))) as archive:
            archive.extractall(scratch)
        next(scratch.glob("*.data/data")).rename(scratch / "prefix")

    return kept(f"mpich-prefix-{whose}", [requirements, Path(__file__)], unpack) / "prefix"


def compiled(target: Path, prefix: Path, *words: str) -> Path:
    """The ring program, linked to the MPICH of a prefix."""
    target.parent.mkdir(parents=True, exist_ok=True)
    argv = [
        "gcc",
        "-o",
        target,
        RING,
        f"-I{prefix}/include",
        f"{prefix}/lib/libmpi.so.12",
        "-Wl,--allow-shlib-undefined",
    ]
    subprocess.run([*argv, *words], check=True, capture_output=True)
    return target


def image_with_mpich(target: Path, whose: str = "of-image") -> Path:
    """An image, as a directory, with an MPICH in /opt/mpich on its library path, and /app linked to it.

    Raises:
        MissingError: the image or a wheel cannot be made.
    """
    prefix = mpich(whose)
    bare_image(target)
    shutil.copytree(prefix / "lib", target / "opt/mpich/lib", symlinks=True)
    compiled(target / "app", prefix)
    with_cache(target, "/opt/mpich/lib")
    return target


def bare_image(target: Path) -> Path:
    """The tests' image as a directory that may be added to; its files are links to the kept ones."""
    shutil.copytree(images.image_directory(), target, symlinks=True, copy_function=os.link)
    return target


def with_cache(target: Path, directory: str) -> None:
    """Let the image's loader search a directory."""
    (target / "etc/ld.so.conf").unlink(missing_ok=True)
    (target / "etc/ld.so.conf").write_text(f"{directory}\n/usr/lib/x86_64-linux-gnu\n/usr/lib/aarch64-linux-gnu\n")
    subprocess.run(["/sbin/ldconfig", "-r", target], check=True, capture_output=True)


def image_with_openmpi() -> Path:
    """A Debian trixie with its Open MPI 5, as a directory, and /app linked to libmpi.so.40; don't write to it.

    Raises:
        MissingError: it cannot be made here.
    """
    programs.require("mpicc.openmpi")
    archive = systems.archive("trixie", "openmpi-bin")

    def unpack(scratch: Path) -> None:
        root = scratch / "root"
        root.mkdir()
        run(["tar", "-xf", archive, "-C", root, "--exclude=./dev/*"], timeout_s=300)
        run(["mpicc.openmpi", RING, "-o", root / "app"])

    return kept("image-openmpi5", [RING, Path(__file__)], unpack) / "root"
