"""How a Python program joins its process group, and the variables that it needs; parsed, never run.

``torch.distributed.init_process_group`` reads MASTER_ADDR, RANK and WORLD_SIZE from the environment unless the call or
the program itself supplies them (PyTorch documentation, "Environment variable initialization"). torchrun sets them;
srun, mpirun, jsrun and flux do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.pymodules import program_modules

NEEDED = ("MASTER_ADDR", "RANK", "WORLD_SIZE")
_OTHERS = {"mpi4py", "idr_torch", "hostlist", "horovod", "pytorch_lightning", "lightning", "accelerate", "deepspeed"}
"""Packages that find out ranks and addresses themselves."""


@dataclass(frozen=True)
class Group:
    """The call that joins the group, and the variables that neither it nor the program supplies.

    `guarded`: the program tests whether the variables exist, and runs alone without them.
    """

    file: str
    line: int
    needs: tuple[str, ...]
    guarded: bool


def group_of(program: tuple[str, ...], file: Path, directory: Path) -> Group | None:
    """The group that a program joins, in its file or in a module that it imports; None if it joins none."""
    try:
        trees = [(module.file, module.parsed.tree) for module in program_modules(directory, program, file)]
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    nodes = [node for _, tree in trees for node in ast.walk(tree)]
    calls = [
        (path, call) for path, tree in trees for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _last(call.func) == "init_process_group"
    ]  # fmt: skip
    if not calls or _finds_ranks(nodes):
        return None
    needs = set(NEEDED)
    for _, call in calls:
        needs &= _needs(call)
    needs -= set(_set_names(nodes))
    path, call = calls[0]
    name = str(path.relative_to(directory)) if path.is_relative_to(directory) else path.name
    return Group(name, call.lineno, tuple(variable for variable in NEEDED if variable in needs), _is_guarded(nodes))


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _needs(call: ast.Call) -> set[str]:
    """The variables that one call reads from the environment."""
    names = ("backend", "init_method", "timeout", "world_size", "rank", "store")
    arguments = dict(zip(names, call.args, strict=False)) | {
        keyword.arg: keyword.value for keyword in call.keywords if keyword.arg
    }
    unpacked = any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(a, ast.Starred) for a in call.args
    )
    backend, method = _text(arguments.get("backend")), arguments.get("init_method")
    if unpacked or "store" in arguments or backend == "mpi":
        return set()
    needs = {name.upper() for name in ("rank", "world_size") if name not in arguments or _is_default(arguments[name])}
    method_text = _text(method)
    if method is None or method_text == "" or (method_text or "").startswith("env://"):
        return needs | {"MASTER_ADDR"}
    return needs if method_text else set()


def _text(value: ast.expr | None) -> str | None:
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else ""
    return None


def _is_default(value: ast.expr) -> bool:
    return ast.unparse(value) in ("-1", "None")


def _set_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Variables that a program sets for itself; any name inside a call of update or setdefault counts."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield _text(node.slice) or ""
        elif isinstance(node, ast.Call) and _last(node.func) in ("setdefault", "putenv", "update"):
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value


def _finds_ranks(nodes: list[ast.AST]) -> bool:
    """Whether the program delegates this to a package, or sets variables with computed names."""
    for node in nodes:
        stored = isinstance(getattr(node, "ctx", None), ast.Store)
        if isinstance(node, ast.Subscript) and stored and _last(node.value) == "environ" and _text(node.slice) is None:
            return True
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if any(name.split(".")[0] in _OTHERS for name in names):
            return True
    return False


def _is_guarded(nodes: list[ast.AST]) -> bool:
    """Whether it has ``if "RANK" in os.environ``, ``os.environ.get("WORLD_SIZE", 1)`` or the like."""
    for node in nodes:
        if isinstance(node, ast.Compare) and _text(node.left) in (*NEEDED, "LOCAL_RANK"):
            return True
        called = _last(node.func) if isinstance(node, ast.Call) else ""
        first = _text(node.args[0]) if isinstance(node, ast.Call) and node.args else ""
        if called == "is_torchelastic_launched" or (called in ("get", "getenv") and first in (*NEEDED, "LOCAL_RANK")):
            return True
    return False
