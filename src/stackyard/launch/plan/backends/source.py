"""Facts from a program's source, parsed with `ast` and never run: its imports and known problems."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from stackyard.errors import Where
from stackyard.findings import Finding
from stackyard.launch.request.intent import Intent

MOST_FILES = 40
"""The most modules of the program's own directory that are parsed."""


@dataclass(frozen=True)
class Import:
    """One imported top-level package and its place. `surely`: always, not within a function, an `if` or a `try`."""

    name: str
    file: str
    line: int
    surely: bool = False


@dataclass(frozen=True)
class Parsed:
    """One parsed file. `imports`: its import statements, and whether each is one of the module itself (`surely`)."""

    tree: ast.Module
    imports: tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]


@dataclass(frozen=True)
class Source:
    """A program's script and the modules next to it that it imports.

    `unread` is the reason why nothing was parsed, e.g. that the program is not a Python script; else empty.
    """

    script: str = ""
    imports: tuple[Import, ...] = ()
    trees: dict[str, ast.Module] = field(default_factory=dict)
    unread: str = ""

    def imported(self, name: str) -> Import | None:
        """The first import of a package."""
        return next((found for found in self.imports if found.name == name), None)

    def words(self) -> set[str]:
        """All string constants, e.g. to see whether an option such as ``--local_rank`` is parsed."""
        nodes = (node for tree in self.trees.values() for node in ast.walk(tree))
        return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


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
        return next(
            (path for path in (base / "__main__.py", base.with_name(f"{base.name}.py")) if path.is_file()), None
        )
    script = script_of(program)
    return cwd / script if script else None


def read(intent: Intent) -> Source:
    """Parse the program of an intent and the modules next to it."""
    cwd, module = Path(intent.cwd or "."), module_of(intent.program)
    path = program_file(cwd, intent.program)
    if path is None:
        where = f"module {module} not found in {cwd.absolute()}" if module else ""
        return Source(unread=where or "the program is not a *.py file")
    root = cwd if module else path.parent
    packages = _module_files(cwd, module) if module else []
    trees: dict[str, ast.Module] = {}
    waiting = [(file, True) for file in (path, *packages)]
    imports: list[Import] = []
    while waiting and len(trees) < MOST_FILES:
        file, surely = waiting.pop(0)
        if str(file) in trees:
            continue
        try:
            parsed = _parsed(file)
        except (OSError, ValueError, SyntaxError) as error:
            if file == path:
                return Source(str(path), unread=f"cannot read {path}: {error}")
            continue
        trees[str(file)] = parsed.tree
        for node, of_module in parsed.imports:
            imports += _imports(node, str(file), surely=surely and of_module)
            waiting += [(own, surely and of_module) for own in _beside(node, file, root)]
    return Source(str(path), tuple(imports), trees)


def _parsed(file: Path) -> Parsed:
    """A file as it is now. A launch plans several times, for the choice of the backend and for its record."""
    now = file.stat()
    return _parse(str(file), (now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache(4 * MOST_FILES)
def _parse(file: str, _version: tuple[int, ...]) -> Parsed:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"), file)
    top = set[ast.AST](tree.body)
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return Parsed(tree, tuple((node, node in top) for node in found))


def _imports(node: ast.Import | ast.ImportFrom, file: str, *, surely: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name.split(".")[0], file, node.lineno, surely)
    elif node.module and not node.level:
        yield Import(node.module.split(".")[0], file, node.lineno, surely)


def _beside(node: ast.Import | ast.ImportFrom, file: Path, root: Path) -> Iterator[Path]:
    """The program's own modules that a statement imports, absolutely or relative to its file."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _module_files(root, alias.name)
    else:
        base = file.parents[min(node.level, len(file.parents)) - 1] if node.level else root
        for alias in node.names:
            yield from _module_files(base, ".".join(filter(None, (node.module, alias.name))))


def _module_files(folder: Path, name: str) -> list[Path]:
    """The files of a module below a directory: its packages', then its own."""
    found = []
    for part in name.split("."):
        found += [path for path in (folder / f"{part}.py", folder / part / "__init__.py") if path.is_file()]
        folder /= part
    return found


def fork_findings(source: Source) -> tuple[Finding, ...]:
    """A warning for each DataLoader that forks workers in a process with MPI or InfiniBand verbs loaded.

    fork(2) in such a process is undefined by the MPI standard and breaks registered memory: workers hang or crash.
    https://www.open-mpi.org/faq/?category=tuning#fork-warning, and Horovod's troubleshooting on data loaders.
    """
    found = []
    for file, tree in source.trees.items():
        names = {n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        if "set_start_method" in names:
            return ()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "DataLoader" and _forks(node):
                found.append(_fork_finding(file, node.lineno))
    return tuple(found)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _forks(call: ast.Call) -> bool:
    """Whether a DataLoader call has workers (or a number of them known only at run time) and no other start method.

    The content of ``**options`` is unknown, so such a call is not reported.
    """
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    workers = given.get("num_workers")
    if workers is None or None in given or (isinstance(workers, ast.Constant) and not workers.value):
        return False
    context = given.get("multiprocessing_context")
    return context is None or (isinstance(context, ast.Constant) and context.value in (None, "fork"))


def _fork_finding(file: str, line: int) -> Finding:
    return Finding(
        "dataloader-fork-mpi", "warning", "a DataLoader forks workers in a process that uses MPI",
        "a fork after MPI_Init shares registered memory and open devices with the child: workers hang or crash",
        'DataLoader(..., multiprocessing_context="forkserver"), set before the first batch',
        Where(file, line),
    )  # fmt: skip
