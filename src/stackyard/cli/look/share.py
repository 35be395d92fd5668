"""``stackyard share``: makes one of your revisions available to the members of a group."""

from __future__ import annotations

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import InputError
from stackyard.inputs.api import Workspace
from stackyard.yard.api import find_revision


@verb(
    ("let a group load an extension", "stackyard share mine --with group:astro"),
    ("also every revision that is deployed of it later", "stackyard share mine --with group:astro --later"),
    ("take it back, and share no later one", "stackyard share mine --with group:astro --undo"),
)
@click.argument("rev", metavar="REV")
@click.option("--with", "given", required=True, metavar="group:NAME", help="Who may load it.")
@click.option(
    "--later", is_flag=True, help="Also what is deployed or pulled of its stack later, as soon as it is published."
)
@click.option("--undo", is_flag=True, help="They may not load it any more, and get no later one.")
@click.option("--dry-run", is_flag=True, help="Print what would be shared; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(context: Context, rev: str, given: str, later: bool, undo: bool, dry_run: bool, as_json: bool) -> None:
    """Let the members of a group load REV, and print what they type.

    They read it and cannot change it; what it runs on in your yard, its base or an interpreter, they read too. A later
    revision is shared by the same command again, or with --later by the deploy or pull that publishes it. A shell that
    has loaded it unloads it before --undo.

    This is for one stack at a time. To open a whole yard, with all that is in it and will be: chgrp -R NAME YARD, chmod
    -R g+rX YARD, and find YARD -type d -exec chmod g+s {} +.
    """
    from stackyard.deploy.api import (
        SharingGroup,
        end_sharing_later,
        require_shareable,
        share,
        share_later,
        shared_modules,
        shut_out_group,
        stacks_shared_later,
        unshare,
    )

    yard = context.yard()
    entry = find_revision(yard, rev)
    group = SharingGroup.named(given)
    if undo and later:
        raise InputError("--later and --undo exclude each other", hint="--undo shares no later revision either")
    if undo:
        ended = entry.stack in stacks_shared_later(yard, group.name) if dry_run else None
        ended = end_sharing_later(yard, group, entry.stack) if ended is None else ended
        if entry.module in shared_modules(yard, group.name) or not ended:
            unshare(Workspace(context.site(), yard), entry, group, dry_run=dry_run)
    elif dry_run:
        require_shareable(yard, entry, group)
    else:
        before = shut_out_group(yard, group)
        share(Workspace(context.site(), yard), entry, group)
        if later:
            share_later(yard, group, entry.stack)
        if before:
            show_notice(f"members of the group {before} cannot look into {yard.root} any more")
    directory = yard.shared(group.name)
    if as_json:
        words = {"module": entry.module, "group": group.name, "modules": str(directory)}
        show_json({**words, "undo": undo, "later": later, "dry_run": dry_run})
    elif undo:
        echo(f"{'would take' if dry_run else 'took'} back {entry.module} from the group {group.name}")
    else:
        echo(f"{'would share' if dry_run else 'shared'} {entry.module} with the group {group.name}; they type:")
        echo(f"    module use {directory} && module load {entry.module}")
