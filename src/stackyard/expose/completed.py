"""The names of a generation that shells complete: a text file, so that no program of ours runs at a TAB.

    generations/<n>/names        r torch/2.9-py313-1
                                 s torch
    names -> modules/../names

As with `environments`, the link leads through ``modules``, so one flip publishes the modules and these names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import GenerationPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.write import atomic, within

_CURRENT = f"modules/../{GenerationPaths(Path()).names.name}"
"""The target of ``<yard>/names``."""


def names_text(entries: Sequence[Entry]) -> str:
    """The file's text: what `module avail` shows too. Names pass `grammar.LABEL`, so a line has no blank but one."""
    shown = [entry for entry in entries if entry.is_visible and not entry.hidden]
    lines = [f"r {module}" for module in sorted({entry.module for entry in shown})]
    return "".join(f"{line}\n" for line in [*lines, *(f"s {s}" for s in sorted({entry.stack for entry in shown}))])


def write_names(path: Path, entries: Sequence[Entry], yard: Yard) -> None:
    """Write the names of one generation, which is not yet visible to users."""
    atomic.write_text(path, names_text(entries), top=yard.root)


def show_names(yard: Yard, generation: GenerationPaths) -> None:
    """Create the link ``<yard>/names`` once a generation with names is published; anything else there is kept."""
    with suppress(OSError):  # what is published is not undone; the next publication tries again
        if disk.is_there(generation.names) and not os.path.lexists(yard.completed):
            within.symlink(yard.root, yard.completed, _CURRENT)
