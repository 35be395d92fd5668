"""``stackyard lock``: solve, write the lock beside the file, export it to other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.output import show_json
from stackyard.cli.typed import as_typed
from stackyard.errors import InputError

EXPORTS = ("pixi", "pylock", "explicit", "environment")

EXAMPLES = (
    ("solve for every platform of the site; writes stack.yaml.lock", "stackyard lock stack.yaml"),
    ("the lock as a pylock.toml, for other tools", "stackyard lock stack.yaml --export pylock"),
)


@click.command(cls=Verb, short_help="solve and write the lock", examples=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the stack.")
@click.option("--version", help="Version of the stack.")
@click.option("--locked", is_flag=True, help="Only check: fail if a lock is missing or stale.")
@click.option("--export", "fmt", type=click.Choice(EXPORTS), help="Print the lock in another tool's format.")
@click.option("--variant", help="With --export: variant (default: the last of the matrix).")
@click.option("--platform", help="With --export: platform (default: this machine's).")
@click.option("--dry-run", is_flag=True, help="Solve and show what would change; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the lock as JSON.")
@click.pass_obj
def command(context: Context, /, files: tuple[Path, ...], as_json: bool, dry_run: bool, **options: Any) -> None:
    """Solve FILE... for every platform of the site and write the lock beside each."""
    from stackyard.cli.display import display
    from stackyard.cli.stacks import load_stacks, tell
    from stackyard.publish import deploy
    from stackyard.publish.locking import write_lock

    if len(files) > 1 and (options["name"] or options["version"] or options["fmt"]):
        raise InputError("--name, --version and --export require exactly one FILE", hint="lock the files one by one")
    site = context.site()
    stacks = load_stacks(files, site, options["name"], options["version"])
    request = deploy.Request(stacks, site, context.yard(), only_locked=options["locked"])
    with display() as progress:
        tell(stacks, progress)
        locks = deploy.lock_all(request, progress)
        if not dry_run:
            for locked in locks:
                write_lock(locked, progress)
    if options["fmt"]:
        click.echo(_export(locks[0].lock, options), nl=False)
    elif as_json:
        show_json([_as_json(locked) for locked in locks])
    else:
        for locked in locks:
            _show(locked, dry_run)


def _show(locked: Any, dry_run: bool) -> None:
    if not locked.changed:
        click.echo(f"{as_typed(str(locked.path))} is fresh")
        return
    click.echo(f"{'would write' if dry_run else 'wrote'} {as_typed(str(locked.path))}: {_because(locked.changed)}")
    for v in locked.lock.variants:
        click.echo(f"    {_label(v)} for {v.platform}: {len(v.conda)} conda and {len(v.pip)} pip packages")


def _because(changed: tuple[str, ...]) -> str:
    """One reason on the same line, several on their own lines."""
    return changed[0] if len(changed) == 1 else "".join(f"\n    {line}" for line in changed)


def _as_json(locked: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {"lock": str(locked.path), "changed": list(locked.changed), **asdict(locked.lock)}


def _label(locked: Any) -> str:
    return f"{locked.version}-{locked.variant}".rstrip("-")


def _is(locked: Any, wanted: str | None) -> bool:
    """Whether a locked variant is the one called `wanted`: its name, or version and name."""
    return wanted in (None, locked.variant, f"{locked.version}-{locked.variant}")


def _export(lock: Any, options: dict[str, Any]) -> str:
    from stackyard.host.probe import machine
    from stackyard.lock.export import EXPORTS as WRITERS

    platform = options["platform"] or machine().platform
    fitting = [v for v in lock.variants if v.platform == platform and _is(v, options["variant"])]
    if not fitting:
        there = ", ".join(f"{_label(v)} on {v.platform}" for v in lock.variants)
        hint = f"choose one of {there} with --variant and --platform"
        raise InputError(f"not in the lock: {options['variant'] or 'any variant'} on {platform}", hint=hint)
    text: str = WRITERS[options["fmt"]](fitting[-1])
    return text
