"""The checks that a site adds to those of every stack, from files and plug-ins, as rows of the table of checks.

They are not part of a revision's expectations (`verify.expectations`): a change of them causes neither a build nor a
verification. `stackyard verify` runs them on published revisions.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from stackyard.core import plugins
from stackyard.core.errors import StackyardError
from stackyard.core.plugins import Plugin
from stackyard.verify.checks.base import Check, Stage, always
from stackyard.verify.checks.own import OwnCheck, result_of
from stackyard.verify.context import Context
from stackyard.verify.report import KINDS, CheckResult

if TYPE_CHECKING:
    from stackyard.inputs.models import Check as DeclaredCheck
    from stackyard.inputs.models import Site

GROUP = "stackyard.checks"
"""The entry points of plug-ins; each is a `Check`."""
TITLE = "the site's checks"


def site_checks(site: Site) -> tuple[Check, ...]:
    """The checks of a site, in the order of its site.yaml.

    Raises:
        InputError: a file of checks cannot be read, or is invalid, with the place of each problem; no plug-in has a
            check of this name.
        StackyardError: a plug-in cannot be used.
    """
    rows: list[Check] = []
    for index, check in enumerate(site.checks):
        rows += _of_file(Path(check.file)) if check.file else [_of_plugin(check.plugin, site, index)]
    return tuple(rows)


def _of_file(file: Path) -> list[Check]:
    from stackyard.inputs.sites.sitefiles import load_checks

    return [Check(("own",), "own", partial(_run, check), title=TITLE) for check in load_checks(file)]


def _of_plugin(name: str, site: Site, index: int) -> Check:
    from stackyard.inputs.reading.yamlfile import read_yaml

    where = read_yaml(Path(site.file)).where("checks", index, "plugin") if site.file else None
    plugin = plugins.find_plugin(GROUP, name, (), Check, "check", "installed plug-ins have {}", where)
    check: Check = plugin.object
    if set(check.kinds) - set(KINDS) or not check.kinds or check.stage not in get_args(Stage):
        message = f"cannot use the plug-in {plugin.source}: its kinds are {check.kinds!r}, its stage is {check.stage!r}"
        known = f"kinds are some of {', '.join(KINDS)}; the stage is one of {', '.join(get_args(Stage))}"
        raise StackyardError(message, hint=f"report it to its authors: {known}")
    return replace(check, run=partial(_run_plugin, plugin, check), applies=always)


def _run_plugin(plugin: Plugin, check: Check, context: Context) -> list[CheckResult]:
    """The results of a plug-in's check, each naming the plug-in; an error in the plug-in is a failed result."""
    try:
        results = check.run(context) if check.applies(context.record) else []
        if other := {result.kind for result in results} - set(check.kinds):
            raise ValueError(f"results of another kind than {', '.join(check.kinds)}: {', '.join(sorted(other))}")
    except Exception:
        remedy = "report it to the authors of the plug-in, or remove the check from site.yaml"
        return [CheckResult(check.kinds[0], str(plugin.source), "failed", traceback.format_exc(), remedy)]
    return [replace(result, name=f"{result.name} ({plugin.source.distribution})") for result in results]


def _run(check: DeclaredCheck, context: Context) -> list[CheckResult]:
    """The result of a check from a file; none for a Python check if the stack has no working Python."""
    if context.python is None and (check.python or any("{python}" in word for word in check.run)):
        return [CheckResult("own", check.name, "skipped", "requires Python, but this stack has none", required=False)]
    return [result_of(context, OwnCheck.of(check.model_dump(mode="json")))]
