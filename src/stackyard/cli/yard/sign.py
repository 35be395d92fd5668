"""``stackyard sign``: signs revisions that are built already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import InputError
from stackyard.inputs.api import Workspace
from stackyard.yard.api import (
    Entry,
    RevisionPaths,
    Yard,
    current_entries,
    find_revision,
    signature_demand,
    signatures_of,
)


@verb(
    ("a revision that was built before the site had a key", "stackyard sign pytorch/2.13"),
    ("all revisions, with another key, before the present one expires", "stackyard sign --all --key ~/.ssh/new.pub"),
)
@click.argument("revs", nargs=-1, metavar="[REV]...")
@click.option("--all", "everything", is_flag=True, help="Every published revision of this yard.")
@click.option("--key", default="", metavar="FILE", help="A private key, or a public one of an ssh-agent.")
@click.option("--dry-run", is_flag=True, help="Print who has signed what; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def command(context: Context, revs: tuple[str, ...], everything: bool, key: str, dry_run: bool, as_json: bool) -> None:
    """Sign REV with the site's key, that of $STACKYARD_SIGN_KEY, or --key, by ssh-keygen: record, files, operations.

    Files are compared with the record first, a sample of their bytes; `stackyard verify --deep REV` reads them all.
    A signature of another key stays. `deploy` and `extend` sign what they build where a key is named.
    """
    if bool(revs) == everything:
        raise InputError("name revisions, or --all", hint="`stackyard list --signed` shows who signed what")
    yard = context.yard()
    entries = _all(yard) if everything else [_own(yard, find_revision(yard, rev)) for rev in revs]
    rows = _rows(entries, yard) if dry_run else _signed(context, yard, entries, key)
    if as_json:
        show_json(rows)
        return
    for row in rows:
        echo(f"{row['module']}: {'; '.join(row['signatures']) or 'no signature'}")


def _all(yard: Yard) -> list[Entry]:
    return [entry for entry in current_entries(yard) if entry.state not in ("removed", "missing")]


def _own(yard: Yard, entry: Entry) -> Entry:
    if not Path(entry.folder).is_relative_to(yard.root):
        root = RevisionPaths.of(entry.folder).yard
        raise InputError(f"{entry.module} is in another yard: {root}",
                         hint=f"its staff signs it: `stackyard --yard {root} sign {entry.module}`")  # fmt: skip
    return entry


def _signed(context: Context, yard: Yard, entries: Sequence[Entry], named: str) -> list[dict[str, Any]]:
    """Sign the revisions, and publish those again whose modules refused to be loaded."""
    from stackyard.deploy.api import NAME_A_KEY, republish_signed, signing_key, writing
    from stackyard.upkeep.api import sign_again
    from stackyard.yard.api import origin

    workspace = Workspace(context.site(), yard)
    key = signing_key(workspace, named)
    if key is None:
        raise InputError("cannot sign: no key is named", hint=NAME_A_KEY)
    with writing(workspace):
        for entry in entries:
            sign_again(entry, workspace, key)
        republish_signed(workspace, origin(context.command))
    return _rows(entries, yard)


def _rows(entries: Sequence[Entry], yard: Yard) -> list[dict[str, Any]]:
    demand = signature_demand(yard)
    pairs = ((entry, signatures_of(RevisionPaths.of(entry.folder), demand)) for entry in entries)
    return [
        {"module": entry.module, "signatures": [str(signature) for signature in several]} for entry, several in pairs
    ]
