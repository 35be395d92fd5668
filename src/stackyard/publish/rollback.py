"""Going back: a new generation with an older one's content. Nothing is deleted, and no loaded module loses its file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stackyard.errors import InputError
from stackyard.expose.generation import write_modules
from stackyard.publish import names
from stackyard.publish.deploy import now
from stackyard.spec.models import Site
from stackyard.yard import generations, revisions
from stackyard.yard.layout import Yard
from stackyard.yard.record import Entry, Manifest


def target(yard: Yard, number: int | None) -> Manifest:
    """The generation to go back to: `number`, or the one whose content users saw before the present content.

    Raises:
        InputError: there is no such generation, or nothing to go back to.
    """
    past = generations.history(yard)
    if not past:
        raise InputError(f"nothing was published in {yard.root}", hint="`stackyard deploy FILE` publishes")
    if number is not None:
        found = next((m for m in past if m.number == number), None)
        if found is None:
            known = ", ".join(str(m.number) for m in past)
            raise InputError(f"there is no generation {number}", hint=f"there are {known}")
        return found
    content = past[-1].content or past[-1].number
    earlier = [m for m in past if (m.content or m.number) < content]
    if not earlier:
        raise InputError(
            f"generation {past[-1].number} is the first one: there is nothing before it to go back to",
            hint="`stackyard list --all` shows what there is",
        )
    return earlier[-1]


def rollback(yard: Yard, site: Site, to: Manifest) -> Manifest:
    """Make users see again what they saw in generation `to`. The caller holds the yard's lease.

    Revisions published since are kept, withdrawn: hidden, without alias or default, loadable by their full names.
    """
    then = {e.module: e for e in to.entries}
    present = generations.current(yard)
    everything = {**{e.module: e for e in present.entries}, **then} if present else then
    entries = [then.get(module, replace(entry, state="withdrawn")) for module, entry in everything.items()]
    return publish_entries(yard, site, entries, f"rollback to {to.number}", to.content or to.number)


def withdraw_newer(yard: Yard, site: Site, entry: Entry) -> Manifest:
    """Make `entry` what the short names of its stack mean again: every revision created after it is withdrawn."""
    present = generations.current(yard)
    if present is None:
        raise InputError(f"nothing was published in {yard.root}")
    entries = [
        replace(e, state="withdrawn") if e.stack == entry.stack and _after(e, entry) else e for e in present.entries
    ]
    entries = [replace(e, state="published") if e.module == entry.module else e for e in entries]
    return publish_entries(yard, site, entries, f"rollback to {entry.module}", 0)


def _after(one: Entry, other: Entry) -> bool:
    return one.module != other.module and (one.created, one.revision) > (other.created, other.revision)


def publish_entries(yard: Yard, site: Site, entries: Sequence[Entry], reason: str, content: int) -> Manifest:
    """Publish a generation with these entries; every revision was verified before. The caller holds the lease."""
    claimed = names.claim(entries)
    folder = generations.begin(yard)
    records = {record.module: record for record in revisions.built(yard)}
    write_modules(folder / "modules", claimed, records, site, yard)
    return generations.flip(yard, folder, now(), reason, claimed, content)
