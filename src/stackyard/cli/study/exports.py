"""What ``stackyard report`` writes for other programs: a ReFrame test, an RO-Crate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stackyard.cli.context import Context
from stackyard.cli.output import echo
from stackyard.study.api import reframe_test, write_crate
from stackyard.yard.api import write_text


def export(context: Context, study: Path, options: dict[str, Any]) -> None:
    """Write what the options name, and print where it is.

    Raises:
        InputError: not a study, or one without references.
        StackyardError: it cannot be written.
    """
    if file := options["reframe"]:
        write_text(file, reframe_test(study, context.site().bench.references))
        echo(f"{file}: a ReFrame test, for `reframe -c {file} -r`")
    if options["crate"]:
        write_crate(study, options["licence"])
        echo(f"{study}: an RO-Crate, by its ro-crate-metadata.json")
