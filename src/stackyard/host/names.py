"""Names of packages in conda and on PyPI, and the package of a requirement line.

Standard library only. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PYPI_NAMES: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("torch",),
    "pytorch-cpu": (),
    "pytorch-gpu": (),
    "tensorflow-base": ("tensorflow",),
    "opencv": (),
    "py-opencv": ("opencv-python",),
    "matplotlib-base": ("matplotlib",),
    "py-xgboost": ("xgboost",),
    "tables": ("tables",),
    "pytables": ("tables",),
    "msgpack-python": ("msgpack",),
    "graphviz": (),
    "python-graphviz": ("graphviz",),
    "lightgbm": ("lightgbm",),
    "ruamel_yaml": ("ruamel-yaml",),
    "pillow": ("pillow",),
    "dask-core": ("dask",),
    "distributed": ("distributed",),
    "ray-core": ("ray",),
    "ray-default": (),
    "ray-tune": (),
    "python-tzdata": ("tzdata",),
    "tzdata": (),
    "protobuf": ("protobuf",),
    "libprotobuf": (),
    "pyzmq": ("pyzmq",),
    "zeromq": (),
    "snappy": (),
    "python-snappy": ("python-snappy",),
    "lz4": ("lz4",),
    "lz4-c": (),
    "zstd": (),
    "zstandard": ("zstandard",),
    "python-flatbuffers": ("flatbuffers",),
    "flatbuffers": (),
    "brotli-python": ("brotli",),
    "brotli": (),
    "importlib_metadata": ("importlib-metadata",),
    "bzip2": (),
    "xz": (),
    "yaml": (),
    "openmpi": (),
    "mpich": (),
    "cmake": (),
    "ninja": (),
    "nodejs": (),
    "git": (),
    "python": (),
    "cuda-version": (),
    "nccl": (),
}
"""conda name: the PyPI distributions that it installs. Only names that differ, or that mean something else on PyPI."""

_CONDA_PROGRAMS = frozenset({"conda", "mamba", "micromamba"})


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it: ``Typing_Extensions`` is ``typing-extensions``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distributions(conda_name: str, purls: Iterable[str], depends: Iterable[str]) -> tuple[str, ...]:
    """The PyPI distributions that a conda package installs, according to its metadata.

    The package's purls are exact; else the table above; else a package that depends on python (or on a
    ``python_abi``) is taken to install the distribution of its own name.
    """
    named = [canonical(found.group(1)) for purl in purls if (found := re.match(r"pkg:pypi/([^@?#]+)", purl))]
    if named:
        return tuple(sorted(set(named)))
    if conda_name in PYPI_NAMES:
        return PYPI_NAMES[conda_name]
    needs = {re.split(r"[\s=<>!~\[]", d, maxsplit=1)[0] for d in depends}
    return (canonical(conda_name),) if needs & {"python", "python_abi"} else ()


def conda_name(spec: str) -> str:
    """The package that a MatchSpec names: ``conda-forge::numpy >=1.26`` is about ``numpy``; a URL's file likewise."""
    if re.match(r"[a-z]+://[^\s]+\.(conda|tar\.bz2)", spec):
        file = spec.split("#", maxsplit=1)[0].rsplit("/", 1)[-1]
        return file.rsplit("-", 2)[0].lower()
    found = re.match(r"[A-Za-z0-9_.*-]+", spec.rsplit("::", 1)[-1].strip())
    return found.group(0).lower() if found else ""


def pip_name(line: str) -> str:
    """The distribution that a pip requirement names, canonical; empty for a bare URL or path."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?=$|[\s\[<>=!~;@(,])", line)
    if not found or re.match(r"\s*(\.|/|[a-z+]+://)", line):
        return ""
    return canonical(found.group(1))


def brings_conda(declared: bool | None, packages: Iterable[str]) -> bool:
    """Whether a stack brings conda or mamba itself, so that its users create environments with it.

    Args:
        declared: what the stack's file sets; None: derived from its packages.
        packages: the names of its conda packages.
    """
    return bool(_CONDA_PROGRAMS.intersection(packages)) if declared is None else declared
