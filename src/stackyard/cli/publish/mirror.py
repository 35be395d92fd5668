"""``stackyard mirror``: everything that locks need, in one directory, for machines without network access."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import InputError
from stackyard.core.findings import counted, human_bytes
from stackyard.host.machine.platforms import PLATFORMS
from stackyard.inputs.api import Workspace


@verb(
    (
        "fetch what stack.yaml.lock needs, for all of its platforms",
        "stackyard mirror stack.yaml --to /media/disk/mirror",
    ),
    ("what would be fetched, and how much that is", "stackyard mirror stack.yaml --to /media/disk/mirror --dry-run"),
    (
        "all builds of some packages in a channel, for another platform",
        "stackyard mirror --channel conda-forge --spec 'numpy 1.26.*' --platform linux-ppc64le --to mirror",
    ),
)
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A mirror, or a new directory.",
)
@click.option(
    "--channel", "channels", multiple=True, metavar="CHANNEL", help="Also the packages of this channel, all or:"
)
@click.option(
    "--spec",
    "specs",
    multiple=True,
    metavar="SPEC",
    help="Of channels only what this fits: 'numpy 1.26.*'.",
)
@click.option(
    "--platform", "platforms", multiple=True, type=click.Choice(PLATFORMS), metavar="PLATFORM",
    help="Of channels for this platform (default: the site's).",
)  # fmt: skip
@click.option("--name", help="Name of the stack (default: name: in FILE, else its directory).")
@click.option("--version", help="Version of the stack (default: version: in FILE, else that of its lock).")
@click.option("--dry-run", is_flag=True, help="Show what would be fetched; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    context: Context, /, files: tuple[Path, ...], directory: Path, dry_run: bool, as_json: bool, **named: Any
) -> None:
    """Fetch every file that the locks of FILE... name into DIR, for all of their platforms, and compare it.

    A deploy with --mirror DIR, or with `mirror:` in site.yaml, builds the same revision and asks no other server. DIR
    has conda channels, an index and a place for --find-links too, also through a web server. What is there is not
    fetched again. What compiling source packages needs is resolved now and fetched too.

    With --channel, DIR gets packages of a channel without a lock: nothing is solved, and what they depend on is not
    added.
    """
    from stackyard.cli.display import display
    from stackyard.make.api import missing_from_mirror

    if len(files) > 1 and (named["name"] or named["version"]):
        raise InputError("--name and --version require exactly one FILE", hint="mirror the files one by one")
    if not files and not named["channels"]:
        raise InputError("missing argument FILE", hint="name the file of a stack, or a channel: --channel CHANNEL")
    if not named["channels"] and (named["specs"] or named["platforms"]):
        raise InputError("--spec and --platform require --channel", hint="a lock names the packages of FILE")
    directory = directory.absolute()
    with display() as progress:
        contents = _wanted(context, files, named, dry_run, progress)
        if dry_run:
            lacks = missing_from_mirror(directory, contents.contents)
            fetched = [*(lack.path for lack in lacks[0]), *(lack.path for lack in lacks[1])]
            result: dict[str, Any] = {"fetched": fetched, "bytes": sum(lack.size for lack in lacks[0])}
        else:
            result = asdict(contents.put(directory, progress))
    result |= {"mirror": str(directory), "dry_run": dry_run, "lacking": contents.contents.lacking}
    show_json(result) if as_json else _show(result, is_locked=bool(files))


def _wanted(context: Context, files: tuple[Path, ...], named: dict[str, Any], dry_run: bool, progress: Any) -> Any:
    """The locked variants of the files' locks, which are created if missing; and the selection of the channels."""
    from stackyard.deploy.api import Request, lock_all, solving, write_lock
    from stackyard.inputs.api import pip_settings, scratch_yard
    from stackyard.lock.api import load_stacks, select_packages, site_platforms, tell_notices
    from stackyard.make.api import MirrorContents

    site = context.site()
    stacks = load_stacks(files, Workspace(site, context.yard()), named["name"], named["version"]) if files else ()
    tell_notices(stacks, progress)
    with solving(Workspace(site, context.yard()), scratch_yard, dry_run=dry_run) as yard:
        locks = lock_all(Request(site, yard, stacks), progress)
        if not dry_run:
            for locked in locks:
                write_lock(locked, yard, progress)
        contents = MirrorContents(yard.uv)
        if channels := named["channels"]:
            progress.phase("mirror", "select", ", ".join(channels))
            platforms = site_platforms(site, named["platforms"])
            contents.contents.add_conda(select_packages(site, channels, named["specs"], platforms, yard.repodata))
    for locked in locks:
        variants = {(v.version, v.name): v for v in locked.stack.variants}
        for pair in locked.lock.variants:
            variant = variants[pair.version, pair.variant]
            contents.add(pair, variant, pip_settings(site.pip, variant.environment.pip_options, os.environ)[0])
    return contents


def _show(result: dict[str, Any], *, is_locked: bool) -> None:
    verb = "would fetch" if result["dry_run"] else "fetched"
    fetched = result["fetched"]
    echo(f"{verb} {counted(len(fetched), 'file')}, {human_bytes(result['bytes'])}, into {result['mirror']}")
    for path in fetched if result["dry_run"] else ():
        echo(f"    {path}")
    for text in result["lacking"]:
        echo(f"not in it: {text}")
    if not result["dry_run"] and is_locked:
        echo(f"build from it: stackyard deploy FILE... --mirror {result['mirror']}")
