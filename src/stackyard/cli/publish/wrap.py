"""``stackyard wrap``: commands of a third-party image as a module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.publish import deploy, wrapadd
from stackyard.core.errors import InputError
from stackyard.host.files.scratch import scratch
from stackyard.yard.api import write_text

EXAMPLES = (
    ("a command of an image in a registry", "stackyard wrap docker://docker.io/library/gcc:14 --commands gcc"),
    ("two commands of a SIF file", "stackyard wrap powerai.sif --commands python,horovodrun"),
    ("every program of a directory of it, with a directory of the host",
     "stackyard wrap oci:images:rocm --commands '/opt/conda/bin/*' --bind /scratch/data:/data:ro"),
    ("two more commands, later", "stackyard wrap powerai --add nvcc,nvprof"),
)  # fmt: skip
_SETTINGS = {
    "commands": "commands", "name": "name", "version": "version", "mode": "mode", "binds": "bind", "variables": "env",
    "before": "before", "nv": "nv", "host_bindings": "host-bindings", "digest": "digest",
}  # fmt: skip
"""The options that say what is wrapped, by their parameters."""
WRITTEN = f"{wrapadd.WRITTEN} Keep it: `stackyard deploy` of this file does the same."


@verb(*EXAMPLES)
@click.argument("image", metavar="IMAGE|REV")
@click.option(
    "--commands",
    multiple=True,
    metavar="NAME,...",
    help="Names, paths in it, NAME=PATH, patterns, or all.",
)
@click.option(
    "--add", "added", multiple=True, metavar="NAME,...", help="Further commands of REV, an image wrapped before."
)
@click.option("--name", help="Name of the module (default: that of the image).")
@click.option("--version", help="Version of the module (default: today's date).")
@click.option("--mode", type=click.Choice(["host", "isolated"]), default="host", show_default=True,
              help="What of the host is in the container: users' directories, or what --bind names.")  # fmt: skip
@click.option("--bind", "binds", multiple=True, metavar="SOURCE[:TARGET[:ro]]", help="A directory or file of the host.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable in the container.")
@click.option("--before", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="A file of shell to read in the container before each command.")  # fmt: skip
@click.option("--nv", is_flag=True, help="Add the host's NVIDIA driver libraries.")
@click.option("--host-bindings", is_flag=True, help="Add what the site gives images (launch: container:).")
@click.option("--digest", default="", metavar="SHA256", help="Refuse the image unless it has this digest.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="The stack's file to write (default: NAME.yaml).")  # fmt: skip
@click.option("--allow-unverified", is_flag=True, help="Publish even if a required check was skipped.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    context: Context, /, image: str, added: tuple[str, ...], name: str | None, output: Path | None, dry_run: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Publish commands of IMAGE as a module: they run in a container of it, with your files, without root.

    IMAGE is a SIF file, oci:DIR[:TAG], docker-archive:FILE[:TAG], docker://REGISTRY/NAME:TAG, or a base of the yard
    (`stackyard image list`). It is copied into the revision; revisions with other commands of the same image share the
    copy. A stack's file with `wrap:` is written, and deployed; the same again publishes nothing.

    With --add, REV is a module that was wrapped before: its next revision has its commands and these, and all else as
    it was. The image is neither fetched nor unpacked again.
    """
    from stackyard.inputs.api import given_name

    if added:
        _require_alone()
        image, name, options = wrapadd.joined(context, image, options, added)
    elif not options["commands"]:
        raise InputError("missing option --commands", hint="name the commands to wrap: --commands NAME,..., or all")
    name = _name_of(image) if name is None else given_name("--name", name)
    if options["version"] is not None:
        given_name("--version", options["version"])
    file = output or Path(f"{name}.yaml")
    text = "".join(f"{line}\n" for line in _lines(image, name, options))
    if dry_run:
        with scratch("wrap") as directory:
            write_text(directory / file.name, text)
            _deploy(directory / file.name, options, dry_run=True, as_json=as_json)
        return
    _require_ours(file)
    if not added:  # an image in the yard needs its source no more
        _require_image(_absolute(image))
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_text(file, text)
    _deploy(file, options, dry_run=False, as_json=as_json)


def _require_alone() -> None:
    """Require that --add is the only option that says what is wrapped: the rest is as it was."""
    source = click.get_current_context().get_parameter_source
    for name, option in _SETTINGS.items():
        if source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"--add and --{option}: all else stays as it was", hint="change the file, and deploy it")


def _deploy(file: Path, options: dict[str, Any], **flag: bool) -> None:
    """Deploy as if the command had been typed."""
    click.get_current_context().invoke(
        deploy.command, files=(file,), allow_unverified=options["allow_unverified"], **flag
    )


def _name_of(image: str) -> str:
    """``powerai`` for sif:images/powerai.sif, docker-archive:powerai.tar.gz, docker://ibm/powerai:1 and such a base."""
    if image.startswith("docker://"):
        return image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    kind, _, rest = image.rpartition(":") if image.count(":") == 1 else ("", "", image)
    if image.count(":") > 1:
        rest = image.split(":")[1]
    return Path(rest).name.partition(".")[0] or kind


def _require_ours(file: Path) -> None:
    if file.exists() and not file.read_text(encoding="utf-8", errors="replace").startswith(WRITTEN):
        raise InputError(
            f"{file} exists, and `stackyard wrap` did not write it",
            hint="choose another file with -o, or deploy that one",
        )


def _require_image(image: str) -> None:
    """Check the image before writing a file that names it. Tags are checked when the image is read."""
    kind, _, place = image.partition(":")
    if kind == "sif" and not Path(place).is_file():
        raise InputError(
            f"no such image: {place}", hint="check the path; `stackyard image list` shows the yard's bases"
        )


def _lines(image: str, name: str, options: dict[str, Any]) -> Iterator[str]:
    yield WRITTEN
    yield f"name: {json.dumps(name)}"
    if options["version"]:
        yield f"version: {json.dumps(options['version'])}"
    yield "wrap:"
    yield f"  image: {json.dumps(_absolute(image))}"
    if options["digest"]:
        yield f"  digest: {json.dumps(options['digest'])}"
    yield f"  commands: {json.dumps([word for text in options['commands'] for word in text.split(',') if word])}"
    yield f"  mode: {options['mode']}"
    if options["binds"]:
        yield f"  bind: {json.dumps(list(options['binds']))}"
    if options["variables"]:
        yield f"  environment: {json.dumps(dict(_pairs(options['variables'])))}"
    if options["before"]:
        yield f"  before: {json.dumps(str(Path.cwd() / options['before']))}"
    for key in ("nv", "host_bindings"):
        if options[key]:
            yield f"  {key}: true"


def _absolute(image: str) -> str:
    """The image with an absolute path, independent of its file's directory."""
    kind, colon, rest = image.partition(":")
    if kind in ("sif", "oci", "docker-archive", "folder"):
        return f"{kind}{colon}{Path.cwd() / rest}"
    if not colon and (image.endswith(".sif") or "/" in image):
        return f"sif:{Path.cwd() / image}"
    return image


def _pairs(variables: Sequence[str]) -> Iterator[tuple[str, str]]:
    for variable in variables:
        name, is_set, value = variable.partition("=")
        if not is_set:
            raise InputError(f"--env {variable}: no value", hint="write NAME=VALUE")
        yield name, value
