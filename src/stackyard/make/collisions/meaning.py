"""The meaning of an ``__init__.py``: whether two differently written ones are equivalent.

Packages that share a namespace each have its ``__init__.py``: empty or with a comment, or with one of the two
declarations (pkgutil, pkg_resources). No code is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

MOST_BYTES = 1 << 16
PKGUTIL, PKG_RESOURCES = "pkgutil", "pkg_resources"


def meaning(source: bytes) -> str | None:
    """A text that is equal for equivalent sources; None for a source that cannot be parsed.

    It is `PKGUTIL` where the namespace is extended with pkgutil (also where pkg_resources is tried first), and
    `PKG_RESOURCES` where only that declares it, which needs setuptools.
    """
    if len(source) > MOST_BYTES:
        return None
    try:
        body = ast.parse(source).body
        leaves = list(_leaves(_without_docstring(body)))
        if leaves and all(map(_declares, leaves)):
            called = {_called(leaf) for leaf in leaves}
            return PKGUTIL if "extend_path" in called else PKG_RESOURCES
        return "\n".join(map(ast.dump, _without_docstring(body)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return body[1:] if isinstance(first, ast.Constant) and isinstance(first.value, str) else body


def _leaves(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, including those in a ``try`` around an import; imports alone have no effect."""
    for statement in body:
        if isinstance(statement, ast.Try) and all(_is_for_import(handler) for handler in statement.handlers):
            inner = (
                *statement.body,
                *(s for handler in statement.handlers for s in handler.body),
                *statement.orelse,
                *statement.finalbody,
            )
            yield from _leaves(inner)
        elif not _is_import(statement):
            yield statement


def _is_for_import(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.type, ast.Name) and handler.type.id in ("ImportError", "ModuleNotFoundError")


def _is_import(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module in (PKGUTIL, PKG_RESOURCES)
    return isinstance(statement, ast.Import) and {n.name for n in statement.names} <= {PKGUTIL, PKG_RESOURCES}


def _declares(statement: ast.stmt) -> bool:
    """Whether it is ``__path__ = extend_path(__path__, __name__)`` or ``declare_namespace(__name__)`` in some form."""
    if isinstance(statement, ast.Assign):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        return names == ["__path__"] and len(statement.targets) == 1 and _called(statement) == "extend_path"
    return isinstance(statement, ast.Expr) and _called(statement) == "declare_namespace"


def _called(statement: ast.stmt) -> str:
    """The function called with only ``__path__`` and ``__name__``; empty for any other statement."""
    call = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    if not isinstance(call, ast.Call) or call.keywords:
        return ""
    if not all(isinstance(argument, ast.Name) and argument.id in ("__path__", "__name__") for argument in call.args):
        return ""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
