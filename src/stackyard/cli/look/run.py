"""``stackyard run``: a command in the environment of a revision, without a module system."""

from __future__ import annotations

import os

import click

from stackyard.cli.agreeing import agreed
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo
from stackyard.core.errors import InputError, MissingError
from stackyard.host.run.command import which
from stackyard.yard.api import count_use, hold_revision, record_of, require_files, require_signed


@verb(
    ("a Python with the packages of a revision", "stackyard run pytorch/2.13 -- python train.py"),
    ("the environment variables that would change", "stackyard run --dry-run pytorch/2.13"),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("rev", metavar="REV")
@click.argument("argv", nargs=-1, metavar="-- CMD...", type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Print the variables that would change; run nothing.")
def command(context: Context, rev: str, argv: tuple[str, ...], dry_run: bool) -> None:
    """Run CMD in the environment that loading REV sets up. CMD replaces this process, so its exit status is kept."""
    from stackyard.expose.api import change_of, example_command

    if rev.startswith("-"):
        raise InputError(f"no such option: {rev}", hint="the revision comes first: stackyard run REV -- CMD")
    yard = context.yard()
    record = record_of(yard, rev)
    require_signed(record, "load", yard)
    words = argv[1:] if argv[:1] == ("--",) else argv
    record.origin.require_present()
    inside, environ = record.payload.command(words, change_of(record, context.site).apply(os.environ))
    if dry_run:
        for name in sorted({*environ, *os.environ}):
            if environ.get(name) != os.environ.get(name):
                echo(f"{name}={environ[name]}" if name in environ else f"unset {name}")
        return
    if not words:
        raise InputError("no command given", hint=f"add one: stackyard run {rev} -- {example_command(record)}")
    if not record.payload.finds(words[0], environ):
        hint = f"`stackyard show {rev}` lists its packages"
        raise MissingError(f"{words[0]} not found in {record.module} or on PATH", hint=hint)
    environ.update(agreed(context, record))
    hold_revision(record.path, yard, "run")
    require_files(record.path)
    count_use(record.path, "run")
    program = which(inside[0], environ)
    os.execve(program or inside[0], inside, environ)
