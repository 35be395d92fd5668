"""Detects missing extension modules after a compilation: some projects ignore a failed compiler.

``setup.py`` can call an extension optional, and many projects catch the error themselves; the build then succeeds with
a slower, pure wheel. So the wheel and the output of the build are examined, not the exit status.
"""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.lock.lockfile.model import PipPackage

_LANGUAGES = frozenset((".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".pyf", ".f", ".f90", ".rs"))
_NOT_ITS_OWN = frozenset(("test", "tests", "doc", "docs", "example", "examples", "benchmark", "benchmarks"))
_SHOWN_LINES = 20
_FAILED = re.compile(r"building extension [\"'].+?[\"'] failed")
"""What setuptools prints for an optional extension."""


def missing(wheel: Path, source: Path, output: str) -> str:
    """Why a wheel lacks extensions that its source should compile; empty if it does not.

    Args:
        source: the source tree that it was built from.
        output: what the build printed.
    """
    failed = next((line.strip() for line in output.splitlines() if _FAILED.search(line)), "")
    if failed:
        return f"its build went on without an extension: {failed:.200}"
    if wheel.name.endswith("-none-any.whl") and (source_file := _to_compile(source)):
        return f"nothing was compiled, though its source has {source_file}"
    return ""


def refuse(package: PipPackage, wheel: Path, reason: str, output: str, log: Path) -> StackyardError:
    """The error for a package that the stack names under ``build: packages:``."""
    lines = output.splitlines()
    first = next((number for number, line in enumerate(lines) if _FAILED.search(line)), len(lines))
    return StackyardError(
        f"compiling {package.name} {package.version} made {wheel.name}: {reason}",
        hint=f"mend what the compiler reports in {log}; if the wheel is what you want, set `incomplete: true` under"
        f" `build: packages: {package.name}:`",
        detail="\n".join(lines[max(0, first - _SHOWN_LINES) : first + 1]),
    )


def _to_compile(source: Path) -> str:
    """The first file of a compiled language, relative; empty if there is none besides tests and documents."""
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        if path.suffix in _LANGUAGES and path.is_file() and _NOT_ITS_OWN.isdisjoint(p.lower() for p in inner.parts):
            return inner.as_posix()
    return ""
