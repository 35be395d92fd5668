"""Hints about misspelt words, in one wording: ``did you mean X?``."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def nearest(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known words most like a misspelt one, best first.

    Args:
        count: how many at most.
        cutoff: from 0 (any word) to 1 (only the same one), as `difflib.SequenceMatcher.ratio` has it.
    """
    import difflib  # late: only an error needs it

    return difflib.get_close_matches(word, list(known), n=count, cutoff=cutoff)


def did_you_mean(
    word: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    count: int = 1,
    cutoff: float = 0.6,
    shown: Callable[[str], str] = str,
) -> str:
    """The question after a misspelt word.

    Args:
        otherwise: the hint where no known word is like it.
        count: how many words are named at most.
        cutoff: as `nearest` has it.
        shown: how a word is written: ``repr`` for what stands in a file, `str` for what is typed.
    """
    near = nearest(word, known, count, cutoff)
    return f"did you mean {' or '.join(map(shown, near))}?" if near else otherwise
