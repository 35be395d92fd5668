"""``stackyard image build``, and what it shares with ``image push``: a revision in another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.output import human_bytes, show_json
from stackyard.errors import InputError
from stackyard.yard import catalogue

if TYPE_CHECKING:
    from stackyard.image.oci.build import Built, Wanted
    from stackyard.image.oci.layout import Reference
    from stackyard.yard.record import BuildRecord


@dataclass(frozen=True)
class Asked:
    """What the command line asks for: the base, the file or directory to write, and the prefix in the image."""

    base: str
    output: Path
    name: str
    prefix: str
    dry_run: bool
    as_json: bool


def oci(context: Context, record: BuildRecord, asked: Asked) -> None:
    """Write an OCI layout."""
    from stackyard.image.oci.build import build, name_of
    from stackyard.image.oci.layout import Reference

    target = Reference(asked.output, asked.name or name_of(record))
    wanted = wanted_of(context, record, asked.base, target, asked.prefix)
    if asked.dry_run:
        base = wanted.base or "no base"
        click.echo(f"{record.module} at {wanted.place} on {base}, in layers by package, to {wanted.target}")
        return
    show(build(wanted), asked.as_json)


FORMATS: Mapping[str, Callable[[Context, BuildRecord, Asked], None]] = {"oci": oci}
"""What `image build` makes, by the name of the format."""


@click.command(
    "build",
    cls=Verb,
    short_help="a revision as an image for other machines",
    examples=(
        ("in layers on a base, for registries, podman, Apptainer and Charliecloud",
         "stackyard image build pytorch/2.13 --format oci --base oci:debian -o images"),
        ("without a base: the prefix alone",
         "stackyard image build pytorch/2.13 --format oci --base scratch -o images"),
    ),
)  # fmt: skip
@click.argument("rev", metavar="REV")
@click.option("--format", "kind", type=click.Choice(sorted(FORMATS)), required=True, help="What to make.")
@click.option("--base", required=True, metavar="BASE", help="The image below: oci:DIR[:NAME], or scratch for none.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The layout: a directory, new or not."
)
@click.option("--name", default="", help="Name of the image in the layout (default: that of the module).")
@click.option("--prefix", default="", metavar="PATH", help="Where the stack is in it (default: /opt/stackyard/STACK).")
@click.option("--dry-run", is_flag=True, help="Say what would be made; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    context: Context, rev: str, kind: str, base: str, output: Path, name: str, prefix: str, dry_run: bool, as_json: bool
) -> None:
    """Build an image of REV that needs neither this yard nor its path.

    The prefix is at a path that all revisions of the stack share, so that equal packages are equal layers: a registry
    and a node keep each once.
    """
    record = catalogue.record_of(context.yard(), rev)
    FORMATS[kind](context, record, Asked(base, output, name, prefix, dry_run, as_json))


def wanted_of(context: Context, record: BuildRecord, base: str, target: Reference, prefix: str) -> Wanted:
    """What to build for these options.

    Raises:
        InputError: the base is not one.
    """
    from stackyard.expose.published import change_of
    from stackyard.image.oci.base import SCRATCH
    from stackyard.image.oci.build import Wanted
    from stackyard.image.oci.layout import is_reference, reference, tag

    if base != SCRATCH and not is_reference(base):
        raise InputError(f"not a base: {base}", hint="oci:DIR[:NAME]; `stackyard image pull SOURCE -o DIR` fetches one")
    tag(target.name)
    below = None if base == SCRATCH else reference(base)
    return Wanted(record, change_of(record, context.site), below, target, prefix)


def show(built: Built, as_json: bool) -> None:
    """What was built."""
    value: dict[str, Any] = {**asdict(built), "reference": str(built.reference)}
    if as_json:
        show_json(value)
        return
    click.echo(f"{built.reference}: {built.layers} layers, {built.digest}")
    click.echo(f"  {human_bytes(built.bytes)} of the stack, {human_bytes(built.bytes_new)} of these new in this layout")
    for notice in built.notices:
        click.echo(f"  note: {notice}")
