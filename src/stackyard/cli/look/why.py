"""``stackyard why``: the chains of requirements that lead to a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import InputError
from stackyard.yard.api import RevisionPaths, record_of

if TYPE_CHECKING:
    from stackyard.lock.api import LockedVariant
    from stackyard.yard.api import BuildRecord


@verb(
    ("who requires libgcc in a published revision", "stackyard why pytorch/2.13 libgcc"),
    ("the same in a lock file", "stackyard why stack.yaml.lock libgcc"),
)
@click.argument("rev", metavar="REV")
@click.argument("package", metavar="PACKAGE")
@click.option("--json", "as_json", is_flag=True, help="Print a list of chains.")
def command(context: Context, rev: str, package: str, as_json: bool) -> None:
    """Show every chain of requirements from the stack's file to PACKAGE. REV can also be a lock file."""
    from stackyard.lock.api import requirement_chains

    chains: dict[str, list[list[str]]] = {}
    hint = ""
    for label, locked in _variants(context, rev).items():
        try:
            chains[label] = requirement_chains(locked, package)
        except InputError as error:  # not in this variant
            hint = error.hint or hint
    if not chains:
        raise InputError(f"{package} is not in {rev}", hint=hint)
    if as_json:
        show_json(next(iter(chains.values())) if len(chains) == 1 else chains)
        return
    for label, lines in chains.items():
        if len(chains) > 1:
            echo(click.style(label, bold=True))
        for chain in lines:
            echo(" <- ".join(reversed(chain)) if chain[1:] else f"{chain[0]}: requested by the stack's file")


def _variants(context: Context, rev: str) -> dict[str, LockedVariant]:
    """The locked variant of a revision, or all of a lock file, by a label."""
    from stackyard.lock.api import read_lock

    path = Path(rev)
    yard = context.yard(reading=True)
    variants = read_lock(path).variants if path.is_file() else _of_revision(record_of(yard, rev))
    return {f"{v.version}-{v.variant}".rstrip("-") + f" on {v.platform}": v for v in variants}


def _of_revision(record: BuildRecord) -> tuple[LockedVariant, ...]:
    """The locks of a revision; for an extension including those of its base."""
    from stackyard.lock.api import read_lock, with_base

    own = read_lock(RevisionPaths.of(record.path).lock).variants
    return tuple(with_base(variant, record.base) for variant in own)
