"""Which file each library is loaded from, by the rules of the dynamic loader (ld.so(8)), in any tree.

For each name in DT_NEEDED, in this order, the first file of the right architecture counts: one that is loaded already;
DT_RPATH of the file, of what loaded it and so on up to the program, unless the file has a RUNPATH; LD_LIBRARY_PATH;
the file's own DT_RUNPATH; ld.so.cache; the default directories. Files are loaded in breadth, after those of LD_PRELOAD.
"""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from stackyard.host.elf import ElfFile
from stackyard.host.elf import read_elf as _read_elf
from stackyard.image.bindings.ldcache import read_cache
from stackyard.image.bindings.tree import Found, Tree

C_LIBRARY = frozenset({
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libutil.so.1",
    "libanl.so.1", "libmvec.so.1", "libnsl.so.1", "libBrokenLocale.so.1", "libthread_db.so.1", "libc_malloc_debug.so.0",
    "libnss_files.so.2", "libnss_dns.so.2", "libnss_compat.so.2", "libnss_hesiod.so.2", "libmemusage.so",
})  # fmt: skip
"""The C library's own files. They fit its loader alone, which is the image's, so they are never bound."""

_MULTIARCH = {
    "EM_X86_64/64": "x86_64-linux-gnu", "EM_AARCH64/64": "aarch64-linux-gnu", "EM_PPC64/64": "powerpc64le-linux-gnu",
}  # fmt: skip


@lru_cache(maxsize=8192)
def read_elf(path: Path) -> ElfFile | None:
    """`host.elf.read_elf`, each file once."""
    return _read_elf(path)


def is_c_library(name: str) -> bool:
    """Whether a library is glibc's own, its loader included."""
    return name in C_LIBRARY or re.fullmatch(r"ld(64|-linux[\w.-]*|-musl[\w.-]*)\.so(\.\d+)*", name) is not None


@dataclass(frozen=True)
class Loaded:
    """One file that is loaded.

    Attributes:
        name: by which it was asked for.
        inside: its path as asked for, before links are followed: the name that a bind needs.
        elf: its dynamic section; its path is the file on this machine.
        by: what loaded it first; None for a program and what it preloads.
        rule: where it was found: ``RPATH of X``, ``LD_LIBRARY_PATH``, ``ld.so.cache`` ...
    """

    name: str
    inside: str
    elf: ElfFile
    by: Loaded | None = None
    rule: str = ""


@dataclass(frozen=True)
class Missing:
    """A library that the loader does not find, and the file that needs it."""

    name: str
    by: Loaded


@dataclass
class Closure:
    """All that is loaded with some files, in the loader's order, and what is missing."""

    loaded: list[Loaded] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    _names: dict[str, Loaded] = field(default_factory=dict)
    _files: dict[Path, Loaded] = field(default_factory=dict)

    def get(self, name: str) -> Loaded | None:
        """The file that answers for a name, or None."""
        return self._names.get(name)

    def add(self, item: Loaded, outside: Path) -> bool:
        """Note a file; False if it is loaded already, under another name."""
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
    def cache(self) -> Mapping[str, tuple[str, ...]]:
        """ld.so.cache of the tree."""
        found = self.tree.find("/etc/ld.so.cache")
        return read_cache(found.outside) if found else {}

    def closure(self, paths: Iterable[str], *, preload: Iterable[str] = ()) -> Closure:
        """What is loaded with some files of the tree; what are not ELF files is left out."""
        result, queue = Closure(), deque[Loaded]()
        for path in (*preload, *paths):
            item = self.open(path) if "/" in path else self._preloaded(path)
            if item is not None and result.add(item, self._outside(item)):
                queue.append(item)
        while queue:
            item = queue.popleft()
            for name in item.elf.needed:
                self._load(name, item, result, queue)
        return result

    def open(self, path: str) -> Loaded | None:
        """A file of the tree by its path."""
        found = self.tree.find(path)
        elf = read_elf(found.outside) if found else None
        return Loaded(posixpath.basename(path), path, elf) if elf else None

    def find(self, name: str, item: Loaded) -> Loaded | None:
        """The file that the loader takes for a library which a loaded file needs, or None."""
        for path, rule in self._candidates(name, item):
            found = self.tree.find(path)
            elf = read_elf(found.outside) if found else None
            if elf is not None and elf.machine == item.elf.machine:
                return Loaded(name, path, elf, item, rule)
        return None

    def _preloaded(self, name: str) -> Loaded | None:
        """A library by name alone, as LD_PRELOAD may have it: LD_LIBRARY_PATH, the cache."""
        folders = (f"{folder}/{name}" for folder in self.library_path)
        return next((item for path in (*folders, *self.cache.get(name, ())) if (item := self.open(path))), None)

    def _load(self, name: str, item: Loaded, result: Closure, queue: deque[Loaded]) -> None:
        if result.get(name) is not None:
            return
        found = self.find(name, item)
        if found is None:
            if not any(each.name == name for each in result.missing):
                result.missing.append(Missing(name, item))
        elif result.add(found, self._outside(found)):
            queue.append(found)

    def _outside(self, item: Loaded) -> Path:
        found = self.tree.find(item.inside)
        return found.outside if found else item.elf.path

    def _candidates(self, name: str, item: Loaded) -> Iterator[tuple[str, str]]:
        """Paths in the order in which the loader tries them, and the rule of each."""
        if "/" in name:
            yield next(iter(self.expanded((name,), item))), "its path"
            return
        for folder, rule in self._folders(item):
            yield f"{folder}/{name}", rule
        for path in self.cache.get(name, ()):
            yield path, "ld.so.cache"
        triplet = _MULTIARCH.get(item.elf.machine, "")
        multi = (f"/lib/{triplet}", f"/usr/lib/{triplet}") if triplet else ()
        for folder in (*multi, "/lib64", "/usr/lib64", "/lib", "/usr/lib"):
            yield f"{folder}/{name}", "default directory"

    def _folders(self, item: Loaded) -> Iterator[tuple[str, str]]:
        if not item.elf.runpath:
            above: Loaded | None = item
            while above is not None:
                if not above.elf.runpath:
                    for folder in self.expanded(above.elf.rpath, above):
                        yield folder, f"RPATH of {above.inside}"
                above = above.by
        for folder in self.library_path:
            yield folder, "LD_LIBRARY_PATH"
        for folder in self.expanded(item.elf.runpath, item):
            yield folder, f"RUNPATH of {item.inside}"

    def expanded(self, folders: Iterable[str], item: Loaded) -> Iterator[str]:
        """Directories with ``$ORIGIN`` and ``$LIB`` replaced. The origin is where the file really lies."""
        found = self.tree.find(item.inside)
        origin = posixpath.dirname(_real(found, item))
        for folder in folders:
            text = re.sub(r"\$(ORIGIN\b|\{ORIGIN\})", lambda _: origin, folder)
            triplet = _MULTIARCH.get(item.elf.machine, "lib64")
            libs = ("lib64", "lib", f"lib/{triplet}") if "$LIB" in text or "${LIB}" in text else ("",)
            for lib in libs:
                yield re.sub(r"\$(LIB\b|\{LIB\})", lambda _, lib=lib: lib, text)  # type: ignore[misc]


def _real(found: Found | None, item: Loaded) -> str:
    return found.inside if found else item.inside
