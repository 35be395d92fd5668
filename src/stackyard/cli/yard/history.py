"""``stackyard history``: the publications of a yard: when, by whom and from which files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_text
from stackyard.cli.tables import show_line
from stackyard.cli.yard.changes import show_changes
from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.yard.api import (
    Changes,
    Manifest,
    Yard,
    compare_generations,
    current_number,
    generation_numbers,
    read_manifest,
)

_MOST = 20


@verb(
    ("the last five generations, the newest first", "stackyard history -n 5"),
    ("every generation since the first", "stackyard history --all"),
    ("one generation: who, when, the command, the files, what it publishes", "stackyard history 12"),
)
@click.argument("number", required=False, type=click.IntRange(min=1), metavar="[GENERATION]")
@click.option("-n", "most", type=click.IntRange(min=1), metavar="N", help="The last N generations; 20 by default.")
@click.option("--all", "everything", is_flag=True, help="All generations, as --json lists them without -n.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects; with GENERATION, one object.")
def command(context: Context, number: int | None, most: int | None, everything: bool, as_json: bool) -> None:
    """List the last generations of this yard, the newest first, or show GENERATION.

    A generation is what users saw from one deploy, rollback or verification to the next; `stackyard rollback
    GENERATION` publishes its content again. + published, - withdrawn or missing, ~ changed, D default changed.
    """
    yard = context.yard(reading=True)
    if number is not None:
        _one(GenerationHistory.of(yard, 0), read_manifest(yard, number), as_json)
        return
    if everything and most is not None:
        raise InputError("-n and --all exclude each other", hint="use one of them")
    most = most if most is not None or everything or as_json else _MOST
    pasts = [past for past in (GenerationHistory.of(ancestor, most) for ancestor in yard.lineage()) if past.numbers]
    if as_json:
        show_json([row for past in pasts for row in past.rows()])
        return
    if not pasts:
        echo(f"no generations in {yard.root}; publish one: stackyard deploy FILE")
    for position, past in enumerate(pasts):
        if len(pasts) > 1:
            show_text(("\n" if position else "") + f"in {past.yard.root}:")
        _list(past)
        if earlier := past.earlier:
            shown = f"stackyard history -n {len(past.numbers) + min(earlier, _MOST)}, or --all"
            echo(f"{counted(earlier, 'earlier generation')} not listed: {shown}")


@dataclass(frozen=True)
class GenerationHistory:
    """The last generations of a yard by number, or all; manifests are read lazily, once."""

    yard: Yard
    current: int
    numbers: tuple[int, ...]
    _found: dict[int, Manifest | StackyardError] = field(default_factory=dict)

    @classmethod
    def of(cls, yard: Yard, most: int | None = None) -> GenerationHistory:
        """The generations on disk, the newest first."""
        return cls(yard, current_number(yard), tuple(islice(generation_numbers(yard), most)))

    @property
    def earlier(self) -> int:
        """The number of generations before these."""
        return sum(number < self.numbers[-1] for number in generation_numbers(self.yard))

    def manifest(self, number: int) -> Manifest | StackyardError:
        """The manifest of a generation, or the error if it cannot be read."""
        if number not in self._found:
            try:
                self._found[number] = read_manifest(self.yard, number)
            except StackyardError as error:
                self._found[number] = error
        return self._found[number]

    def changes(self, manifest: Manifest) -> Changes | None:
        """The visible changes of a generation; None if the previous one cannot be read."""
        before = self.manifest(manifest.previous) if manifest.previous else None
        if isinstance(before, StackyardError):
            return None
        return compare_generations(before.entries if before else (), manifest.entries)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The generations as plain objects, the newest first."""
        for number in self.numbers:
            manifest = self.manifest(number)
            if isinstance(manifest, Manifest):
                yield self.row(manifest)
            else:
                yield {"number": number, "yard": str(self.yard.root), "error": manifest.message}

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


def _list(past: GenerationHistory) -> None:
    width = max(len(str(number)) for number in past.numbers)
    manifests = {number: past.manifest(number) for number in past.numbers}
    names = max((len(_who(manifest)) for manifest in manifests.values() if isinstance(manifest, Manifest)), default=0)
    for number, manifest in manifests.items():
        label = click.style(f"{number:>{width}}", bold=True)
        if not isinstance(manifest, Manifest):
            echo(f"{label}  {click.style('damaged', fg='red')}: {manifest.message}")
            continue
        now = click.style("  (current)", fg="green") if number == past.current else ""
        show_line(f"{label}  {_when(manifest)}  {_who(manifest):<{names}}  {manifest.reason}{now}", width + 2)
        _show_changes(past, manifest)


def _one(past: GenerationHistory, manifest: Manifest, as_json: bool) -> None:
    if as_json:
        show_json({**past.row(manifest), "entries": [asdict(e) for e in manifest.entries]})
        return
    now = click.style("  (current)", fg="green") if manifest.number == past.current else ""
    echo(click.style(f"generation {manifest.number}", bold=True) + now)
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
            show_line(f"  {name:<9}{text}", 11)
    for position, file in enumerate(origin.files):
        echo(f"  {'' if position else 'files':<9}{file.sha256[:12] or 'not found':<12}  {file.path}")
    echo("changes:")
    _show_changes(past, manifest)
    shown = [e for e in manifest.entries if e.is_visible]
    echo(f"users {'saw' if not now else 'see'}:" if shown else "users saw nothing")
    for e in shown:
        echo(f"    {e.module}" + ("  (D)" if e.default else "") + (f"  {e.state}" * (e.state != "published")))


def _show_changes(past: GenerationHistory, manifest: Manifest) -> None:
    changes = past.changes(manifest)
    if changes is None:
        echo(f"    compared with generation {manifest.previous}: not known, it cannot be read")
    else:
        show_changes(changes)


def _when(manifest: Manifest) -> str:
    return manifest.created[:16].replace("T", " ")


def _who(manifest: Manifest) -> str:
    origin = manifest.origin
    return f"{origin.who}@{origin.host}" if origin.user else "(not recorded)"
