"""Who runs when: balanced orders, drawn from a seed, and the pairs that come out of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass


@dataclass(frozen=True)
class Turn:
    """One run of a variant within an allocation.

    Attributes:
        order: its place in the allocation, from 0.
        repeat: the block of runs that it belongs to, one of each variant, from 1; 0 for a warm-up.
    """

    order: int
    variant: str
    repeat: int

    @property
    def warmup(self) -> bool:
        """Whether it is a warm-up, which is in no statistic."""
        return self.repeat == 0


def turns(variants: Sequence[str], repeats: int, seed: int, *, warmups: int = 1) -> tuple[Turn, ...]:
    """The order of all runs of one allocation; the same for the same seed, with any Python.

    Warm-up runs come first: the first run of a program on a node fills its caches, and was 30 % slow where a difference
    of 5 % was then found in 0 % of studies. Then blocks of one run of each variant, whose order is balanced: a drift of
    the machine is the same for all. Two variants alternate (ABBA or BAAB, drawn); more are in the rows of Williams
    squares (E. J. Williams, Australian Journal of Scientific Research A 2 (1949) 149), drawn without replacement.

    Args:
        repeats: blocks; orders are fully balanced after 2 for two variants, after n or 2n for n of them.
        seed: recorded by the caller.
        warmups: warm-up runs of each variant.

    Raises:
        InputError: no variants, the same name twice, or a negative number.
    """
    if not variants or len(set(variants)) < len(variants):
        raise InputError(f"cannot order the variants {', '.join(variants)}: one name twice, or none",
                         hint="give each variant a name of its own")  # fmt: skip
    if repeats < 0 or warmups < 0:
        raise InputError(f"cannot run {min(repeats, warmups)} times", hint="use 0 or more")
    random = Random(seed)
    named = _drawn(variants, random)
    first = [(variant, 0) for _ in range(warmups) for variant in _drawn(variants, random)]
    rows = _rows(len(named), random)
    blocks = [(named[i], repeat) for repeat in range(1, repeats + 1) for i in next(rows)]
    return tuple(Turn(order, variant, repeat) for order, (variant, repeat) in enumerate([*first, *blocks]))


def _drawn(items: Sequence[str], random: Random) -> list[str]:
    """The items in random order; `Random.random` alone is the same in every Python."""
    return sorted(items, key=lambda _: random.random())


def _rows(variants: int, random: Random) -> Iterator[list[int]]:
    square = _square(variants)
    while True:
        yield from sorted(square, key=lambda _: random.random())


def _square(n: int) -> list[list[int]]:
    """The rows of a Williams square: each variant is in each place, and follows each other one, equally often.

    An odd number needs the mirrored rows too.
    """
    zigzag = [(i + 1) // 2 if i % 2 else (n - i // 2) % n for i in range(n)]
    rows = [[(place + shift) % n for place in zigzag] for shift in range(n)]
    return rows if n % 2 == 0 or n == 1 else [*rows, *(row[::-1] for row in rows)]
