"""Shares future revisions of a stack with a group, as soon as they are published.

    <yard>/shared/<group>/later/<stack>.json    the start date; earlier revisions are shared one by one

A deploy or a pull shares them after publication (`share_new`). If that fails or is killed, the next one does it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from stackyard.core.errors import InputError, StackyardError
from stackyard.deploy.published.share import Group, groups, modules_of, share
from stackyard.host.files import at
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import now
from stackyard.yard.write import atomic, within

NEW = ("published", "unverified")
"""What a deploy or a pull says of a revision that users could not load before."""


def begin(yard: Yard, group: Group, stack: str) -> None:
    """Share future revisions of a stack with a group, whose directory exists (`share`)."""
    mark = yard.shared_later(group.name, stack)
    if not disk.is_there(mark):
        with at.parent(yard.root, mark.parent) as (directory, name), suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=directory)
        atomic.write_text(mark, json.dumps({"since": now()}) + "\n", mode=0o600, top=yard.root)


def end(yard: Yard, group: Group, stack: str) -> bool:
    """Stop sharing future revisions of a stack; whether they were shared."""
    mark = yard.shared_later(group.name, stack)
    was_so = disk.is_there(mark)
    within.unlink(yard.root, mark)
    if was_so and not (stacks(yard, group.name) or modules_of(yard, group.name)):
        disk.remove_tree(yard.shared(group.name).parent, yard.root)
    return was_so


def stacks(yard: Yard, group: str) -> Mapping[str, str]:
    """The stacks whose future revisions a group gets, each with the start date; unreadable ones are left out."""
    names = {}
    for file in disk.entries(yard.shared_later(group, "x").parent):
        try:
            if file.suffix == ".json" and not file.name.startswith("."):
                names[file.stem] = str(json.loads(at.read_regular(file))["since"])
        except (ValueError, KeyError, TypeError):
            continue
    return names


def share_new(workspace: Workspace, new: Collection[str] = ()) -> Iterator[str]:
    """Share the revisions of these stacks published since; a sentence for each success or failure.

    Args:
        new: the modules published now, regardless of the clock of the host that built them.
    """
    yard = workspace.yard
    for name in groups(yard):
        since = stacks(yard, name)
        shared = modules_of(yard, name) if since else ()
        for entry in generations.entries(yard) if since else ():
            is_new = entry.created >= since.get(entry.stack, "~") or (entry.module in new and entry.stack in since)
            if entry.is_visible and entry.module not in shared and is_new:
                yield _share(workspace, entry, name)


def _share(workspace: Workspace, entry: Entry, group: str) -> str:
    try:
        share(workspace, entry, Group.named(f"group:{group}"))
        return f"{entry.module} is shared with the group {group}"
    except (InputError, StackyardError) as error:
        why = "; ".join(filter(None, (error.message, error.hint)))
        return f"{entry.module} is not shared with the group {group}: {why}"
