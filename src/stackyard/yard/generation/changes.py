"""The visible changes of a generation: added and removed revisions, and changed defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from stackyard.core.late import dataclass
from stackyard.yard.revision.manifest import Entry

_WITHOUT = {"deprecated": "deprecated", "notice": "with a notice", "help": "with a help text",
            "category": "with a category", "url": "with a URL"}  # fmt: skip


@dataclass(frozen=True)
class Changes:
    """The difference between two generations, by full module names.

    Attributes:
        added: those that can now be loaded by a short name, and could not before.
        withdrawn: those that are hidden now; they still load by their full names.
        removed: those whose files are in the trash until `stackyard gc` deletes them.
        missing: those no longer published because their files do not exist.
        relabelled: changed labels of a published revision, one phrase each.
        defaults: by stack, the former and the new default; empty: none.
    """

    added: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    relabelled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def compare(before: Iterable[Entry], after: Iterable[Entry]) -> Changes:
    """The visible changes between two generations."""
    old, new = ({e.module: e for e in entries} for entries in (before, after))
    seen = {module for module, e in old.items() if e.is_visible}
    phrases = {m: tuple(_phrases(old[m], e)) for m, e in new.items() if m in seen and e.is_visible}
    lost = sorted(seen - {module for module, e in new.items() if e.is_visible})
    return Changes(
        added=tuple(module for module, e in new.items() if e.is_visible and module not in seen),
        withdrawn=tuple(m for m in lost if m in new and new[m].state == "withdrawn"),
        removed=tuple(m for m, e in new.items() if e.state == "removed" and _was(old.get(m)) != "removed"),
        missing=tuple(m for m in lost if m not in new or new[m].state == "missing"),
        relabelled={module: words for module, words in phrases.items() if words},
        defaults=_moved(_defaults(old.values()), _defaults(new.values())),
    )


def _was(entry: Entry | None) -> str:
    return entry.state if entry else ""


def _phrases(old: Entry, new: Entry) -> Iterator[str]:
    if old.state != new.state:
        yield {"published": "verified"}.get(new.state, new.state)
    if old.superseded != new.superseded:
        yield "superseded" if new.superseded else "the newest again"
    if old.hidden != new.hidden:
        yield "hidden" if new.hidden else "no longer hidden"
    if (old.retired, old.successor) != (new.retired, new.successor):
        use = f": use {new.successor}" if new.successor else ""
        yield f"retired from {new.retired}{use}" if new.retired else "no longer retired"
    for name, without in _WITHOUT.items():
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: {getattr(new, name)}" if getattr(new, name) else f"no longer {without}"


def _defaults(entries: Iterable[Entry]) -> dict[str, str]:
    return {e.stack: e.module for e in entries if e.default}


def _moved(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    stacks = sorted({*old, *new})
    return {s: (old.get(s, ""), new.get(s, "")) for s in stacks if old.get(s) != new.get(s)}
