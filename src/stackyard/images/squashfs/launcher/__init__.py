"""Makes the launcher of a revision: compiled if there is a compiler, else an equivalent shell script."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import run, which
from stackyard.yard.write.permissions import program_mode

SOURCE = Path(__file__).with_name("launch.c")
_SCRIPT = Path(__file__).with_name("launch.sh")
_APPTAINER = Path(__file__).with_name("apptainer.sh")
_CONTAINER = Path(__file__).with_name("container.sh")
_COMPILERS = ("cc", "gcc", "clang")
_WAYS = (("-static",), ())
"""A static program starts in half the time, where the C library can be linked statically. It waits for the kernel
alone, and is compiled in half the time with -O1."""


def make(target: Path, *, container: bool = False, adopted: bool = False) -> str:
    """Write the launcher of a revision; returns its kind, for the record.

    A compiled launcher adds some 2 ms to a command, a script some 5 ms.

    Args:
        container: make the launcher of a wrapped image.
        adopted: make the launcher of an adopted prefix.

    Raises:
        MissingError: no compiler works, for one of these two: mount(8) does not work for ordinary users.
        OSError: it cannot be written.
    """
    compiler = next((path for name in _COMPILERS if (path := which(name))), None)
    options, scripts = (("-DCONTAINER",), (_CONTAINER,)) if container else ((), ())
    options = ("-DADOPTED",) if adopted else options
    with _work(target) as work:  # a full disk of the yard is not a compiler that does not work
        is_compiled = compiler is not None and _compiled(compiler, work / "launch", options, scripts)
        if (container or adopted) and not is_compiled:
            image = "a wrapped image" if container else "an adopted prefix"
            raise MissingError(f"cannot make the launcher of {image}: {_why(compiler)}", hint="install gcc, or clang")
        target.write_bytes((work / "launch").read_bytes() if is_compiled else script().encode())
    target.chmod(program_mode() & ~0o222)
    return f"compiled by {compiler}" if is_compiled else "shell script"


@contextmanager
def _work(target: Path) -> Iterator[Path]:
    """A temporary directory; beside the launcher if $TMPDIR is mounted with noexec."""
    with scratch("launcher") as work:
        if not os.statvfs(work).f_flag & os.ST_NOEXEC:
            yield work
            return
    with scratch("launcher", beside=target.parent) as work:
        yield work


def script() -> str:
    """The launcher as a shell script."""
    return _SCRIPT.read_text(encoding="utf-8").replace("{APPTAINER}\n", _APPTAINER.read_text(encoding="utf-8"), 1)


def _header(*files: Path) -> str:
    """The scripts of the compiled launcher as a C header: one string for each line, without comments."""
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    words = (json.dumps(f"{line}\n") for line in lines if not line.lstrip().startswith("#"))
    return "\n".join(["static const char apptainer_sh[] =", *words, ";\n"])


def _why(compiler: Path | None) -> str:
    return f"what {compiler} makes does not run here" if compiler else f"{', '.join(_COMPILERS)} not found"


def _compiled(compiler: Path, program: Path, options: Sequence[str], scripts: Sequence[Path]) -> bool:
    """Whether this compiler produces a program that runs here."""
    (program.parent / "apptainer.h").write_text(_header(_APPTAINER, *scripts), encoding="utf-8")
    for way in _WAYS:
        words = [compiler, "-O1", "-s", *options, *way, "-I", program.parent, "-o", program, SOURCE]
        if not run([str(word) for word in words], check=False, timeout_s=120).returncode and works(program):
            return True
    return False


def works(program: Path) -> bool:
    """Whether a launcher runs here: without a command it prints its usage and exits with status 2."""
    try:
        return run([program], check=False, timeout_s=20, env={"PATH": os.defpath}).returncode == 2
    except StackyardError:  # the kernel does not start it
        return False
