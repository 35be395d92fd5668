"""Misspelt words: which known ones are named, and how."""

from __future__ import annotations

from stackyard.core.hints import did_you_mean, nearest

KNOWN = ("numpy", "numba", "scipy")


def test_the_nearest_words_come_first() -> None:
    assert nearest("nunpy", KNOWN) == ["numpy"]
    assert nearest("nump", KNOWN, 2) == ["numpy", "numba"]
    assert nearest("torch", KNOWN) == []
    assert nearest("sci", KNOWN) == ["scipy"] and nearest("sci", KNOWN, cutoff=0.8) == []


def test_one_question_or_another_hint() -> None:
    assert did_you_mean("nunpy", KNOWN) == "did you mean numpy?"
    assert did_you_mean("nunpy", KNOWN, shown=repr) == "did you mean 'numpy'?"
    assert did_you_mean("nump", KNOWN, count=2) == "did you mean numpy or numba?"
    assert did_you_mean("torch", KNOWN, "known: numpy") == "known: numpy"
    assert did_you_mean("torch", KNOWN) == ""
