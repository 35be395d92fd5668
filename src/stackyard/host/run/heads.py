"""The metadata of installed distributions, as `importlib.metadata` finds them: its imports take four times as long.

The text of this file goes before a question to another Python (``python -c``). It imports little of the standard
library; where anything but a plain directory may hold a distribution, `importlib.metadata` itself is asked.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: PTH113, PTH118, PTH123, PTH208

import os
import sys


def heads(directories):
    """For each distribution in these directories: the directory, and the lines of its metadata's head."""
    if _are_plain(directories):
        distributions = (
            (directory or ".", _metadata(path)) for directory in directories for _, path in _distributions(directory)
        )
    else:
        distributions = (
            (str(one.locate_file("")), one.read_text("METADATA") or one.read_text("PKG-INFO"))
            for one in _library().distributions(path=list(directories))
        )
    return ((directory, _head(text)) for directory, text in distributions)


def first(name):
    """The directory and version of the first distribution of this name on the search path; else empty."""
    if not _are_plain(sys.path):
        one = next(iter(_library().distributions(name=name)), None)
        return (str(one.locate_file("")), one.version or "") if one else ("", "")
    if not _first:
        for directory in reversed(sys.path):
            _first.update(reversed([(finder, (directory or ".", path)) for finder, path in _distributions(directory)]))
    directory, path = _first.get(_normal(name), ("", ""))
    lines = _head(_metadata(path) or _read(path)) if path else []
    fields = (line.partition(":") for line in lines)
    return directory, next((value.lstrip(" \t") for key, _, value in fields if key.lower() == "version"), "")


_first = {}  # type: ignore[var-annotated] # by name: the directory and the path of its metadata


def _library():
    import importlib.metadata

    return importlib.metadata


def _head(text):
    return (text or "").split("\n\n", 1)[0].splitlines()


def _are_plain(directories):
    """Whether only Python's own finder searches for distributions, and no directory is an egg or an archive."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    own = all(getattr(finder, "__module__", "") == "_frozen_importlib_external" for finder in finders)
    return own and not any(directory.lower().endswith(".egg") or os.path.isfile(directory) for directory in directories)


def _distributions(directory):
    """The name and the path of the metadata of each distribution in a directory."""
    try:
        names = os.listdir(directory or ".")
    except OSError:
        return
    for name in names:
        if name.lower().endswith((".dist-info", ".egg-info")):
            yield _normal(name.rpartition(".")[0].partition("-")[0]), os.path.join(directory, name)


def _normal(name):
    parts = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(part for i, part in enumerate(parts) if part or i in (0, len(parts) - 1))


def _metadata(path):
    return _read(os.path.join(path, "METADATA")) or _read(os.path.join(path, "PKG-INFO"))


def _read(path):
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
        return None
