"""``stackyard sbom``: the software bill of materials of a revision."""

from __future__ import annotations

import json

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import emit, show_notice
from stackyard.yard.api import record_of


@verb(
    ("for a scanner of vulnerabilities", "stackyard sbom pytorch/2.13 > bom.json"),
    ("as SPDX 2.3", "stackyard sbom pytorch/2.13 --format spdx"),
)
@click.argument("rev", metavar="REV")
@click.option(
    "--format", "name", type=click.Choice(["cyclonedx", "spdx"]), default="cyclonedx", show_default=True,
    help="CycloneDX 1.6 or SPDX 2.3, both JSON.",
)  # fmt: skip
def command(context: Context, rev: str, name: str) -> None:
    """Print what REV consists of: every package with version, package URL, hashes, licence and dependencies.

    It is made of the record and the lock of the revision, without a network, and is the same each time. A document is
    about one variant on one platform. What is not known is in the document, and printed as notes.
    """
    from stackyard.deploy.api import BILL_FORMATS, bill_of

    bill = bill_of(record_of(context.yard(reading=True), rev))
    for note in bill.notes:
        show_notice(note)
    emit(json.dumps(BILL_FORMATS[name](bill), indent=2, ensure_ascii=False) + "\n")
