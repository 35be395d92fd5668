"""``stackyard report``: the results of a study."""

from __future__ import annotations

from pathlib import Path

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import emit
from stackyard.study.api import StudyPaths, study_rows, table_text


@verb(("the table of a study", "stackyard report studies/train"))
@click.argument("study", type=click.Path(path_type=Path))
def command(context: Context, /, study: Path) -> None:
    """Print the table of STUDY."""
    show_results(study, as_json=False)


def show_results(root: Path, *, as_json: bool) -> int:
    """Print the results; returns the exit status."""
    emit(table_text(study_rows(StudyPaths(root.absolute()))))
    return 0
