"""Rollback: a new generation with the content of an older one. Nothing is deleted; loaded modules keep their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from stackyard.errors import InputError
from stackyard.publish import generation, names
from stackyard.spec.models import Site
from stackyard.yard import generations
from stackyard.yard.layout import Yard
from stackyard.yard.record import Entry, Manifest


def target(yard: Yard, number: int | None) -> Manifest:
    """The generation to roll back to: `number`, or the one whose content was current before the present content.

    Raises:
        InputError: no such generation, or no earlier one.
    """
    past = generations.history(yard)
    if not past:
        raise InputError(f"nothing is published in {yard.root}", hint="publish with `stackyard deploy FILE`")
    if number is not None:
        found = next((m for m in past if m.number == number), None)
        if found is None:
            known = ", ".join(str(m.number) for m in past)
            raise InputError(f"no such generation: {number}", hint=f"choose one of {known}")
        return found
    content = past[-1].content or past[-1].number
    earlier = [m for m in past if (m.content or m.number) < content]
    if not earlier:
        raise InputError(
            f"cannot roll back: generation {past[-1].number} is the first one",
            hint="list all revisions with `stackyard list --all`",
        )
    return earlier[-1]


@dataclass(frozen=True)
class Step:
    """A generation to publish: its entries, the reason, and the number of the generation whose content it repeats."""

    entries: tuple[Entry, ...]
    reason: str
    content: int = 0


def back_to(yard: Yard, to: Manifest) -> Step:
    """The step that shows users the content of generation `to` again.

    Revisions published since then are withdrawn: hidden, without alias or default, loadable by their full names.
    """
    then = {e.module: e for e in to.entries}
    current = generations.current(yard)
    everything = {**{e.module: e for e in current.entries}, **then} if current else then
    entries = [then.get(module, replace(entry, state="withdrawn")) for module, entry in everything.items()]
    return Step(_claimed(entries), f"rollback to {to.number}", to.content or to.number)


def back_to_revision(yard: Yard, entry: Entry) -> Step:
    """The step that gives `entry` the short names of its stack again: every revision created after it is withdrawn.

    Raises:
        InputError: `entry` was never published in this yard.
    """
    past = generations.history(yard)
    state = next((e.state for m in reversed(past) for e in m.entries if _is(e, entry)), None)
    if state is None:
        raise InputError(
            f"{entry.module} was never published in {yard.root}", hint="find its yard with `stackyard list --json`"
        )
    entries = {
        e.module: replace(e, state="withdrawn") if e.stack == entry.stack and _after(e, entry) else e
        for e in past[-1].entries
    }
    entries[entry.module] = replace(entries.get(entry.module, entry), state=state)
    return Step(_claimed(entries.values()), f"rollback to {entry.module}")


def _is(one: Entry, other: Entry) -> bool:
    """Whether an entry shows this revision to users."""
    return one.module == other.module and one.state != "withdrawn"


def _after(one: Entry, other: Entry) -> bool:
    return one.module != other.module and (one.created, one.revision) > (other.created, other.revision)


def mark_verified(yard: Yard, site: Site, modules: Collection[str]) -> list[str]:
    """Publish as verified those of these modules that were published unverified; returns them."""
    manifest = generations.current(yard)
    entries = manifest.entries if manifest else ()
    found = [e.module for e in entries if e.module in modules and e.state == "unverified"]
    if found:
        changed = [replace(e, state="published") if e.module in found else e for e in entries]
        publish(yard, site, Step(_claimed(changed), f"verified {', '.join(found)}"))
    return found


def publish(yard: Yard, site: Site, step: Step) -> Manifest:
    """Publish a generation of revisions that were verified before. The caller holds the lease (`writing.writing`)."""
    with generation.draft(yard, site) as draft:
        draft.write(step.entries)
        return draft.flip(step.reason, step.content)


def _claimed(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries whose directories exist, with their short names."""
    return names.claim(e for e in entries if Path(e.folder).exists())
