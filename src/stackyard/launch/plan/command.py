"""The commands of a plan as you would type them: the launcher's, and the program that each rank runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from stackyard.launch.plan.model import Plan


def launch_command(plan: Plan, run: str) -> str:
    """The exact command that starts the ranks; ``{step}`` in its words is the run directory `run`."""
    words = [word.replace("{step}", run) for word in (*plan.line.words, "{step}/rank.sh")]
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in plan.line.variables.items())
    return before + shlex.join(words)


def program_text(plan: Plan) -> str:
    """What each rank runs, with its wrappers before it; ``${NAME}`` stands for the rank's own variables."""
    words: list[str] = []
    for wrapper in plan.wrappers:
        ranks = "" if wrapper.tasks is None else ",".join(map(str, wrapper.tasks))
        words.append(f"[ranks {ranks}: {shown_words(wrapper.argv)}]" if ranks else shown_words(wrapper.argv))
    return " ".join((*words, shown_words(plan.program.argv)))


def shown_words(words: Sequence[str]) -> str:
    """Words as you would type them, with ``${NAME}`` left readable."""
    return " ".join(f'"{word}"' if "${" in word else shlex.quote(word) for word in words)
