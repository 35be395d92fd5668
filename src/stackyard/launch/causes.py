"""Known causes of failures: what was seen -> why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stackyard.launch.outcome import Cause


def explain(*, tail: Sequence[str], code: int, launcher_output: str, facts: Mapping[str, object]) -> Cause | None:
    """x."""
    return None
