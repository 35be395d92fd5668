"""Fixtures of this room's tests: a small real stack, both module systems, and a machine without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from uv import find_uv_bin
from verifykit import Stack

from stackyard.host.machine.modules import ModuleSystem, find_environment_modules, find_lmod
from stackyard.yard.layout import Yard
from support import modules as real
from support import stackrecords


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """A stack with Python and nothing else in it."""
    yard = Yard(tmp_path / "yard")
    interpreter = {"source": "host", "path": sys.executable, "version": ".".join(map(str, sys.version_info[:3]))}
    record = stackrecords.record(yard, "demo", "1.0", packages=(), interpreter=interpreter)
    argv = [find_uv_bin(), "venv", "-q", "--offline", "--no-config", "--python", sys.executable, record.prefix]
    subprocess.run(argv, check=True)
    return Stack(yard, record)


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> list[ModuleSystem]:
    """Both module systems; a test that asks for this needs both."""
    for name in real.SYSTEMS:
        problem = real.missing(name, "bash")
        if problem:
            pytest.skip(problem)
    monkeypatch.setenv("MODULES_CMD", str(real.modulecmd()))
    return [system for system in (find_lmod(), find_environment_modules()) if system]


@pytest.fixture
def no_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a module system."""
    none: tuple[Callable[[], ModuleSystem | None], ...] = (lambda: None,)
    monkeypatch.setattr("stackyard.verify.verify._FINDERS", none)
