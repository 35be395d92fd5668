"""``stackyard diff``: the differences between two revisions or locks."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_text
from stackyard.core.errors import InputError
from stackyard.yard.api import record_of


@verb(
    ("two published revisions", "stackyard diff pytorch/2.12 pytorch/2.13"),
    ("a lock and its former version", "stackyard diff old.lock stack.yaml.lock"),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def command(context: Context, a: str, b: str, as_json: bool) -> None:
    """Compare two revisions, or two lock files (all their variants by name)."""
    from stackyard.lock.api import compare_packages

    pairs = _pairs(context, a, b)
    results = {label: compare_packages(before, after) for label, (before, after) in pairs.items()}
    if as_json:
        show_json({"a": a, "b": b, "differences": {label: r.to_json() for label, r in results.items()}})
        return
    for label, result in results.items():
        if len(results) > 1:
            echo(click.style(label, bold=True))
        lines = result.lines()
        show_text("\n".join(lines) if lines else "no differences")


def _pairs(context: Context, a: str, b: str) -> dict[str, tuple[Any, Any]]:
    for missing in (name for name in (a, b) if name.endswith(".lock") and not _is_file(name)):
        raise InputError(f"no such lock file: {missing}", hint="create it: stackyard lock FILE")
    if _is_file(a) != _is_file(b):
        hint = "use the revision's own lock: `stackyard show REV` prints its path"
        raise InputError("cannot compare a revision with a lock file", hint=hint)
    if not _is_file(a):
        yard = context.yard(reading=True)
        one, two = record_of(yard, a), record_of(yard, b)
        return {f"{one.module} -> {two.module}": (one.packages, two.packages)}
    before, after = (_variants(Path(p)) for p in (a, b))
    shared = [key for key in before if key in after]
    if not shared:
        return _of_one_machine(before, after, f"{a} and {b} have no variant and platform in common")
    return {key: (before[key], after[key]) for key in shared}


def _is_file(name: str) -> bool:
    """Whether an argument is a file; a too long word is not."""
    try:
        return Path(name).is_file()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def _of_one_machine(before: dict[str, Any], after: dict[str, Any], problem: str) -> dict[str, tuple[Any, Any]]:
    """Two locks with one variant each, even if its names differ."""
    if len(before) != 1 or len(after) != 1:
        hint = f"one has {', '.join(before)}, the other {', '.join(after)}"
        raise InputError(problem, hint=hint)
    (one, packages), (two, others) = (*before.items(), *after.items())
    return {f"{one} -> {two}": (packages, others)}


def _variants(path: Path) -> dict[str, Any]:
    from stackyard.lock.api import read_lock

    lock = read_lock(path)
    return {f"{v.variant or 'default'} on {v.platform}": (*v.conda, *v.pip) for v in lock.variants}
