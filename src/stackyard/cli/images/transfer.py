"""``stackyard image push`` and ``image pull``, and inspecting and checking images in OCI layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import Verb
from stackyard.cli.images.build import compression_option, revision_of, show_sqsh, wanted_of
from stackyard.cli.output import echo, show_json, show_table
from stackyard.core.errors import ChecksFailed, InputError
from stackyard.core.findings import human_bytes, some

if TYPE_CHECKING:
    from stackyard.images.api import Compression

Function = Callable[..., None]


def registry_options(function: Function) -> Function:
    """The options of a transfer."""
    for option in (
        click.option("--time-limit", "limit_s", type=click.FloatRange(min=1), default=3600.0, show_default=True,
                     metavar="S", help="Seconds until a transfer is given up; a first answer may take 30."),
        click.option("--authfile", type=click.Path(path_type=Path, exists=True, dir_okay=False),
                     help="File with the logins (default: where `skopeo login` keeps them)."),
        click.option("--plain-http", is_flag=True, help="Speak to the registry without TLS."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.command(
    "push", cls=Verb, short_help="send an image to a registry or another layout",
    examples=(
        ("one that was built before", "stackyard image push oci:images:pytorch-2.13 docker://registry/pytorch:2.13"),
        ("build and send in one step",
         "stackyard image push pytorch/2.13 docker://registry/pytorch:2.13 --base debian"),
    ),
)  # fmt: skip
@click.argument("source", metavar="REV|oci:DIR[:NAME]")
@click.argument("target", metavar="TARGET")
@click.option("--base", default="", metavar="BASE", help="For a REV: the image below it, as in `image build`.")
@click.option("--prefix", default="", metavar="PATH", help="For a REV: as in `image build`.")
@compression_option
@registry_options
@click.pass_obj
def push(
    context: Context, source: str, target: str, base: str, prefix: str, compression: Compression,
    plain_http: bool, authfile: Path | None, limit_s: float,
) -> None:  # fmt: skip
    """Send an image to TARGET: docker://REGISTRY/NAME:TAG (by skopeo), or oci:DIR:NAME.

    What the registry has already is not sent again. Logins are those of `skopeo login`, podman and docker.
    """
    from stackyard.host.files.scratch import scratch
    from stackyard.images.api import Reference, Registry, build_image, image_name, is_reference, push_image, reference

    registry = Registry(plain_http, authfile, limit_s)
    if is_reference(source):
        sent = push_image(reference(source), target, registry)
    else:
        record = revision_of(context, source)
        if not base:
            raise InputError(f"no base given for the image of {record.module}",
                             hint="--base NAME; or build it first with `stackyard image build`")  # fmt: skip
        with scratch("push") as work:
            built = build_image(
                wanted_of(context, record, base, Reference(work / "layout", image_name(record)), prefix, compression)
            )
            for notice in built.notices:
                context.notice(notice)
            sent = push_image(built.reference, target, registry)
    echo(f"{sent.place}: {sent.digest}, {len(sent.image.layers)} layers, {human_bytes(sent.image.bytes)}")


@click.command(
    "pull", cls=Verb, short_help="fetch an image from a registry or another layout",
    examples=(
        ("a base", "stackyard image pull docker://registry/debian:trixie -o bases"),
        ("one file for Pyxis", "stackyard image pull docker://nvcr.io/nvidia/pytorch:25.01 --format sqsh -o p.sqsh"),
        ("under another name, from one without TLS",
         "stackyard image pull docker://localhost:5000/x:1 -o images --name y --plain-http"),
    ),
)  # fmt: skip
@click.argument("source", metavar="SOURCE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The layout, a directory; or the file."
)
@click.option("--format", "kind", type=click.Choice(["oci", "sqsh"]), default="oci", show_default=True,
              help="An OCI layout, or one SquashFS file for Enroot and Pyxis.")  # fmt: skip
@click.option("--name", default="", help="Name of the image in the layout (default: its tag).")
@registry_options
@click.pass_obj
def pull(
    context: Context, source: str, output: Path, kind: str, name: str, plain_http: bool, authfile: Path | None,
    limit_s: float,
) -> None:  # fmt: skip
    """Fetch SOURCE, docker://REGISTRY/NAME:TAG (by skopeo), REGISTRY#NAME:TAG or oci:DIR:NAME, into an OCI layout.

    It is listed there once every byte was compared with its digest. Apptainer and Charliecloud run it, `image build`
    takes it as a base; it does not become a revision of the yard. With --format sqsh it becomes one file instead,
    which all nodes of a job read in place of pulling the image each: srun --container-image=FILE.
    """
    from stackyard.host.files.scratch import scratch
    from stackyard.images.api import Reference, Registry, pull_image, write_sqsh

    registry = Registry(plain_http, authfile, limit_s)
    if kind == "sqsh":
        if not output.absolute().parent.is_dir():
            raise InputError(f"no such directory: {output.parent}", hint="create it, or choose another -o")
        with scratch("pull", output.absolute().parent) as work:
            got = pull_image(source, work / "layout", name or "image", registry)
            written = write_sqsh(Reference(work / "layout", name or "image"), output.absolute())
        show_sqsh(written, f"{source}, {got.digest}")
        return
    got = pull_image(source, output, name, registry)
    echo(f"{got.place}: {got.digest}, {len(got.image.layers)} layers, {human_bytes(got.image.bytes)}")


def inspect(source: str, as_json: bool) -> None:
    """Show an image of a layout: digests, labels, layers."""
    from stackyard.images.api import PACKAGES_LABEL, TITLE_LABEL, read_image, reference

    image = read_image(reference(source))
    rows: list[dict[str, Any]] = [
        {"layer": layer.digest, "bytes": layer.size, "title": layer.annotations.get(TITLE_LABEL, ""),
         "packages": layer.annotations.get(PACKAGES_LABEL, "")} for layer in image.layers
    ]  # fmt: skip
    if as_json:
        show_json({"name": image.name, "digest": image.manifest.digest, "bytes": image.bytes, "layers": rows,
                   "labels": dict(image.labels), "settings": dict(image.settings.get("config") or {})})  # fmt: skip
        return
    echo(f"{source}: {image.manifest.digest}, {human_bytes(image.bytes)}")
    for label, value in sorted(image.labels.items()):
        echo(f"{label.rpartition('.')[2]}: {value}")
    shown = [{**row, "layer": row["layer"][7:19], "bytes": human_bytes(row["bytes"])} for row in rows]
    show_table(shown, ["layer", "bytes", "title"])


def check(source: str) -> None:
    """Compare every blob of an image of a layout with its digest.

    Raises:
        ChecksFailed: one differs.
    """
    from stackyard.images.api import image_problems, read_image, reference

    target = reference(source)
    image = read_image(target)
    if wrong := image_problems(target.directory, image):
        raise ChecksFailed(f"{source} is damaged: {some(wrong, 3)}", hint="pull or build it again")
    echo(f"{source}: all {len(image.blobs)} blobs have their digests ({human_bytes(image.bytes)})")
