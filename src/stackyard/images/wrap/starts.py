"""The path by which each wrapped command starts in the container: many programs find their files by it.

In the container a command's path in the revision is a link to the image's program. A program that follows the link
finds its files; of the others:

- most start by their own path in the image, as if they had been called there (`Starts.own`);
- an interpreter of Python keeps a path that is valid outside too, because virtual environments on top of it are links
  to that path. It follows the link, but these environments do not: they look for the standard library beside it, where
  it is linked if it is needed (`BaseTree.files`);
- a Python in a virtual environment of the image starts by its own path. The environment's settings name an
  interpreter by a path that is valid outside too (`BaseTree`), and the launcher takes the place of the environment's
  links, whose target Python would prefer to these settings;
- what starts processes of MPI on other nodes keeps the path that they have there too, with its parts beside it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stackyard.images.inventory import Inventory

TREES = ".base"
"""The directory of `BaseTree`, below the prefix."""
_PYTHON = re.compile(r"(?:python|pypy)\d*(?:\.\d+)*[a-z]?")
_MPI = re.compile(r"(?:mpiexec|mpirun|orterun|prterun|oshrun)(?:[._-][\w.]+)?")
_MPI_PARTS = ("hydra_pmi_proxy", "hydra_bstrap_proxy", "hydra_nameserver", "orted", "prted", "prte")
"""What MPICH, Intel MPI and Open MPI start by the path of their mpiexec, on other nodes too."""
_SETTINGS = "pyvenv.cfg"


@dataclass(frozen=True)
class BaseTree:
    """Links to a Python that virtual environments are made of, as ``.base/NUMBER`` below the prefix.

    Attributes:
        directory: the directory of its programs in the image.
        programs: the path in the image of each name.
        environments: the settings of the image's own virtual environments on it: path, and lines without ``home``.
        links: the links by which these start it, and their targets.
        files: other directories of its prefix by name, for a Python that looks for its library beside its program only.
    """

    number: int
    directory: str
    programs: Mapping[str, str]
    environments: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Its directory, relative to the prefix."""
        return f"{TREES}/{self.number}"

    def with_files(self, listed: Inventory) -> BaseTree:
        """A copy with all directories of its prefix but that of its programs."""
        prefix = posixpath.dirname(self.directory)
        real, own = listed.real(prefix), posixpath.basename(self.directory)
        names = (path for path in listed.entries if posixpath.dirname(path) == real)
        return replace(self, files={posixpath.basename(path): path for path in names
                                    if posixpath.basename(path) != own})  # fmt: skip


@dataclass(frozen=True)
class Starts:
    """How the commands of an image start.

    Attributes:
        own: the commands that start by another path than theirs in the revision: absolute, in the image; else below
            the prefix.
        makers: the commands that are Pythons in virtual environments, and the interpreter of each, below the prefix,
            by which they make further ones (``-m venv``): before 3.11 a Python takes itself for that.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)
    trees: Sequence[BaseTree] = ()

    def settings(self, *, by_launcher: bool) -> Iterator[str]:
        """The lines for the settings of the container. `by_launcher`: whether the launcher runs in it."""
        for tree in self.trees:
            for number, path in enumerate(tree.environments):
                yield f"venv {tree.place}\t{settings_file(tree, number)}\t{path}"
            if by_launcher:
                yield from (f"python {path}\t{real}" for path, real in tree.links.items())

    def with_files(self, tree: BaseTree, programs: Mapping[str, str], listed: Inventory) -> Starts:
        """A copy in which this interpreter has its files beside it, and commands that are it start there."""
        trees = [each.with_files(listed) if each is tree else each for each in self.trees]
        names = {name: posixpath.basename(path) for name, path in programs.items()
                 if name not in self.own and _named(posixpath.dirname(path), listed) == tree.directory}  # fmt: skip
        moved = {name: f"{tree.place}/bin/{own}" for name, own in names.items() if own in tree.programs}
        return replace(self, own={**self.own, **moved}, trees=trees)


def settings_file(tree: BaseTree, number: int) -> str:
    """The file with the settings of a virtual environment, relative to the prefix."""
    return f"{TREES}/{tree.number}.{number}.cfg"


def with_parts(programs: Mapping[str, str], listed: Inventory) -> dict[str, str]:
    """The commands, and the parts of an MPI's starters, which these find beside themselves."""
    both = dict(programs)
    for name, path in programs.items():
        if not _is_mpi(name, path):
            continue
        for part in _MPI_PARTS:
            places = [posixpath.join(posixpath.dirname(each), part) for each in (path, listed.real(path))]
            place = next(filter(listed.is_program, places), "")
            if place:
                both.setdefault(part, place)
    return both


def _is_mpi(name: str, path: str) -> bool:
    return any(_MPI.fullmatch(text) for text in (name, posixpath.basename(path)))


def is_python(path: str, listed: Inventory) -> bool:
    """Whether a path leads to an interpreter of Python, by its name or that of its target."""
    return any(_PYTHON.fullmatch(posixpath.basename(each)) for each in (path, listed.real(path)))


def starts(programs: Mapping[str, str], listed: Inventory, read: Callable[[str], str]) -> Starts:
    """How these commands start.

    Args:
        programs: the path in the image of each command.
        read: the text of a file of the image.
    """
    trees: dict[str, BaseTree] = {}
    makers: dict[str, str] = {}
    for environment, path in _environments(programs, listed).items():
        home, rest = _without_home(read(path))
        if home and listed.programs(home):
            tree = _with_environment(_tree(trees, home, listed), environment, {path: rest}, listed)
            trees[tree.directory] = tree
            inside = {name: posixpath.basename(place) for name, place in programs.items()
                      if is_python(place, listed) and _environment(place, listed) == environment}  # fmt: skip
            makers |= {name: f"{tree.place}/bin/{own}" for name, own in inside.items() if own in tree.programs}
    own = {}
    for name, path in programs.items():
        if is_python(path, listed) and _environment(path, listed) is None:
            _tree(trees, posixpath.dirname(path), listed)
        elif not _is_mpi(name, path) and name not in _MPI_PARTS:
            own[name] = path
    return Starts(own, makers, tuple(trees.values()))


def _with_environment(tree: BaseTree, directory: str, settings: Mapping[str, str], listed: Inventory) -> BaseTree:
    """A tree with one more virtual environment; also under the names that only this has for the interpreter."""
    programs = listed.real(posixpath.join(directory, "bin"))
    pythons = _pythons(programs, listed)
    lacking = {name: real for name, real in pythons.items() if name not in tree.programs}
    paths = {posixpath.join(programs, name): real for name, real in pythons.items()}
    links = {path: real for path, real in paths.items() if listed.entries[path].kind == "l"}
    return replace(tree, programs={**tree.programs, **lacking}, links={**tree.links, **links},
                   environments={**tree.environments, **settings})  # fmt: skip


def _environments(programs: Mapping[str, str], listed: Inventory) -> dict[str, str]:
    """The virtual environments that the commands are in, and the real paths of their settings."""
    directories = {_environment(path, listed) for path in programs.values()} - {None}
    found = {directory: listed.real(posixpath.join(directory, _SETTINGS)) for directory in directories if directory}
    return dict(sorted(found.items()))


def _environment(path: str, listed: Inventory) -> str | None:
    """The virtual environment that a program is in; None: it is in none."""
    directory = posixpath.dirname(posixpath.dirname(path))
    return directory if listed.real(posixpath.join(directory, _SETTINGS)) in listed.entries else None


def _tree(trees: dict[str, BaseTree], directory: str, listed: Inventory) -> BaseTree:
    directory = _named(directory, listed)
    if directory not in trees:
        names = _pythons(directory, listed)
        trees[directory] = BaseTree(len(trees), directory, {name: posixpath.join(directory, name) for name in names})
    return trees[directory]


def _named(directory: str, listed: Inventory) -> str:
    """A directory of programs; of /bin its target, since the prefix of what is in it is not the root directory."""
    return listed.real(directory) if posixpath.dirname(directory) == "/" else directory


def _pythons(directory: str, listed: Inventory) -> dict[str, str]:
    """The interpreters of a directory, with their real paths."""
    paths = {name: posixpath.join(directory, name) for name in listed.programs(directory)}
    return {name: listed.real(path) for name, path in paths.items() if _PYTHON.fullmatch(name)}


def _without_home(text: str) -> tuple[str, str]:
    """The interpreter's directory in a virtual environment's settings, and the other lines."""
    home, rest = "", []
    for line in text.splitlines():
        key, is_set, value = line.partition("=")
        if is_set and key.strip().lower() == "home":
            home = posixpath.normpath(value.strip())
        else:
            rest.append(line)
    return home if home.startswith("/") else "", "".join(f"{line}\n" for line in rest)
