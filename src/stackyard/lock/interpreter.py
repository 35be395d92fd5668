"""The source of a variant's Python: a conda channel, uv's managed Pythons, or this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet

from stackyard.core.errors import InputError, MissingError, StackyardError, Where
from stackyard.core.quoting import quoted
from stackyard.host.files.hashing import sha256_once
from stackyard.host.machine.platforms import this_platform
from stackyard.host.run.command import CommandError, run, which
from stackyard.host.tools import uv
from stackyard.inputs.models import Interpreter
from stackyard.inputs.reading.paths import with_home
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter

Source = Literal["conda", "uv", "host"]
_ASK = (
    "import sys; print('%d.%d.%d' % sys.version_info[:3]); "
    "print(getattr(sys, '_base_executable', None) or sys.executable)"
)


def source_of(interpreter: Interpreter, *, conda: bool) -> Source:
    """The source of Python. ``auto``: conda if the stack has a conda part, else this machine."""
    if interpreter.source != "auto":
        return interpreter.source
    return "conda" if conda else "host"


def conda_spec(version: str) -> str:
    """The MatchSpec for a Python version: ``3.11`` is any 3.11, a range is used unchanged."""
    if not version:
        return "python"
    return f"python {version}" if any(c in version for c in "<>=!~*") else f"python {version}.*"


def from_conda(packages: tuple[CondaPackage, ...]) -> LockedInterpreter:
    """The interpreter among conda packages, or source ``none`` if there is none."""
    python = next((p for p in packages if p.name == "python"), None)
    return LockedInterpreter("conda", python.version) if python else LockedInterpreter("none")


def from_host(interpreter: Interpreter, platform: str, where: Where | None = None) -> LockedInterpreter:
    """This machine's Python, recorded with the path of the real executable behind links and shims, and its hash.

    Raises:
        InputError: the lock is for another platform, whose Python cannot be inspected here.
        MissingError: there is none of the requested version.
    """
    if platform != this_platform():
        raise InputError(
            f"cannot inspect the Python of {platform} on a {this_platform()} machine",
            where=where,
            hint="use Python from conda or uv (interpreter: source:), or lock on a machine of that platform",
        )
    seen = []
    for candidate in _candidates(interpreter):
        answer = _ask(candidate)
        if answer is None:
            continue
        version, executable = answer
        if accepts(interpreter, version, where):
            return LockedInterpreter("host", version, str(executable), sha256_once(executable))
        seen.append(f"{candidate} is {version}")
    wish = f"Python {interpreter.version}".strip() if interpreter.version else "Python"
    raise MissingError(
        f"{wish} not found on this machine" + (f" ({'; '.join(dict.fromkeys(seen))})" if seen else ""),
        where=where,
        hint="put it on PATH (`module load`, pyenv); or write `interpreter: {source: uv}` or `path` in a stack.yaml",
    )


def unchanged(locked: LockedInterpreter) -> bool:
    """Whether a host interpreter is still the locked file; true for all other sources."""
    return locked.source != "host" or _is_there(locked)


def accepts(interpreter: Interpreter, version: str, where: Where | None = None) -> bool:
    """Whether a version satisfies the requested Python. Raises InputError for an invalid request."""
    return not interpreter.version or version in _specifier(interpreter.version, where)


def still_fits(locked: LockedInterpreter, source: Source, interpreter: Interpreter, where: Where | None = None) -> bool:
    """Whether the locked interpreter of this machine is unchanged and satisfies the present request."""
    return (
        locked.source == source
        and not interpreter.path
        and _is_there(locked)
        and accepts(interpreter, locked.version, where)
    )


def _is_there(locked: LockedInterpreter) -> bool:
    path = Path(locked.path)
    return path.is_file() and sha256_once(path) == locked.sha256


def from_uv(interpreter: Interpreter, platform: str, directory: Path, where: Where | None = None) -> LockedInterpreter:
    """One of uv's managed Pythons: in the yard's directory or in uv's own, else downloaded into the yard's.

    Raises:
        InputError: the lock is for another platform.
        MissingError: it is not installed and cannot be downloaded.
    """
    if platform != this_platform():
        raise InputError(
            f"uv can install Python for {this_platform()} here, not for {platform}",
            where=where,
            hint="use Python from conda, or lock on a machine of that platform",
        )
    _specifier(interpreter.version, where)
    path = _managed(interpreter.version, directory)
    if path is None:
        _install(interpreter.version, directory, where)
        path = _managed(interpreter.version, directory)
    answer = _ask(path) if path else None
    if answer is None:
        raise StackyardError(f"uv installed Python {interpreter.version} but cannot find it")
    version, executable = answer
    return LockedInterpreter("uv", version, str(executable), sha256_once(executable))


def install_again(locked: LockedInterpreter, directory: Path) -> None:
    """Download one of uv's Pythons again into the yard's directory, after a collection removed it.

    Raises:
        MissingError: it cannot be downloaded.
    """
    path = Path(locked.path)
    if locked.source == "uv" and path.is_relative_to(directory) and not path.exists():
        _install(locked.version, directory, None)


def _managed(version: str, directory: Path) -> Path | None:
    for extra in ({"UV_PYTHON_INSTALL_DIR": str(directory)}, {}):
        words = ["python", "find", "--managed-python", "--no-python-downloads", "--no-project", version or "3"]
        result = uv.run(words, extra=extra, timeout_s=60)
        if result.returncode == 0:
            return Path(result.stdout.strip())
    return None


def _install(version: str, directory: Path, where: Where | None) -> None:
    waits = {"UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}
    extra = {"UV_PYTHON_INSTALL_DIR": str(directory), "UV_PYTHON_DOWNLOADS": "manual", **waits}
    try:
        words = ["python", "install", "--no-bin", "--no-progress", "--color", "never", version or "3"]
        uv.run(words, extra=extra, timeout_s=900, check=True)
    except CommandError as error:
        raise MissingError(
            f"uv's Python {version or '3'} is not installed and cannot be downloaded",
            where=where,
            detail=error.detail,
            hint="set UV_PYTHON_INSTALL_MIRROR to a mirror, or use Python from conda or the host",
        ) from error


def _candidates(interpreter: Interpreter) -> Iterator[Path]:
    if interpreter.path:
        yield with_home(interpreter.path)
        return
    names = ["python3", "python", *(f"python3.{minor}" for minor in range(20, 6, -1))]
    if interpreter.version.startswith("2"):
        names = ["python2", "python2.7", *names]
    for name in names:
        path = which(name)
        if path:
            yield path
    yield Path(sys.executable)


@lru_cache(maxsize=64)
def _ask(python: Path) -> tuple[str, Path] | None:
    """Version and real executable of a Python; None if it does not run."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        result = run([python, "-c", _ASK], env=env, timeout_s=30, check=False)
    except StackyardError:
        return None
    lines = result.stdout.splitlines()
    if result.returncode != 0 or len(lines) != 2:
        return None
    return lines[0], Path(os.path.realpath(lines[1]))


def _specifier(wish: str, where: Where | None) -> SpecifierSet:
    plain = bool(wish) and wish[0].isdigit()
    text = f"=={wish}.*" if plain and wish.count(".") < 2 and "*" not in wish else f"=={wish}" if plain else wish
    try:
        specifiers = SpecifierSet(text)
        specifiers.contains("0")  # reads its versions, which Python may refuse as numbers
        return specifiers
    except ValueError as error:
        raise InputError(
            f"invalid interpreter version {quoted(wish)}", where=where, hint="write 3.11 or >=3.10,<3.13"
        ) from error
