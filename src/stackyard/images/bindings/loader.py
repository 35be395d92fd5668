"""Which file is loaded for each library, by the rules of the dynamic loader (ld.so(8)), in any tree.

For each name in DT_NEEDED, in this order, the first file of the right architecture is taken: one that is loaded
already; DT_RPATH of the file, then of its loader and so on up to the program, unless the file has a RUNPATH;
LD_LIBRARY_PATH; the file's own DT_RUNPATH; ld.so.cache; the default directories. Files are loaded breadth-first, after
those of LD_PRELOAD. In each place a build for this machine's processor comes first (``glibc-hwcaps/x86-64-v3``, glibc
2.33 and newer).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from stackyard.host.files.elf import ElfFile
from stackyard.host.files.elf import read_elf as _read_elf
from stackyard.host.machine.probe import microarchitecture
from stackyard.images.bindings.elf.versions import read_versions
from stackyard.images.bindings.ldcache import CachedLibrary, read_cache
from stackyard.images.bindings.tree import Tree, TreePath

C_LIBRARY = frozenset({
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libutil.so.1",
    "libanl.so.1", "libmvec.so.1", "libnsl.so.1", "libBrokenLocale.so.1", "libthread_db.so.1", "libc_malloc_debug.so.0",
    "libnss_files.so.2", "libnss_dns.so.2", "libnss_compat.so.2", "libnss_hesiod.so.2", "libmemusage.so",
})  # fmt: skip
"""The C library's own files. They fit its loader alone, which is the image's, so they are never bound."""

_MULTIARCH = {
    "EM_X86_64/64": "x86_64-linux-gnu", "EM_AARCH64/64": "aarch64-linux-gnu", "EM_PPC64/64": "powerpc64le-linux-gnu",
}  # fmt: skip


_HWCAPS, _SINCE = "glibc-hwcaps", "GLIBC_2.33"
_LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "power11", "power10", "power9")
"""The names of the processors (glibc: dl-hwcaps-subdirs.c of x86_64 and of powerpc64/le), the best first."""


@lru_cache(maxsize=1)
def own_hwcaps() -> tuple[str, ...]:
    """The processor levels whose programs this machine runs, the best first."""
    own = microarchitecture(os.uname().machine, Path("/")).removesuffix("le").replace("_", "-")
    kind, level = re.sub(r"\d+$", "", own), _level(own)
    return tuple(name for name in _LEVELS if name.startswith(kind) and _level(name) <= level)


def _level(name: str) -> int:
    return int((re.search(r"\d+$", name) or ["0"])[0])


def _own_machine() -> str:
    return {"x86_64": "EM_X86_64/64", "aarch64": "EM_AARCH64/64"}.get(os.uname().machine, "EM_PPC64/64")


def _default_directories(machine: str) -> tuple[str, ...]:
    triplet = _MULTIARCH.get(machine, "")
    multi = (f"/lib/{triplet}", f"/usr/lib/{triplet}") if triplet else ()
    return (*multi, "/lib64", "/usr/lib64", "/lib", "/usr/lib")


@lru_cache(maxsize=8192)
def read_elf(path: Path) -> ElfFile | None:
    """`host.files.elf.read_elf` with a cache."""
    return _read_elf(path)


def is_c_library(name: str) -> bool:
    """Whether a library is glibc's own, its loader included."""
    return name in C_LIBRARY or re.fullmatch(r"ld(64|-linux[\w.-]*|-musl[\w.-]*)\.so(\.\d+)*", name) is not None


@dataclass(frozen=True)
class LoadedFile:
    """One file that is loaded.

    Attributes:
        name: the requested name.
        inside: its path before links are followed, as needed for a bind.
        elf: its dynamic section; its path is the file on this machine.
        by: the file that first loaded it; None for a program and preloaded files.
        rule: the rule that found it: ``RPATH of X``, ``LD_LIBRARY_PATH``, ``ld.so.cache`` ...
    """

    name: str
    inside: str
    elf: ElfFile
    by: LoadedFile | None = None
    rule: str = ""


@dataclass(frozen=True)
class MissingLibrary:
    """A library that the loader does not find, and the file that needs it."""

    name: str
    by: LoadedFile


@dataclass
class Closure:
    """All files loaded together with some files, in the loader's order, and the missing ones."""

    loaded: list[LoadedFile] = field(default_factory=list)
    missing: list[MissingLibrary] = field(default_factory=list)
    _names: dict[str, LoadedFile] = field(default_factory=dict)
    _files: dict[Path, LoadedFile] = field(default_factory=dict)

    def get(self, name: str) -> LoadedFile | None:
        """The loaded file for a name, or None."""
        return self._names.get(name)

    def add(self, item: LoadedFile, outside: Path) -> bool:
        """Add a file; False if it is loaded already, under another name."""
        known = self._files.get(outside)
        for name in {item.name, item.elf.soname} - {""}:
            self._names.setdefault(name, known or item)
        if known is None:
            self._files[outside] = item
            self.loaded.append(item)
        return known is None


@dataclass(frozen=True)
class Loader:
    """The loader of a tree. `library_path`: LD_LIBRARY_PATH."""

    tree: Tree
    library_path: tuple[str, ...] = ()

    @cached_property
    def cache(self) -> Mapping[str, tuple[CachedLibrary, ...]]:
        """ld.so.cache of the tree."""
        place = self.tree.find("/etc/ld.so.cache")
        return read_cache(place.outside) if place else {}

    @cached_property
    def hwcaps(self) -> tuple[str, ...]:
        """Directories below ``glibc-hwcaps`` that the tree's C library searches on this machine, the best first."""
        known = (library.path for library in self.cache.get("libc.so.6", ()))
        default = (f"{directory}/libc.so.6" for directory in _default_directories(_own_machine()))
        for path in (*known, *default):
            place = self.tree.find(path)
            if place is not None:
                return own_hwcaps() if _SINCE in read_versions(place.outside).defined else ()
        return ()

    def cached(self, name: str) -> list[str]:
        """The files of a library in ld.so.cache, in the loader's order."""
        files = self.cache.get(name, ())
        return [file.path for hwcaps in (*self.hwcaps, "") for file in files if file.hwcaps == hwcaps]

    def closure(self, paths: Iterable[str], *, preload: Iterable[str] = ()) -> Closure:
        """Everything loaded with some files of the tree; files other than ELF are skipped."""
        result, queue = Closure(), deque[LoadedFile]()
        for path in (*preload, *paths):
            item = self.open(path) if "/" in path else self._preloaded(path)
            if item is not None and result.add(item, self._outside(item)):
                queue.append(item)
        while queue:
            item = queue.popleft()
            for name in item.elf.needed:
                self._load(name, item, result, queue)
        return result

    def open(self, path: str) -> LoadedFile | None:
        """A file of the tree by its path."""
        place = self.tree.find(path)
        elf = read_elf(place.outside) if place else None
        return LoadedFile(posixpath.basename(path), path, elf) if elf else None

    def find(self, name: str, item: LoadedFile) -> LoadedFile | None:
        """The file that the loader takes for a library which a loaded file needs, or None."""
        for path, rule in self._candidates(name, item):
            place = self.tree.find(path)
            elf = read_elf(place.outside) if place else None
            if elf is not None and elf.machine == item.elf.machine:
                return LoadedFile(name, path, elf, item, rule)
        return None

    def _preloaded(self, name: str) -> LoadedFile | None:
        """A library found by name alone, as for LD_PRELOAD: in LD_LIBRARY_PATH, then the cache."""
        paths = (path for directory in self.library_path for path in self._below(directory, name))
        return next((item for path in (*paths, *self.cached(name)) if (item := self.open(path))), None)

    def _load(self, name: str, item: LoadedFile, result: Closure, queue: deque[LoadedFile]) -> None:
        if result.get(name) is not None:
            return
        place = self.find(name, item)
        if place is None:
            if not any(absent.name == name for absent in result.missing):
                result.missing.append(MissingLibrary(name, item))
        elif result.add(place, self._outside(place)):
            queue.append(place)

    def _outside(self, item: LoadedFile) -> Path:
        place = self.tree.find(item.inside)
        return place.outside if place else item.elf.path

    def _candidates(self, name: str, item: LoadedFile) -> Iterator[tuple[str, str]]:
        """Paths in the order in which the loader tries them, and the rule of each."""
        if "/" in name:
            yield next(iter(self.expanded((name,), item))), "its path"
            return
        for directory, rule in self._directories(item):
            yield from ((path, rule) for path in self._below(directory, name))
        for path in self.cached(name):
            yield path, "ld.so.cache"
        for directory in _default_directories(item.elf.machine):
            yield from ((path, "default directory") for path in self._below(directory, name))

    def _below(self, directory: str, name: str) -> Iterator[str]:
        """The possible paths of a library in a search directory."""
        if self.tree.find(f"{directory}/{_HWCAPS}") is not None:
            yield from (f"{directory}/{_HWCAPS}/{hwcap}/{name}" for hwcap in self.hwcaps)
        yield f"{directory}/{name}"

    def _directories(self, item: LoadedFile) -> Iterator[tuple[str, str]]:
        if not item.elf.runpath:
            above: LoadedFile | None = item
            while above is not None:
                if not above.elf.runpath:
                    for directory in self.expanded(above.elf.rpath, above):
                        yield directory, f"RPATH of {above.inside}"
                above = above.by
        for directory in self.library_path:
            yield directory, "LD_LIBRARY_PATH"
        for directory in self.expanded(item.elf.runpath, item):
            yield directory, f"RUNPATH of {item.inside}"

    def expanded(self, directories: Iterable[str], item: LoadedFile) -> Iterator[str]:
        """Directories with ``$ORIGIN`` and ``$LIB`` replaced. The origin is the file's real directory."""
        place = self.tree.find(item.inside)
        origin = posixpath.dirname(_real(place, item))
        for directory in directories:
            text = re.sub(r"\$(ORIGIN\b|\{ORIGIN\})", lambda _: origin, directory)
            triplet = _MULTIARCH.get(item.elf.machine, "lib64")
            libs = ("lib64", "lib", f"lib/{triplet}") if "$LIB" in text or "${LIB}" in text else ("",)
            for lib in libs:
                yield re.sub(r"\$(LIB\b|\{LIB\})", lambda _, lib=lib: lib, text)  # type: ignore[misc]


def _real(place: TreePath | None, item: LoadedFile) -> str:
    return place.inside if place else item.inside
