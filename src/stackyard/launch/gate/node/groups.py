"""Who is in a group with whom, and how ranks and hosts are written. Pure."""

from __future__ import annotations


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Neighbours in a ring of `count` nodes (2 or more), in rounds of disjoint pairs: two, or three for odd counts."""
    edges = [(i, i + 1) for i in range(count - 1)]
    found = [edges[0::2], edges[1::2]]
    if count > 2:
        found[1 if count % 2 == 0 else 2 :] = [[*found[1], (0, count - 1)]] if count % 2 == 0 else [[(0, count - 1)]]
    return [pairs for pairs in found if pairs]


def short(host: str) -> str:
    """A host's name without its domain."""
    return host.split(".", 1)[0]


def bracketed(address: str) -> str:
    """As it is written before a port."""
    return f"[{address}]" if ":" in address else address


def ranks_text(ranks: list[int]) -> str:
    """``ranks 1, 5, 6 ...``."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {shown}{' ...' if len(ranks) > 8 else ''}"
