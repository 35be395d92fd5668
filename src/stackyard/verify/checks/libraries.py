"""Finds every shared library that files of the prefix are linked to, as the dynamic loader does (ld.so(8)).

A library that is on no search path, but in another directory of the prefix, is found at run time because another file
loads it first: packages load each other's libraries that way (a plug-in of torch requires libtorch.so). This is
counted, not a failure; the imports prove it. Libraries that exist only on nodes with certain hardware are reported, but
are not failures.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import cached_property, lru_cache
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.host.files.elf import ElfFile, read_elf
from stackyard.host.machine.hostlibs import driver_vendor, is_fabric, is_leftover, is_plugin
from stackyard.host.machine.platforms import of_machine
from stackyard.host.run.command import clean_environment, run
from stackyard.verify.checks.base import Check, looked_into
from stackyard.verify.context import Context, excepted
from stackyard.verify.report import CheckResult
from stackyard.yard.kinds.extension import BaseRevision

_DEFAULT_DIRECTORIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclass(frozen=True)
class Loader:
    """The search paths of this machine's dynamic loader for the files of one prefix.

    Attributes:
        inside: libraries of the prefix by file name and by soname.
        inherited: the interpreter's DT_RPATH, which also applies to extension modules.
        environ_directories: LD_LIBRARY_PATH of the loaded module.
    """

    machine: str
    inside: Mapping[str, tuple[ElfFile, ...]]
    inherited: tuple[str, ...] = ()
    environ_directories: tuple[str, ...] = ()
    _exists: dict[str, bool] = field(default_factory=dict, compare=False)

    @cached_property
    def cache(self) -> frozenset[str]:
        """Names in ld.so.cache for this architecture, by ``ldconfig -p``; empty without that program."""
        for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
            try:
                listing = run([program, "-p"], env=clean_environment(), timeout_s=30, check=False).stdout
            except StackyardError:
                continue
            return frozenset(line.split()[0] for line in listing.splitlines() if "=>" in line and _is_64(line))
        return frozenset()

    def find(self, file: ElfFile, library: str) -> str:
        """The source of a library: ``path``, ``host``, ``process`` (already loaded by another file) or empty."""
        if "/" in library:
            return "path" if Path(library).exists() else ""
        directories = [*self._expanded(file.rpath if not file.runpath else (), file), *self.environ_directories]
        if not file.runpath:
            directories += self.inherited
        directories += self._expanded(file.runpath, file)
        if any(self._present(f"{directory}/{library}") for directory in directories):
            return "path"
        if library in self.cache or any(self._present(f"{directory}/{library}") for directory in _DEFAULT_DIRECTORIES):
            return "host"
        return "process" if any(other.machine == file.machine for other in self.inside.get(library, ())) else ""

    def _expanded(self, directories: Iterable[str], file: ElfFile) -> list[str]:
        """Directories with ``$ORIGIN`` and ``$LIB`` replaced; the origin is the real directory, as for the loader."""
        origin = os.path.dirname(os.path.realpath(file.path))  # noqa: PTH120
        result = []
        for directory in directories:
            text = re.sub(r"\$(ORIGIN|\{ORIGIN\})", lambda _: origin, directory)
            for lib in ("lib64", "lib") if "$LIB" in text or "${LIB}" in text else ("",):
                result.append(re.sub(r"\$(LIB|\{LIB\})", lib, text))
        return result

    def _present(self, path: str) -> bool:
        if path not in self._exists:
            self._exists[path] = os.path.exists(path)  # noqa: PTH110
        return self._exists[path]


def check_libraries(context: Context) -> list[CheckResult]:
    """One result per library that is missing or exists only on some nodes, and one for all others."""
    started = time.perf_counter()
    files = list(elf_files(context.prefix))
    platform = of_machine(context.machine.architecture)
    machine = platform.elf if platform else ""
    own = [file for file in files if file.machine == machine]
    loader = _loader(context, own, machine)
    missing: dict[str, list[ElfFile]] = {}
    process = 0
    for file in own:
        for library in file.needed:
            source = loader.find(file, library) or ("process" if library in _in_bases(context.record.base) else "")
            process += source == "process"
            if not source and not excepted(library, context.exceptions.libraries):
                missing.setdefault(library, []).append(file)
    results = [_missing(context, library, needing) for library, needing in sorted(missing.items())]
    if any(result.status == "failed" for result in results):
        return results
    text = f"{len(own)} files; {process} of their libraries are found only because another file loads them"
    if len(files) > len(own):
        text += f"; {len(files) - len(own)} files are for another architecture"
    return [CheckResult("library", "all files", "passed", text, seconds=time.perf_counter() - started), *results]


@lru_cache(maxsize=1)
def _in_bases(base: BaseRevision | None) -> frozenset[str]:
    """The names of the shared libraries in the bases of an extension, whose packages load them."""
    libraries: set[str] = set()
    for revision in base.lineage() if base else ():
        for _, _, names in os.walk(revision.prefix):
            libraries.update(name for name in names if ".so" in name)
    return frozenset(libraries)


def elf_files(prefix: Path) -> Iterator[ElfFile]:
    """Every ELF file below a prefix with a dynamic section, each once (symlinks are not followed)."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield from (file for file in pool.map(read_elf, _candidates(prefix)) if file is not None)


def _candidates(prefix: Path) -> Iterator[Path]:
    """Files that may be loaded or run, judged by name or mode; reading the first bytes of all others is slow."""
    for directory, directories, names in os.walk(prefix):
        directories[:] = sorted(name for name in directories if name != "__pycache__")
        for name in sorted(names):
            path = f"{directory}/{name}"
            if (".so" in name or os.access(path, os.X_OK)) and not os.path.islink(path):  # noqa: PTH114
                yield Path(path)


def _loader(context: Context, files: Iterable[ElfFile], machine: str) -> Loader:
    inside: dict[str, list[ElfFile]] = {}
    for file in files:
        for name in {file.path.name, file.soname} - {""}:
            inside.setdefault(name, []).append(file)
    return Loader(
        machine=machine,
        inside={name: tuple(paths) for name, paths in inside.items()},
        inherited=_inherited(context) if inside else (),
        environ_directories=tuple(f for f in context.environ.get("LD_LIBRARY_PATH", "").split(":") if f),
    )


def _inherited(context: Context) -> tuple[str, ...]:
    """The RPATH of the stack's interpreter, expanded for its real path."""
    if context.python is None:
        return ()
    real = Path(os.path.realpath(context.python.path))
    file = read_elf(real)
    if file is None or file.runpath:
        return ()
    return tuple(
        directory.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(real.parent)) for directory in file.rpath
    )


def _missing(context: Context, library: str, needing: list[ElfFile]) -> CheckResult:
    names = [file.path.relative_to(context.prefix).as_posix() for file in needing]
    shown = some(names, 5)
    vendor = driver_vendor(library)
    if vendor is not None:
        if any(gpu.vendor == vendor for gpu in context.machine.gpus):
            return CheckResult(
                "library", library, "failed", f"required by {shown}", "reinstall the GPU driver: it is incomplete"
            )
        text = f"required by {shown}; part of the {vendor} driver, and this machine has no such GPU"
        return CheckResult("library", library, "skipped", text, "verify the revision on a GPU node", required=False)
    if is_fabric(library) or all(is_plugin(str(file.path)) for file in needing):
        text = f"required by {shown}; provided by nodes with the corresponding network or program"
        return CheckResult("library", library, "warned", text, required=False)
    if all(is_leftover(str(file.path)) for file in needing):
        text = f"required by {shown}, to which nothing is linked"
        return CheckResult("library", library, "warned", text, required=False)
    remedy = f"add the package that provides {library}, or add it to `exceptions: libraries:` if the host provides it"
    text = f"required by {shown}, not found on any search path"
    return CheckResult("library", library, "failed", text, remedy, exceptions=(library,))


def _is_64(line: str) -> bool:
    """Whether a line of ``ldconfig -p`` is for this 64-bit architecture: ``libz.so.1 (libc6,x86-64) => /lib/...``."""
    kind = line.partition("(")[2].partition(")")[0]
    return "64" in kind or "AArch64" in kind or "," not in kind


LIBRARIES = Check(("library",), "programs", check_libraries, looked_into)
