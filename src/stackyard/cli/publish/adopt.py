"""``stackyard adopt``: a revision of an existing conda prefix or virtual environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import InputError
from stackyard.core.findings import counted

KINDS = ("imports", "commands", "libraries", "distributions")


@verb(
    ("publish an environment of conda as the module climate", "stackyard adopt /sw/conda/envs/climate"),
    ("keep its files in one image, whatever becomes of it", "stackyard adopt --image /sw/conda/envs/climate"),
    ("see first what would be recorded", "stackyard adopt --dry-run ~/venvs/tools --name tools --version 1.0"),
)
@click.argument("prefix", metavar="PREFIX", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the module (default: that of the directory).")
@click.option("--version", help="Its version (default: as it was adopted before, else today's date).")
@click.option(
    "--except", "exceptions", multiple=True, metavar="KIND=NAME",
    help=f"A check that need not pass; KIND is one of {', '.join(KINDS)}.",
)  # fmt: skip
@click.option("--image", is_flag=True, help="Pack its files into one image of the yard; the directory can be emptied.")
@click.option("--allow-unverified", is_flag=True, help="Publish even if a required check was skipped.")
@click.option("--dry-run", is_flag=True, help="Look at it and print what would be recorded; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@catalogued
def command(context: Context, /, prefix: Path, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Publish a conda prefix or a virtual environment that exists, without copying it and without changing it.

    It gets a record, a lock, a module and a verification. `verify` finds what others change in it later; adopting it
    again records that as the next revision. Nothing ever removes its files.

    With --image its files are packed as they are now. Each command sees them at the path that they had, where a
    directory must remain: it can be empty.
    """
    from stackyard.upkeep.api import AdoptionOptions, adopt, adoption_request, adoption_tasks, look_at_prefix

    workspace = context.workspace()
    foreign_prefix = look_at_prefix(prefix, workspace.yard, image=options["image"])
    texts = options.pop("exceptions")
    adoption = AdoptionOptions(exceptions=_exceptions(texts) if texts else None, **options)
    request = adoption_request(foreign_prefix, adoption, workspace, context.command)
    if dry_run:
        _dry_run(foreign_prefix, adoption_tasks(foreign_prefix, request), as_json)
        return
    from stackyard.cli.display import display
    from stackyard.cli.publish.deploy import report
    from stackyard.deploy.api import building

    names = [stack.name for stack in request.stacks]
    with building(workspace, names, show_notice) as leases, display() as progress:
        result = adopt(foreign_prefix, request, progress, leases)
    report(context, result, workspace, progress.notices, as_json)


def _exceptions(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The exceptions by kind, in the format of a stack.yaml."""
    exceptions: dict[str, tuple[str, ...]] = {}
    for text in texts:
        kind, _, name = text.partition("=")
        if kind not in KINDS or not name:
            hint = f"write KIND=NAME, KIND one of {', '.join(KINDS)}"
            raise InputError(f"--except: {text!r} is not an exception", hint=hint)
        exceptions[kind] = (*exceptions.get(kind, ()), name)
    return exceptions


def _dry_run(prefix: Any, tasks: list[Any], as_json: bool) -> None:
    rows = [
        {
            "module": task.module,
            "action": {"build": "adopt"}.get(task.action, task.action),
            "path": str(task.paths.root),
            "prefix": prefix.adopted.prefix,
            "kind": prefix.adopted.kind,
            "form": task.variant.image,
            "conda": len(task.locked.conda),
            "pip": len(task.locked.pip),
            "python": task.locked.interpreter.version,
            "without_hash": prefix.packages.without_hash,
        }
        for task in tasks
    ]
    if as_json:
        show_json({"dry_run": True, "revisions": rows, "warnings": list(prefix.warnings)})
        return
    for row in rows:
        echo(_line(row))
    for text in prefix.warnings:
        echo(f"    {click.style('note:', fg='yellow')} {text}")


def _line(row: dict[str, Any]) -> str:
    if row["action"] in ("unchanged", "inherited"):
        return f"{row['module']} is already published: {row['prefix']} is as it was adopted"
    if row["action"] == "publish":
        return f"would verify and publish {row['module']}, adopted before from {row['prefix']}"
    packages = f"{row['conda']} conda and {counted(row['pip'], 'pip package')}"
    packed = ", packed into an image" if row["form"] == "squashfs" else ""
    return f"would adopt {row['prefix']} ({row['kind']}) as {row['module']}{packed}: {packages}"
