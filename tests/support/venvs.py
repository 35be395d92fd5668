"""Virtual environments with packages of the index, for tests of what runs on top of them; made once, in ``.cache``."""

from __future__ import annotations

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


def python(*packages: str) -> Path:
    """The Python of an environment with these packages and what they need; a minute the first time.

    Raises:
        MissingError: it could not be installed, with what was printed.
    """
    place = cache_directory() / f"venv-{'-'.join(packages)}-py{sys.version_info[0]}{sys.version_info[1]}"
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
