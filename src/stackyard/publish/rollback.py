"""Going back: a new generation with an older one's content. Nothing is deleted, and no loaded module loses its file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from stackyard.errors import InputError
from stackyard.expose.generation import write_modules
from stackyard.expose.root import check_root, make_root
from stackyard.publish import names
from stackyard.publish.entries import now
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


@dataclass(frozen=True)
class Step:
    """A generation that could be published: its entries, why, and the number of the one whose content it repeats."""

    entries: tuple[Entry, ...]
    reason: str
    content: int = 0


def back_to(yard: Yard, to: Manifest) -> Step:
    """What makes users see again what they saw in generation `to`.

    Revisions published since are kept, withdrawn: hidden, without alias or default, loadable by their full names.
    """
    then = {e.module: e for e in to.entries}
    current = generations.current(yard)
    everything = {**{e.module: e for e in current.entries}, **then} if current else then
    entries = [then.get(module, replace(entry, state="withdrawn")) for module, entry in everything.items()]
    return Step(_claimed(entries), f"rollback to {to.number}", to.content or to.number)


def back_to_revision(yard: Yard, entry: Entry) -> Step:
    """What makes `entry` mean the short names of its stack again: every revision created after it is withdrawn.

    Raises:
        InputError: `entry` was never published in this yard.
    """
    past = generations.history(yard)
    state = next((e.state for m in reversed(past) for e in m.entries if _is(e, entry)), None)
    if state is None:
        raise InputError(
            f"{entry.module} was never published in {yard.root}", hint="`stackyard list` shows which yard has it"
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
    """Publish those of these revisions as verified that were published unverified; which ones they are."""
    manifest = generations.current(yard)
    entries = manifest.entries if manifest else ()
    found = [e.module for e in entries if e.module in modules and e.state == "unverified"]
    if found:
        changed = [replace(e, state="published") if e.module in found else e for e in entries]
        publish(yard, site, Step(_claimed(changed), f"verified {', '.join(found)}"))
    return found


def publish(yard: Yard, site: Site, step: Step) -> Manifest:
    """Publish a generation of revisions that were verified before. The caller holds the lease (`writing.writing`)."""
    check_root(yard, site)
    folder = generations.begin(yard)
    records = {record.module: record for record in revisions.built(yard)}
    write_modules(folder.modules, step.entries, records, site, yard)
    manifest = generations.flip(yard, folder, now(), step.reason, step.entries, step.content)
    make_root(yard, site)
    return manifest


def _claimed(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries whose files are still there, with their short names."""
    return names.claim(e for e in entries if Path(e.folder).exists())
