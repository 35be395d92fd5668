"""Traces the files that a program opens on a node, with strace under the real launcher: components, settings, sockets.

Files opened by dlopen are not in DT_NEEDED, and no table lists all of them. The program runs on the host, not in an
image.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stackyard.core.errors import InputError, MissingError
from stackyard.host.run.command import run, which
from stackyard.images.bindings.detect import is_left_to_image, is_of_system
from stackyard.images.bindings.loader import read_elf
from stackyard.images.bindings.tree import Tree
from stackyard.inputs.sites.bindings import Bind, BoundPath, HostBindings

_OPENED = re.compile(r'openat\([^"]*"(/[^"]+)"[^)]*\)\s*=\s*\d+')
_CONNECTED = re.compile(r'connect\(\d+, \{sa_family=AF_UNIX, sun_path="(/[^"]+)"\}.*=\s*0')
_SETTINGS = re.compile(r"/(etc|usr/share)/.+")
_OF_EVERY_IMAGE = re.compile(
    r"/etc/(ld\.so\..*|passwd|group|hosts|nsswitch\.conf|resolv\.conf|host\.conf|localtime|services|gai\.conf)"
    r"|/usr/share/(locale|zoneinfo|i18n)/.*"
)
_TRACE_S = 1800


def traced(bindings: HostBindings, launcher: str, program: Sequence[str]) -> HostBindings:
    """The bindings, extended by the files that a program opened.

    Args:
        launcher: starts the ranks, e.g. ``srun -n2 --mpi=pmi2``; empty: no launcher.

    Raises:
        InputError: no program is given.
        MissingError: strace is not installed.
        CommandError: the program failed.
    """
    if not program:
        raise InputError("cannot trace: no program given", hint='write it after --: --trace "srun -n2" -- ./app')
    if which("strace") is None:
        raise MissingError("cannot trace: strace not found on PATH", hint="install strace, also on the compute nodes")
    with tempfile.TemporaryDirectory(prefix=".stackyard-trace-", dir=Path.cwd()) as directory:  # the nodes see it
        words = ["strace", "-f", "-ff", "-qq", "-s", "4096", "-e", "trace=openat,connect", "-o", f"{directory}/trace"]
        run([*shlex.split(launcher), *words, *program], timeout_s=_TRACE_S)
        lines = (line for file in Path(directory).iterdir() for line in file.read_text(errors="replace").splitlines())
        return with_opened(bindings, opened_paths(lines), Path(program[0]).name)


def opened_paths(lines: Iterable[str]) -> list[str]:
    """The opened files and connected sockets in the output of strace, in order."""
    paths = (match.group(1) for line in lines for match in (_OPENED.search(line) or _CONNECTED.search(line),) if match)
    return list(dict.fromkeys(paths))


def with_opened(bindings: HostBindings, paths: Iterable[str], program: str) -> HostBindings:
    """The bindings, extended by those of the paths that an image needs."""
    tree = Tree()
    bound = [bind.path for bind in bindings.binds]
    names = {posixpath.basename(library.path) for library in bindings.libraries}
    libraries, binds = list(bindings.libraries), list(bindings.binds)
    for path in _relevant(paths, tree):
        if any(posixpath.commonpath([path, above]) == above for above in bound):
            continue
        elf, why = read_elf(Path(path)), f"opened by {program}"
        if elf is None or not elf.soname or not is_of_system(posixpath.dirname(path)):
            bound.append(path)
            binds.append(Bind(path=path, why=why))
        elif elf.soname not in names:
            names.add(elf.soname)
            libraries.append(BoundPath(path=f"{posixpath.dirname(path)}/{elf.soname}", why=why))
    return bindings.model_copy(update={"libraries": tuple(libraries), "binds": tuple(binds)})


def _relevant(paths: Iterable[str], tree: Tree) -> Iterator[str]:
    """Libraries, settings and sockets by their real paths; without those that every image has."""
    for path in paths:
        place = tree.find(path)
        if place is None or any(c in place.inside for c in ":,\"' \\$`"):
            continue
        real = place.inside
        if _is_library(path, real) or _is_setting(real) or place.outside.is_socket():
            yield real


def _is_library(path: str, real: str) -> bool:
    """Whether an image needs this library from the host: not the program's own, nor Python's, nor the C library's."""
    if real.startswith(("/home/", "/tmp/", "/proc/")) or "/python" in real:
        return False
    return re.search(r"\.so(\.\d+)*$", real) is not None and not is_left_to_image(posixpath.basename(path))


def _is_setting(real: str) -> bool:
    return _SETTINGS.fullmatch(real) is not None and _OF_EVERY_IMAGE.fullmatch(real) is None
