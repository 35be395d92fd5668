"""``stackyard push``: a revision as an artefact, for other yards at the same path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.images.build import compression_option
from stackyard.cli.images.transfer import registry_options
from stackyard.cli.output import echo, show_json
from stackyard.core.findings import human_bytes
from stackyard.yard.api import find_revision, record_of

if TYPE_CHECKING:
    from stackyard.images.api import Compression, Image, Reference, Registry
    from stackyard.yard.api import BuildRecord, Entry


@verb(
    ("to a registry", "stackyard push pytorch/2.13 docker://registry.example.org/stacks/pytorch:2.13"),
    ("into a directory, to carry it", "stackyard push pytorch/2.13 oci:/media/disk/stacks:pytorch-2.13"),
)
@click.argument("rev", metavar="REV")
@click.argument("target", metavar="TARGET")
@compression_option
@click.option("--dry-run", is_flag=True, help="Show what a yard must have for it; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@registry_options
def command(
    context: Context, rev: str, target: str, compression: Compression, dry_run: bool, as_json: bool,
    plain_http: bool, authfile: Path | None, limit_s: float,
) -> None:  # fmt: skip
    """Send REV to docker://REGISTRY/NAME:TAG (by skopeo), or oci:DIR:NAME: its files, record, lock, report and recipe.

    `stackyard pull` makes the same revision of it in a yard at the same path, as on another cluster that has the yard
    there too. For containers, which need neither a yard nor its path: `stackyard image push`.
    """
    from stackyard.cli.display import display
    from stackyard.images.api import Registry, fit_of, require_sendable

    record, entry = record_of(context.yard(), rev), find_revision(context.yard(), rev)
    for text in _told(entry):
        context.notice(text)
    if dry_run:
        require_sendable(record)
        fit = fit_of(record)
        if as_json:
            show_json({"target": target, "dry_run": True, **asdict(fit)})
        else:
            needs = f", glibc {fit.glibc} or newer" if fit.glibc else ""
            echo(f"would push {record.module} to {target}: for {fit.path} on {fit.platform}{needs}")
        return
    with display() as progress:
        progress.phase(record.module, "push", target)
        place, image = _send(
            _OwnArtefact(record, asdict(entry), compression), target, Registry(plain_http, authfile, limit_s)
        )
    if as_json:
        show_json({"target": place, "digest": image.manifest.digest, "bytes": image.bytes})
    else:
        echo(f"{place}: {image.manifest.digest}, {len(image.layers)} layers, {human_bytes(image.bytes)}")


_STATES = {"withdrawn": "was withdrawn", "failed": "failed its last verification", "unverified": "is not verified"}


def _told(entry: Entry) -> Iterator[str]:
    """Sentences about a revision's state here that matter before it is published elsewhere."""
    if entry.state in _STATES:
        yield f"{entry.module} {_STATES[entry.state]} here; a pull verifies and publishes it"
    if entry.retired:
        use = f" in favour of {entry.successor}" if entry.successor else ""
        yield f"{entry.module} is retired from {entry.retired}{use}; it is so where it is pulled"


@dataclass(frozen=True)
class _OwnArtefact:
    record: BuildRecord
    entry: Mapping[str, Any]
    compression: Compression

    def into(self, layout: Reference) -> Image:
        from stackyard.images.api import pack_revision

        return pack_revision(self.record, self.entry, layout, self.compression)


def _send(artefact: _OwnArtefact, target: str, registry: Registry) -> tuple[str, Image]:
    """The image's place and manifest, after the transfer."""
    from stackyard.host.files.scratch import scratch
    from stackyard.images.api import Reference, image_name, is_reference, push_image, reference

    name = image_name(artefact.record)
    if is_reference(target):
        place = reference(target)
        place = Reference(place.directory, place.name or name)
        return str(place), artefact.into(place)
    with scratch("push") as work:
        layout = Reference(work / "layout", name)
        artefact.into(layout)
        sent = push_image(layout, target, registry)
        return sent.place, sent.image
