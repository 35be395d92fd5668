"""Lists of numbers as ranges, in the notation of the kernel and of launchers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last number of each consecutive run, in ascending order without repetition."""
    result: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if result and number == result[-1][1] + 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as a list of ranges, ``0-6,8``, which `core_list` reads."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs(numbers))


def core_list(text: str) -> tuple[int, ...]:
    """The cores of ``0-20,22``, in the given order.

    Raises:
        ValueError: not such a list; the message names the invalid part.
    """
    cores: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r:.60} is neither a number nor a range such as 0-20")
        if max(map(len, match.groups(""))) > 5:
            raise ValueError(f"{part:.40} is not a core number: more than five digits")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part} is not an ascending range")
        cores.extend(range(first, last + 1))
    return tuple(cores)
