"""Selectors: the conditions under which a line of a spec file applies.

Three notations are accepted, and all become the same text on the requirement:

    - psutil            # [linux64]                    conda-build's and conda-lock's comment
    - sel(linux): gdb                                  mamba's key
    - openmpi           # [mpi == 'openmpi']           an axis of the stack's matrix

The language is that of conda-build: platform words, ``not``, ``and``, ``or``, parentheses, comparisons and ``in``.
It is read with `ast` and evaluated here; nothing is ever executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

from packaging.version import Version

from stackyard.core.errors import InputError, Where
from stackyard.core.hints import did_you_mean, nearest
from stackyard.core.quoting import quoted
from stackyard.host.machine.platforms import ARCHITECTURES, PLATFORMS


def _words() -> dict[str, frozenset[str]]:
    def having(*endings: str) -> frozenset[str]:
        return frozenset(name for name in PLATFORMS if name.endswith(endings))

    words = {name.replace("-", "_"): frozenset({name}) for name in PLATFORMS}
    for system in ARCHITECTURES:
        words[system] = frozenset(name for name in PLATFORMS if name.startswith(f"{system}-"))
        for bits in ("32", "64"):
            words[f"{system}{bits}"] = frozenset({f"{system}-{bits}"}) & frozenset(PLATFORMS)
    words["unix"] = words["linux"] | words["osx"]
    words["x86_64"] = words["x64"] = words["amd64"] = having("-64")
    words["x86"] = having("-64", "-32")
    words["arm64"] = having("-arm64")
    for arch in ARCHITECTURES["linux"][2:]:
        words[arch] = having(f"-{arch}")
    return {word: platforms for word, platforms in words.items() if platforms}


WORDS: Mapping[str, frozenset[str]] = _words()
"""Every platform word and the conda platforms that it selects."""

_FALSE = {"", "0", "false", "no", "none", "off"}
_DASHED = re.compile(r"(?<![\w'\".-])(" + "|".join(map(re.escape, PLATFORMS)) + r")(?![\w'\".-])")
_IN_COMMENT = re.compile(r"[^\[\]]*\[(?P<selector>[^\[\]]+)\][^()\[\]]*$")
_IN_KEY = re.compile(r"sel\((?P<selector>.*)\)\s*$", re.DOTALL)
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Compare, ast.Name, ast.Load),
    *(ast.Constant, ast.Tuple, ast.List, ast.In, ast.NotIn, *_COMPARE),
)


def holds(selector: str, platform: str, axes: Mapping[str, str], *, where: Where | None = None) -> bool:
    """Whether a selector is true for one platform and one point of the matrix. An empty one is always true.

    Args:
        selector: such as ``linux64``, ``not aarch64``, ``py>=38`` or ``mpi in ('openmpi', 'mpich')``.
        platform: a conda subdir, e.g. ``linux-64``.
        axes: the matrix axes and their values. ``py`` means the axis ``python`` without its dot, as in conda-build.
            An axis alone is true unless its value is empty, none, no, false, off or 0.
        where: the selector's place, for the error.

    Raises:
        InputError: it is not a valid selector, or a name in it is neither a platform nor an axis.
    """
    if not selector.strip():
        return True
    check(selector, axes, where=where)
    source, tree = _parse(selector, where)
    return _truth(_Evaluation(source, platform, axes).value(tree.body))


def is_selector(text: str, axes: Collection[str] = ()) -> bool:
    """Whether a comment's text is a selector: valid, and every name in it a platform word or one of `axes`."""
    names = _names(text)
    return bool(names) and all(name in WORDS or _is_axis(name, axes) for name in names)


def looks_like_selector(text: str, axes: Collection[str] = ()) -> bool:
    """Whether some names are almost those of a selector, so that a notice should report that it is ignored."""
    names = _names(text)
    words = {*WORDS, *axes, "python"}
    near = [name for name in names if _is_axis(name, words) or nearest(name, words, cutoff=0.8)]
    return bool(near) and not is_selector(text, axes)


def in_comment(comment: str) -> str:
    """The text in the brackets of a comment such as ``# installed by hand [linux]``, or empty."""
    match = _IN_COMMENT.match(comment)
    return match["selector"].strip() if match else ""


def in_key(key: str) -> str | None:
    """The selector of mamba's ``sel(linux)`` key, or None for any other key."""
    match = _IN_KEY.match(key.strip())
    return match["selector"].strip() if match else None


def check(selector: str, axes: Collection[str] = (), *, where: Where | None = None) -> None:
    """Raise `InputError` unless `selector` is valid and every name in it is a platform word or one of `axes`."""
    _, tree = _parse(selector, where)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in WORDS and not _is_axis(node.id, axes):
            raise _unknown(node.id, selector, axes, where)


def both(first: str, second: str) -> str:
    """The conjunction of two selectors; an empty one is always true."""
    if not first or not second or first == second:
        return first or second
    return f"({first}) and ({second})"


def selected(selector: str, axes: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The platforms of `PLATFORMS` for which a selector is true; with unknown axes, those for which it may be true."""
    if not selector:
        return PLATFORMS
    if axes is None and any(name not in WORDS for name in _names(selector)):
        return PLATFORMS
    return tuple(platform for platform in PLATFORMS if holds(selector, platform, axes or {}))


def _is_axis(name: str, axes: Collection[str]) -> bool:
    return name in axes or (name == "py" and "python" in axes)


@lru_cache(maxsize=512)
def _parse_text(selector: str) -> tuple[str, ast.Expression] | None:
    source = _DASHED.sub(lambda match: match.group().replace("-", "_"), selector.strip())
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return (source, tree) if all(isinstance(node, _ALLOWED) for node in ast.walk(tree)) else None


def _parse(selector: str, where: Where | None) -> tuple[str, ast.Expression]:
    parsed = _parse_text(selector)
    if parsed is None:
        hint = "use platform words, matrix axes, comparisons, `not`, `and`, `or`, `in` and parentheses"
        raise InputError(f"{quoted(selector)} is not a selector", where=where, hint=hint)
    return parsed


def _names(text: str) -> list[str]:
    parsed = _parse_text(text)
    return [node.id for node in ast.walk(parsed[1]) if isinstance(node, ast.Name)] if parsed else []


def _unknown(name: str, selector: str, axes: Collection[str], where: Where | None) -> InputError:
    known = sorted({*axes, *WORDS})
    question = did_you_mean(name, known, shown=repr)
    common = "linux, unix, osx, win, linux64, aarch64, ppc64le, arm64, x86_64"
    hint = f"{question} known axes: {', '.join(sorted(axes)) or '(none)'}; known platforms: {common}".lstrip()
    return InputError(f"{quoted(name)} in the selector {quoted(selector)} is unknown", where=where, hint=hint)


def _truth(value: object) -> bool:
    return value.lower() not in _FALSE if isinstance(value, str) else bool(value)


class _Evaluation:
    """One selector, evaluated for one platform and one point of the matrix."""

    def __init__(self, source: str, platform: str, axes: Mapping[str, str]) -> None:
        self.source, self.platform, self.axes = source, platform, axes

    def value(self, node: ast.expr) -> object:
        """A bool for a condition, text for an axis or a constant, a tuple for a list."""
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.Constant():
                return self._constant(node)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.UnaryOp(operand=operand):
                return not _truth(self.value(operand))
            case ast.BoolOp(op=ast.And(), values=values):
                return all(_truth(self.value(value)) for value in values)
            case ast.BoolOp(values=values):
                return any(_truth(self.value(value)) for value in values)
            case ast.Compare():
                return self._chain(node)
        raise AssertionError(ast.dump(node))  # pragma: no cover - the parser lets nothing else through

    def _name(self, name: str) -> object:
        if name in self.axes:
            return self.axes[name]
        if name == "py" and "python" in self.axes:
            return "".join(self.axes["python"].split(".")[:2])
        return self.platform in WORDS[name]

    def _constant(self, node: ast.Constant) -> object:
        if isinstance(node.value, str | bool):
            return node.value
        return ast.get_source_segment(self.source, node) or str(node.value)  # 3.10 stays 3.10

    def _chain(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            if not _compare(op, left, right):
                return False
            left = right
        return True


def _compare(op: ast.cmpop, left: object, right: object) -> bool:
    if isinstance(op, ast.In | ast.NotIn):
        group = right if isinstance(right, tuple) else (right,)
        is_match = any(_compare(ast.Eq(), left, item) for item in group)
        return is_match if isinstance(op, ast.In) else not is_match
    if isinstance(left, str) and isinstance(right, str):
        versions = _versions(left, right)
        if versions:
            left, right = versions
    try:
        return _COMPARE[type(op)](left, right)
    except TypeError:
        return False


def _versions(left: str, right: str) -> tuple[Version, Version] | None:
    try:
        return Version(left), Version(right)
    except ValueError:
        return None
