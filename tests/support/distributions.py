"""The sdist and the wheel of this checkout, as `python -m build` makes them: the wheel from the unpacked sdist."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from support import venvs
from support.torchstack import HOME

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_S = 300


@cache
def tracked() -> tuple[str, ...]:
    """The files of the checkout that git knows, and new ones that it does not ignore; skips where it is none."""
    argv = ["git", "-C", REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a checkout of git")
    return tuple(name for name in done.stdout.split("\0") if name and (REPOSITORY / name).is_file())


def built(directory: Path, *options: str, tree: Path | None = None) -> Path:
    """What `python -m build` writes, of a copy of the checkout (or of `tree`): no former build lies in it."""
    if tree is None:
        tree = directory / "checkout"
        for name in tracked():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, tree / name)
    target = directory / "dist"
    argv = [venvs.python("build"), "-m", "build", "--outdir", target, *options, tree]
    environ = {**os.environ, "HOME": HOME}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=BUILD_S)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return target


def wheel_of(directory: Path) -> Path:
    """The one wheel in a directory."""
    (found,) = directory.glob("*.whl")
    return found


def contents(wheel: Path) -> Mapping[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
