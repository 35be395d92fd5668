"""``stackyard report``: the results of a study."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import emit, show_json
from stackyard.study.api import StudyPaths, study_rows, table_text


@verb(
    ("the results of a study", "stackyard report studies/train"),
    ("as JSON", "stackyard report studies/train --json"),
)
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def command(context: Context, /, study: Path, as_json: bool) -> None:
    """Print the table of STUDY."""
    raise click.exceptions.Exit(show_results(study, as_json=as_json))


def show_results(root: Path, *, as_json: bool) -> int:
    """Print the results; returns the exit status."""
    rows = list(study_rows(StudyPaths(root.absolute())))
    show_json([asdict(row) for row in rows]) if as_json else emit(table_text(rows))
    return 0
