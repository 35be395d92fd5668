"""Facts from a program's source that its batch script does not contain; parsed, never run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.pymodules import parsed, program_file
from stackyard.lint.shell.words import is_known

_LARGEST = 2_000_000


@dataclass(frozen=True)
class Source:
    """Facts about one Python file. Lines are 0 for what is absent; `workers` is None if it is not a number."""

    file: str
    imports: frozenset[str] = frozenset()
    device_line: int = 0
    loader_line: int = 0
    workers: int | None = None
    context: bool = False
    group_line: int = 0
    launch_node_line: int = 0
    gpu_buffers: bool = False
    devices: int | None = None


def source_of(program: tuple[str, ...], directories: tuple[Path, ...]) -> Source | None:
    """The facts about the Python file of a program's words, if it is found relative to one of the directories."""
    place = find_program(program, directories)
    return read_source(*place) if place else None


def find_program(program: tuple[str, ...], directories: tuple[Path, ...]) -> tuple[Path, Path] | None:
    """The Python file of a program's words, as a launch finds it, and the directory it is relative to; None without.

    Too large files are not found.
    """
    files = ((program_file(directory, program), directory) for directory in directories)
    return next(((file, directory) for file, directory in files if file and _is_readable(file)), None)


def find_file(name: str, directories: tuple[Path, ...]) -> tuple[Path, Path] | None:
    """A file that a script names, and the directory to which it is relative; None if not found or too large."""
    files = ((directory / name, directory) for directory in directories if is_known(name))
    return next(((file, directory) for file, directory in files if _is_readable(file)), None)


def _is_readable(file: Path) -> bool:
    try:
        return file.is_file() and os.access(file, os.R_OK) and file.stat().st_size < _LARGEST
    except OSError:
        return False


def read_source(file: Path, directory: Path) -> Source | None:
    """The facts about a Python file, named as relative to a directory; None if it is not valid Python."""
    try:
        nodes = list(ast.walk(parsed(file).tree))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    name = str(file.relative_to(directory) if file.is_relative_to(directory) else file)
    imports = frozenset(_imports(nodes))
    loader = next((call for call in _calls(nodes, "DataLoader") if _workers(call) != 0), None)
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    context = "multiprocessing_context" in words or bool(list(_calls(nodes, "set_start_method")))
    context = context or any(_keyword(call, "multiprocessing_context") for call in _calls(nodes, "DataLoader"))
    named = next((n.lineno for n in nodes if isinstance(n, ast.Constant) and n.value == "SLURM_LAUNCH_NODE_IPADDR"), 0)
    return Source(
        name,
        imports,
        device_line=next((line for line in _devices(nodes)), 0),
        loader_line=loader.lineno if loader else 0,
        workers=_workers(loader) or _workers_of_options(nodes) if loader else 0,
        context=context,
        group_line=next((call.lineno for call in _calls(nodes, "init_process_group")), 0),
        launch_node_line=named,
        gpu_buffers="mpi4py" in imports and bool(imports & {"cupy", "numba"}),
        devices=_trainer_devices(nodes) if imports & {"lightning", "pytorch_lightning"} else None,
    )


def _trainer_devices(nodes: list[ast.AST]) -> int | None:
    """The number in Lightning's ``Trainer(devices=4)``, once ``gpus=4``; None if it is not a plain number."""
    values = (_keyword(call, name) for call in _calls(nodes, "Trainer") for name in ("devices", "gpus"))
    numbers = (value.value for value in values if isinstance(value, ast.Constant))
    return next((number for number in numbers if isinstance(number, int) and not isinstance(number, bool)), None)


def _imports(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and _last(node.func) in ("import_module", "__import__") and node.args:
            named = node.args[0]
            yield named.value.split(".")[0] if isinstance(named, ast.Constant) and isinstance(named.value, str) else ""


def _calls(nodes: list[ast.AST], name: str) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and _last(node.func) == name:
            yield node


def _last(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _workers(call: ast.Call) -> int | None:
    value = _keyword(call, "num_workers")
    if value is None:
        return None if any(keyword.arg is None for keyword in call.keywords) else 0
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, int) else None


def _workers_of_options(nodes: list[ast.AST]) -> int | None:
    """The number in ``{"num_workers": 4}`` or ``options["num_workers"] = 4``, passed to a loader as ``**options``."""
    for node in nodes:
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            pairs = [(node.targets[0].slice, node.value)]
        for key, value in pairs:
            named = isinstance(key, ast.Constant) and key.value == "num_workers"
            if named and isinstance(value, ast.Constant) and isinstance(value.value, int):
                return value.value
    return None


def _devices(nodes: list[ast.AST]) -> Iterator[int]:
    """Lines that select a GPU by the local rank: set_device(local_rank), device(f"cuda:{local_rank}"), .cuda(rank).

    Not if the program checks the number of devices in an ``if``, or computes the index.
    """
    guarded = {
        id(inner) for node in nodes if isinstance(node, ast.If) and _counts(node.test) for inner in ast.walk(node)
    }
    for call in (node for node in nodes if isinstance(node, ast.Call) and id(node) not in guarded):
        name = _last(call.func)
        first = call.args[0] if call.args else None
        if first is None:
            continue
        if (name in ("set_device", "cuda") and _mentions_local(first)) or (
            name in ("device", "to") and isinstance(first, ast.JoinedStr) and _mentions_local(first)
        ):
            yield call.lineno


def _counts(value: ast.expr) -> bool:
    """Whether an expression compares with the number of GPUs, and not only with zero."""
    text = ast.unparse(value).lower()
    counted = re.search(r"device_count|visible_devices|num_gpus|\bn_?gpus?\b", text)
    return bool(counted) and bool(re.search(r"[<>]|==|!=", text)) and not re.search(r">\s*0\b|>=\s*1\b|!=\s*0\b", text)


def _mentions_local(value: ast.expr) -> bool:
    """Whether an expression names a local rank without reducing it, with ``%``, by ``min`` or where one is counted."""
    text = ast.unparse(value).lower()
    return "local" in text and "%" not in text and "min(" not in text and not _counts(value)
