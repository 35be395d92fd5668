"""The unlocked build requirements of a source package: its build backend, and the backend's own requirements.

As in pip's lock files, a lock does not have them: each build has its own environment, so they do not conflict with
other packages. They are listed in the project's ``pyproject.toml`` and returned by its backend's
``get_requires_for_build_wheel`` (PEP 517, PEP 518).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stackyard.core import toml
from stackyard.core.errors import StackyardError
from stackyard.host.run.command import CommandError, run
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.yard import disk
from stackyard.yard.kinds.payload import Prefix

LEGACY = ("setuptools>=40.8.0",)
_LEGACY_BACKEND = "setuptools.build_meta:__legacy__"
_LIMIT_S = 900
_ASK = """\
import importlib, json, os, sys
backend, paths, settings, answer = json.loads(sys.argv[1])
sys.path[:0] = paths
module, _, name = backend.partition(":")
found = importlib.import_module(module)
for part in filter(None, name.split(".")):
    found = getattr(found, part)
hook = getattr(found, "get_requires_for_build_wheel", None)
with open(answer, "w") as stream:
    json.dump(list(hook(settings)) if hook else [], stream)
"""


@dataclass(frozen=True)
class Backend:
    """The build settings in a project's ``pyproject.toml``."""

    requires: tuple[str, ...] = LEGACY
    name: str = _LEGACY_BACKEND
    paths: tuple[str, ...] = ()


def backend_of(project: Path) -> Backend:
    """The build backend of a project; setuptools by default.

    Raises:
        StackyardError: its ``pyproject.toml`` cannot be read.
    """
    text = disk.content(project / "pyproject.toml")
    if text is None:
        return Backend()
    try:
        system: dict[str, Any] = toml.loads(text.decode("utf-8")).get("build-system") or {}
        paths = tuple(os.fspath(project / path) for path in system.get("backend-path", ()))
        return Backend(tuple(system.get("requires", LEGACY)), system.get("build-backend", _LEGACY_BACKEND), paths)
    except (ValueError, TypeError, AttributeError) as error:
        raise StackyardError(f"cannot read {project / 'pyproject.toml'}: {error}") from error


def asked_for(
    project: Path, settings: PipSettings, cache: Path, config: dict[str, str], work: Path, more: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The requirements for compiling a project in isolation: its own, and those its backend requests.

    The backend runs, as it does when the package is compiled.

    Args:
        settings: the indexes for the backend.
        cache: uv's cache.
        config: the settings for the backend.
        work: an empty directory to work in.
        more: additional build requirements from the stack's file.

    Returns:
        The requirements; and the error of a backend that fails here, whose requirements are unknown.
    """
    said = backend_of(project)
    backend = replace(said, requires=_joined(said.requires, more))
    python, answer = Prefix(work / "env").python, work / "answer.json"
    extra = {"UV_CACHE_DIR": os.fspath(cache)}
    index = uv.index_options(settings)
    words = json.dumps([backend.name, list(backend.paths), config, os.fspath(answer)])
    try:
        uv.run(["venv", "--no-project", "--python", sys.executable, work / "env"], settings, timeout_s=120, check=True)
        needed: list[str | os.PathLike[str]] = ["pip", "install", "--python", python, *index, *backend.requires]
        if backend.requires:
            uv.run(needed, settings, timeout_s=_LIMIT_S, extra=extra, check=True)
        run([os.fspath(python), "-c", _ASK, words], cwd=project, timeout_s=_LIMIT_S)
    except CommandError as error:
        return backend.requires, (_last_line(error),)
    return _joined(backend.requires, json.loads(answer.read_text(encoding="utf-8"))), ()


def _joined(first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *more)))


def _last_line(error: CommandError) -> str:
    lines = [line.strip() for line in (error.detail or "").splitlines() if line.strip()]
    return lines[-1] if lines else error.message
