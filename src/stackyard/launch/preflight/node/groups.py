"""Groups of nodes, and the formats of ranks and hosts. Pure."""

from __future__ import annotations


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Neighbours in a ring of `count` nodes (2 or more), in rounds of disjoint pairs: two, or three for odd counts."""
    if count == 2:
        return [[(0, 1)]]
    even = [(i, i + 1) for i in range(0, count - 1, 2)]
    odd = [(i, i + 1) for i in range(1, count - 1, 2)]
    closing = (0, count - 1)
    return [even, [*odd, closing]] if count % 2 == 0 else [even, odd, [closing]]


def short(host: str) -> str:
    """A hostname without its domain."""
    return host.split(".", 1)[0]


def bracketed(address: str) -> str:
    """An address as written before a port."""
    return f"[{address}]" if ":" in address else address


def ranks_text(ranks: list[int]) -> str:
    """``ranks 1, 5, 6 ...``."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {shown}{' ...' if len(ranks) > 8 else ''}"
