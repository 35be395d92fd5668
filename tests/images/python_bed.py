"""A small image of others with Pythons: one that was moved from where it was built, an environment on it, and MPICH."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from images.basebed import oci, of_directory
from images.oci_bed import copy_program
from images.wrap_bed import Wrapped, image
from support import programs

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
PY, VENV, MPI = "/opt/py", "/opt/stackyard/venv", "/opt/mpich"
ENV = (f"PATH={VENV}/bin:{PY}/bin:{MPI}/bin:/bin", f"VIRTUAL_ENV={VENV}")
_SCRIPT = '#!/bin/sh\ncat "$(dirname "$0")/../share/beside"\n'
_UNWANTED = shutil.ignore_patterns("site-packages", "dist-packages", "test", "tests", "__pycache__", "config-*", "*.a",
                                   "idlelib", "tkinter", "turtledemo")  # fmt: skip


def python_image(directory: Path, *, mpi: bool = False) -> Path:
    """A system with this interpreter at `PY`, where it was not compiled for, and a virtual environment on it."""
    root = image(directory)
    base = Path(sys.base_prefix).resolve()
    real = base / "bin" / VERSION
    for program in (real, *(base / "lib" / VERSION / "lib-dynload").glob("*.so")):
        copy_program(program, root)
    _link_libraries(root, base)
    python = root / PY[1:]
    shutil.copytree(base / "lib" / VERSION, python / "lib" / VERSION, symlinks=True, ignore=_UNWANTED)
    (python / "bin").mkdir()
    shutil.copy(real, python / "bin" / VERSION)
    _write(python / f"lib/{VERSION}/site-packages/below.py", "x = 'of the interpreter'\n")
    for name in ("python3", "python"):
        (python / "bin" / name).symlink_to(VERSION)
    _environment(root / VENV[1:])
    for place in ("root", "home"):  # so that the host's are not seen, where this interpreter may have its own files
        _write(root / place / "own", "of the image\n")
    if mpi:
        starter = Path(programs.need("mpiexec.hydra"))
        for name in ("mpiexec.hydra", "hydra_pmi_proxy"):
            copy_program(starter.with_name(name), root)
            (root / MPI[1:] / "bin").mkdir(parents=True, exist_ok=True)
            shutil.move(root / "usr/bin" / name, root / MPI[1:] / "bin" / name)
        (root / MPI[1:] / "bin/mpiexec").symlink_to("mpiexec.hydra")
    return root


def _link_libraries(root: Path, base: Path) -> None:
    """Libraries are where the loader of the image looks, also those that lie beside the interpreter here."""
    for library in (root / str(base)[1:]).glob("lib/*.so*"):
        shutil.move(library, root / "usr/lib" / library.name)
    if base.parts[1] != "usr":
        shutil.rmtree(root / base.parts[1], ignore_errors=True)
    for name in ("lib", "lib64"):
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")


def _environment(venv: Path) -> None:
    _write(venv / f"lib/{VERSION}/site-packages/inbase.py", "x = 'of the environment'\n")
    _write(venv / "pyvenv.cfg", f"home = {PY}/bin\ninclude-system-site-packages = true\nversion = {sys.version[:6]}\n")
    _write(venv / "share/beside", "beside it\n")
    _write(venv / "bin/tool", _SCRIPT)
    (venv / "bin/tool").chmod(0o755)
    for name, leads in ((VERSION, f"{PY}/bin/{VERSION}"), ("python3", VERSION), ("python", VERSION)):
        (venv / "bin" / name).symlink_to(leads)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def python_bed(directory: Path, *, mpi: bool = False) -> Wrapped:
    """A directory with an OCI layout of the image; nothing is wrapped yet."""
    root = python_image(directory / "system", mpi=mpi)
    oci(directory / "layout", [of_directory(root)], packed=False, Env=ENV)
    return Wrapped(directory, "py")
