"""``stackyard schema``: JSON Schema for editors."""

from __future__ import annotations

from typing import Literal

import click

from stackyard.cli.help import Verb
from stackyard.cli.output import show_json

EXAMPLES = (
    ("for the YAML plugin of an editor", "stackyard schema stack > stack.schema.json"),
    ("the same for site descriptions", "stackyard schema site > site.schema.json"),
)


@click.command(cls=Verb, examples=EXAMPLES)
@click.argument("kind", type=click.Choice(("stack", "site")))
def command(kind: Literal["stack", "site"]) -> None:
    """Print the JSON Schema of a stack.yaml or a site.yaml."""
    from stackyard.inputs.api import input_schema

    show_json(input_schema(kind))
