"""The values of a run that may be secret, in a file that only its owner can read, while the run needs them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress

from stackyard.launch.records.paths import StepPaths
from stackyard.yard import atomic


def write_private(step: StepPaths, variables: Mapping[str, str]) -> None:
    """Write the variables as lines of shell, which rank.sh reads; no file where there are none."""
    if variables:
        text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        atomic.write_text(step.private, text, mode=0o600)


def read_private(step: StepPaths) -> dict[str, str]:
    """What `write_private` wrote; empty where the run has no such values, or has ended."""
    with suppress(OSError):
        words = shlex.split(step.private.read_text(encoding="utf-8"))
        return dict(word.split("=", 1) for word in words if word != "export")
    return {}


def forget_private(*steps: StepPaths) -> None:
    """Remove the values of steps that have ended."""
    for step in steps:
        with suppress(OSError):
            step.private.unlink(missing_ok=True)
