"""The publication state of a revision: default of its stack, withdrawn, retired. Each change is a new generation.

Nothing here touches the files of a revision. A step that changes nothing publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

from stackyard.core.errors import InputError
from stackyard.deploy.entries import present
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.deploy.published.rollback import last_shown
from stackyard.yard.generation import generations
from stackyard.yard.generation.generations import Base
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Entry

Make = Callable[[Base], Step]


def default(yard: Yard, module: str, *, undo: bool = False) -> Make:
    """Make a revision the default of its stack until another one is set; a withdrawn one is shown again.

    Args:
        undo: make the highest version the default again.
    """

    def step(base: Base) -> Step:
        entries, entry = _own(yard, base, module)
        stack = [e for e in entries.values() if e.stack == entry.stack]
        if not undo:
            entries[module] = replace(_shown(yard, entry), pinned=True, hidden=False)
        for other in stack:
            if other.module != module or undo:
                entries[other.module] = replace(other, pinned=False)
        return _step(entries, f"default of {entry.stack} as released" if undo else f"default {module}")

    return step


def withdraw(yard: Yard, module: str, *, undo: bool = False) -> Make:
    """Hide a revision, without alias and default; it loads by its full name. `undo` shows it again."""

    def step(base: Base) -> Step:
        entries, entry = _own(yard, base, module)
        if undo:
            entries[module] = _shown(yard, entry)
            return _step(entries, f"show {module} again")
        if entry.is_visible:
            entries[module] = replace(entry, state="withdrawn", pinned=False)
        return _step(entries, f"withdraw {module}")

    return step


def retire(yard: Yard, module: str, on: date | None, use: str = "") -> Make:
    """From a date on, warn users who load a revision; `on` of None cancels that.

    Args:
        use: the module that the warning names.

    Raises:
        InputError: `use` is the revision itself.
    """
    if use == module:
        raise InputError(f"cannot retire {module} in favour of itself", hint="name another module with --use")

    def step(base: Base) -> Step:
        entries, entry = _own(yard, base, module)
        if on is None:
            entries[module] = replace(entry, retired="", successor="")
            return _step(entries, f"{module} is not retired")
        entries[module] = replace(entry, retired=on.isoformat(), successor=use)
        return _step(entries, f"retire {module} on {on.isoformat()}")

    return step


def changes_something(base: Base, step: Step) -> bool:
    """Whether a step changes anything for users or for the next collection."""
    return {e.module: e for e in base.entries} != {e.module: e for e in step.entries}


def _own(yard: Yard, base: Base, module: str) -> tuple[dict[str, Entry], Entry]:
    """All entries, and that of the module.

    Raises:
        InputError: this yard does not publish the module, or its files were removed.
    """
    entries = present(base.entries)
    if module not in entries:
        raise InputError(
            f"{module} was never published in {yard.root}", hint="find its yard with `stackyard list --json`"
        )
    entry = entries[module]
    if entry.state in ("removed", "missing"):
        hint = f"bring it back: `stackyard remove {module} --undo`" if entry.state == "removed" else None
        raise InputError(f"cannot change {module}: its files were removed", hint=hint or "deploy its file again")
    return entries, entry


def _shown(yard: Yard, entry: Entry) -> Entry:
    """A revision's entry as last visible to users."""
    if entry.is_visible:
        return entry
    shown = last_shown(generations.readable(yard), {entry.module})
    state = shown[entry.module].state if entry.module in shown else "published"
    return replace(entry, state=state)


def _step(entries: Mapping[str, Entry], reason: str) -> Step:
    return Step(names.claim(entries.values()), reason)
