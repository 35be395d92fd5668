"""The commands of a plan as you would type them: the launcher's, and each rank's program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from stackyard.launch.plan.model import Plan


def launch_command(plan: Plan, run: str) -> str:
    """The exact command that starts the ranks; ``{step}`` in its words is the run directory `run`."""
    words = [word.replace("{step}", run) for word in (*plan.line.words, *started(plan))]
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in plan.line.variables.items())
    return before + shlex.join(words)


def started(plan: Plan) -> tuple[str, ...]:
    """What the launcher starts for each task, in the directory ``{step}``."""
    return ("/bin/sh", "{step}/inside.sh") if plan.agents else ("{step}/rank.sh",)


def program_text(plan: Plan) -> str:
    """The program of each rank, with its wrappers; ``${NAME}`` stands for the rank's own variables.

    With several roles, the program of each.
    """
    if plan.roles:
        return "; ".join(f"{role.name}: {program_text(role.plan)}" for role in plan.roles)
    words: list[str] = []
    for wrapper in (one for one in plan.wrappers if one.argv):
        ranks = "" if wrapper.tasks is None else ",".join(map(str, wrapper.tasks))
        words.append(f"[ranks {ranks}: {shown_words(wrapper.argv)}]" if ranks else shown_words(wrapper.argv))
    return " ".join((*words, shown_words(plan.program.argv)))


def first_rank(plan: Plan, role: int) -> int:
    """The global number of a role's first rank, by the role's index."""
    layout, node = plan.program.layout, plan.roles[role].first
    block = next(block for block in layout.blocks if block.first <= node < block.first + block.count)
    return layout.rank(node, block.roles.index(role))


def rank_names(plan: Plan) -> dict[int, str]:
    """``workers 3`` for every rank of a job with several roles; empty with one program."""
    names: dict[int, str] = {}
    counts = [0] * len(plan.roles)
    for block in plan.program.layout.blocks if plan.roles else ():
        for role in block.roles * block.count:
            names[len(names)] = f"{plan.roles[role].name} {counts[role]}"
            counts[role] += 1
    return names


def shown_words(words: Sequence[str]) -> str:
    """Words as you would type them, with ``${NAME}`` left readable."""
    return " ".join(f'"{word}"' if "${" in word else shlex.quote(word) for word in words)
