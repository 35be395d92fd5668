"""Detects the contents of a base: architecture, C library, GPU toolkits, Pythons."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from stackyard.images.bases.model import PythonEnvironment, Software
from stackyard.images.bindings.drivers import Toolkit, newest, numbers, toolkit_of
from stackyard.images.bindings.elf.versions import read_versions
from stackyard.images.bindings.tree import Tree, TreePath

_MACHINES = {(62, 1): "linux-64", (183, 1): "linux-aarch64", (21, 1): "linux-ppc64le", (22, 2): "linux-s390x",
             (243, 1): "linux-riscv64"}  # fmt: skip
"""e_machine and byte order of ELF files (elf.h), and conda's platforms."""
_LIBRARIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_UNSEEN = {"proc", "sys", "dev"}
_ACTIVATE = re.compile(r"^(?:\s*export\s+)?WITH_(?:CONDA|VENV|CONDA_VENV)=(.*)$", re.MULTILINE)
_ENVIRONMENT = "/.singularity.d/env"


def platform_of(root: Path) -> str:
    """conda's name of the architecture of its programs; empty if unknown."""
    tree = Tree((root,))
    places = [tree.find(path) for path in ("/bin/sh", *_c_libraries(tree))]
    places += [tree.find(f"/bin/{name}") for name in tree.names("/bin")]
    known = (_machine(path.outside) for path in places if path is not None)
    return next(filter(None, known), "")


def software_of(root: Path, env: Sequence[str]) -> Software:
    """Detect the software in an unpacked image.

    Args:
        env: its environment, ``NAME=value`` each.
    """
    tree = Tree((root,))
    toolkits, environments = _walked(root)
    activate = _activate(tree, env)
    first = sorted(environments, key=lambda environment: (environment.path not in activate, environment.path))
    return Software(
        libc=c_library(tree),
        toolkits=tuple(asdict(toolkit) for toolkit in newest(toolkits)),
        environments=tuple(first),
        activate=activate,
        shell=tree.find("/bin/sh") is not None,
    )


def c_library(tree: Tree) -> str:
    """``glibc 2.36`` or ``musl``; empty if it has neither."""
    for path in _c_libraries(tree):
        library = tree.find(path)
        defined = read_versions(library.outside).defined if library else ()
        versions = [name for name in defined if re.fullmatch(r"GLIBC_\d+(\.\d+)+", name)]
        if versions:
            return f"glibc {max(versions, key=numbers).partition('_')[2]}"
    return "musl" if any(name.startswith("ld-musl-") for name in tree.names("/lib")) else ""


def _c_libraries(tree: Tree) -> Iterator[str]:
    """The possible paths of the C library: in the library directories, and in Debian's per-architecture ones."""
    for directory in _LIBRARIES:
        yield f"{directory}/libc.so.6"
    for directory in _LIBRARIES[2:]:
        yield from (f"{directory}/{name}/libc.so.6" for name in tree.names(directory) if name.endswith("-linux-gnu"))


def _machine(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            head = stream.read(20)
    except OSError:
        return ""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return ""
    order = "little" if head[5] == 1 else "big"
    return _MACHINES.get((int.from_bytes(head[18:20], order), head[5]), "")  # type: ignore[arg-type]


def _walked(root: Path) -> tuple[list[Toolkit], list[PythonEnvironment]]:
    toolkits, environments = [], []
    for directory, directories, files in os.walk(root):
        inside = directory.removeprefix(str(root))
        directories[:] = sorted(name for name in directories if inside or name not in _UNSEEN)
        for name in files:
            path = f"{inside}/{name}"
            toolkit = toolkit_of(path, _text(Path(directory, name)) if path.endswith("/.info/version") else "")
            if toolkit is not None:
                toolkits.append(toolkit)
        if inside.endswith("/conda-meta") and "history" in files:
            environments.append(_conda(os.path.dirname(inside), files))  # noqa: PTH120
        if "pyvenv.cfg" in files:
            environments.append(_venv(inside, Path(directory, "pyvenv.cfg")))
    return toolkits, environments


def _conda(path: str, files: Sequence[str]) -> PythonEnvironment:
    python = (re.fullmatch(r"python-(\d+(?:\.\d+)+)-[^-]+\.json", name) for name in files)
    return PythonEnvironment("conda", path, next((match.group(1) for match in python if match), ""))


def _venv(path: str, file: Path) -> PythonEnvironment:
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)+)", _text(file), re.MULTILINE)
    return PythonEnvironment("venv", path, match.group(1) if match else "")


def _activate(tree: Tree, env: Sequence[str]) -> str:
    """The value of $WITH_CONDA or a similar variable: a shell line that the image provides for evaluation."""
    scripts = [tree.find(f"{_ENVIRONMENT}/{name}") for name in tree.names(_ENVIRONMENT)]
    for text in ("\n".join(env), *(_text(path.outside) for path in scripts if isinstance(path, TreePath))):
        match = _ACTIVATE.search(text)
        if match and match.group(1).strip("\"' "):
            return match.group(1).strip("\"' ")
    return ""


def _text(place: Path) -> str:
    """The beginning of a file of the image; links are not followed, since they may lead anywhere."""
    try:
        if place.is_symlink() or not place.is_file():
            return ""
        with place.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 16)
    except OSError:
        return ""
