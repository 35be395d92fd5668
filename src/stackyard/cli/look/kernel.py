"""``stackyard kernel``: revisions as kernels of Jupyter."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb, VerbGroup, verb
from stackyard.cli.output import echo, emit, show_json
from stackyard.core.errors import InputError
from stackyard.yard.api import record_of

if TYPE_CHECKING:
    from stackyard.expose.api import Kernel

PREFIX = click.option(
    "--prefix", type=click.Path(path_type=Path), help="Of the Jupyter installed there (default: your own directory)."
)
_NOT_FOR_KERNELS = ("-N", "-r", "--nodes", "--ranks-per-node", "--with", "--stdin", "--debug-rank", "--stream")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(cls=VerbGroup, examples=(
    ("a kernel that starts inside a revision", "stackyard kernel install pytorch/2.13"),
    ("your kernels, and those whose revision was removed", "stackyard kernel list"),
))  # fmt: skip
def command() -> None:
    """Kernels of Jupyter whose Python has the packages and variables that loading a revision gives.

    The revision needs ipykernel; Jupyter itself can be any other.
    """


@verb(
    ("for yourself", "stackyard kernel install pytorch/2.13"),
    ("on one GPU of a compute node", 'stackyard kernel install pytorch/2.13 --name gpu --launch "-g 1 -t 2:00"'),
    ("for everybody who uses the site's Jupyter", "stackyard kernel install pytorch/2.13 --prefix /sw/jupyter"),
    group=command, short_help="write a kernelspec",
)  # fmt: skip
@click.argument("rev", metavar="REV")
@click.option("--name", default="", help="The kernel's name (default: the module's).")
@click.option("--display-name", default="", help="What Jupyter shows (default: the module's name).")
@click.option("--launch", metavar="OPTIONS", help="Run it on a node, by `stackyard launch` with these options.")
@PREFIX
@click.option("--replace", is_flag=True, help="Write over a kernel of this name.")
@click.option("--dry-run", is_flag=True, help="Print kernel.json only.")
@AS_JSON
def install(context: Context, /, rev: str, prefix: Path | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Write a kernelspec that starts Python inside REV, as if its module was loaded; also of an image."""
    from stackyard.expose.api import (
        install_kernel,
        kernel_name,
        kernel_specification,
        remote_kernel_specification,
        require_ipykernel,
    )

    record = record_of(context.yard(), rev)
    require_ipykernel(record)
    name = kernel_name(record, options["name"])
    words = _program(context)
    if options["launch"] is None:
        text = kernel_specification(record, [*words, "run", record.module, "--"], options["display_name"])
    else:
        start = [*words, "kernel", "start", record.module]
        text = remote_kernel_specification(record, start, _launch_options(options["launch"]), options["display_name"])
    if dry_run:
        emit(text)
        return
    place = install_kernel(_directory(prefix), name, text, replace=options["replace"], for_all=prefix is not None)
    if as_json:
        show_json({"name": name, "folder": str(place), "revision": record.module})
    else:
        echo(f"kernel {name} of {record.module}: {place}")
        echo("choose it in Jupyter, or: " + shlex.join(["jupyter", "console", "--kernel", name]))


@command.command("list", cls=Verb, short_help="installed kernels", examples=(
    ("your own", "stackyard kernel list"),
    ("those of the site's Jupyter", "stackyard kernel list --prefix /sw/jupyter"),
))  # fmt: skip
@PREFIX
@AS_JSON
def list_(prefix: Path | None, as_json: bool) -> None:
    """The kernels that `kernel install` wrote, with their revision."""
    from stackyard.expose.api import installed_kernels, is_kernel_gone

    specs = list(installed_kernels(_directory(prefix)))
    if as_json:
        show_json(
            [{**asdict(kernel), "folder": str(kernel.folder), "gone": is_kernel_gone(kernel)} for kernel in specs]
        )
        return
    if not specs:
        echo(f"no kernels of stackyard in {_directory(prefix)}; write one: stackyard kernel install REV")
    for kernel in specs:
        echo(f"{kernel.name}  {kernel.revision}{'  (removed)' if is_kernel_gone(kernel) else ''}")
    if any(map(is_kernel_gone, specs)):
        echo("the revisions of some were removed: stackyard kernel remove --gone")


@command.command(cls=Verb, short_help="remove kernelspecs", examples=(
    ("one by its name", "stackyard kernel remove pytorch-2.13-py311-1"),
    ("those whose revision was removed", "stackyard kernel remove --gone"),
))  # fmt: skip
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--gone", is_flag=True, help="Those whose revision was removed.")
@PREFIX
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@AS_JSON
def remove(names: tuple[str, ...], gone: bool, prefix: Path | None, dry_run: bool, as_json: bool) -> None:
    """Remove kernels that `kernel install` wrote, by their name or by that of their revision; no others."""
    from stackyard.expose.api import installed_kernels, is_kernel_gone, remove_kernel

    directory = _directory(prefix)
    specs = list(installed_kernels(directory))
    _require_known(names, specs, directory)
    if not names and not gone:
        raise InputError("no kernel named", hint="name one (stackyard kernel list), or --gone")
    chosen = [k for k in specs if k.name in names or k.revision in names or (gone and is_kernel_gone(k))]
    for kernel in () if dry_run else chosen:
        remove_kernel(kernel)
    if as_json:
        show_json({"removed": [kernel.name for kernel in chosen], "dry_run": dry_run})
        return
    for kernel in chosen:
        echo(f"{'would remove' if dry_run else 'removed'} {kernel.name} of {kernel.revision}")


@command.command(cls=Verb, short_help="what Jupyter starts for a kernel on a node", hidden=True, examples=(
    ("as the kernelspec has it", "stackyard kernel start pytorch/2.13 /run/user/1000/kernel-1.json -- -g 1"),
    ("on another queue", "stackyard kernel start pytorch/2.13 /run/user/1000/kernel-1.json -- -p gpu"),
), context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})  # fmt: skip
@click.argument("rev", metavar="REV")
@click.argument("connection", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("options", nargs=-1, metavar="-- OPTIONS...", type=click.UNPROCESSED)
@click.pass_obj
def start(context: Context, /, rev: str, connection: Path, options: tuple[str, ...]) -> None:
    """Run the kernel of REV by `stackyard launch` with OPTIONS, joined to the ports in Jupyter's connection FILE."""
    from stackyard.expose.api import kernel_python
    from stackyard.launch.api import kernels

    python = kernel_python(record_of(context.yard(), rev))
    words = options[1:] if options[:1] == ("--",) else options
    launch = [*_program(context), "launch", "--with", rev, *words, "-r", "1", "-N", "1", "--stdin", "0"]
    raise click.exceptions.Exit(kernels.run(connection, launch, context.site().launch.interface, python))


def _launch_options(text: str) -> list[str]:
    """The options of a launch, as words.

    Raises:
        InputError: a quote is not closed, or one of them names more than one rank.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(
            f"--launch: {error}: {text}", hint='write it as in a shell: --launch "-g 1 -t 2:00"'
        ) from error
    taken = [w for w in words if (w.partition("=")[0] if w.startswith("--") else w[:2]) in _NOT_FOR_KERNELS]
    if taken:
        raise InputError(f"--launch: {taken[0]} cannot be given: a kernel is one rank on one node", hint="leave it out")
    return words


def _require_known(names: tuple[str, ...], specs: list[Kernel], directory: Path) -> None:
    for name in names:
        if not any(name in (kernel.name, kernel.revision) for kernel in specs):
            raise InputError(
                f"no kernel of stackyard in {directory}: {name}", hint="`stackyard kernel list` shows them"
            )


def _directory(prefix: Path | None) -> Path:
    from stackyard.expose.api import kernel_prefix_directory, kernel_user_directory

    return kernel_prefix_directory(prefix.absolute()) if prefix else kernel_user_directory(os.environ)


def _program(context: Context) -> list[str]:
    """The command of this program with its yard and site, for Jupyter, whose PATH and variables differ."""
    from stackyard.host.run.command import which

    words = [str(Path(which(sys.argv[0]) or sys.argv[0]).absolute()), "--yard", str(context.yard().root)]
    site = context.site_file()
    return [*words, "--site", str(site)] if site else words
