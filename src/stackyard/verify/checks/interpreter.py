"""Checks the stack's Python: it runs from the loaded module, has the recorded version, and uses no user files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import which
from stackyard.verify.context import Context, Python
from stackyard.verify.report import CheckResult
from stackyard.yard.kinds.extension import BaseRevision, Layer
from stackyard.yard.revision.directories import RevisionPaths

_QUESTION = """
import json, site, sys, sysconfig
paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
sys.stdout.write(json.dumps({
    "version": ".".join(str(part) for part in sys.version_info[:3]),
    "prefix": sys.prefix, "base": getattr(sys, "base_prefix", sys.prefix), "path": sys.path,
    "user_site": bool(getattr(site, "ENABLE_USER_SITE", False)), "site": paths,
}))
"""


def find_python(context: Context) -> tuple[Python | None, list[CheckResult]]:
    """The interpreter and the result of its check. A stack without Python has no result."""
    expected = context.payload.python
    if not expected.exists():
        if context.record.interpreter.get("source", "none") in ("none", ""):
            return None, []
        return None, [_failed(f"the record lists a Python, but {expected} does not exist")]
    started = time.perf_counter()
    path = which("python", context.environ)
    if path is not None and path.parent == RevisionPaths.of(context.record.path).asking:
        path = expected  # which it runs, once the licences are accepted
    if path is None or os.path.realpath(path.parent) != os.path.realpath(expected.parent):
        return None, [_failed(f"with the module loaded, `python` is {path}, not {expected}", _PATH_REMEDY)]
    try:
        done = context.run([path, "-c", _QUESTION], env=context.environ, cwd=context.work, timeout_s=120)
        answer = json.loads(done.stdout)
    except StackyardError as error:
        return None, [_failed(f"{error.message}\n{error.detail or ''}".strip())]
    except json.JSONDecodeError as error:
        return None, [_failed(f"{path} prints extra output at startup: {error}", _SITE_REMEDY)]
    python = Python(path, answer["version"], _site_packages(context, answer["site"]))
    problems = [*_problems(context, answer), *(line for line in done.stderr.splitlines() if _BROKEN_PTH in line)]
    seconds = time.perf_counter() - started
    if problems:
        return python, [_failed("\n".join(problems), _PATH_REMEDY, seconds)]
    return python, [CheckResult("interpreter", "python", "passed", f"{answer['version']} at {path}", seconds=seconds)]


_BROKEN_PTH = "Error processing line"
"""What `site` prints of a .pth file that raises; it ignores the rest of it."""
_PATH_REMEDY = "the module must prepend the prefix to PATH, unset PYTHONPATH and PYTHONHOME, and set PYTHONNOUSERSITE"
_SITE_REMEDY = "remove output to stdout from the .pth files and sitecustomize in the prefix"


def _problems(context: Context, answer: Mapping[str, Any]) -> list[str]:
    problems = []
    version = context.record.interpreter.get("version", "")
    if version and not f"{answer['version']}.".startswith(f"{version}."):
        problems.append(f"Python version mismatch: {answer['version']}, expected {version}")
    if os.path.realpath(answer["prefix"]) != os.path.realpath(context.prefix):
        problems.append(f"its sys.prefix is {answer['prefix']}, not {context.prefix}")
    if answer["user_site"]:
        problems.append("it searches packages in the home directory (PYTHONNOUSERSITE is not in effect)")
    problems += [f"it does not find the packages of {revision.id}" for revision in _unseen(context, answer)]
    for foreign in _foreign(context, answer):
        problems.append(f"it imports from {foreign}, outside the stack")
    return problems


def _foreign(context: Context, answer: Mapping[str, Any]) -> list[str]:
    """Entries of sys.path outside of the prefix, its bases and its base interpreter."""
    layers = [base.prefix for base in context.record.bases()]
    drift = [str(context.payload.drift.root)] if isinstance(context.payload, Layer) else []
    homes = [os.path.realpath(home) for home in (context.prefix, answer["base"], *layers, *drift)]
    paths = [os.path.realpath(path) for path in answer["path"] if path]
    return [path for path in paths if not any(path == home or path.startswith(f"{home}/") for home in homes)]


def _unseen(context: Context, answer: Mapping[str, Any]) -> list[BaseRevision]:
    """The bases of an extension whose package directory is not on its Python's path."""
    paths = [os.path.realpath(path) for path in answer["path"]]
    roots = [(base, f"{os.path.realpath(base.prefix)}/lib/") for base in context.record.bases()]
    return [base for base, root in roots if not any(p.startswith(root) and p.endswith("-packages") for p in paths)]


def _site_packages(context: Context, directories: list[str]) -> tuple[Path, ...]:
    """The directories within the prefix, each once, in the prefix's own spelling."""
    root = os.path.realpath(context.prefix)
    inside = {
        os.path.realpath(directory) for directory in directories if os.path.realpath(directory).startswith(f"{root}/")
    }
    return tuple(
        context.prefix / Path(directory).relative_to(root) for directory in sorted(inside) if Path(directory).is_dir()
    )


def _failed(detail: str, remedy: str = "rebuild the revision", seconds: float = 0.0) -> CheckResult:
    return CheckResult("interpreter", "python", "failed", detail, remedy, seconds)
