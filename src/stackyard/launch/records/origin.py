"""The origin of a run, for its record: the state of the code, and versions."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import Any

from stackyard import __version__
from stackyard.core import plugins
from stackyard.core.pymodules import module_of, program_file
from stackyard.host.run.command import run, which

LARGEST_PROGRAM = 1 << 26
"""Bytes; a larger program file is not hashed."""


def code_state(cwd: Path, program: tuple[str, ...]) -> dict[str, Any]:
    """The state of the code: commit, local changes, and the sha256 of the program's own file."""
    return {"folder": str(cwd), **_program_state(cwd, program), **_git_state(cwd)}


def _program_state(cwd: Path, program: tuple[str, ...]) -> dict[str, Any]:
    """The path and hash of the first word that is a file: the program, or an interpreter's script; or of the module."""
    own = program_file(cwd, program) if module_of(program) else None
    for path in (own,) if own else (cwd / word for word in program[:2]):
        if path.is_file() and path.stat().st_size < LARGEST_PROGRAM:
            return {"program": str(path), "program_sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    return {}


def _git_state(cwd: Path) -> dict[str, Any]:
    if which("git") is None:
        return {}
    head = run(["git", "-C", cwd, "rev-parse", "HEAD"], check=False, timeout_s=10)
    if head.returncode:
        return {}
    changes = run(["git", "-C", cwd, "diff", "HEAD", "--binary"], check=False, timeout_s=30).stdout
    state = {"commit": head.stdout.strip(), "changed": bool(changes)}
    return {**state, "changes_sha256": hashlib.sha256(changes.encode()).hexdigest()} if changes else state


def versions() -> dict[str, str]:
    """The versions that may explain differences between runs, as far as known without starting a program.

    Plug-ins in use are included: ``"schedulers sge": "stackyard_site 1.0"``.
    """
    own = {"stackyard": __version__, "python": platform.python_version(), "kernel": platform.release()}
    return own | plugins.used()
