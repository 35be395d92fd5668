"""Finds out which Pythons of an image look for their library beside their program only, by starting them once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.images.inventory import Inventory
from stackyard.images.squashfs.enter import run_within
from stackyard.images.wrap.starts import BaseTree, Starts
from stackyard.yard import disk
from stackyard.yard.kinds.payload import Container

START_S = 120.0
_IDLE_S = "10"
_PREFIX = "import sys; print(sys.prefix)"
_BASE_PREFIX = "import sys; print(getattr(sys, 'base_prefix', sys.prefix))"


def with_files(payload: Container, how: Starts, programs: Mapping[str, str], listed: Inventory, work: Path) -> Starts:
    """How the commands start, with the library of each Python beside it that virtual environments on it would not find.

    A Python needs that if it was moved from the directory that it was compiled for. All others find their library by
    its path in the image, so that nothing is looked up on a shared file system.

    Args:
        work: a directory of the revision, which the container has too.
    """
    for tree in how.trees:
        if tree.programs and not _finds_library(payload, tree, work):
            how = how.with_files(tree, programs, listed)
    return how


def _finds_library(payload: Container, tree: BaseTree, work: Path) -> bool:
    """Whether a virtual environment on a Python finds the library of that."""
    name = next(iter(tree.programs))
    program = payload.root / tree.place / "bin" / name
    environment = work / "environment"
    disk.remove_tree(environment)
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / name).symlink_to(program)
    (environment / "pyvenv.cfg").write_text(f"home = {program.parent}\n", encoding="utf-8")
    own = _printed(payload, tree.programs[name], _PREFIX, work)
    return bool(own) and own == _printed(payload, str(environment / "bin" / name), _BASE_PREFIX, work)


def _printed(payload: Container, program: str, code: str, work: Path) -> str:
    """What a Python of the container prints; empty: it does not start, which the checks of the revision report."""
    clean = {"HOME": "/", "PATH": "/usr/bin:/bin", "STACKYARD_TMP": str(work), "STACKYARD_IMAGE_IDLE_S": _IDLE_S}
    try:
        done = run_within(payload, [program, "-E", "-c", code], timeout_s=START_S, environ=clean)
    except StackyardError:
        return ""
    return done.stdout.strip() if not done.returncode else ""
