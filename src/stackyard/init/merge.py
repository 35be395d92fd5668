"""Joins what was edited by hand with what the machine now says: three texts, line by line.

As diff3(1) does, but without marks of conflict: where both changed the same lines, the hand's stay, and what the
machine says there is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple


class Merged(NamedTuple):
    """The joined text, and for each place that both changed the lines kept and those of the machine."""

    text: str
    kept: list[tuple[list[str], list[str]]]


class _Hunk(NamedTuple):
    """Lines `start` to `end` of the base are `lines` instead."""

    start: int
    end: int
    lines: list[str]


def merge(base: str, mine: str, new: str) -> Merged:
    """Join the changes from `base` to `mine` and those from `base` to `new`."""
    lines = base.splitlines()
    own, other = _hunks(lines, mine.splitlines()), _hunks(lines, new.splitlines())
    result: list[str] = []
    kept: list[tuple[list[str], list[str]]] = []
    at = 0
    for start, end, mines, news in _places(own, other):
        result += lines[at:start]
        edited, told = _applied(lines, start, end, mines), _applied(lines, start, end, news)
        result += edited if mines else told
        if mines and news and edited != told:
            kept.append((edited, told))
        at = end
    result += lines[at:]
    return Merged("\n".join(result) + "\n" if result else "", kept)


def _hunks(base: Sequence[str], changed: Sequence[str]) -> list[_Hunk]:
    """What differs, aligned by the keys of the lines: each line with another value is a place of its own."""
    codes = SequenceMatcher(None, list(map(_key, base)), list(map(_key, changed)), autojunk=False).get_opcodes()
    found = []
    for tag, i, j, k, n in codes:
        if tag != "equal":
            found.append(_Hunk(i, j, list(changed[k:n])))
        else:
            pairs = zip(range(i, j), changed[k:n], strict=True)
            found += [_Hunk(at, at + 1, [line]) for at, line in pairs if line != base[at]]
    return found


def _key(line: str) -> str:
    """A line's key with its indentation; items of lists and comments are their own."""
    return line if line.lstrip().startswith(("-", "#")) else line.partition(":")[0]


def _places(own: list[_Hunk], other: list[_Hunk]) -> Iterator[tuple[int, int, list[_Hunk], list[_Hunk]]]:
    """The places that either changed, with the hunks of both; those that overlap, or insert at one point, are one."""
    rest = sorted([(hunk, True) for hunk in own] + [(hunk, False) for hunk in other], key=lambda each: each[0][:2])
    while rest:
        start, end = rest[0][0].start, rest[0][0].end
        here: tuple[list[_Hunk], list[_Hunk]] = [], []
        while rest and (rest[0][0].start < end or rest[0][0].start == start):
            hunk, is_mine = rest.pop(0)
            end = max(end, hunk.end)
            here[0 if is_mine else 1].append(hunk)
        yield start, end, *here


def _applied(base: Sequence[str], start: int, end: int, hunks: Sequence[_Hunk]) -> list[str]:
    """The lines of a place with these hunks."""
    result: list[str] = []
    at = start
    for hunk in hunks:
        result += [*base[at : hunk.start], *hunk.lines]
        at = hunk.end
    return result + list(base[at:end])
