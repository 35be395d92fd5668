"""``stackyard history``: what was published when, by whom and from which files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click

from stackyard.cli.changes import show_changes
from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.output import show_json
from stackyard.errors import StackyardError
from stackyard.yard import generations
from stackyard.yard.changes import Changes, compare
from stackyard.yard.layout import Yard
from stackyard.yard.record import Manifest

EXAMPLES = (
    ("the last five generations, the newest first", "stackyard history -n 5"),
    ("one generation: who, when, the command, the files, what it publishes", "stackyard history 12"),
)


@click.command(cls=Verb, short_help="what was published when, by whom, from which files", examples=EXAMPLES)
@click.argument("number", required=False, type=click.IntRange(min=1), metavar="[GENERATION]")
@click.option("-n", "most", type=click.IntRange(min=1), metavar="N", help="Only the last N generations.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects; with GENERATION, one object.")
@click.pass_obj
def command(context: Context, number: int | None, most: int | None, as_json: bool) -> None:
    """List the generations of this yard, the newest first, or show GENERATION.

    A generation is what users saw from one deploy, rollback or verification to the next; `stackyard rollback
    GENERATION` publishes its content again. + published, - withdrawn or missing, ~ changed, D default changed.
    """
    yard = context.yard()
    if number is not None:
        _one(yard, Past.of(yard), generations.read(yard, number), as_json)
        return
    pasts = [past for past in map(Past.of, yard.lineage()) if past.manifests or past.damaged]
    if as_json:
        show_json([row for past in pasts for row in list(past.rows())[:most]])
        return
    if not pasts:
        click.echo(f"no generations in {yard.root}; publish one: stackyard deploy FILE")
    for position, past in enumerate(pasts):
        if len(pasts) > 1:
            click.echo(("\n" if position else "") + f"in {past.yard.root}:")
        _list(past, most)


@dataclass(frozen=True)
class Past:
    """All generations of a yard by number; those whose manifest cannot be read with the reason."""

    yard: Yard
    current: int
    manifests: Mapping[int, Manifest]
    damaged: Mapping[int, str]

    @classmethod
    def of(cls, yard: Yard) -> Past:
        """The generations on disk."""
        damaged: dict[int, str] = {}

        def note(number: int, error: StackyardError) -> None:
            damaged[number] = error.message

        manifests = {m.number: m for m in generations.history(yard, note)}
        return cls(yard, generations.current_number(yard), manifests, damaged)

    def numbers(self) -> list[int]:
        """All numbers, the newest first."""
        return sorted({*self.manifests, *self.damaged}, reverse=True)

    def changes(self, manifest: Manifest) -> Changes | None:
        """What a generation changed for users; None where the one before it cannot be read."""
        if manifest.previous and manifest.previous not in self.manifests:
            return None
        before = self.manifests[manifest.previous].entries if manifest.previous else ()
        return compare(before, manifest.entries)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The generations as plain objects, the newest first."""
        for number in self.numbers():
            if number in self.manifests:
                yield self.row(self.manifests[number])
            else:
                yield {"number": number, "yard": str(self.yard.root), "error": self.damaged[number]}

    def row(self, manifest: Manifest) -> dict[str, Any]:
        """One generation as a plain object, without its revisions."""
        changes = self.changes(manifest)
        return {
            "number": manifest.number,
            "current": manifest.number == self.current,
            "created": manifest.created,
            "reason": manifest.reason,
            "content": manifest.content,
            "previous": manifest.previous,
            "origin": asdict(manifest.origin),
            "changes": asdict(changes) if changes else None,
            "yard": str(self.yard.root),
        }


def _list(past: Past, most: int | None) -> None:
    numbers = past.numbers()[:most]
    width = max(len(str(number)) for number in numbers)
    names = max((len(_who(past.manifests[number])) for number in numbers if number in past.manifests), default=0)
    for number in numbers:
        label = click.style(f"{number:>{width}}", bold=True)
        if number not in past.manifests:
            click.echo(f"{label}  {click.style('damaged', fg='red')}: {past.damaged[number]}")
            continue
        manifest = past.manifests[number]
        now = click.style("  (current)", fg="green") if number == past.current else ""
        click.echo(f"{label}  {_when(manifest)}  {_who(manifest):<{names}}  {manifest.reason}{now}")
        _show_changes(past, manifest)


def _one(yard: Yard, past: Past, manifest: Manifest, as_json: bool) -> None:
    if as_json:
        show_json({**past.row(manifest), "entries": [asdict(e) for e in manifest.entries]})
        return
    now = click.style("  (current)", fg="green") if manifest.number == past.current else ""
    click.echo(click.style(f"generation {manifest.number}", bold=True) + now)
    origin = manifest.origin
    facts = {
        "what": manifest.reason,
        "when": manifest.created,
        "who": f"{origin.who}, uid {origin.uid}, on {origin.host}" if origin.user else "not recorded",
        "command": shlex.join(origin.command),
        "program": f"stackyard {origin.program}" if origin.program else "",
        "after": f"generation {manifest.previous}" if manifest.previous else "",
        "repeats": f"generation {manifest.content}" if manifest.content else "",
    }
    for name, text in facts.items():
        if text:
            click.echo(f"  {name:<9}{text}")
    for position, file in enumerate(origin.files):
        click.echo(f"  {'' if position else 'files':<9}{file.sha256[:12] or 'not found':<12}  {file.path}")
    click.echo("changes:")
    _show_changes(past, manifest)
    shown = [e for e in manifest.entries if e.is_visible]
    click.echo(f"users {'saw' if not now else 'see'}:" if shown else "users saw nothing")
    for e in shown:
        click.echo(f"    {e.module}" + ("  (D)" if e.default else "") + (f"  {e.state}" * (e.state != "published")))


def _show_changes(past: Past, manifest: Manifest) -> None:
    changes = past.changes(manifest)
    if changes is None:
        click.echo(f"    compared with generation {manifest.previous}: not known, it cannot be read")
    else:
        show_changes(changes)


def _when(manifest: Manifest) -> str:
    return manifest.created[:16].replace("T", " ")


def _who(manifest: Manifest) -> str:
    origin = manifest.origin
    return f"{origin.who}@{origin.host}" if origin.user else "(not recorded)"
