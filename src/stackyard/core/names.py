"""Names of packages in conda and on PyPI, and the package of a requirement line.

Standard library only. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

PYPI_NAMES: Mapping[str, str] = {
    "brotli-python": "brotli",
    "dask-core": "dask",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "opencv": "opencv-python",
    "py-opencv": "opencv-python",
    "py-xgboost": "xgboost",
    "pytables": "tables",
    "python-annoy": "annoy",
    "python-flatbuffers": "flatbuffers",
    "python-graphviz": "graphviz",
    "python-lmdb": "lmdb",
    "python-tzdata": "tzdata",
    "python-xxhash": "xxhash",
    "pytorch": "torch",
    "ray-core": "ray",
    "tensorflow-base": "tensorflow",
}
"""What a conda package is called on PyPI, where its archive is not asked: for the site's pins, and former locks."""

OTHERS_ON_PYPI = frozenset((
    "brotli", "bzip2", "flatbuffers", "git", "graphviz", "lz4", "nccl", "openmpi", "python", "snappy", "tzdata", "xz",
    "yaml", "zeromq", "zstd",
))  # fmt: skip
"""Names of conda packages that mean another thing on PyPI: a binding, or nothing."""

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,200}[A-Za-z0-9])?")
_CONDA_PROGRAMS = frozenset({"conda", "mamba", "micromamba"})


def canonical(name: str) -> str:
    """A distribution's name normalised by PEP 503: ``Typing_Extensions`` is ``typing-extensions``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_distribution(name: str) -> bool:
    """Whether it is a valid distribution name (PEP 508)."""
    return _DISTRIBUTION.fullmatch(name) is not None


def of_purls(purls: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The distributions in purls: name and version, which may be empty."""
    matches = (re.match(r"pkg:pypi/([^@?#]+)(?:@([^?#]+))?", purl) for purl in purls)
    pairs = ((canonical(unquote(match[1])), unquote(match[2] or "")) for match in matches if match)
    return tuple(sorted({pair for pair in pairs if is_distribution(pair[0])}))


def distributions(conda_name: str, purls: Iterable[str], depends: Iterable[str]) -> tuple[str, ...]:
    """The PyPI distributions of a conda package: from its purls, else its own name if it needs Python."""
    named = tuple(dict.fromkeys(name for name, _ in of_purls(purls)))
    needs = {re.split(r"[\s=<>!~\[]", d, maxsplit=1)[0] for d in depends}
    return named or ((PYPI_NAMES.get(conda_name, canonical(conda_name)),) if needs & {"python", "python_abi"} else ())


def conda_name(spec: str) -> str:
    """The package that a MatchSpec names: ``conda-forge::numpy >=1.26`` is about ``numpy``; a URL's file likewise."""
    if re.match(r"[a-z]+://[^\s]+\.(conda|tar\.bz2)", spec):
        file = spec.split("#", maxsplit=1)[0].rsplit("/", 1)[-1]
        return file.rsplit("-", 2)[0].lower()
    match = re.match(r"[A-Za-z0-9_.*-]+", spec.rsplit("::", 1)[-1].strip())
    return match.group(0).lower() if match else ""


def pip_name(line: str) -> str:
    """The distribution that a pip requirement names, canonical; empty for a bare URL or path."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?=$|[\s\[<>=!~;@(,])", line)
    if not match or re.match(r"\s*(\.|/|[a-z+]+://)", line):
        return ""
    return canonical(match.group(1))


def brings_conda(declared: bool | None, packages: Iterable[str]) -> bool:
    """Whether a stack contains conda or mamba, so that its users create environments with it.

    Args:
        declared: the setting in the stack's file; None: derived from its packages.
        packages: the names of its conda packages.
    """
    return bool(_CONDA_PROGRAMS.intersection(packages)) if declared is None else declared
