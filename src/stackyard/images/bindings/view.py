"""An image with the host's bindings, as its programs see it: which file the loader selects for each library."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stackyard.host.files.elf import ElfFile
from stackyard.images.bindings.drivers import Toolkit, toolkit_of
from stackyard.images.bindings.families import companion_sonames, mpi_sonames
from stackyard.images.bindings.loader import LoadedFile, Loader, read_elf
from stackyard.images.bindings.profiles import files_of
from stackyard.images.bindings.tree import Tree
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.library_directories import LIBRARIES

_UNSEEN = frozenset({"/proc", "/sys", "/dev", "/tmp", "/run"})
_BASE = "/.singularity.d/env/99-base.sh"
_SCRIPTS = ("/.singularity.d/env/10-docker2singularity.sh", "/.singularity.d/env/90-environment.sh")


@dataclass(frozen=True)
class User:
    """A program or library of an image that is linked to an MPI. `needs`: the sonames."""

    path: str
    elf: ElfFile
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """The relevant contents of an image: MPI users, GPU toolkits."""

    users: tuple[User, ...]
    toolkits: tuple[Toolkit, ...]


@dataclass(frozen=True)
class View:
    """An image as its programs see it at run time.

    Attributes:
        image: its own files.
        loader: the loader inside, with the binds and LD_LIBRARY_PATH applied.
        libraries: the files of CONTAINLIBS, by their names inside.
        searched: whether the directory of CONTAINLIBS is on the library path.
    """

    image: Tree
    loader: Loader
    preload: tuple[str, ...]
    libraries: dict[str, Path]
    searched: bool

    def is_host(self, item: LoadedFile) -> bool:
        """Whether a loaded file is the host's."""
        return not any(item.elf.path.is_relative_to(layer) for layer in self.image.layers)


def view(image: Tree, policy: ContainerPolicy) -> View:
    """An image with a site's settings for containers, including the bindings.

    Apptainer puts the directory of CONTAINLIBS on the library path only if LD_LIBRARY_PATH is passed from outside or
    the image has Apptainer's own scripts; else the bound files are not found.
    """
    libraries = {Path(file).name: Path(file) for path in policy.libraries for file in files_of(path)}
    mounts = {target: Path(source) for source, target in _binds(policy) if Path(source).exists()}
    mounts |= {f"{LIBRARIES}/{name}": file for name, file in libraries.items() if file.exists()}
    tree = image.bound(mounts)
    library_path = policy.variables.get("LD_LIBRARY_PATH", "")
    of_charliecloud = policy.runtime == "charliecloud"  # it reads no script of the image, and always has our path
    own = () if of_charliecloud else _own_library_path(image)
    explicit = _without_variables(library_path)
    path = [*explicit, *(own if not library_path or "LD_LIBRARY_PATH" in library_path else ())]
    searched = LIBRARIES in path or bool(library_path) or of_charliecloud or image.find(_BASE) is not None
    if searched and LIBRARIES not in path:
        path.append(LIBRARIES)
    preload = tuple(word for word in re.split(r"[:\s]", policy.variables.get("LD_PRELOAD", "")) if word)
    return View(image, Loader(tree, tuple(path)), preload, libraries, searched)


def _binds(policy: ContainerPolicy) -> Iterator[tuple[str, str]]:
    for bind in policy.binds:
        source, _, rest = bind.partition(":")
        yield source, rest.partition(":")[0] or source


def _without_variables(text: str) -> list[str]:
    return [directory for directory in re.sub(r"\$(\{[^}]*\}|\w+)", "", text).split(":") if directory]


def _own_library_path(image: Tree) -> list[str]:
    """LD_LIBRARY_PATH from the image's own scripts, if they set it literally."""
    directories: list[str] = []
    for script in _SCRIPTS:
        path = image.find(script)
        text = path.outside.read_text(errors="replace") if path else ""
        for value in re.findall(r"^\s*(?:export\s+)?LD_LIBRARY_PATH=(.*)$", text, re.MULTILINE):
            directories += [variable.strip("\"'") for variable in _without_variables(value.strip("\"'"))]
    return [directory for directory in directories if directory.startswith("/")]


def contents(image: Tree) -> Contents:
    """The relevant contents of an image; each file is read once."""
    users: list[User] = []
    toolkits: list[Toolkit] = []
    names = mpi_sonames() | companion_sonames()
    for path, place in _files(image):
        toolkit = toolkit_of(path, _text(place) if path.endswith("/.info/version") else "")
        if toolkit is not None:
            toolkits.append(toolkit)
        elf = read_elf(place) if _may_be_elf(path, place) else None
        needs = tuple(name for name in elf.needed if name in names) if elf else ()
        if elf is not None and needs and elf.soname not in names:
            users.append(User(path, elf, needs))
    return Contents(tuple(users), tuple(toolkits))


def _files(image: Tree) -> Iterator[tuple[str, Path]]:
    """Every visible file and link of an image: entries of upper layers hide those of lower ones."""
    seen: set[str] = set()
    for layer in image.layers:
        for directory, directories, files in os.walk(layer):
            inside = directory.removeprefix(str(layer))
            directories[:] = sorted(
                name for name in directories if f"{inside}/{name}" not in _UNSEEN and name != "__pycache__"
            )
            for name in sorted(files):
                path = f"{inside}/{name}"
                if path not in seen:
                    seen.add(path)
                    yield path, Path(directory, name)


def _may_be_elf(path: str, place: Path) -> bool:
    if os.path.islink(place):  # noqa: PTH114
        return False
    return ".so" in posixpath.basename(path) or os.access(place, os.X_OK)


def _text(place: Path) -> str:
    try:
        return place.read_text(errors="replace")[:100]
    except OSError:
        return ""
