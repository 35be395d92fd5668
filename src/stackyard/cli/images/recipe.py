"""``stackyard recipe``: a recipe that builds a revision's image elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.images.build import revision_of
from stackyard.cli.output import echo
from stackyard.core.errors import InputError
from stackyard.yard.api import RevisionPaths


@verb(
    ("a Containerfile and what it copies",
     "stackyard recipe pytorch/2.13 --as containerfile --base docker://debian:trixie -o recipe"),
    ("a definition for Apptainer, on a base of the yard",
     "stackyard recipe pytorch/2.13 --as def --base debian -o recipe"),
)  # fmt: skip
@click.argument("rev", metavar="REV")
@click.option("--as", "kind", type=click.Choice(["containerfile", "def"]), required=True, help="What to write.")
@click.option(
    "--base", required=True, metavar="BASE", help="The image below: docker://NAME, oci:DIR, or a base of the yard."
)
@click.option(
    "--builder", default="", metavar="IMAGE", help="The image that installs: one with Python and its venv module."
)
@click.option("--prefix", default="", metavar="PATH", help="Where the stack is (default: /opt/stackyard/STACK).")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The directory to write, new or empty."
)
def command(context: Context, rev: str, kind: str, base: str, builder: str, prefix: str, output: Path) -> None:
    """Write a recipe by which others build an image with the packages of REV, without Stackyard.

    It installs the locked archives, each compared with its sha256, at the path that `image build` takes. What cannot be
    had elsewhere (a local project, a post script) is refused: push the image itself.
    """
    from stackyard.expose.api import change_of
    from stackyard.images.api import IMAGE_ROOT, Recipe, recipe_files
    from stackyard.lock.api import read_lock

    record = revision_of(context, rev)
    (locked,) = read_lock(RevisionPaths.of(record.path).lock).variants
    place = prefix.rstrip("/") or f"{IMAGE_ROOT}/{record.stack}"
    recipe = Recipe(record, locked, change_of(record, context.site), place, _named(context, base), builder)
    texts, notes = recipe_files(recipe, kind)
    _write(output, texts)
    echo(f"written to {output}: {', '.join(texts)}")
    for note in notes:
        context.notice(note)


def _named(context: Context, base: str) -> str:
    """A base under a name valid elsewhere: one of the yard by its source, pinned.

    Raises:
        InputError: it does not exist, or came from a file.
    """
    if ":" in base:
        return base
    from stackyard.images.api import find_base

    stored = find_base(context.workspace(), base).base
    if not stored.source.startswith("docker://"):
        raise InputError(f"the base {base} came from {stored.source}, which others do not have",
                         hint="name an image of a registry: --base docker://NAME@sha256:...")  # fmt: skip
    return f"{stored.source.partition('@')[0]}@{stored.digests[0]}"


def _write(directory: Path, texts: dict[str, str]) -> None:
    from stackyard.yard.api import write_text

    if directory.is_dir() and (others := sorted(path.name for path in directory.iterdir() if path.name not in texts)):
        raise InputError(f"{directory} has other files: {others[0]}", hint="name a directory that does not exist yet")
    for name, text in texts.items():
        write_text(directory / name, text)
