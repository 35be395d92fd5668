"""Lists of numbers as ranges, in the notation of the kernel and of launchers. Pure."""

from __future__ import annotations

from collections.abc import Iterable


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
    """Numbers as a list of ranges, ``0-6,8``, which `nodes.core_list` reads."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs(numbers))
