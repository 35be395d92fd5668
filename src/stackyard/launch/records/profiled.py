"""Whether a run was profiled: its times are then those of the profiler too, and no measurement.

A profiler that was asked for is in the request; one that was started while the run was running left its directory.
Imports the standard library only, so that listing runs is fast.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

from stackyard.core.quoting import plain
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord

MOST = 20
"""Profilers that are named."""


def profiled(paths: RunPaths, record: RunRecord) -> tuple[str, ...]:
    """The names of the profilers that ran, sorted; empty for a run that may be measured."""
    parts = [record.intent, *(record.intent.get("roles") or {}).values()]
    names = {str(spec).partition(":")[0] for part in parts for spec in part.get("profile") or ()}
    with suppress(OSError), os.scandir(paths.main.profile) as entries:
        names |= {entry.name for entry in islice(entries, MOST) if entry.is_dir(follow_symlinks=False)}
    return tuple(plain(name, 40) for name in sorted(names)[:MOST])
