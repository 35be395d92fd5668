"""Asks for the acceptance of licences once, at a terminal, before the first command of a stack runs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from stackyard.cli.context import Context
from stackyard.cli.output import show_text
from stackyard.core.errors import MissingError
from stackyard.core.quoting import harmless
from stackyard.yard.api import RevisionPaths

if TYPE_CHECKING:
    from stackyard.deploy.api import NeededLicence
    from stackyard.launch.api.jobs import Job
    from stackyard.yard.api import BuildRecord


def agreed(context: Context, record: BuildRecord) -> dict[str, str]:
    """The variables by which you have accepted a revision's licences; asks for missing acceptances.

    Raises:
        MissingError: a licence is not accepted, and this is not a terminal; or you decline it.
    """
    if not any(entry.get("variable") for entry in record.licences):
        return {}
    from stackyard.deploy.api import accept_licence, licence_variables, needed_licences, writing

    workspace = context.workspace()
    for needed in needed_licences(workspace, record, os.environ):
        ask(needed, record)
        with writing(workspace):
            accept_licence(workspace.yard, needed)
    return licence_variables(workspace, record)


def agree(context: Context, job: Job) -> Job:
    """The job with the licence variables that its ranks need; asks for missing acceptances.

    The revision is read from the job's own path: a repeated run may use one that has no name any more.
    """
    from stackyard.yard.api import read_record

    directory = job.context.stack.folder
    variables = agreed(context, read_record(RevisionPaths.of(directory).record)) if directory else {}
    os.environ.update(variables)
    return replace(job, context=replace(job.context, environ={**job.context.environ, **variables}))


def confirmed(name: str, of: str, text: str) -> bool:
    """Show a licence's text at this terminal and ask for acceptance; False if declined, or without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    text = text or f"{of} names the licence {name} and has no text of it.\n"
    if sys.stdout.isatty():
        click.echo_via_pager(harmless(text))
    else:  # what reads the output of this command wants no licence in it
        show_text(text, err=True)
    return click.confirm(f"Do you accept the licence {name} of {of}?", default=False, err=True)


def ask(needed: NeededLicence, record: BuildRecord) -> None:
    """Show a licence's text and ask; without a terminal print the command to use.

    Raises:
        MissingError: it is not accepted.
    """
    from stackyard.deploy.api import account_here, licence_text

    if not confirmed(needed.name, record.module, licence_text(record, needed.sha256)):
        raise MissingError(
            f"licence not accepted by {account_here()}: {needed.name}, of {record.module}",
            hint=f"read and accept it: stackyard licences accept {needed.name} --of {record.module}",
        )
