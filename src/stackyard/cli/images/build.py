"""``stackyard image build``, and code shared with ``image push``: a revision in another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.images.onefile import built, is_file, is_source
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import InputError
from stackyard.core.findings import human_bytes
from stackyard.yard.api import record_of

if TYPE_CHECKING:
    from stackyard.images.api import BuiltImage, Compression, OciRequest, Reference, StoredBase, WrittenSqsh
    from stackyard.yard.api import BuildRecord


def revision_of(context: Context, rev: str) -> BuildRecord:
    """The record of a revision that can be put into an image.

    Raises:
        InputError: no such revision; it is a wrapped image, which has no packages of ours; or it was adopted.
    """
    record = record_of(context.yard(), rev)
    record.origin.require_packable()
    return record


@dataclass(frozen=True)
class ImageOptions:
    """The options of the command line: the base, the file or directory to write, the prefix in the image, the key."""

    base: str
    output: Path
    name: str
    prefix: str
    compression: Compression
    dry_run: bool
    as_json: bool
    sign: Path | None = None


def oci(context: Context, record: BuildRecord | None, options: ImageOptions) -> None:
    """Write an OCI layout."""
    from stackyard.images.api import Reference, build_image, image_name

    if options.sign:
        raise InputError("--sign is for --format sif", hint="sign an OCI image in its registry, e.g. by cosign")
    if record is None:
        hint = "its layout is in the yard, see `stackyard image inspect`; `stackyard image push` sends it"
        raise InputError("no REV given: an OCI image of a base alone is the base", hint=hint)
    target = Reference(options.output, options.name or image_name(record))
    request = wanted_of(context, record, options.base, target, options.prefix, options.compression)
    if options.dry_run:
        base = request.base or "no base"
        echo(f"{record.module} at {request.place} on {base}, in layers by package, to {request.target}")
        return
    show(build_image(request), options.as_json)


def sif(context: Context, record: BuildRecord | None, options: ImageOptions) -> None:
    """Write a SIF file."""
    from stackyard.expose.api import change_of
    from stackyard.images.api import SifRequest, build_sif, find_base, sif_labels

    if options.name or options.compression != "gzip":
        raise InputError("--name and --compression are for --format oci", hint="leave them out: a SIF is one file")
    workspace, file = context.workspace(), options.output.absolute()
    base = find_base(workspace, options.base)
    if record is None:
        _base_alone(base, options)
        return
    request = SifRequest(
        record, change_of(record, workspace.site), base, file, workspace.site, options.prefix, options.sign
    )
    notices = build_sif(request, dry_run=options.dry_run)
    size = 0 if options.dry_run else file.stat().st_size
    if options.as_json:
        show_json({"file": str(file), "module": record.module, "base": base.base.name, "bytes": size,
                   "notices": notices, "labels": sif_labels(record, base, request.place)})  # fmt: skip
        return
    done = "would write" if options.dry_run else f"wrote {human_bytes(size)} to"
    echo(f"{done} {options.output}: {record.module} on {base.base.name}")
    for notice in notices:
        echo(f"  note: {notice}")


def sqsh(context: Context, record: BuildRecord | None, options: ImageOptions) -> None:
    """Write a SquashFS file for Enroot and Pyxis, from the layers that an OCI image would have."""
    from stackyard.host.files.scratch import scratch
    from stackyard.images.api import Reference, build_image, find_base, image_name, write_sqsh

    if options.name or options.compression != "gzip" or options.sign:
        raise InputError("--name, --compression and --sign are for other formats", hint="a .sqsh is one file")
    file = options.output.absolute()
    if record is None:
        stored = find_base(context.workspace(), options.base)
        if options.dry_run:
            echo(f"would write the base {stored.base.name} to {options.output}")
        else:
            show_sqsh(write_sqsh(Reference(stored.paths.layout, options.base), file), stored.base.name, options.as_json)
        return
    with scratch("sqsh", file.parent if file.parent.is_dir() else None) as work:
        target = Reference(work / "layout", image_name(record))
        request = wanted_of(context, record, options.base, target, options.prefix)
        if options.dry_run:
            echo(f"would write {record.module} at {request.place} on {request.base or 'no base'} to {options.output}")
            return
        made = build_image(request)
        for notice in made.notices:
            context.notice(notice)
        show_sqsh(write_sqsh(made.reference, file), f"{record.module} on {options.base}", options.as_json)


def show_sqsh(written: WrittenSqsh, what: str, as_json: bool = False) -> None:
    """Print the written file, and how srun takes it."""
    if as_json:
        show_json({"file": str(written.file), "sha256": written.sha256, "bytes": written.bytes,
                   "notices": list(written.notices)})  # fmt: skip
        return
    echo(f"wrote {human_bytes(written.bytes)} to {written.file}: {what}")
    echo(f"  stackyard launch --runtime pyxis --container {written.file} ..., or srun --container-image={written.file}")
    for notice in written.notices:
        echo(f"  note: {notice}")


def _base_alone(base: StoredBase, options: ImageOptions) -> None:
    from stackyard.images.api import build_base_sif

    file = options.output.absolute()
    if not options.dry_run:
        build_base_sif(base, file, options.sign)
    size = 0 if options.dry_run else file.stat().st_size
    if options.as_json:
        show_json({"file": str(file), "base": base.base.name, "bytes": size})
        return
    done = "would write" if options.dry_run else f"wrote {human_bytes(size)} to"
    echo(f"{done} {options.output}: the base {base.base.name}")


compression_option = click.option(
    "--compression", type=click.Choice(["gzip", "zstd"]), default="gzip", show_default=True,
    help="Of an OCI image's layers; zstd packs sooner and closer, and needs readers from 2022 on.",
)  # fmt: skip

Make = Callable[[Context, "BuildRecord | None", ImageOptions], None]
FORMATS: Mapping[str, Make] = {"oci": oci, "sif": sif, "sqsh": sqsh}
"""What `image build` makes, by the name of the format."""


@click.command(
    "build",
    cls=Verb,
    short_help="a revision as an image for other machines",
    examples=(
        ("in layers on a base, for registries, podman, Apptainer and Charliecloud",
         "stackyard image build pytorch/2.13 --format oci --base debian -o images"),
        ("one file for Apptainer and Singularity, on a base of the yard",
         "stackyard image build pytorch/2.13 --format sif --base debian -o pytorch.sif"),
        ("from a file of packages, in one command",
         "stackyard image build environment.yml --base docker://debian:12 --format sif -o env.sif"),
        ("one file for Enroot and Pyxis: srun --container-image=FILE",
         "stackyard image build pytorch/2.13 --format sqsh --base debian -o pytorch.sqsh"),
    ),
)  # fmt: skip
@click.argument("rev", required=False, metavar="[REV|FILE]")
@click.option("--format", "kind", type=click.Choice(sorted(FORMATS)), required=True, help="What to make.")
@click.option("--base", required=True, metavar="BASE", help="Below it: a base's name, oci:DIR[:NAME], or scratch.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file; for oci, a directory.")
@click.option("--name", default="", help="Name of the image in the layout (default: that of the module).")
@click.option("--prefix", default="", metavar="PATH", help="Where the stack is in it (default: /opt/stackyard/STACK).")
@compression_option
@click.option("--sign", type=click.Path(path_type=Path), metavar="KEY.pem", help="Sign a SIF with this private key.")
@click.option("--dry-run", is_flag=True, help="Say what would be made; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    context: Context,
    rev: str | None,
    kind: str,
    base: str,
    output: Path,
    name: str,
    prefix: str,
    compression: Compression,
    sign: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Build an image of REV that needs neither this yard nor its path; or of the packages of a FILE, without a yard.

    FILE is an environment.yml, a requirements.txt or a stack.yaml, which is built in a directory beside the output; its
    lock is kept beside it. BASE is then a base's name, or where one comes from: docker://NAME:TAG, docker-archive:FILE,
    sif:FILE, folder:DIR.

    The prefix is at a path of its own, /opt/stackyard/STACK, which no directory of a host hides; files that name its
    path in the yard are changed.

    A SIF has the base's files as they are, and REV as overlays: nothing is packed twice, and the same revision and base
    give the same file. Without REV it is the base alone. --sign adds a signature, by Apptainer or SingularityCE, which
    `apptainer verify --key PUBLIC.pem FILE` verifies. In an OCI image equal packages of the stack's revisions are
    equal layers: a registry and a node keep each once.

    A .sqsh for Enroot and Pyxis has the same root in one SquashFS file, with /etc/environment and /etc/rc.
    """
    options = ImageOptions(base, output, name, prefix, compression, dry_run, as_json, sign)
    if rev is None or not is_file(rev):
        FORMATS[kind](context, None if rev is None else revision_of(context, rev), options)
        return
    if dry_run:
        raise InputError("--dry-run takes a revision, not a file", hint=f"stackyard deploy --dry-run {rev}")
    if kind in ("sif", "sqsh"):
        from stackyard.images.api import require_packing, require_sif_key

        require_packing()  # said before the packages are built
        if sign:
            require_sif_key(sign)
    with built(context, Path(rev), base, output.absolute().parent) as (own, record):
        FORMATS[kind](own, record, replace(options, base="base") if is_source(base) else options)


def wanted_of(
    context: Context, record: BuildRecord, base: str, target: Reference, prefix: str, compression: Compression = "gzip"
) -> OciRequest:
    """The build request for these options.

    Raises:
        InputError: the base does not exist.
    """
    from stackyard.expose.api import change_of
    from stackyard.images.api import SCRATCH_BASE, OciRequest, Reference, find_base, image_tag, is_reference, reference

    image_tag(target.name)
    below = None
    if is_reference(base):
        below = reference(base)
    elif base != SCRATCH_BASE:
        below = Reference(find_base(context.workspace(), base).paths.layout, base)
    return OciRequest(record, change_of(record, context.site), below, target, prefix, base, compression)


def show(built: BuiltImage, as_json: bool) -> None:
    """Print the built image."""
    value: dict[str, Any] = {**asdict(built), "reference": str(built.reference)}
    if as_json:
        show_json(value)
        return
    echo(f"{built.reference}: {built.layers} layers, {built.digest}")
    echo(f"  {human_bytes(built.bytes)} of the stack, {human_bytes(built.bytes_new)} of these new in this layout")
    for notice in built.notices:
        echo(f"  note: {notice}")
