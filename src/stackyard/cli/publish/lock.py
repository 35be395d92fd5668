"""``stackyard lock``: solve, write the lock beside the file, export it to other tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, emit, show_json
from stackyard.cli.typed import as_typed
from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.inputs.api import Workspace


@verb(
    ("solve for every platform of the site; writes stack.yaml.lock", "stackyard lock stack.yaml"),
    ("renew one package, and what it needs", "stackyard lock stack.yaml --update numpy"),
    ("the lock as a pylock.toml, for other tools", "stackyard lock stack.yaml --export pylock"),
)
@click.argument("words", nargs=-1, required=True, metavar="FILE... [PACKAGE...]")
@click.option("--name", help="Name of the stack.")
@click.option("--version", help="Version of the stack.")
@click.option("--update", is_flag=True, help="Renew PACKAGE... and what they need, or everything if none is named.")
@click.option("--locked", is_flag=True, help="Only check: fail if a lock is missing or stale.")
@click.option("--check", is_flag=True, help="As --dry-run, with exit status 1 if the lock would change.")
@click.option(
    "--export",
    "fmt",
    metavar="FORMAT",
    help="Print the last variant for another tool: pixi, pylock, explicit, environment, requirements, or a plug-in's.",
)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; several times for more.")
@click.option("--python", metavar="VERSION", help="Version of Python for this lock, whatever FILE says: 3.12.")
@click.option("--torch-backend", metavar="NAME", help="Build of torch: cpu, cu128, rocm6.4 ..., off for any.")
@click.option("--platform", help="With --export: platform (default: this machine's).")
@click.option("--dry-run", is_flag=True, help="Solve and show what would change; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the lock as JSON.")
def command(context: Context, /, words: tuple[str, ...], as_json: bool, dry_run: bool, **options: Any) -> None:
    """Solve FILE... for every platform of the site and write the lock beside each.

    What is locked stays as it is wherever the requirements allow it; --update renews it. A FILE ends in .yaml, .yml or
    .txt, contains a slash, or exists; other words after --update are packages.
    """
    from stackyard.cli.display import display
    from stackyard.deploy.api import Request, lock_files
    from stackyard.lock.api import Update, load_stacks, tell_notices, writer_of

    files, packages = _sorted(words, options["update"])
    if len(files) > 1 and (options["name"] or options["version"] or options["fmt"]):
        raise InputError("--name, --version and --export require exactly one FILE", hint="lock the files one by one")
    if options["update"] and options["locked"]:
        raise InputError("--update and --locked exclude each other", hint="use --update --check")
    export = writer_of(options["fmt"]) if options["fmt"] else None  # before anything is solved
    if export and not files[0].exists():
        hint = f"a published revision is exported by: stackyard export {files[0]} --as {options['fmt']}"
        raise InputError(f"no such file: {files[0]}", hint=hint)
    site, dry_run = context.site(), dry_run or options["check"]
    stacks = load_stacks(
        files, Workspace(site, context.yard()), options["name"], options["version"], options["variants"],
        options["python"] or "", options["torch_backend"] or "",
    )  # fmt: skip
    update = Update(options["update"] and not packages, packages)
    request = Request(site, context.yard(), stacks, only_locked=options["locked"], update=update)
    with display() as progress:
        tell_notices(stacks, progress)
        locks = lock_files(request, progress, dry_run=dry_run)
    if export is not None:
        emit(export(_exported(locks[0][0], options)))
    elif as_json:
        show_json([_as_json(locked) for locked, _ in locks])
    else:
        for locked, place in locks:
            _show(locked, place)
    if options["check"] and any(locked.changed for locked, _ in locks):
        raise click.exceptions.Exit(1)


def _sorted(words: tuple[str, ...], update: bool) -> tuple[list[Path], tuple[str, ...]]:
    """The words of the command line that name files, and those that name packages to update."""
    files = [w for w in words if not update or w.endswith((".yaml", ".yml", ".txt")) or "/" in w or Path(w).is_file()]
    packages = tuple(w for w in words if w not in files)
    wrong = next((p for p in packages if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", p)), "")
    if wrong:
        raise InputError(f"{wrong!r} is not the name of a package", hint="write its version range into FILE")
    if not files:
        raise InputError("missing argument FILE", hint=f"stackyard lock FILE --update {' '.join(packages)}")
    return [Path(word) for word in files], packages


def _show(locked: Any, place: Path | None) -> None:
    """Print what changed in a lock. `place`: its path if written; None if it is fresh, and in a dry run."""
    if not locked.changed:
        echo(f"{as_typed(str(locked.path))} is fresh")
        return
    echo(f"{'wrote' if place else 'would write'} {as_typed(str(place or locked.path))}: {_because(locked.changed)}")
    for labels, lines in _moves(locked):
        for label in labels:
            echo(f"    {label}")
        for line in lines:
            echo(f"        {line}")


def _moves(locked: Any) -> list[tuple[list[str], list[str]]]:
    """The locked variants, grouped by equal changes, with these changes."""
    from stackyard.lock.api import former_variant, package_moves

    moves: dict[tuple[str, ...], list[str]] = {}
    for v in locked.lock.variants:
        before = former_variant(locked.former, v.version, v.variant, v.platform)
        label = f"{_label(v)} for {v.platform}: {len(v.conda)} conda and {counted(len(v.pip), 'pip package')}"
        moves.setdefault(tuple(package_moves(before, v)) if before else (), []).append(label)
    return [(labels, list(lines)) for lines, labels in moves.items()]


def _because(changed: tuple[str, ...]) -> str:
    """One reason on the same line, several on their own lines."""
    return changed[0] if len(changed) == 1 else "".join(f"\n    {line}" for line in changed)


def _as_json(locked: Any) -> dict[str, Any]:
    from dataclasses import asdict

    moved = [line for _, lines in _moves(locked) for line in lines]
    return {"lock": str(locked.path), "changed": list(locked.changed), "moved": moved, **asdict(locked.lock)}


def _label(locked: Any) -> str:
    return f"{locked.version}-{locked.variant}".rstrip("-")


def _exported(locked: Any, options: dict[str, Any]) -> Any:
    """The last of the requested variants."""
    from stackyard.host.machine.probe import machine

    platform = options["platform"] or machine().platform
    variants = {(v.version, v.name): v for v in locked.stack.wanted}
    fitting = [v for v in locked.lock.variants if v.platform == platform and (v.version, v.variant) in variants]
    if not fitting:
        there = ", ".join(f"{_label(v)} on {v.platform}" for v in locked.lock.variants)
        hint = f"choose one of {there} with --variant and --platform"
        raise InputError(
            f"not in the lock: {' or '.join(options['variants']) or 'any variant'} on {platform}", hint=hint
        )
    return fitting[-1]
