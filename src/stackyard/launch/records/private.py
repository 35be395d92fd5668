"""The possibly secret values of a run, in files that only their owner can read, until the run has ended.

A batch job keeps them from its submission on (``private.json``), since it is carried out in another environment. Every
step has them as lines of shell for its ranks (``private.sh``).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from stackyard.core.grammar import VALUE, VARIABLE
from stackyard.launch.records.paths import RunPaths
from stackyard.yard import formats
from stackyard.yard.write import atomic


def write_private(paths: RunPaths, variables: Mapping[str, str]) -> None:
    """Keep the variables of a batch job until it starts; without variables no file is written."""
    if variables:
        atomic.write_json(paths.private, dict(variables), mode=0o600)


def read_private(paths: RunPaths) -> dict[str, str]:
    """The content of `write_private`'s file; empty without such values, and after the run's end."""
    with suppress(OSError, ValueError):
        value = formats.content(paths.private.read_text(encoding="utf-8"))
        return {VARIABLE(name): VALUE(str(text)) for name, text in value.items()} if isinstance(value, dict) else {}
    return {}


def forget_private(paths: RunPaths) -> None:
    """Remove the values of an ended run, including those of its steps and former attempts."""
    for file in paths.private_files:
        with suppress(OSError):  # one that cannot be removed keeps none of the others
            file.unlink(missing_ok=True)
