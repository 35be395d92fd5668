"""What users see: numbered generations, and one symbolic link that names the current one.

A generation is written completely beside the current one, verified, and becomes current by one `os.replace` of the link
``<yard>/modules``. Numbers only grow: a rollback is a new generation with the content of an old one, in which later
revisions stay, hidden, so that a shell that loaded one can still unload it.
"""

from __future__ import annotations

import shutil

from stackyard.yard import atomic
from stackyard.yard.layout import GenerationPaths, Yard
from stackyard.yard.record import Entry, Manifest, read_manifest


def current_number(yard: Yard) -> int:
    """The number of the current generation, 0 if nothing was ever published."""
    try:
        return int(yard.modules.readlink().parent.name)
    except (OSError, ValueError):
        return 0


def current(yard: Yard) -> Manifest | None:
    """The current generation's manifest, or None if nothing was ever published."""
    number = current_number(yard)
    return read_manifest(yard.generation(number).manifest) if number else None


def history(yard: Yard) -> list[Manifest]:
    """All generations up to the current one, oldest first."""
    last = current_number(yard)
    past = (yard.generation(n).manifest for n in sorted(_numbers(yard)) if n <= last)
    return [read_manifest(path) for path in past if path.exists()]


def begin(yard: Yard) -> GenerationPaths:
    """An empty directory for the next generation; what an interrupted deploy left behind is removed first."""
    last = current_number(yard)
    for number in _numbers(yard):
        if number > last:
            shutil.rmtree(yard.generation(number).root)
    made = yard.generation(last + 1)
    made.root.mkdir(parents=True)
    return made


def flip(
    yard: Yard, made: GenerationPaths, created: str, reason: str, entries: tuple[Entry, ...], content: int = 0
) -> Manifest:
    """Make a written generation the current one. Everything before the last line can be interrupted without a trace."""
    manifest = Manifest(made.number, created, reason, entries, content)
    atomic.write_json(made.manifest, manifest.to_json())
    atomic.fault_point("before-flip")
    atomic.replace_symlink(yard.modules, str(made.modules.relative_to(yard.root)))
    atomic.fault_point("after-flip")
    return manifest


def _numbers(yard: Yard) -> list[int]:
    if not yard.generations.is_dir():
        return []
    return [int(child.name) for child in yard.generations.iterdir() if child.name.isdigit()]
