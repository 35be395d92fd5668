"""Resolves conditions and names in a stack.yaml for one point of the matrix. Trees in, trees out; no file is read.

Conditions, on any entry of a list and on any value of a mapping:

    - nccl                                  # [accelerator == 'cuda']
    - if: "accelerator == 'cuda'"
      then: [nccl, cudnn]
      else: gloo

Names: ``{python}``, ``{mpi}`` ... are the values of the axes, ``{version}`` and ``{name}`` those of the stack;
``{axis.python}`` is the axis everywhere. Names that only the build can replace (`BUILD_WORDS`) are kept where the build
replaces them. ``${...}`` belongs to the shell or to pip and is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stackyard.core.errors import InputError, Where
from stackyard.core.quoting import cut, quoted
from stackyard.host.machine.platforms import PLATFORMS
from stackyard.inputs.conda import selectors
from stackyard.inputs.reading.validate import Path, among, unknown_key
from stackyard.inputs.reading.yamlfile import Node

_NAME = re.compile(r"(?<![${])\{(?P<name>[A-Za-z_][\w.]*|env:[A-Za-z_]\w*)\}(?!\})")
_COMPARISON = re.compile(r"[=!<>]=|[<>]|\bin\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONDITION_KEYS = ("if", "then", "else")

BUILD_WORDS = frozenset({"prefix", "python", "ncores"})
"""What `build` replaces: the prefix, the interpreter's path, the number of cores; ``{env:NAME}`` too."""

RUN_WORDS = frozenset({"prefix"})
"""What a variable of the loaded stack may use."""

CHECK_WORDS = frozenset({"prefix", "python"})
"""What a check's command may use: the prefix and the interpreter's path."""

# Which of these words are kept, by the beginning of the path; `*` is any one step.
_LEFT: Sequence[tuple[Path, frozenset[str]]] = (
    (("build", "variables"), BUILD_WORDS),
    (("build", "packages", "*", "variables"), BUILD_WORDS),
    (("run", "variables"), RUN_WORDS),
    (("variables",), RUN_WORDS),
    (("environment", "variables"), RUN_WORDS),
    (("environment", "*", "variables"), RUN_WORDS),
    (("modules", "variables"), RUN_WORDS),
    (("checks", "*", "name"), frozenset()),
    (("checks", "*"), CHECK_WORDS),
)
# What is never expanded: source text and patterns have braces of their own.
_LITERAL: Sequence[Path] = (("checks", "*", "python"), ("checks", "*", "expect"))


# --------------------------------------------------------------------------- conditions


def conditions(node: Node, words: Mapping[str, str], what: str = "", *, platforms: bool = False) -> Node:
    """The tree without the entries whose condition is false.

    Args:
        words: the axes and the version; a condition may name them.
        what: the key of the tree, for messages.
        platforms: keep platform-dependent entries, with the condition as a comment: in an environment, where the lock
            resolves it. Elsewhere such a condition is an error.

    Raises:
        InputError: a condition is invalid or contains an unknown name.
    """
    if node.kind == "sequence":
        items = tuple(branch for item in node.items for branch in _item(item, words, what, platforms))
        return replace(node, items=items, value=[item.value for item in items])
    if node.kind == "mapping":
        judged = [(key, value, _verdict_of(value, words, what, platforms)) for key, value in node.entries]
        entries = tuple(
            (key, conditions(_settled(value, verdict), words, what, platforms=platforms))
            for key, value, verdict in judged
            if verdict is not False
        )
        return replace(node, entries=entries, value={key.text: value.value for key, value in entries})
    return node


def _item(item: Node, words: Mapping[str, str], what: str, platforms: bool) -> Iterator[Node]:
    verdict = _verdict_of(item, words, what, platforms)
    if verdict is False:
        return
    settled = _settled(item, verdict)
    if item.get("if"):
        inner = _branches(settled, words, what, platforms)
        yield from [_under(branch, verdict) for branch in inner] if isinstance(verdict, str) else inner
    else:
        yield conditions(settled, words, what, platforms=platforms)


def _settled(node: Node, verdict: bool | str) -> Node:
    """The node with the remainder of its condition: none, or the part that tests the platform."""
    if isinstance(verdict, str):
        return replace(node, comment=f"[{verdict}]")
    return replace(node, comment="") if selectors.in_comment(node.comment) else node


def _branches(item: Node, words: Mapping[str, str], what: str, platforms: bool) -> list[Node]:
    """The entries of an ``if:`` item."""
    for key, _ in item.entries:
        if key.text not in _CONDITION_KEYS:
            raise unknown_key((what, key.text), _CONDITION_KEYS, key.where)
    condition = item.get("if")
    assert condition is not None
    verdict = _verdict(condition.text, words, condition.where, what, platforms)
    branches: list[Node] = []
    for name, side in (("then", verdict), ("else", _negated(verdict))):
        if side is not False:
            entries = _flat(item.get(name), words, what, platforms)
            branches += [_under(entry, side) for entry in entries] if isinstance(side, str) else entries
    return branches


def _flat(node: Node | None, words: Mapping[str, str], what: str, platforms: bool) -> list[Node]:
    """One branch, a single value or a list, as a list."""
    if node is None or node.is_null:
        return []
    items = node.items if node.kind == "sequence" else (node,)
    return [branch for item in items for branch in _item(item, words, what, platforms)]


def _negated(verdict: bool | str) -> bool | str:
    return f"not ({verdict})" if isinstance(verdict, str) else not verdict


def _verdict_of(node: Node, words: Mapping[str, str], what: str, platforms: bool) -> bool | str:
    """Whether the comment next to a value selects it: True, False, or the remaining condition on the platform."""
    text = selectors.in_comment(node.comment) if node.comment else ""
    if not text:
        return True
    at = node.where
    if not selectors.is_selector(text, words):
        if selectors.looks_like_selector(text, words) or _COMPARISON.search(text):
            selectors.check(text, words, where=at)
        return True
    return _verdict(text, words, at, what, platforms)


def _verdict(text: str, words: Mapping[str, str], at: Where, what: str, platforms: bool) -> bool | str:
    verdict = verdict_for(text, words, at)
    if isinstance(verdict, str) and not platforms:
        message = f"the condition {quoted(text)} tests the platform, which {what or 'this list'} does not depend on"
        raise InputError(message, where=at, hint="conditions on the platform belong to `environment:`")
    return verdict


def verdict_for(text: str, words: Mapping[str, str], at: Where | None = None) -> bool | str:
    """A condition with its axes resolved: True, False, or the remaining condition on the platform.

    Raises:
        InputError: it is invalid or contains an unknown name.
    """
    mentioned = set(_WORD.findall(text))
    if mentioned.isdisjoint(selectors.WORDS):
        return selectors.holds(text, PLATFORMS[0], words, where=at)
    if mentioned.isdisjoint(words) and selectors.is_selector(text):
        return text
    platforms = [name for name in PLATFORMS if selectors.holds(text, name, words, where=at)]
    if len(platforms) in (0, len(PLATFORMS)):
        return bool(platforms)
    return text if selectors.is_selector(text) else " or ".join(platforms)


def _under(node: Node, condition: str) -> Node:
    """The node with one more condition, written as a comment; for a mapping (``pip:``) on all its contents."""
    if node.kind == "scalar":
        both = selectors.both(selectors.in_comment(node.comment), condition)
        return replace(node, comment=f"[{both}]")
    items = tuple(_under(item, condition) for item in node.items)
    entries = tuple((key, _under(value, condition)) for key, value in node.entries)
    return replace(node, items=items, entries=entries)


# --------------------------------------------------------------------------- names


def names(node: Node, words: Mapping[str, str], problems: list[InputError], path: Path = ()) -> Node:
    """The tree with every ``{name}`` replaced; unknown names are added to the problems.

    Args:
        words: the axes, ``version`` and ``name``.
        path: where the tree stands in the file.
    """
    if any(under_path(path, literal, exact=True) for literal in _LITERAL):
        return node
    if node.kind == "sequence":
        items = tuple(names(item, words, problems, (*path, index)) for index, item in enumerate(node.items))
        return replace(node, items=items, value=[item.value for item in items])
    if node.kind == "mapping":
        entries = tuple((key, names(value, words, problems, (*path, key.text))) for key, value in node.entries)
        return replace(node, entries=entries, value={key.text: value.value for key, value in entries})
    text = fill(node.text, words, left_alone(path), node.where, problems)
    return node if text == node.text else replace(node, text=text, value=text)


def left_alone(path: Path) -> frozenset[str]:
    """The names that are kept in a string at this path, for the build to replace."""
    return next((words for prefix, words in _LEFT if under_path(path, prefix)), frozenset())


def fill(text: str, words: Mapping[str, str], left: frozenset[str], at: Where, problems: list[InputError]) -> str:
    """A string with its names replaced; unknown ones are kept and added to the problems."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name in left or (left is BUILD_WORDS and name.startswith("env:")):
            return match.group()
        known = words.get(name.removeprefix("axis."))
        if known is None:
            problems.append(_unknown_name(name, words, left, at))
            return match.group()
        return known

    return _NAME.sub(value, text)


def _unknown_name(name: str, words: Mapping[str, str], left: frozenset[str], at: Where) -> InputError:
    if name in BUILD_WORDS or name.startswith("env:"):
        hint = (
            "available in build: variables: are all of these; {prefix} also in variables: and in the command of a check"
        )
        return InputError(f"{{{cut(name)}}} is not available here", where=at, hint=hint)
    hint = among(name, {*words, *left})
    return InputError(f"{{{cut(name)}}} is not an axis of the matrix", where=at, hint=hint)


def under_path(path: Path, prefix: Path, *, exact: bool = False) -> bool:
    """Whether a path equals or begins with another one; ``*`` is any one step."""
    if len(path) < len(prefix) or (exact and len(path) != len(prefix)):
        return False
    return all(step in ("*", own) for own, step in zip(path, prefix, strict=False))


# --------------------------------------------------------------------------- making trees


def tree(value: Any, place: Where) -> Node:
    """Plain data as a tree whose values all have the same place; for values that a site adds to a stack."""
    if isinstance(value, Mapping):
        entries = tuple((tree(str(key), place), tree(inner, place)) for key, inner in value.items())
        return Node("mapping", dict(value), place, entries=entries)
    if isinstance(value, list | tuple):
        return Node("sequence", list(value), place, items=tuple(tree(item, place) for item in value))
    return Node("scalar", value, place, text="" if value is None else str(value), quoted=isinstance(value, str))


def everything(node: Node) -> Node:
    """The tree with all branches of all conditions, for checking its structure once."""
    if node.kind == "sequence":
        items = tuple(branch for item in node.items for branch in _all_branches(item))
        return replace(node, items=items, value=[item.value for item in items])
    if node.kind == "mapping":
        entries = tuple((key, everything(value)) for key, value in node.entries)
        return replace(node, entries=entries, value={key.text: value.value for key, value in entries})
    return node


def _all_branches(item: Node) -> Iterator[Node]:
    if item.get("if") is None:
        yield everything(item)
        return
    for side in (item.get("then"), item.get("else")):
        if side is not None and not side.is_null:
            for inner in side.items if side.kind == "sequence" else (side,):
                yield from _all_branches(inner)
