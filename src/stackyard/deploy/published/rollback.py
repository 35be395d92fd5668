"""Rollback: a new generation with the content of an older one. Nothing is deleted; loaded modules keep their files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from stackyard.core.errors import InputError, StackyardError
from stackyard.deploy import generation
from stackyard.deploy.entries import present
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.inputs.workspace import Workspace
from stackyard.yard.generation import generations
from stackyard.yard.generation.generations import Base
from stackyard.yard.generation.origin import Origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest, State


def target(yard: Yard, number: int | None) -> Manifest:
    """The generation to roll back to: `number`, or the last one with other content than the present one.

    Raises:
        InputError: no such generation, or no earlier one.
    """
    present = generations.current(yard)
    if present is None:
        raise InputError(f"nothing is published in {yard.root}", hint="publish with `stackyard deploy FILE`")
    if number is not None:
        return generations.read(yard, number)
    shown = generations.read(yard, present.content) if present.content else present
    if not shown.previous:
        raise InputError(
            f"cannot roll back: generation {shown.number} is the first one",
            hint="list all revisions with `stackyard list --all`",
        )
    return generations.read(yard, shown.previous)


def step_to(yard: Yard, to: Entry | Manifest, *, whole: bool = True) -> Callable[[Base], Step]:
    """The step to a revision or to a generation, as a function of the generation that is current when it is applied.

    Args:
        whole: refuse a step that would leave out a revision because its files no longer exist.
    """

    def step(base: Base) -> Step:
        step = back_to_revision(yard, base, to) if isinstance(to, Entry) else back_to(yard, base, to)
        if whole:
            require_all(step)
        return step

    return step


def back_to(yard: Yard, base: Base, to: Manifest) -> Step:
    """The step that shows users the content of generation `to` again.

    Revisions published since then are withdrawn: hidden, without alias or default, loadable by their full names. Later
    verification results are kept.
    """
    visible = {e.module for e in to.entries if e.is_visible}
    shown, now = last_shown(generations.readable(yard), visible), present(base.entries)
    then = {e.module: replace(e, state=shown[e.module].state) if e.is_visible else e for e in to.entries}
    since = {m: replace(e, state="withdrawn", pinned=False) for m, e in now.items() if m not in then and e.is_visible}
    return _step({**now, **since, **then}, f"rollback to {to.number}", to.content or to.number)


def back_to_revision(yard: Yard, base: Base, entry: Entry) -> Step:
    """The step that gives `entry` the short names of its stack again.

    Revisions of its stack that were first published later are withdrawn; others with higher precedence are superseded.

    Raises:
        InputError: `entry` was never published in this yard.
    """
    past = list(generations.readable(yard))
    first = _first_shown(past)
    if entry.module not in first:
        raise InputError(
            f"{entry.module} was never published in {yard.root}", hint="find its yard with `stackyard list --json`"
        )
    entries = present(base.entries)
    for e in [e for e in entries.values() if e.stack == entry.stack and e.is_visible]:
        later = first.get(e.module, 0) > first[entry.module]
        older = replace(e, state="withdrawn") if later else replace(e, superseded=True)
        entries[e.module] = replace(older, pinned=False)
    entries[entry.module] = replace(last_shown(past, {entry.module})[entry.module], superseded=False, pinned=False)
    return _step(entries, f"rollback to {entry.module}")


def again(base: Base, reason: str) -> Step:
    """The step that writes the modulefiles of the present publication again."""
    return _step(present(base.entries), reason, base.content)


def _step(entries: Mapping[str, Entry], reason: str, content: int = 0) -> Step:
    """The step for these entries, with their short names; entries without files become missing."""
    entries_now = list(present(entries.values()).values())
    missing = tuple(e for e in entries_now if e.state == "missing" and entries[e.module].is_visible)
    return Step(names.claim(entries_now), reason, content, missing)


def _first_shown(past: Iterable[Manifest]) -> dict[str, int]:
    """The number of the generation that first published each module. `past`: the newest first."""
    return {e.module: manifest.number for manifest in past for e in manifest.entries if e.is_visible}


def last_shown(past: Iterable[Manifest], modules: Collection[str]) -> dict[str, Entry]:
    """The entry of these modules in the last generation that published each, with its latest verification.

    Args:
        past: the generations, newest first; only as many as needed are read, usually one.
    """
    shown: dict[str, Entry] = {}
    for manifest in past:
        for e in manifest.entries:
            if e.is_visible and e.module in modules:
                shown.setdefault(e.module, e)
        if len(shown) == len(modules):
            break
    return shown


def require_all(step: Step) -> None:
    """Reject a step that would leave out a revision.

    Raises:
        StackyardError: the files of a revision no longer exist.
    """
    if step.missing:
        places = "\n".join(f"{e.module}: {RevisionPaths.of(e.folder).record} does not exist" for e in step.missing)
        raise StackyardError(
            f"cannot publish {', '.join(e.module for e in step.missing)}: its files no longer exist",
            detail=places,
            hint="deploy the file that it was built from, restore it, or publish the rest with --without-missing",
        )


def mark(workspace: Workspace, states: Mapping[str, State], made_by: Origin | None = None) -> list[str]:
    """Publish the results of verifications; returns the modules whose state changed.

    Args:
        states: the state of each verified module: published, or failed.
    """
    changed: list[str] = []

    def step(base: Base) -> Step:
        changed[:] = _changed(base.entries, states)
        entries = {e.module: replace(e, state=states[e.module]) if e.module in changed else e for e in base.entries}
        return _step(entries, _verdict(changed, states), base.content)

    if _changed(generations.entries(workspace.yard), states):
        publish(workspace, step, made_by)
    return changed


def _changed(entries: Iterable[Entry], states: Mapping[str, State]) -> list[str]:
    return [e.module for e in entries if e.is_visible and states.get(e.module, e.state) != e.state]


def _verdict(changed: Sequence[str], states: Mapping[str, State]) -> str:
    """The summary of verifications: ``verified a, b; failed c``."""
    words = {"verified": [m for m in changed if states[m] == "published"]}
    words["failed"] = [m for m in changed if states[m] != "published"]
    return "; ".join(f"{word} {', '.join(modules)}" for word, modules in words.items() if modules)


def publish(workspace: Workspace, step: Callable[[Base], Step], made_by: Origin | None = None) -> Manifest:
    """Publish a generation of verified revisions. The caller holds write access as by `writing.writing`."""
    with generation.draft(workspace, made_by) as draft:
        return draft.publish(step)


def only_from(number: int, step: Callable[[Base], Step]) -> Callable[[Base], Step]:
    """A step that applies only to generation `number`: publications since then were not examined.

    Raises:
        StackyardError: another generation is current.
    """

    def checked(base: Base) -> Step:
        if base.current and base.previous != number:
            by = f" by {base.current.origin.who}" if base.current.origin.user else ""
            raise StackyardError(
                f"generation {base.previous} was published{by} meanwhile: {base.current.reason}",
                hint="nothing was changed; look at `stackyard history` and roll back again",
            )
        return step(base)

    return checked
