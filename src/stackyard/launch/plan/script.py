"""The batch script of a job as text: directives, the exact commands as comments, and the start of the run."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence

from stackyard.launch.plan.command import launch_command, program_text
from stackyard.launch.plan.model import Plan


def script_text(
    plan: Plan,
    head: str,
    *,
    run: str,
    command: Sequence[str],
    start: Sequence[str],
    prologue: Sequence[str] = (),
    exports: Mapping[str, str] | None = None,
) -> str:
    """The whole script.

    Args:
        head: the scheduler's directives, as its renderer wrote them.
        run: the run directory, absolute.
        command: the command line that you typed; kept as a comment.
        start: the command that carries out the recorded run.
        prologue: shell lines of the site and of the job file, unchanged.
        exports: environment variables that the scheduler does not pass on. They come before the prologue, as the
            environment does that other schedulers pass on: otherwise PATH would undo its ``module load``.
    """
    parts = ["#!/bin/bash", head.rstrip(), "", *_comment("created by", shlex.join(command))]
    if plan.line.words:
        parts += _comment("starts the ranks with", launch_command(plan, run))
        parts += _comment("and rank.sh runs", program_text(plan))
    parts += ["", *(f"export {name}={shlex.quote(value)}" for name, value in (exports or {}).items()), *prologue]
    parts += [f"cd {shlex.quote(plan.cwd)} || exit 1" if plan.cwd else "", f"exec {shlex.join(start)}"]
    return "\n".join(part for i, part in enumerate(parts) if part or (i and parts[i - 1])) + "\n"


def _comment(title: str, text: str) -> list[str]:
    lines = textwrap.wrap(text, 112, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"# {title}:", *(f"#   {line}" for line in lines)]
