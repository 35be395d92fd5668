"""The checks that a site adds to those of every stack: those in its files, as rows of the table of checks.

They are not part of what a revision is verified against (`verify.expectations`): a change of them builds nothing and
verifies nothing by itself. `stackyard verify` tries them on what is published.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.verify.checks.base import Check
from stackyard.verify.checks.own import OwnCheck, result_of
from stackyard.verify.context import Context
from stackyard.verify.report import CheckResult

if TYPE_CHECKING:
    from stackyard.inputs.models import Check as DeclaredCheck
    from stackyard.inputs.models import Site

TITLE = "the site's checks"


def site_checks(site: Site) -> tuple[Check, ...]:
    """The checks of a site, in the order of its site.yaml.

    Raises:
        InputError: a file of checks cannot be read, or is invalid, with the place of each problem.
    """
    return tuple(row for each in site.checks for row in _of_file(Path(each)))


def _of_file(file: Path) -> tuple[Check, ...]:
    from stackyard.inputs.sites.sitefiles import load_checks

    return tuple(Check(("own",), "own", partial(_run, check), title=TITLE) for check in load_checks(file))


def _run(check: DeclaredCheck, context: Context) -> list[CheckResult]:
    """The result of a check in a file; of one for Python, nothing where the stack has none that runs."""
    if context.python is None and (check.python or any("{python}" in word for word in check.run)):
        return [CheckResult("own", check.name, "skipped", "requires Python, but this stack has none", required=False)]
    return [result_of(context, OwnCheck.of(check.model_dump(mode="json")))]
