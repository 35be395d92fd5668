"""Numbers of a point in the words of its program: ``--batch {ranks*16}``, ``--epochs {1024//ranks}``.

In braces stand whole numbers, the names ``nodes`` and ``ranks``, ``+ - * //`` and parentheses, and nothing else; or one
of the study's own names, whose value a variant gives. Any other text in braces is left as it is (JSON, ``${HOME}``).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from stackyard.core.errors import InputError

SIZES = ("nodes", "ranks")
"""The names that differ from size to size."""
_BRACES = re.compile(r"(?<!\$)\{([^{}]{1,200})\}")
_FORMULA = re.compile(r"[\w\s+*/()-]+")
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip
_MOST = 10**18
"""No argument of a program is larger; it also bounds the work of a formula."""


def filled(words: Sequence[str], numbers: Mapping[str, int], values: Mapping[str, str]) -> tuple[str, ...]:
    """The words with their formulas calculated.

    Args:
        numbers: the values of `SIZES`.
        values: the variant's own names.

    Raises:
        InputError: a formula names something unknown, divides by zero, or its result is not a usable number.
    """
    return tuple(_BRACES.sub(lambda match: _value(match, numbers, values), word) for word in words)


def names_in(words: Sequence[str]) -> dict[str, list[str]]:
    """The names that stand in formulas, with the formulas of each."""
    found: dict[str, list[str]] = {}
    for word in words:
        for match in _BRACES.finditer(word):
            for name in _names(match[1]):
                found.setdefault(name, []).append(match[0])
    return found


def sized(words: Sequence[str]) -> dict[str, str]:
    """The words whose value depends on the size, by the option before them (or the word itself)."""
    found = {}
    for at, word in enumerate(words):
        if any(set(_names(match[1])) & set(SIZES) for match in _BRACES.finditer(word)):
            option, equals, _ = word.partition("=")
            before = words[at - 1] if at and words[at - 1].startswith("-") else word
            found[option if equals and option.startswith("-") else before] = word
    return found


def _names(text: str) -> list[str]:
    tree = _parsed(text)
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)] if tree else []


def _parsed(text: str) -> ast.expr | None:
    """The formula; None: this text is none, such as JSON."""
    if not _FORMULA.fullmatch(text):
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _value(match: re.Match[str], numbers: Mapping[str, int], values: Mapping[str, str]) -> str:
    text = match[1].strip()
    if text in values:
        return values[text]
    tree = _parsed(text)
    if tree is None or not any(isinstance(node, ast.Name) for node in ast.walk(tree)):
        return match[0]
    try:
        return str(_calculated(tree, numbers))
    except ZeroDivisionError:
        problem = "divides by zero"
    except ValueError as error:
        problem = str(error)
    known = ", ".join([*SIZES, *values])
    raise InputError(f"cannot calculate {match[0]}: {problem}",
                     hint=f"use {known}, whole numbers, + - * // and parentheses")  # fmt: skip


def _calculated(node: ast.expr, numbers: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in numbers:
            raise ValueError(f"{node.id} is not known")
        return numbers[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_calculated(node.operand, numbers)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        result = _OPERATIONS[type(node.op)](_calculated(node.left, numbers), _calculated(node.right, numbers))
        if abs(result) > _MOST:
            raise ValueError("the result is too large")
        return result
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        raise ValueError("/ gives fractions: write //")
    raise ValueError("it is not a formula of whole numbers")
