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


def python(package: str) -> Path:
    """The Python of an environment with one package and what it needs; a minute the first time.

    Raises:
        MissingError: it could not be installed, with what was printed.
    """
    place = cache_directory() / f"venv-{package}-py{sys.version_info[0]}{sys.version_info[1]}"
    with FileLock(f"{place}.lock"):
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=240)
            _install(place, package)
            (place / "ready").touch()
    return place / "bin" / "python"


def _install(place: Path, package: str) -> None:
    done = subprocess.run(
        [place / "bin" / "python", "-m", "pip", "install", "--quiet", package],
        env=os.environ | {"HOME": HOME}, capture_output=True, text=True, check=False, timeout=INSTALL_S,
    )  # fmt: skip
    if done.returncode:
        raise MissingError(f"{package} could not be installed", hint="a package index is needed", detail=done.stderr)
