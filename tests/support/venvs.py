"""Virtual environments with packages of the index, for tests of what runs on top of them; made once, in ``.cache``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from stackyard.core.errors import MissingError
from support.testbed import cache_directory
from support.torchstack import HOME

INSTALL_S = 900
FRAMEWORKS = (
    "torch==2.13.0", "numpy", "mpi4py>=4.1", "accelerate", "transformers", "lightning", "deepspeed", "ray[train]",
    "jax", "keras", "tensorflow-cpu", "dask", "distributed", "dask-mpi", "hydra-core", "hydra-submitit-launcher",
)  # fmt: skip


def frameworks() -> Path:
    """The Python of an environment with all frameworks of docs/reference/frameworks.md; three minutes the first time.

    Raises:
        MissingError: one could not be installed, with what was printed.
    """
    return python(*FRAMEWORKS, name="frameworks")


def python(*packages: str, name: str = "") -> Path:
    """The Python of an environment with these packages and what they need; a minute the first time.

    Where the environment with all frameworks has them, it is that one: TensorFlow and JAX take gigabytes.

    Args:
        name: what the environment is called in the cache; empty: after its packages.

    Raises:
        MissingError: it could not be installed, with what was printed.
    """
    if not name and set(packages) <= set(FRAMEWORKS):
        return frameworks()
    made_of = f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:8]}" if name else "-".join(packages)
    place = cache_directory() / f"venv-{made_of}-py{sys.version_info[0]}{sys.version_info[1]}"
    with FileLock(f"{place}.lock"):
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=240)
            _install(place, *packages)
            (place / "ready").touch()
    return place / "bin" / "python"


def _install(place: Path, *packages: str) -> None:
    done = subprocess.run(
        [place / "bin" / "python", "-m", "pip", "install", "--quiet", *packages],
        env=os.environ | {"HOME": HOME}, capture_output=True, text=True, check=False, timeout=INSTALL_S,
    )  # fmt: skip
    if done.returncode:
        message = f"{' and '.join(packages)} could not be installed"
        raise MissingError(message, hint="a package index is needed", detail=done.stderr)
