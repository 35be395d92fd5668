"""What to relax where pip requirements have no solution: found by asking uv again without one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from stackyard.errors import StackyardError
from stackyard.lock.given import Given
from stackyard.lock.uvcompile import Question, Unsolvable, compile_requirements

BUDGET_S = 6.0


def relax_pip(question: Question, named: Sequence[Given]) -> str:
    """A hint that says which requirement is in the way.

    Args:
        named: what conda provides and the reason mentions; where the rest works without it, that is the cause.
    """
    end = time.monotonic() + BUDGET_S
    for item in named:
        others = tuple(c for c in question.constraints if not c.startswith(f"{item.name} @ "))
        if _works(replace(question, constraints=others)):
            return (
                f"{item.conda} comes from conda: ask for another version of it there, or relax what pip wants of "
                f"{item.name}"
            )
    helpful = []
    for line in question.lines:
        if time.monotonic() > end:
            break
        if _works(replace(question, lines=tuple(other for other in question.lines if other != line))):
            helpful.append(f"`{line}`")
    if helpful:
        return f"it can be solved without {' or '.join(helpful)}: relax or remove one of these"
    return "more than one requirement must be relaxed; start with those that the reason names"


def _works(question: Question) -> bool:
    if not question.lines and not question.tied:
        return True
    try:
        compile_requirements(question)
    except (Unsolvable, StackyardError):
        return False
    return True
