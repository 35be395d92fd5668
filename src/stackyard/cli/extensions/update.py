"""``stackyard update``: records additional packages of an extension, or removes them."""

from __future__ import annotations

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.yard.api import Yard


@verb(
    ("record what you installed with pip in the loaded extension", "stackyard update"),
    ("remove it instead", "stackyard update --reset mine"),
)
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--reset", is_flag=True, help="Remove what was installed since, instead of recording it.")
@click.option("--renew", is_flag=True, help="Solve anew: the newest versions that the requirements allow.")
@click.option("--accept-licence", "accept", multiple=True, metavar="NAME", help="Accept a licence under your name.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@catalogued
def command(
    context: Context, name: str | None, reset: bool, renew: bool, accept: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Take what was installed in an extension with pip, and changes of its files, into a new revision.

    NAME is the loaded one by default. A revision never changes: load the module again to use the new one.
    """
    from stackyard.cli.extensions.common import DeployOptions, carry_out
    from stackyard.upkeep.api import (
        ExtensionFiles,
        ExtensionRequest,
        chosen_extension,
        drifted,
        used_extension,
        with_more_packages,
    )

    yard = context.yard()
    name = chosen_extension(yard, name)
    if reset:
        _reset(yard, name, dry_run, as_json)
        return
    lines = tuple(distribution.line for distribution in drifted(used_extension(yard, name)) if distribution.requested)

    def change(files: ExtensionFiles) -> ExtensionFiles:
        return with_more_packages(files, ExtensionRequest(lines)) if lines else files

    carry_out(context, name, change, DeployOptions(dry_run, as_json, accept, renew))


def _reset(yard: Yard, name: str, dry_run: bool, as_json: bool) -> None:
    from stackyard.upkeep.api import drifted, reset_to_record, used_extension

    record = used_extension(yard, name)
    gone = drifted(record) if dry_run else reset_to_record(record)
    if as_json:
        show_json(
            {"module": record.module, "dry_run": dry_run, "removed": [distribution.shown for distribution in gone]}
        )
        return
    if not gone:
        echo(f"{record.module} is as recorded")
    for item in gone:
        echo(f"{'would remove' if dry_run else 'removed'} {item.name} {item.version} from {record.module}")
