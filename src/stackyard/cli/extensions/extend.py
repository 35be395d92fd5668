"""``stackyard extend``: packages of your own on top of a published revision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb


@verb(
    ("add a package to the loaded module, as a module of your own", "stackyard extend --name mine --pip 'einops>=0.8'"),
    (
        "add what a file lists to a revision that you name",
        "stackyard extend --base pytorch --name mine -r more.txt",
    ),
)
@click.option("--name", help="Name of the extension (default: the loaded one).")
@click.option("--base", help="Revision to extend (default: the one that is loaded).")
@click.option("--pip", multiple=True, metavar="REQUIREMENT", help="A pip requirement; several times for more.")
@click.option("--conda", multiple=True, metavar="SPEC", help="A conda package; several times for more.")
@click.option(
    "-r", "files", multiple=True, metavar="FILE", type=click.Path(path_type=Path),
    help="A requirements.txt or an environment.yml with more.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Build a full revision: packages of the base may change.")
@click.option("--accept-licence", "accept", multiple=True, metavar="NAME", help="Accept a licence under your name.")
@click.option("--dry-run", is_flag=True, help="Solve and print what would be built; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@catalogued
def command(context: Context, /, name: str | None, base: str | None, full: bool, **options: Any) -> None:
    """Create an extension of the loaded revision in your own yard, or add packages to one that exists.

    It is a layer: what its base has is used where it is, only what is new is installed. Its module does everything that
    the module of the base does.
    """
    from stackyard.cli.extensions.common import DeployOptions, carry_out
    from stackyard.upkeep.api import ExtensionRequest, checked_packages, chosen_extension, extended, new_extension_name

    yard = context.yard()
    request = checked_packages(ExtensionRequest(options.pop("pip"), options.pop("conda"), options.pop("files")))
    name = new_extension_name(name, yard) if name is not None else chosen_extension(yard, None)
    carry_out(context, name, extended(yard, name, base, request, full=full), DeployOptions(**options))
