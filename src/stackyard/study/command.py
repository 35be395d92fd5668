"""A request as the words of ``stackyard launch``: the command that repeats one run of a study."""

from __future__ import annotations

from typing import Any

from stackyard.launch.api.jobs import Intent

_NAMES = {
    "stack": "--with", "variables": "--env", "passed": "--env", "launcher_args": "--launcher-arg",
    "scheduler_args": "--scheduler-arg", "hang_min": "--hang", "start_s": "--start-timeout",
    "lost_s": "--lost-timeout", "grace_s": "--grace",
}  # fmt: skip
"""The options that have another name than their field."""
_NOT_TYPED = {"program", "batch", "roles", "unanswered", "least_nodes", "cwd", "prologue", "direct", "debug_rank"}


def launch_words(intent: Intent) -> tuple[str, ...]:
    """The command line; without values of variables that may be secret. What only a job file can say is left out."""
    words = ["stackyard", "launch"]
    for name, value in intent.recorded().model_dump(exclude_defaults=True).items():
        if name not in _NOT_TYPED:
            words += _option(_NAMES.get(name, f"--{name.replace('_', '-')}"), value)
    if not intent.direct:
        words.append("--torchrun")
    return (*words, *intent.program)


def _option(option: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option] if value else [f"--no-{option.removeprefix('--')}"]
    if isinstance(value, dict):
        return [word for name, text in value.items() for word in (option, f"{name}={text}")]
    if isinstance(value, tuple | list):
        return [word for item in value for word in (option, str(item))]
    return [option, f"{value:g}" if isinstance(value, float) else str(value)]
