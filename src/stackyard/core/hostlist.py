"""Hostlists as Slurm and Flux write them: ``n[1-3,007],login1``. Pure; no ``scontrol`` is started.

The forms are those of scontrol(1) ``show hostnames`` and ``show hostlist``, and of Flux RFC 29: brackets with numbers
and ranges, several per name, leading zeros kept. Text after the last bracket is accepted, as in Flux and in Slurm
since 23.11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from stackyard.core.errors import InputError

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)
_MOST = 1 << 20


def expand(text: str) -> tuple[str, ...]:
    """All names of a hostlist in order, with repetitions.

    Raises InputError for unbalanced brackets, for a descending range, and for more than a million names.
    """
    names: list[str] = []
    for item in _items(text):
        names += _names(item, text)
        if len(names) > _MOST:
            raise _invalid(text, f"more than {_MOST} hosts")
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """The shortest hostlist that `expand` turns into exactly these names, in this order."""
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, digits = (match[1], match[2]) if match else (name, "")
        if groups and digits and groups[-1][0] == prefix and groups[-1][1][0]:
            groups[-1][1].append(digits)
        else:
            groups.append((prefix, [digits]))
    return ",".join(_group(prefix, digits) for prefix, digits in groups)


def short_host(name: str) -> str:
    """A hostname without its domain."""
    return name.partition(".")[0]


def same_host(one: str, other: str) -> bool:
    """Whether two names mean the same host: schedulers and kernels write it with and without its domain."""
    return short_host(one) == short_host(other)


def _items(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise _invalid(text, "unbalanced brackets")
        if letter == "," and depth == 0:
            yield from filter(None, [text[start:at].strip()])
            start = at + 1
    if depth:
        raise _invalid(text, "unbalanced brackets")
    yield from filter(None, [text[start:].strip()])


def _names(item: str, text: str) -> list[str]:
    parts = re.split(r"\[([^\]]*)\]", item)
    choices = [_numbers(part, text) if odd % 2 else [part] for odd, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > _MOST:
        raise _invalid(text, f"more than {_MOST} hosts")
    return ["".join(chosen) for chosen in product(*choices)]


def _numbers(inside: str, text: str) -> list[str]:
    names: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise _invalid(text, f"'{part:.60}' is not a number or a range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) >= _MOST:
            raise _invalid(text, f"'{part}' is not an ascending range")
        names += [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]
    return names


def _group(prefix: str, digits: list[str]) -> str:
    runs: list[tuple[str, str]] = []
    for text in digits:
        if runs and _follows(runs[-1][1], text, runs[-1][0]):
            runs[-1] = (runs[-1][0], text)
        else:
            runs.append((text, text))
    if len(digits) == 1:
        return prefix + digits[0]
    return f"{prefix}[{','.join(low if low == high else f'{low}-{high}' for low, high in runs)}]"


def _follows(last: str, text: str, low: str) -> bool:
    """Whether `text` is the next number of a range that starts with `low`, in the form that `expand` produces."""
    return int(text) == int(last) + 1 and text == f"{int(text):0{len(low)}d}"


def _invalid(text: str, why: str) -> InputError:
    return InputError(f"'{text:.200}' is not a hostlist: {why}", hint="write it as n[1-4,7] or n1,n2")
