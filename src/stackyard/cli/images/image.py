"""``stackyard image``: revisions whose files are in one image, and how they are mounted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import VerbGroup, verb
from stackyard.cli.images import build as imagebuild
from stackyard.cli.images import extend as imageextend
from stackyard.cli.images import files as imagefiles
from stackyard.cli.images import transfer as imagetransfer
from stackyard.cli.output import echo, show_error, show_json, show_table, show_text
from stackyard.core.errors import StackyardError
from stackyard.core.findings import human_bytes
from stackyard.yard.api import RevisionPaths, current_entries, readable_record, record_of

if TYPE_CHECKING:
    from stackyard.yard.api import BuildRecord, Entry

Function = Callable[..., None]
"""What a verb does."""

NO_IMAGES = "no images; `image: squashfs` in a stack.yaml, or `stackyard deploy --image squashfs`, makes one"


@click.group(cls=VerbGroup, examples=(
    ("your images and the site's, and how this machine mounts them", "stackyard image status"),
    ("the maps by which root mounts all images at their first use", "stackyard image autofs"),
))  # fmt: skip
def command() -> None:
    """Images: revisions that are one file (`image: squashfs` of a stack.yaml), SIF and OCI files for others, and bases.

    The commands of a revision that is an image need nothing of this: they mount it by themselves, while it is used.
    """


_MADE = (imagefiles.from_, imagefiles.from_directory, imageextend.extend, imagebuild.command, imagetransfer.push,
         imagetransfer.pull)  # fmt: skip
for _made in _MADE:
    command.add_command(_made)


def _json(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def _verb(name: str, short: str, *examples: tuple[str, str]) -> Callable[[Function], click.Command]:
    return verb(*examples, group=command, name=name, short_help=short)


@_verb(
    "status", "which images are mounted, and how",
    ("every image of the yard, and the ways of this machine", "stackyard image status"),
    ("one of them, for a script", "stackyard image status pytorch/2.13 --json"),
)  # fmt: skip
@click.argument("rev", required=False, metavar="[REV]")
@_json
def status(context: Context, rev: str | None, as_json: bool) -> None:
    """Say of REV, or of every image, whether it is mounted for all processes here, and how its commands mount it else.

    It also asks the file system servers of your own namespaces, and names those that do not answer within 30 s.

    Exit status 4: an image is not mounted, and this machine has no way to mount it, or you may not read it.
    """
    from stackyard.images.api import mount_ways, mounted_image, silent_servers, why_unusable

    ways = mount_ways()
    records = list(_records(context, rev))
    silent = silent_servers(Path(record.prefix) for record in records)
    rows = []
    for record in records:
        mounted = mounted_image(record)
        row: dict[str, Any] = {
            "module": record.module,
            "mounted": mounted.kind if mounted else "",
            "prefix": record.prefix,
        }
        trouble = mounted.trouble if mounted else ""
        row |= {"stale": bool(trouble), "trouble": trouble, "silent_servers": silent[Path(record.prefix)]}
        row["unusable"] = "" if mounted else why_unusable(record)
        rows.append(row)
    usable = any(way.works for way in ways[1:])
    if as_json:
        show_json({"images": rows, "ways": [vars(way) for way in ways]})
    else:
        if rows:
            show_table([{**row, "mounted": _said(row)} for row in rows], ["module", "mounted"])
        else:
            echo(NO_IMAGES)
        echo()
        echo("ways to mount an image on this machine, in the order in which they are tried:")
        for way in ways:
            echo(f"  {'✔' if way.works else '✘'} {way.name}: {way.detail}")
    if any(row["unusable"] or not (usable or row["mounted"]) for row in rows):
        sys.exit(4)


def _said(row: Mapping[str, Any]) -> str:
    said, numbers = row["mounted"] or "when it is used", " ".join(map(str, row["silent_servers"]))
    if row["unusable"]:
        said = f"cannot be mounted: {row['unusable']}"
    if row["trouble"]:
        said += f", {row['trouble']}: stackyard image unmount {row['module']}"
    if numbers:
        said += f"; a server in a namespace of yours does not answer: kill -KILL {numbers}"
    return said


@_verb(
    "list", "the images of this yard and the site's",
    ("with their sizes", "stackyard image list"),
    ("for a script", "stackyard image list --json"),
)  # fmt: skip
@_json
def list_(context: Context, as_json: bool) -> None:
    """List the images of this yard and the site's, and their bases: bytes, files, and what packed them."""
    from stackyard.images.api import all_bases

    rows = [{"module": record.module, **record.payload.facts()} for record in _records(context, None)]
    rows += [{"base": base.name, "digest": base.manifest, "platform": base.platform, **asdict(base.root)}
             for base, _ in all_bases(context.yard())]  # fmt: skip
    if as_json:
        show_json(rows)
        return
    if not rows:
        echo(NO_IMAGES)
        return
    shown = [{"image": str(row.get("module") or f"base {row['base']}"), "bytes": human_bytes(row["bytes"]),
              "entries": f"{row['entries']:,}"} for row in rows]  # fmt: skip
    show_table(shown, ["image", "bytes", "entries"])


@_verb(
    "inspect", "one image: hash, size, how it was packed",
    ("how it was packed", "stackyard image inspect pytorch/2.13"),
    ("a base, or a SIF file", "stackyard image inspect pytorch.sif"),
    ("the layers of one in an OCI layout", "stackyard image inspect oci:images:pytorch-2.13 --json"),
)  # fmt: skip
@click.argument("rev", metavar="REV|BASE|FILE|oci:DIR[:NAME]")
@_json
def inspect(context: Context, rev: str, as_json: bool) -> None:
    """Show the form of REV as its record has it, and what its image says of itself; or a base, or a SIF file."""
    if rev.startswith("oci:"):
        imagetransfer.inspect(rev, as_json)
        return
    from stackyard.images.api import base_named, superblock

    if _is_file(rev):
        imagefiles.inspect_file(Path(rev), as_json)
        return
    if stored := base_named(context.yard(), rev):
        imagefiles.show_base(stored, as_json)
        return
    record = _one(context, rev, wrapped=True)
    image = RevisionPaths.of(record.path).image
    value = {
        "module": record.module,
        "image": str(image),
        **record.payload.facts(),
        "superblock": asdict(superblock(image)),
    }
    if as_json:
        show_json(value)
        return
    for key in ("module", "image", "sha256", "entries", "packed_with"):
        echo(f"{key.replace('_', ' ')}: {value[key]}")
    block = value["superblock"]
    echo(f"size: {human_bytes(value['bytes'])}, {block['compressor']}, blocks of {human_bytes(block['block'])}")


@_verb(
    "check", "compare an image with its record, every byte",
    ("after a copy or a failure of the disk", "stackyard image check pytorch/2.13"),
    ("a base, or a SIF file", "stackyard image check pytorch.sif"),
    ("every blob of one in an OCI layout", "stackyard image check oci:images:pytorch-2.13"),
)  # fmt: skip
@click.argument("rev", metavar="REV|BASE|FILE|oci:DIR[:NAME]")
def check(context: Context, rev: str) -> None:
    """Read the whole image of REV and compare its hash with that in the record. Exit status 3: it differs.

    Of a base, the layers are compared too; of a SIF file, its partitions with the hashes in its labels.
    """
    if rev.startswith("oci:"):
        imagetransfer.check(rev)
        return
    from stackyard.images.api import base_named, check_base, superblock

    if _is_file(rev):
        imagefiles.check_file(Path(rev))
        return
    if stored := base_named(context.yard(), rev):
        check_base(stored)
        echo(f"{rev}: the base is as it was imported ({human_bytes(stored.base.root.bytes)})")
        return
    record = _one(context, rev, wrapped=True)
    image = RevisionPaths.of(record.path).image
    superblock(image)
    if bad := record.payload.changed(image):
        hint = f"restore it from a copy, or move {record.path} away and deploy again"
        error = StackyardError(bad, hint=hint)
        error.exit_code = 3
        raise error
    echo(f"{record.module}: {image.name} is as it was packed ({human_bytes(record.payload.facts()['bytes'])})")


@_verb(
    "mount", "mount an image for all your processes",
    ("so that an editor sees the files", "stackyard image mount pytorch/2.13"),
    ("a certain revision; as root for everybody on this node", "stackyard image mount pytorch/2.13-py311-2"),
)  # fmt: skip
@click.argument("rev", metavar="REV")
def mount(context: Context, rev: str) -> None:
    """Mount the image of REV on its prefix: as root for everybody on this node, else for your processes.

    Its commands do not need it; editors, debuggers and file listings then see the files too.
    """
    from stackyard.images.api import mount_image

    record = _one(context, rev)
    echo(f"{record.module} is mounted on {record.prefix} {mount_image(record)}")


@_verb(
    "unmount", "undo `image mount`",
    ("when nothing of yours uses it any more", "stackyard image unmount pytorch/2.13"),
    ("a certain revision", "stackyard image unmount pytorch/2.13-py311-2"),
)  # fmt: skip
@click.argument("rev", metavar="REV")
def unmount(context: Context, rev: str) -> None:
    """Unmount the image of REV."""
    from stackyard.images.api import unmount_image

    record = _one(context, rev)
    unmount_image(record)
    echo(f"{record.module} is unmounted")


@_verb(
    "autofs", "the maps for root's automounter",
    ("for every image of the yard", "stackyard image autofs"),
    ("the files by their path, for configuration management", "stackyard image autofs --json"),
)  # fmt: skip
@_json
def autofs(context: Context, as_json: bool) -> None:
    """Print the files by which root lets the kernel mount every image of this yard and the site's at its first use.

    Write them on each node, again after a deploy. Loading a module then costs nothing more than with files, for
    everybody. The last one is the script by which mount(8) mounts them (mode 0755). As root it looks whether root can
    read each image on this node. Exit status 3: one is left out, since root cannot, or since it was adopted.
    """
    from stackyard.images.api import AUTOFS_HELPER, autofs_maps, require_readable_image

    left_out = 0
    records: list[BuildRecord] = []
    for entry in _entries(context):
        try:
            if os.geteuid() == 0:
                require_readable_image(RevisionPaths.of(entry.folder))
            packed = [record for record in _image_of(entry) if record.payload.is_packed]
            for record in packed:
                record.origin.require_common_mount()
            records += packed
        except StackyardError as error:
            show_error(error)
            left_out += 1
            continue
    maps = autofs_maps(records)
    if as_json:
        show_json(maps)
    else:
        for path, text in maps.items():
            show_text(f"# {path}\n{text}")
        echo(f"# then, on each node: chmod 755 {AUTOFS_HELPER}; systemctl reload autofs")
    if left_out:
        sys.exit(3)


def _records(context: Context, rev: str | None) -> Iterator[BuildRecord]:
    """One revision, or the published ones whose files are in an image, wrapped ones too."""
    if rev is not None:
        yield _one(context, rev, wrapped=True)
        return
    for entry in _entries(context):
        yield from _image_of(entry)


def _entries(context: Context) -> Iterator[Entry]:
    """The published entries of this yard and its parents: users' images are mostly in the site's yard."""
    for ancestor in context.yard().lineage():
        yield from current_entries(ancestor)


def _image_of(entry: Entry) -> list[BuildRecord]:
    """The record of a published revision, if its files are in an image."""
    record = readable_record(RevisionPaths.of(entry.folder))
    return [record] if record is not None and record.payload.image else []


def _one(context: Context, rev: str, *, wrapped: bool = False) -> BuildRecord:
    """The record of a revision with an image; with `wrapped` also a third-party one, not mounted on the prefix."""
    record = record_of(context.yard(), rev)
    if wrapped:
        record.payload.require_image(record.module)
    else:
        record.payload.require_mountable(record.module, rev)
    return record


def _is_file(text: str) -> bool:
    """Whether a word names a SIF file rather than a revision or a base."""
    return text.endswith(".sif") or (Path(text).is_file() and "/" in text)
