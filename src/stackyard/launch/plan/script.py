"""The batch script of a job, as text. It names what will be started, and starts it through the recorded run."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence

from stackyard.launch.plan.model import Plan
from stackyard.launch.records.paths import StepPaths

CARRIED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SLURM_CONF")
CARRIED_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "UCX_",
    "FI_",
    "MPICH_",
    "OMPI_MCA_",
    "HOROVOD_",
    "TORCH_",
    "JAX_",
    "OMP_",
    "MIOPEN_",
)
"""Variables of the person's shell that a job needs where the scheduler does not hand them on (PBS)."""


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of this shell that matter to a job, by name; nothing that could be a secret."""
    names = sorted(name for name in environ if name in CARRIED or name.startswith(CARRIED_PREFIXES))
    return {name: environ[name] for name in names}


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
        run: the folder of the run, absolute.
        command: what the person typed; kept as a comment.
        start: the command that carries out the recorded run.
        prologue: lines of the site, as they are.
        exports: variables that the scheduler would not hand on.
    """
    parts = ["#!/bin/bash", head.rstrip(), "", *_comment("asked for with", shlex.join(command))]
    if plan.line.words:
        parts += _comment("starts the ranks with", launch_command(plan, run))
        parts += _comment("and rank.sh runs", program_text(plan))
    parts += ["", *prologue, *(f"export {name}={shlex.quote(value)}" for name, value in (exports or {}).items())]
    parts += [f"cd {shlex.quote(plan.cwd)} || exit 1" if plan.cwd else "", f"exec {shlex.join(start)}"]
    return "\n".join(part for i, part in enumerate(parts) if part or (i and parts[i - 1])) + "\n"


def launch_command(plan: Plan, run: str) -> str:
    """The exact command that starts the ranks, as one would type it; ``{step}`` is the folder of the run."""
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
    """Words as one would type them, with ``${NAME}`` left readable."""
    return " ".join(_shown(word) for word in words)


def _shown(word: str) -> str:
    """A word as one would type it, with ``${NAME}`` left readable."""
    return f'"{word}"' if "${" in word else shlex.quote(word)


def _comment(title: str, text: str) -> list[str]:
    lines = textwrap.wrap(text, 112, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"# {title}:", *(f"#   {line}" for line in lines)]


def preview(step: StepPaths, plan: Plan, *, run: str, python: str) -> dict[str, str]:
    """The files that a start would write, by name, without writing any; the addresses of the hub are not known yet."""
    from stackyard.launch.run.start import WatchOptions, step_file
    from stackyard.launch.shim.rank_sh import shim_text

    file = step_file(step, plan, run=run, hubs=(), options=WatchOptions())
    texts = {name: text.replace("{step}", str(step.root)) for name, text in plan.line.files.items()}
    return {**texts, "rank.sh": shim_text(step, file, plan, python=python)}
