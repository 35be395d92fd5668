"""The known MPIs: how a library is recognised, and which are interchangeable (``families.yaml``)."""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import cast

from stackyard.core.errors import StackyardError
from stackyard.host.files.elf import mapped
from stackyard.host.run.command import run
from stackyard.images.bindings.elf.versions import text_of
from stackyard.inputs.reading.yamlfile import packaged
from stackyard.inputs.sites.bindings import Family as FamilyName


@dataclass(frozen=True)
class Family:
    """One MPI. `abi`: a program built with one MPI runs with another of the same ABI, if the soname is the same."""

    name: FamilyName
    title: str
    mark: str
    abi: str
    sonames: tuple[str, ...]
    companions: tuple[str, ...]
    pmi: tuple[str, ...]
    variables: Mapping[str, str]
    version: str = ""
    symbol: str = ""


@dataclass(frozen=True)
class Part:
    """Files that belong to a library and are opened by dlopen."""

    library: str
    directories: tuple[str, ...]
    paths: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class KnownMpi:
    """The identity of a library file. `version` may be empty: some builds report it only at run time."""

    family: Family
    version: str

    @property
    def title(self) -> str:
        """``Open MPI 4.1.4``."""
        return f"{self.family.title} {self.version}".rstrip()


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """All known MPIs, in the order of comparison."""
    fixed = ("sonames", "companions", "pmi")
    rows = packaged(__package__, "families.yaml")["families"]
    return tuple(Family(**{**row, **{key: tuple(row[key]) for key in fixed}}) for row in rows)


@lru_cache(maxsize=1)
def parts() -> tuple[Part, ...]:
    """The additional files of libraries."""
    rows = packaged(__package__, "families.yaml")["parts"]
    return tuple(Part(row["library"], tuple(row["directories"]), tuple(row["paths"]), row["why"]) for row in rows)


@lru_cache(maxsize=1)
def mpi_sonames() -> frozenset[str]:
    """Every soname under which a program may need an MPI."""
    return frozenset(name for family in families() for name in family.sonames)


@lru_cache(maxsize=1)
def companion_sonames() -> frozenset[str]:
    """The sonames of an MPI's other libraries."""
    return frozenset(name for family in families() for name in family.companions)


@lru_cache(maxsize=256)
def known_mpi(path: Path) -> KnownMpi | None:
    """The MPI of a library file, recognised by strings in it; None if unknown."""
    known = mapped(path, _marked, None)
    if known is None or known.version or not known.family.symbol:
        return known
    return KnownMpi(known.family, text_of(path, known.family.symbol))


def _marked(data: mmap.mmap) -> KnownMpi | None:
    """The family whose mark a file contains, with its version."""
    family = next((candidate for candidate in families() if data.find(candidate.mark.encode()) >= 0), None)
    if family is None:
        return None
    match = re.search(family.version.encode(), cast(bytes, data)) if family.version else None
    return KnownMpi(family, match.group(1).decode("ascii", "replace") if match else "")


_ASK = """
import ctypes, sys
text, length = ctypes.create_string_buffer(65536), ctypes.c_int()
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL).MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode("utf-8", "replace"))
"""


def asked_version(path: str, environ: Mapping[str, str]) -> str:
    """The answer of this machine's library to MPI_Get_library_version (no MPI_Init needed); empty on failure."""
    try:
        said = run([sys.executable, "-I", "-c", _ASK, path], env=dict(environ), check=False, timeout_s=30).stdout
    except StackyardError:
        return ""
    match = re.search(r"(?:version|Open MPI v|Library)\s*:?\s*v?(\d[\w.]*)", said, re.IGNORECASE)
    return match.group(1).rstrip(".") if match else ""


def pmi_kinds(family: Family, names: Iterable[str]) -> tuple[str, ...]:
    """The kinds of PMI that an MPI can use, as srun --mpi names them.

    Args:
        names: its linked libraries and its components.
    """
    rows, names = packaged(__package__, "families.yaml")["pmi"], list(names)
    kinds = [row["kind"] for row in rows if any(fnmatchcase(name, row["library"]) for name in names)]
    return tuple(dict.fromkeys(kinds)) or family.pmi
