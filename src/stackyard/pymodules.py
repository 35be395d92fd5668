"""The modules of a Python program that stand beside it: found and parsed with `ast`, never run. Standard library only.

The choice of a backend, the checks of a launch and lint read a program in this one way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

MOST_FILES = 40
"""The most modules of the program's own directory that are parsed."""
_LARGEST = 2_000_000


@dataclass(frozen=True)
class Parsed:
    """One parsed file. `imports`: its import statements, and whether each is one of the module itself (`surely`)."""

    tree: ast.Module
    imports: tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]


@dataclass(frozen=True)
class Module:
    """One module of a program. `surely`: it is imported always, not within a function, an `if` or a `try`."""

    file: Path
    parsed: Parsed
    surely: bool


def modules(first: Path, roots: tuple[Path, ...], *others: Path) -> Iterator[Module]:
    """A program's file and the modules that it imports, directly or not, from below `roots` or relative to its files.

    Args:
        first: the program's own file.
        roots: the directories where Python would look for its modules: the first that has one counts.
        others: further files that Python runs with it, as the packages of ``-m package.module``.

    Raises:
        OSError, ValueError, SyntaxError, RecursionError: `first` cannot be read; others are left out.
    """
    waiting, seen = [(file, True) for file in (first, *others)], set[Path]()
    while waiting and len(seen) < MOST_FILES:
        file, surely = waiting.pop(0)
        if file in seen:
            continue
        try:
            parsed = _parsed(file)
        except (OSError, ValueError, SyntaxError, RecursionError):
            if file == first:
                raise
            continue
        seen.add(file)
        yield Module(file, parsed, surely)
        for node, of_module in parsed.imports:
            waiting += [(own, surely and of_module) for own in _beside(node, file, roots)]


def _parsed(file: Path) -> Parsed:
    """A file as it is now. A launch plans several times, for the choice of the backend and for its record."""
    now = file.stat()
    if now.st_size > _LARGEST:
        raise ValueError(f"larger than {_LARGEST} bytes")
    return _parse(str(file), (now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache(4 * MOST_FILES)
def _parse(file: str, _version: tuple[int, ...]) -> Parsed:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"), file)
    top = set[ast.AST](tree.body)
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return Parsed(tree, tuple((node, node in top) for node in found))


def _beside(node: ast.Import | ast.ImportFrom, file: Path, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The program's own modules that a statement imports, absolutely or relative to its file."""
    level = 0 if isinstance(node, ast.Import) else node.level
    bases = (file.parents[min(level, len(file.parents)) - 1],) if level else roots
    prefix = None if isinstance(node, ast.Import) else node.module
    for alias in node.names:
        name = ".".join(filter(None, (prefix, alias.name)))
        yield from next(filter(None, (module_files(base, name) for base in dict.fromkeys(bases))), [])


def module_files(folder: Path, name: str) -> list[Path]:
    """The files of a module below a directory: its packages', then its own."""
    found = []
    for part in name.split("."):
        found += [path for path in (folder / f"{part}.py", folder / part / "__init__.py") if path.is_file()]
        folder /= part
    return found
