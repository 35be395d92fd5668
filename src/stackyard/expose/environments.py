"""The conda prefixes of a generation under the names by which users' conda finds, activates and clones them.

    generations/<n>/envs/<stack>-<version> -> ../../../stacks/<stack>/<version>/prefix
    envs -> modules/../envs

The base module puts ``<yard>/envs`` into CONDA_ENVS_PATH. The link leads through ``modules``, so one flip publishes the
modules and these names. They are not below ``modules/`` itself, where a module system would search the prefixes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stackyard.yard import disk
from stackyard.yard.kinds.condaprefix import conda_prefix
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import GenerationPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.revision.signatures import refusals
from stackyard.yard.write import within

_CURRENT = f"modules/../{GenerationPaths(Path()).envs.name}"
"""The target of ``<yard>/envs``. The kernel resolves it from the current generation; conda keeps the path as given."""


def write_environments(
    directory: Path, entries: Sequence[Entry], records: Mapping[str, BuildRecord], yard: Yard
) -> None:
    """Write the links of one generation, which is not yet visible to users; none: no directory.

    Args:
        records: the build records by module name, as far as they can be read.
    """
    refused = refusals(entries, records, yard)
    shown = [entry for entry in entries if entry.module in records and entry.module not in refused]
    shown = [entry for entry in shown if entry.is_visible and not entry.hidden]
    found = {e.module: conda_prefix(records[e.module], yard.named(e.folder).prefix) for e in shown}
    prefixes = {module: prefix for module, prefix in found.items() if prefix is not None}
    if not prefixes:
        return
    within.make(yard.root, directory)
    for name, prefix in names(prefixes).items():
        target = os.path.relpath(prefix, directory) if prefix.is_relative_to(yard.root) else str(prefix)
        within.symlink(yard.root, directory / name, target)


def names(prefixes: Mapping[str, Path]) -> dict[str, Path]:
    """The prefixes of modules by the names of environments, which have no slash: ``powerai-1.7.0-py3-1``."""
    named: dict[str, Path] = {}
    for module, prefix in sorted(prefixes.items()):
        name = module.replace("/", "-")
        while name in named:
            name += "-"
        named[name] = prefix
    return named


def show_environments(yard: Yard, generation: GenerationPaths) -> None:
    """Create the link ``<yard>/envs`` once a generation with such names is published; anything else there is kept."""
    with suppress(OSError):  # what is published is not undone; the next publication tries again
        if disk.is_directory(generation.envs) and not os.path.lexists(yard.envs):
            within.symlink(yard.root, yard.envs, _CURRENT)
