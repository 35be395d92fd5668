"""Hints about misspelt words, with a uniform wording: ``did you mean X?``."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def nearest(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known words most like a misspelt one, best first.

    Args:
        count: the maximal number.
        cutoff: the minimal similarity, from 0 (any word) to 1 (equal), by `difflib.SequenceMatcher.ratio`.
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
        otherwise: the hint if no known word is similar.
        count: the maximal number of words.
        cutoff: as for `nearest`.
        shown: formats a word: ``repr`` for a word in a file, `str` for one on the command line.
    """
    near = nearest(word, known, count, cutoff)
    return f"did you mean {' or '.join(map(shown, near))}?" if near else otherwise
