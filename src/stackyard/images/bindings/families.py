"""The MPIs that are known: how a library is recognised, and which may take each other's place (``families.yaml``)."""

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
    """One MPI. `abi`: programs of one MPI run with another of the same ABI, if the soname is the same."""

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
    """What goes with a library that opens files by dlopen."""

    library: str
    directories: tuple[str, ...]
    paths: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class KnownMpi:
    """What a library file is. `version` may be empty: not every build says it outside of MPI_Get_library_version."""

    family: Family
    version: str

    @property
    def title(self) -> str:
        """``Open MPI 4.1.4``."""
        return f"{self.family.title} {self.version}".rstrip()


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """All that are known, in the order in which a library is compared with them."""
    fixed = ("sonames", "companions", "pmi")
    rows = packaged(__package__, "families.yaml")["families"]
    return tuple(Family(**{**row, **{key: tuple(row[key]) for key in fixed}}) for row in rows)


@lru_cache(maxsize=1)
def parts() -> tuple[Part, ...]:
    """What goes with which library."""
    rows = packaged(__package__, "families.yaml")["parts"]
    return tuple(Part(row["library"], tuple(row["directories"]), tuple(row["paths"]), row["why"]) for row in rows)


@lru_cache(maxsize=1)
def mpi_sonames() -> frozenset[str]:
    """Every name under which a program may need an MPI."""
    return frozenset(name for family in families() for name in family.sonames)


@lru_cache(maxsize=1)
def companion_sonames() -> frozenset[str]:
    """Libraries of an MPI beside its main one."""
    return frozenset(name for family in families() for name in family.companions)


@lru_cache(maxsize=256)
def known_mpi(path: Path) -> KnownMpi | None:
    """Which MPI a library file is, by what is written in it; None if it is none that is known."""
    known = mapped(path, _marked, None)
    if known is None or known.version or not known.family.symbol:
        return known
    return KnownMpi(known.family, text_of(path, known.family.symbol))


def _marked(data: mmap.mmap) -> KnownMpi | None:
    """The family whose mark is in a file, with the version that stands there too."""
    family = next((each for each in families() if data.find(each.mark.encode()) >= 0), None)
    if family is None:
        return None
    found = re.search(family.version.encode(), cast(bytes, data)) if family.version else None
    return KnownMpi(family, found.group(1).decode("ascii", "replace") if found else "")


_ASK = """
import ctypes, sys
text, length = ctypes.create_string_buffer(65536), ctypes.c_int()
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL).MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode("utf-8", "replace"))
"""


def asked_version(path: str, environ: Mapping[str, str]) -> str:
    """What a library of this machine answers to MPI_Get_library_version (no MPI_Init needed); empty if it cannot."""
    try:
        said = run([sys.executable, "-I", "-c", _ASK, path], env=dict(environ), check=False, timeout_s=30).stdout
    except StackyardError:
        return ""
    found = re.search(r"(?:version|Open MPI v|Library)\s*:?\s*v?(\d[\w.]*)", said, re.IGNORECASE)
    return found.group(1).rstrip(".") if found else ""


def pmi_kinds(family: Family, names: Iterable[str]) -> tuple[str, ...]:
    """The kinds of PMI that an MPI can use, as srun --mpi names them.

    Args:
        names: the libraries that it is linked to and the components that it opens.
    """
    rows, names = packaged(__package__, "families.yaml")["pmi"], list(names)
    kinds = [row["kind"] for row in rows if any(fnmatchcase(name, row["library"]) for name in names)]
    return tuple(dict.fromkeys(kinds)) or family.pmi
