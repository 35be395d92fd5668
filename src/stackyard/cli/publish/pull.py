"""``stackyard pull``: a revision that another yard pushed, published here without building it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.findings import show_checks
from stackyard.cli.help import verb
from stackyard.cli.images.transfer import registry_options
from stackyard.cli.output import echo, show_json

if TYPE_CHECKING:
    from stackyard.deploy.api import Outcome, Request
    from stackyard.images.api import Registry


@verb(
    ("from a registry", "stackyard pull docker://registry.example.org/stacks/pytorch:2.13"),
    ("whether it fits this yard and this machine", "stackyard pull oci:/media/disk/stacks:pytorch-2.13 --dry-run"),
)
@click.argument("source", metavar="SOURCE")
@click.option("--allow-unverified", is_flag=True, help="Publish it too where a check had to be skipped.")
@click.option(
    "--accept-licence", "accept", multiple=True, metavar="NAME", help="Accept this licence, as `deploy` does."
)
@click.option("--dry-run", is_flag=True, help="Say whether it fits; fetch and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@registry_options
@catalogued
def command(
    context: Context, source: str, allow_unverified: bool, accept: tuple[str, ...], dry_run: bool, as_json: bool,
    plain_http: bool, authfile: Path | None, limit_s: float,
) -> None:  # fmt: skip
    """Publish the revision that `stackyard push` sent to SOURCE: docker://REGISTRY/NAME:TAG, or oci:DIR:NAME.

    It is refused, before it is fetched, where platform, C library or path do not fit, or where it is an image that this
    machine cannot mount. Every byte is compared with what
    was built, the checks are run on this machine, and it is published as by a deploy. Exit status 3: a check failed or
    was skipped; it is not published then.
    """
    from stackyard.deploy.api import Request
    from stackyard.images.api import Fit, Registry, notes_of_image
    from stackyard.upkeep.api import require_fit

    yard, registry = context.yard(), Registry(plain_http, authfile, limit_s)
    fit = Fit.of_notes(notes_of_image(source, registry), source)
    require_fit(fit, yard, mounting=not allow_unverified)
    if dry_run:
        fits = f"{fit.module} fits {yard.root} and this machine"
        show_json({"dry_run": True, **asdict(fit)}) if as_json else echo(fits)
        return
    request = Request(
        context.site(), yard, (), allow_unverified=allow_unverified, accept=accept, command=context.command
    )
    _show(_pulled(context, source, registry, request, fit.module), context.program, as_json)


def _pulled(context: Context, source: str, registry: Registry, request: Request, module: str) -> Outcome:
    from stackyard.cli.display import display
    from stackyard.deploy.api import building
    from stackyard.host.files.scratch import scratch
    from stackyard.images.api import Reference, is_reference, pull_image, read_packed, reference, verified_image
    from stackyard.upkeep.api import arrive

    with display() as progress, scratch("pull") as work:
        progress.phase(module, "fetch", source)
        if is_reference(source):
            target = reference(source)
            verified_image(target)
        else:
            pull_image(source, work / "layout", "x", registry)
            target = Reference(work / "layout", "x")
        arrived = read_packed(target)
        if arrived.entry["state"] == "withdrawn":
            progress.notice(
                f"{module} was withdrawn where it comes from; to hide it here: `stackyard withdraw {module}`"
            )
        with building(request, [arrived.record.stack], context.notice) as leases:
            return arrive(arrived, request, progress, leases)


def _show(done: Outcome, program: str, as_json: bool) -> None:
    from stackyard.deploy.api import USABLE

    if as_json:
        report = done.report.to_json() if done.report else None
        show_json({"module": done.module, "status": done.status, "folder": done.directory, "report": report})
    else:
        echo(f"{done.module}: {done.status}")
        if done.report is not None and done.report.state != "passed":
            show_checks(done.report, program)
    if done.status not in USABLE:
        raise click.exceptions.Exit(3)
