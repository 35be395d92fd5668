"""Finds the modules beside a Python program and parses them with `ast`, never running them. Standard library only.

Used by the choice of a backend, the checks of a launch and lint.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from stackyard.core.late import dataclass

MOST_FILES = 40
"""The most modules of the program's own directory that are parsed."""
_LARGEST = 2_000_000


@dataclass(frozen=True)
class ParsedFile:
    """One parsed file. `imports`: its import statements, and whether each is one of the module itself (`surely`)."""

    tree: ast.Module
    imports: tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]


@dataclass(frozen=True)
class Module:
    """One module of a program. `surely`: imported unconditionally, not in a function, an `if` or a `try`."""

    file: Path
    parsed: ParsedFile
    surely: bool


def script_of(program: tuple[str, ...]) -> str:
    """The Python file that a command runs, or empty: ``train.py``, ``python -u train.py``, ``env A=1 python x.py``."""
    for word in program:
        if word.endswith(".py"):
            return word
        if word in ("-c", "-m"):
            return ""
    return ""


def module_of(program: tuple[str, ...]) -> str:
    """The Python module that a command runs, or empty: ``-m package.train``, ``python -u -m package.train``."""
    if "-m" not in program[:-1] or script_of(program):
        return ""
    place = program.index("-m")
    is_python = not place or any(Path(word).name.startswith("python") for word in program[:place])
    return program[place + 1] if is_python and "-c" not in program[:place] else ""


def program_file(cwd: Path, program: tuple[str, ...]) -> Path | None:
    """The file of the program's Python script or module, as far as it can be found from the working directory."""
    if module := module_of(program):
        base = cwd.joinpath(*module.split("."))
        files = (base / "__main__.py", base.with_name(f"{base.name}.py")) if base.name else ()
        return next((path for path in files if path.is_file()), None)
    script = script_of(program)
    return cwd / script if script else None


def program_modules(cwd: Path, program: tuple[str, ...], file: Path) -> Iterator[Module]:
    """`modules` of a program whose file is found: a script's from its own directory, a module's from where it starts.

    Raises:
        OSError, ValueError, SyntaxError, RecursionError: `file` cannot be read.
    """
    module = module_of(program)
    return modules(file, (cwd if module else file.parent,), *(module_files(cwd, module) if module else ()))


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
            source = parsed(file)
        except (OSError, ValueError, SyntaxError, RecursionError):
            if file == first:
                raise
            continue
        seen.add(file)
        yield Module(file, source, surely)
        for node, of_module in source.imports:
            waiting += [(own, surely and of_module) for own in _beside(node, file, roots)]


def parsed(file: Path) -> ParsedFile:
    """A parsed file, cached: a launch plans several times.

    Raises:
        OSError, ValueError, SyntaxError, RecursionError: it cannot be read.
    """
    now = file.stat()
    if now.st_size > _LARGEST:
        raise ValueError(f"larger than {_LARGEST} bytes")
    return _parse(str(file), (now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache(4 * MOST_FILES)
def _parse(file: str, _version: tuple[int, ...]) -> ParsedFile:
    tree = ast.parse(Path(file).read_bytes(), file)  # as Python reads it: a BOM, a coding cookie
    top = set[ast.AST](tree.body)
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return ParsedFile(tree, tuple((node, node in top) for node in nodes))


def _beside(node: ast.Import | ast.ImportFrom, file: Path, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The program's own modules that a statement imports, absolutely or relative to its file."""
    level = 0 if isinstance(node, ast.Import) else node.level
    bases = (file.parents[min(level, len(file.parents)) - 1],) if level else roots
    prefix = None if isinstance(node, ast.Import) else node.module
    for alias in node.names:
        name = ".".join(filter(None, (prefix, alias.name)))
        yield from next(filter(None, (module_files(base, name) for base in dict.fromkeys(bases))), [])


def module_files(directory: Path, name: str) -> list[Path]:
    """The files of a module below a directory: its packages', then its own."""
    paths = []
    for part in name.split("."):
        paths += [path for path in (directory / f"{part}.py", directory / part / "__init__.py") if path.is_file()]
        directory /= part
    return paths
