"""Traces the files that a start of the stack reads, in order: an image packed in this order is read in fewer pieces.

The trace imports the packages that the stack requests. The record keeps the list, so that the same lock gives the same
image wherever it is packed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from stackyard.core.names import canonical
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import CommandError, run
from stackyard.host.run.view import view_of
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

TRACE_S = 120.0
_TRACE = """\
import importlib, json, os, re, sys
from importlib import metadata
prefix, names = sys.argv[1] + os.sep, set(sys.argv[2:])
seen = []
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
found = metadata.packages_distributions().items()
owned = sorted(top for top, owners in found if names.intersection(map(plain, owners)))
sys.addaudithook(lambda event, words: event == "open" and isinstance(words[0], str) and seen.append(words[0]))
for top in owned:
    if top.isidentifier() and not top.startswith("_"):
        try:
            importlib.import_module(top)
        except BaseException:
            pass
with open("/proc/self/maps") as maps:
    mapped = {line.split(None, 5)[5].strip() for line in maps if "/" in line}
paths = [sys.executable, *seen, *sorted(mapped)]
print("order:" + json.dumps([path[len(prefix):] for path in dict.fromkeys(paths) if path.startswith(prefix)]))
"""


def traced(record: BuildRecord, requested: Iterable[str]) -> tuple[str, ...]:
    """The files that the packages' imports open, relative to the prefix; empty if the trace fails.

    Args:
        requested: names of distributions to import; others are imported by these, or not at the start.
    """
    python = record.payload.python
    if not python.exists():
        return ()
    with scratch("order") as work:
        environ = {**record.activation.change.apply(os.environ), "HOME": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
        names = sorted({canonical(name) for name in requested})
        words: list[str | Path] = [python, "-I", "-c", _TRACE, record.prefix, *names]
        try:
            view, _ = view_of([RevisionPaths.of(record.path).yard], [work])
            done = run(words, env=environ, cwd=work, timeout_s=TRACE_S, check=False, view=view)
        except CommandError:
            return ()
    said = next((line for line in done.stdout.splitlines() if line.startswith("order:")), "order:[]")
    order = json.loads(said.removeprefix("order:"))
    return tuple(name for name in order if (Path(record.prefix) / name).is_file())
