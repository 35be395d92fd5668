"""Detects the libraries of this machine that an image needs for its MPI, by the loader's rules, each with its reason.

A library in a system directory is bound as a single file (CONTAINLIBS), without the rest of the directory. A library
with its own directory is bound with it, at the path that its RUNPATH and its components expect. The image keeps its own
C library and compiler run times; `check` reports if they are too old.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from stackyard.core.errors import InputError, MissingError
from stackyard.host.machine.daemons import daemons
from stackyard.host.run.command import which
from stackyard.images.bindings.families import KnownMpi, asked_version, known_mpi, mpi_sonames, parts, pmi_kinds
from stackyard.images.bindings.loader import Closure, LoadedFile, Loader, is_c_library
from stackyard.images.bindings.tree import Tree
from stackyard.inputs.sites.bindings import Bind, BoundPath, BoundVariable, HostBindings, HostMpi

RUN_TIMES = (
    "libgcc_s.so.*",
    "libstdc++.so.*",
    "libgfortran.so.*",
    "libquadmath.so.*",
    "libgomp.so.*",
    "libatomic.so.*",
)
"""The compilers' run times: the image's programs need theirs at least as new as they were built with."""


def is_left_to_image(name: str) -> bool:
    """Whether a library is never bound automatically: the C library, and compiler run times."""
    return is_c_library(name) or any(fnmatchcase(name, glob) for glob in RUN_TIMES)


_SYSTEM = re.compile(r"/(usr/)?lib(64|32)?(/[\w]+-linux-gnu\w*)?(/openmpi/lib)?")


def is_of_system(directory: str) -> bool:
    """Whether a directory is a distribution's system library directory."""
    return _SYSTEM.fullmatch(directory) is not None


_SHARED = ("/", "/usr", "/usr/local", "/opt", "/etc", "/var", "/lib", "/lib64")
"""Directories that are never bound as a whole: the image has its own."""


@dataclass
class _HostFiles:
    """The collected bindings, by path, in the order of discovery."""

    libraries: dict[str, str] = field(default_factory=dict)
    binds: dict[str, str] = field(default_factory=dict)
    library_path: dict[str, str] = field(default_factory=dict)
    components: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DetectedBindings:
    """The bindings, and notices: libraries that were not found on this machine."""

    bindings: HostBindings
    notes: tuple[str, ...] = ()


def detect(environ: Mapping[str, str], *, mpi: str = "") -> DetectedBindings:
    """The bindings for the MPI of this machine.

    Args:
        environ: its LD_LIBRARY_PATH and PATH determine the loaded MPI, as set by a site's module.
        mpi: a library, an mpiexec, or a directory of an MPI; empty: by `environ`.

    Raises:
        InputError: `mpi` is not an MPI.
        MissingError: this machine has no known MPI.
    """
    loader = Loader(Tree(), _directories(environ.get("LD_LIBRARY_PATH", "")))
    path, known = library(loader, environ, mpi)
    if not known.version:
        known = replace(known, version=asked_version(path, environ))
    return required(loader, path, known, daemons(environ).sockets)


def required(loader: Loader, path: str, known: KnownMpi, sockets: Mapping[str, str]) -> DetectedBindings:
    """The bindings for an MPI in a tree: its libraries, the files that it opens, and the daemons' `sockets`."""
    closure = loader.closure([path, *_companions(loader, path, known)])
    main, files = closure.loaded[0], _HostFiles()
    for item in closure.loaded:
        _place(loader, item, known, files)
    notes = [f"{absent.name}, required by {absent.by.name}, not found" for absent in closure.missing]
    notes += _open_components(loader, closure, files)
    for place, why in sockets.items():
        _bind(place, why, files)
    return DetectedBindings(_bindings(loader.tree, main, known, closure, files), tuple(notes))


def _directories(text: str) -> tuple[str, ...]:
    return tuple(directory for directory in text.split(":") if directory)


def library(loader: Loader, environ: Mapping[str, str], mpi: str) -> tuple[str, KnownMpi]:
    """The requested MPI's library, or the one that the environment leads to, and its identity; see `detect`."""
    for path in _candidates(loader, environ, mpi):
        place = loader.tree.find(path)
        known = known_mpi(place.outside) if place else None
        if known is not None:
            return path, known
    if mpi:
        raise InputError(f"no MPI found in {mpi}", hint="give its library, its mpiexec, or the directory above its lib")
    raise MissingError(
        "no MPI found: none on LD_LIBRARY_PATH, beside an mpiexec on PATH, or in ld.so.cache",
        hint="load the module of your MPI, or name it: --mpi /opt/openmpi-4.1.4",
    )


def _candidates(loader: Loader, environ: Mapping[str, str], mpi: str) -> Iterator[str]:
    """Possible paths of the MPI's library, the most certain first."""
    if mpi:
        place = Path(mpi).absolute()
        if loader.tree.find(str(place)) and re.search(r"\.so(\.|$)", place.name):
            yield str(place)
            return
        yield from _below(_prefix(place) if place.is_file() else place)
        return
    for directory in loader.library_path:
        yield from (f"{directory}/{name}" for name in _sorted_sonames())
    for program in ("mpiexec", "mpirun"):
        path = which(program, environ)
        if path is not None and _prefix(path) not in (Path("/usr"), Path("/")):
            yield from _below(_prefix(path))
    yield from _of_system(loader, environ)


def _of_system(loader: Loader, environ: Mapping[str, str]) -> Iterator[str]:
    """Libraries in ld.so.cache, those matching mpiexec's family first."""
    from stackyard.host.machine.mpi import find_mpi

    paths = [path for name in _sorted_sonames() for path in loader.cached(name)]
    mpiexec = find_mpi(environ)
    families = {"mpirun": ("openmpi", "spectrum"), "mpich": ("mpich",), "pals": ("mpich",)}
    abis = families[mpiexec.launcher] if mpiexec else ()
    yield from sorted(paths, key=lambda path: (known := known_mpi(Path(path))) is None or known.family.abi not in abis)


def _sorted_sonames() -> list[str]:
    return sorted(mpi_sonames())


def _prefix(program: Path) -> Path:
    return program.resolve().parent.parent


def _below(prefix: Path) -> Iterator[str]:
    for directory in (prefix / "lib", prefix / "lib64", prefix / "lib-abi-mpich", prefix):
        yield from (f"{directory}/{name}" for name in _sorted_sonames())


def _companions(loader: Loader, path: str, known: KnownMpi) -> list[str]:
    directory = posixpath.dirname(path)
    return [f"{directory}/{name}" for name in known.family.companions if loader.tree.find(f"{directory}/{name}")]


def _place(loader: Loader, item: LoadedFile, known: KnownMpi, files: _HostFiles) -> None:
    """Decide how a library is bound into the image."""
    if is_left_to_image(item.name):
        return
    why = f"required by {item.by.name}" if item.by else known.title
    if item.name in known.family.companions:
        why = f"{known.title} for other languages"
    _put(loader.tree, item, why, files)


def _put(tree: Tree, item: LoadedFile, why: str, files: _HostFiles) -> None:
    item = _for_all_processors(tree, item)
    directory = posixpath.dirname(item.inside)
    path = _own_path(tree, item)  # /lib may be a link to /usr/lib here
    if is_of_system(posixpath.dirname(path)):
        files.libraries.setdefault(path, why)
        return
    _bind(_whole(directory), why, files)
    if item.by is None or item.rule == "LD_LIBRARY_PATH":
        files.library_path.setdefault(directory, f"{item.name} is there")


def _for_all_processors(tree: Tree, item: LoadedFile) -> LoadedFile:
    """The variant of a library that runs on every node, if a processor-specific one was found."""
    plain = re.sub(r"/glibc-hwcaps/[^/]+(?=/[^/]+$)", "", item.inside)
    return replace(item, inside=plain) if tree.find(plain) is not None else item


def _bind(place: str, why: str, files: _HostFiles) -> None:
    """Bind a file or directory, unless a parent directory is bound."""
    if not any(posixpath.commonpath([place, bound]) == bound for bound in files.binds):
        files.binds[place] = why


def _soname(item: LoadedFile) -> str:
    """The soname: CONTAINLIBS binds a file under its own name, and only the soname is searched for."""
    return item.elf.soname or item.name


def _whole(directory: str) -> str:
    """The directory to bind for a library: its prefix, with components, settings and message files; else its own."""
    parent = posixpath.dirname(directory)
    is_lib = re.fullmatch(r"lib(64)?", posixpath.basename(directory)) is not None
    return parent if is_lib and parent not in _SHARED else directory


def _open_components(loader: Loader, closure: Closure, files: _HostFiles) -> list[str]:
    """Directories of files opened by dlopen, with the dependencies of these files, recursively."""
    notes: dict[str, None] = {}
    opened: set[str] = set()
    for item in closure.loaded:  # grows by what components need
        for part in parts():
            if not fnmatchcase(item.name, part.library):
                continue
            for place in (*_beside(loader.tree, item, part.directories), *filter(loader.tree.find, part.paths)):
                if place not in opened:
                    opened.add(place)
                    _bind(place, part.why, files)
                    notes.update(dict.fromkeys(_open_directory(loader, closure, place, files)))
    return list(notes)


def _beside(tree: Tree, item: LoadedFile, names: Iterable[str]) -> list[str]:
    """Directories beside a library, or beside the target of its link; by their real paths."""
    real = tree.find(item.inside)
    directories = (posixpath.dirname(item.inside), posixpath.dirname(real.inside) if real else "")
    places = (tree.find(f"{directory}/{name}") for directory in directories for name in names if directory)
    return list(dict.fromkeys(place.inside for place in places if place))


def _open_directory(loader: Loader, closure: Closure, directory: str, host_files: _HostFiles) -> list[str]:
    """Add the dependencies of a directory's components. Returns those missing on this machine."""
    files = [path for path in files_below(loader.tree, directory) if re.search(r"\.so(\.\d+)*$", path)]
    files = [path for path in files if _is_below(loader.tree, path, directory)]
    host_files.components += [posixpath.basename(path) for path in files]
    inner = loader.closure(files)
    for item in inner.loaded:
        if item.by is None or item.inside.startswith(f"{directory}/") or closure.get(item.name) is not None:
            continue
        closure.add(item, item.elf.path)
        if not is_left_to_image(item.name):
            _put(loader.tree, item, f"required by {item.by.name}", host_files)
    return [f"{lacking.name}, required by the component {lacking.by.name}, not found" for lacking in inner.missing]


def _is_below(tree: Tree, path: str, directory: str) -> bool:
    """Whether a file is in a directory, and not a link to elsewhere, such as a compiler's link to a system library."""
    place, above = tree.find(path), tree.find(directory)
    return place is not None and above is not None and place.inside.startswith(f"{above.inside}/")


def files_below(tree: Tree, directory: str, depth: int = 4) -> Iterator[str]:
    """The files below a directory, by their paths inside."""
    for name in tree.names(directory):
        path = f"{directory}/{name}"
        place = tree.find(path)
        if place is None:
            continue
        if place.outside.is_dir():
            if depth:
                yield from files_below(tree, path, depth - 1)
        else:
            yield path


def _own_path(tree: Tree, item: LoadedFile) -> str:
    """The path of a library with links in its directory resolved, but with its soname."""
    directory = tree.find(posixpath.dirname(item.inside))
    return f"{directory.inside if directory else posixpath.dirname(item.inside)}/{_soname(item)}"


def _bindings(tree: Tree, main: LoadedFile, known: KnownMpi, closure: Closure, files: _HostFiles) -> HostBindings:
    names = [*(item.name for item in closure.loaded), *files.components]
    why = "each rank in a namespace of its own cannot read another's memory: shared memory is copied twice instead"
    return HostBindings(
        name=f"{known.family.name}-{known.version}".rstrip("-"),
        summary=f"{known.title} of this machine",
        mpi=HostMpi(
            family=known.family.name,
            version=known.version,
            library=_own_path(tree, main),
            pmi=pmi_kinds(known.family, names),
        ),
        libraries=tuple(BoundPath(path=path, why=why) for path, why in files.libraries.items()),
        binds=tuple(Bind(path=path, why=why) for path, why in files.binds.items()),
        library_path=tuple(BoundPath(path=path, why=why) for path, why in files.library_path.items()),
        variables=tuple(BoundVariable(name=n, value=v, why=why) for n, v in known.family.variables.items()),
    )
