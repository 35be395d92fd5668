"""``stackyard shell``: a shell in the environment of a revision."""

from __future__ import annotations

import os

import click

from stackyard.cli.agreeing import agreed
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import show_notice
from stackyard.core.errors import MissingError
from stackyard.host.run.command import which
from stackyard.yard.api import count_use, hold_revision, record_of, require_files, require_signed

MOUNT_S = 120.0
"""Until an image is mounted that another process may be mounting too."""


@verb(
    ("a shell with the programs of a revision", "stackyard shell pytorch/2.13"),
    ("look at the files of an image", "stackyard shell pytorch/2.13 -- -c 'ls $CONDA_PREFIX/lib'"),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("rev", metavar="REV")
@click.argument("argv", nargs=-1, metavar="[-- ARGUMENT...]", type=click.UNPROCESSED)
def command(context: Context, rev: str, argv: tuple[str, ...]) -> None:
    """Start $SHELL in the environment that loading REV sets up; where REV is an image, its files are visible in it.

    Of a wrapped image (`stackyard wrap`) it is the image's own shell, in its container.

    The shell replaces this process. Your own start-up files run in it and may change what REV has set.
    """
    from stackyard.expose.api import change_of

    yard = context.yard()
    record = record_of(yard, rev)
    require_signed(record, "load", yard)
    record.origin.require_present()
    shell = record.origin.shell(os.environ.get("SHELL") or "/bin/sh")
    words = argv[1:] if argv[:1] == ("--",) else argv
    inside, environ = record.payload.command([shell, *words], change_of(record, context.site).apply(os.environ))
    if not record.payload.finds(shell, environ):
        raise MissingError(f"{shell} not found", hint="set SHELL")
    if not words and not record.payload.is_visible:
        if record.payload.is_packed:
            from stackyard.images.api import run_within_image

            # before it is said to be mounted
            run_within_image(record.payload, ["true"], timeout_s=MOUNT_S, environ=environ)
        show_notice(
            f"{record.module} is mounted in a user namespace for this shell: su, sudo, newgrp and chgrp to another "
            "group do not work in it; `exit` leaves it"
        )
    environ.update(agreed(context, record))
    hold_revision(record.path, yard, "shell")
    require_files(record.path)
    count_use(record.path, "shell")
    program = which(inside[0], environ) or inside[0]
    os.execve(program, inside, {**environ, "STACKYARD_SHELL": record.module})
