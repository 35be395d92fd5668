"""``stackyard why``: the chains of requirements that brought a package in."""

from __future__ import annotations

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_json
from stackyard.errors import InputError
from stackyard.yard import catalogue
from stackyard.yard.layout import RevisionPaths


@click.command(short_help="why a package is in a revision")
@click.argument("rev", metavar="REV")
@click.argument("package", metavar="PACKAGE")
@click.option("--json", "as_json", is_flag=True, help="Print a list of chains.")
@click.pass_obj
def command(context: Context, rev: str, package: str, as_json: bool) -> None:
    """Show every chain from what the file asked for to PACKAGE."""
    from stackyard.lock.text import parse
    from stackyard.lock.why import chains

    yard = context.yard()
    entry = catalogue.resolve(yard, rev)
    path = RevisionPaths.of(entry.folder).lock
    lock = parse(path.read_text(encoding="utf-8"), str(path))
    found = chains(lock.variants[0], package)
    if not found:
        raise InputError(f"{package} is not in {entry.module}", hint=f"`stackyard show {rev}` lists its packages")
    if as_json:
        show_json(found)
        return
    for chain in found:
        click.echo(" <- ".join(reversed(chain)))
