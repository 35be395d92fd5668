"""``stackyard catalogue``: a site, Markdown pages or JSON with everything that is published."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.findings import counted


@verb(
    ("a site to open in a browser or to put on a web server", "stackyard catalogue -o /srv/www/software"),
    ("pages for the site's own documentation", "stackyard catalogue -o docs/software --format markdown"),
    ("the software as EESSI lists it, for programs", "stackyard catalogue -o public --format json"),
)
@click.option("-o", "directory", type=click.Path(path_type=Path), required=True, metavar="DIR",
              help="Directory: new, empty, or with the former catalogue.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["site", "markdown", "json"]), default="site", show_default=True,
              help="What is written.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print which files would change; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(context: Context, directory: Path, form: str, dry_run: bool, as_json: bool) -> None:
    """Write what the yard has published: stacks, versions, packages, licences, checks, changes, end dates.

    The site works without a server, without JavaScript but for its search, and asks for nothing from elsewhere. Only
    files that changed are written. Of yards with a parent it is the parent's: users' own yards and extensions are in
    no catalogue. `catalogue:` of site.yaml writes it after each deploy, retire, remove and gc.
    """
    from stackyard.catalogue.api import write_catalogue
    from stackyard.inputs.api import Workspace

    workspace = Workspace(context.site(), context.yard(reading=True))
    done = write_catalogue(workspace, directory, form, show_notice, dry_run=dry_run)
    if as_json:
        show_json({"dry_run": dry_run, **asdict(done)})
        return
    if dry_run:
        for word, paths in (("would write", done.written), ("would remove", done.removed)):
            for path in paths:
                echo(f"{word} {path}")
    what = f"{counted(done.stacks, 'stack')}, {counted(done.revisions, 'version')}"
    files = f"{counted(len(done.written), 'file')} {'to write' if dry_run else 'written'}, {len(done.removed)} removed"
    start = {"site": "/index.html", "markdown": "/index.md", "json": "/software.json"}[form]
    echo(f"{done.directory}{start}: {what}; {files}")
