"""The list of files of a conda package, and the directories of metadata in it by which pip finds distributions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stackyard.yard import formats

MOST_BYTES = 32 << 20
"""Of a list; that of the largest packages has 10 MB."""
PATHS = "info/paths.json"
LISTS = (PATHS, "info/files")
"""Where it is in an archive; the second one is that of packages of many years ago."""
_METADATA = re.compile(r"((?:[^/]+/)*site-packages/[^/]+\.(?:dist|egg)-info)(?:/.*)?", re.DOTALL)


def paths_of(name: str, data: bytes) -> list[str]:
    """The paths in a list of files of either form, below the prefix.

    Raises:
        ValueError: it is damaged.
    """
    if name != PATHS:
        return data.decode().splitlines()
    try:
        paths = [entry["_path"] for entry in formats.content(data)["paths"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a list of paths") from error
    if not all(isinstance(path, str) for path in paths):
        raise ValueError("not a list of paths")
    return paths


def metadata_directories(paths: Iterable[str]) -> tuple[str, ...]:
    """The metadata directories in a list of files, and metadata files without a directory."""
    return tuple(sorted({match[1] for path in paths if (match := _METADATA.fullmatch(path))}))
