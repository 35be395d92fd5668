"""``stackyard export``: a revision as a file for other tools, or to deploy elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import emit, show_json
from stackyard.core.errors import InputError
from stackyard.lock.api import LockedVariant
from stackyard.yard.api import BuildRecord, RevisionPaths, record_of, write_text


@verb(
    ("an extension with its base, as conda reads it", "stackyard export mine --as environment > environment.yml"),
    ("a stack.yaml that needs no base", "stackyard export mine --as stack -o stack.yaml"),
    ("a published stack for pixi", "stackyard export pytorch/2.13 --as pixi > pixi.lock"),
)
@click.argument("rev", metavar="REV")
@click.option(
    "--as", "form", metavar="FORMAT", default="environment", show_default=True,
    help="environment, requirements, stack, pixi, pylock, explicit, or a plug-in's.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write (default: standard output).")
@click.option("--dry-run", is_flag=True, help="Print the file instead of writing it.")
@click.option("--json", "as_json", is_flag=True, help="Print an object with the text.")
def command(context: Context, rev: str, form: str, output: Path | None, dry_run: bool, as_json: bool) -> None:
    """Write the packages of REV, a stack or an extension with its base, for another tool or to deploy elsewhere.

    `lock FILE --export FORMAT` does the same for a file. A requirements.txt and a pylock.toml have what pip installed
    only; what conda installed is named in their comments.
    """
    if rev.endswith((".yaml", ".yml", ".txt", ".lock")) and Path(rev).is_file():
        file = rev.removesuffix(".lock")
        raise InputError(f"{rev} is a file, not a revision", hint=f"stackyard lock {file} --export {form}")
    record = record_of(context.yard(reading=True), rev)
    text = _text(record, _locked(record), form)
    if as_json:
        show_json({"module": record.module, "as": form, "text": text})
    elif output is None or dry_run:
        emit(text)
    else:
        write_text(output, text)


def _locked(record: BuildRecord) -> LockedVariant:
    from stackyard.lock.api import read_lock, with_base

    (own,) = read_lock(RevisionPaths.of(record.path).lock).variants
    return with_base(own, record.base)


def _text(record: BuildRecord, locked: LockedVariant, form: str) -> str:
    from dataclasses import replace

    from stackyard.lock.api import EXPORTS, LockedInterpreter, writer_of

    if form != "stack":
        return writer_of(form, "stack")(locked)
    bare = replace(locked, interpreter=LockedInterpreter("none"))  # a stack.yaml has a key of its own for that
    return "".join(f"{line}\n" for line in _stack(record, locked, EXPORTS["environment"](bare)))


def _stack(record: BuildRecord, locked: LockedVariant, environment: str) -> Iterator[str]:
    """A stack.yaml with the same packages."""
    yield f"# {record.module}" + (f" with its base {record.base_id}" if record.base_id else "")
    yield from (f"name: {record.stack}", f'version: "{record.version}"')
    if locked.interpreter.source in ("host", "uv"):
        yield f'interpreter: {{source: {locked.interpreter.source}, version: "{locked.interpreter.version}"}}'
    yield "environment:"
    inner = (line for line in environment.splitlines() if line and not line.startswith(("#", "name:", "prefix:")))
    yield from (f"  {line}" for line in inner)
