"""``stackyard licences``: your acceptances, and the licences of a stack's packages."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import VerbGroup, verb
from stackyard.cli.output import echo, show_json, show_text
from stackyard.core.errors import InputError
from stackyard.inputs.api import Workspace
from stackyard.yard.api import record_of

if TYPE_CHECKING:
    from stackyard.lock.api import PackageLicence

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group(cls=VerbGroup, examples=(
    ("the licence of every package of a revision", "stackyard licences report pytorch/2.13"),
    ("read and accept one", "stackyard licences accept PowerAI --of powerai/1.7.0"),
))  # fmt: skip
def command() -> None:
    """Licences that people accept, each for themselves, and the licences of all packages.

    What was accepted is recorded with who, when and the hash of the text; another text is accepted anew.
    """


@verb(
    ("in your yard and in the site's", "stackyard licences list"),
    ("for a script", "stackyard licences list --json"),
    group=command, name="list", short_help="what you accepted",
)  # fmt: skip
@AS_JSON
def list_(context: Context, as_json: bool) -> None:
    """The licences that you accepted: when, and in which yard or directory it is recorded."""
    from stackyard.deploy.api import my_acceptances

    rows = [{"yard": str(place), **asdict(entry)} for place, entry in my_acceptances(context.yard(reading=True))]
    if as_json:
        show_json(rows)
        return
    for row in rows:
        echo(f"{row['name']}  {row['when']}  {row['yard']}")
    if not rows:
        echo("you have accepted no licence")


@verb(
    ("of a revision that asks for it", "stackyard licences accept PowerAI --of powerai/1.7.0"),
    ("read it only", "stackyard licences accept PowerAI --of powerai/1.7.0 --dry-run"),
    group=command, short_help="read and accept a licence",
)  # fmt: skip
@click.argument("name")
@click.option("--of", "rev", required=True, metavar="REV", help="The revision that has the licence.")
@click.option("--dry-run", is_flag=True, help="Print its text; accept nothing.")
@AS_JSON
def accept(context: Context, /, name: str, rev: str, dry_run: bool, as_json: bool) -> None:
    """Print the text of licence NAME, and record that you accept it: you, now, this text. Then REV can be used."""
    from stackyard.deploy.api import NeededLicence, accept_licence, licence_text, writing

    workspace = context.workspace()
    record = record_of(workspace.yard, rev)
    entry = next((item for item in record.licences if item["name"] == name), None)
    if entry is None:
        names = ", ".join(str(item["name"]) for item in record.licences) or "none"
        raise InputError(f"{record.module} has no licence {name!r}", hint=f"its licences: {names}")
    text = licence_text(record, entry["sha256"])
    show_text(text or f"{record.module} has no text of the licence {name}", err=True)
    if dry_run:
        return
    licence = NeededLicence(name, entry["sha256"], entry.get("variable") or "")
    with writing(workspace):
        acceptance = accept_licence(workspace.yard, licence)
    show_json(asdict(acceptance)) if as_json else echo(
        f"accepted by {acceptance.who}, {acceptance.when}: {name} of {record.module}"
    )


@verb(
    ("of a revision", "stackyard licences report pytorch/2.13"),
    ("of what a file would install", "stackyard licences report stack.yaml"),
    group=command, short_help="the licence of every package",
)  # fmt: skip
@click.argument("name", metavar="REV|FILE")
@AS_JSON
def report(context: Context, /, name: str, as_json: bool) -> None:
    """The licence of every package of a revision, or of the lock of a file, as SPDX where that can be told.

    `licences: {deny: [...]}` of site.yaml keeps stacks with some of them from being locked.
    """
    by_label = _of_file(context, Path(name)) if _is_file(name) else _of_revision(context, name)
    if as_json:
        show_json({label: [asdict(package) for package in packages] for label, packages in by_label.items()})
        return
    for label, packages in by_label.items():
        echo(label)
        width = max((len(f"{p.name} {p.version}") for p in packages), default=0)
        for package in packages:
            echo(f"    {f'{package.name} {package.version}':{width}}  {package.licence or 'not known'}")
        counts = Counter(package.licence or "not known" for package in packages).most_common()
        echo("  " + ", ".join(f"{licence}: {count}" for licence, count in counts))


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml", ".txt")) or Path(name).is_file()


def _of_revision(context: Context, name: str) -> dict[str, list[PackageLicence]]:
    from stackyard.deploy.api import licences_of_revision

    yard = context.yard(reading=True)
    record = record_of(yard, name)
    return {record.module: licences_of_revision(record, Workspace(context.site(), yard))}


def _of_file(context: Context, file: Path) -> dict[str, list[PackageLicence]]:
    from stackyard.cli.display import display
    from stackyard.deploy.api import Request, licences_of_variant, lock_all
    from stackyard.lock.api import load_stacks

    site, yard = context.site(), context.yard()
    stacks = load_stacks([file], Workspace(site, yard))
    plain: Any = site.model_copy(update={"licences": site.licences.model_copy(update={"deny": ()})})
    with display() as progress:
        locks = lock_all(Request(plain, yard, stacks, only_locked=True), progress)
    variants = {(v.version, v.name): v for locked in locks for v in locked.stack.variants}
    return {
        f"{variant.stack} {variant.version} {variant.variant} {variant.platform}": licences_of_variant(
            variant, variants.get((variant.version, variant.variant)), Workspace(site, yard)
        )
        for locked in locks
        for variant in locked.lock.variants
    }
