"""The verbs of ``stackyard image`` that import bases, and the display of bases and SIF files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json
from stackyard.core.errors import InputError, MissingError
from stackyard.core.findings import counted, human_bytes
from stackyard.inputs.api import Workspace

if TYPE_CHECKING:
    from stackyard.images.api import Source, StoredBase
    from stackyard.inputs.api import BaseImage, BaseLicence, Site
    from stackyard.yard.api import Yard

Function = Callable[..., None]


def _importing(function: Function) -> Function:
    """The options of both verbs that import."""
    for option in reversed((
        click.option("--name", required=True, help="What the base is called in this yard."),
        click.option("--accept-licence", multiple=True, metavar="NAME", help="Accept a licence, after reading it."),
        click.option("--digest", default="", metavar="SHA256", help="Refuse the image unless it has this digest."),
        click.option("--platform", default="", help="Its platform, e.g. linux-ppc64le (default: this machine's)."),
        click.option("--limit-gib", type=float, default=256.0, show_default=True, help="Its unpacked size, at most."),
        click.option("--dry-run", is_flag=True, help="Print what would be imported; write nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    )):  # fmt: skip
        function = option(function)
    return function


@verb(
    ("what docker or podman saved", "stackyard image from docker-archive:powerai.tar --name powerai"),
    ("an OCI layout", "stackyard image from oci:ubuntu:22.04 --name ubuntu"),
    ("from a registry, by skopeo", "stackyard image from docker://docker.io/library/debian:12 --name debian"),
    ("as the site's file has it", "stackyard image from --name rocm"),
    name="from", short_help="import a third-party image as a base",
)  # fmt: skip
@click.argument("source", required=False, metavar="[SOURCE]")
@_importing
def from_(context: Context, /, source: str | None, name: str, **options: Any) -> None:
    """Import a third-party image, to build images of revisions on it (`stackyard image build --base NAME`).

    SOURCE is docker-archive:FILE[:TAG], oci:DIR[:TAG], docker://REGISTRY/NAME:TAG, sif:FILE or folder:DIR; without it,
    what the site's file has under `bases: NAME`. Nothing of the image is run. Licences that the site's file declares
    for it have to be accepted by you, with --accept-licence.
    """
    from stackyard.images.api import source_of

    site = context.site()
    listed = site.bases.get(name)
    if source is None and (listed is None or not listed.source):
        hint = "write docker-archive:FILE, oci:DIR, docker://REGISTRY/NAME:TAG, sif:FILE or folder:DIR"
        raise InputError(f"no SOURCE given, and the site's file has no `source` for the base {name}", hint=hint)
    if source is not None:
        place = source_of(source)
    else:
        assert listed is not None
        place = source_of(listed.source, Path(site.file).parent)
    _import(context, site, place, name, **options)


@verb(
    ("what debootstrap made", "stackyard image from-folder trixie --name trixie"),
    ("for another platform", "stackyard image from-folder rhel8-ppc64le --name rhel8 --platform linux-ppc64le"),
    name="from-folder", short_help="import a directory as a base",
)  # fmt: skip
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@_importing
def from_directory(context: Context, /, directory: Path, name: str, **options: Any) -> None:
    """Import a directory that holds a system (bin, lib, etc ...) as a base."""
    from stackyard.images.api import Source

    _import(context, context.site(), Source("folder", str(directory.absolute())), name, **options)


def _import(
    context: Context, site: Site, source: Source, name: str, *, accept_licence: Sequence[str], digest: str,
    platform: str, limit_gib: float, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    from stackyard.deploy.api import writing
    from stackyard.images.api import (
        ARCHITECTURES,
        BaseImport,
        base_findings,
        how_to_verify_sif,
        import_base,
        read_sif,
    )

    workspace, listed = context.workspace(), site.bases.get(name)
    declared = listed.licences if listed else ()
    _check_names(name, accept_licence, declared)
    digest, platform = _agreed(listed, digest, platform, site.file)
    if platform and platform not in ARCHITECTURES.values():
        raise InputError(f"unknown platform: {platform}", hint=f"one of {', '.join(ARCHITECTURES.values())}")
    if listed and listed.successor:
        raise InputError(f"the base {name} is retired", hint=f"use {listed.successor}")
    if dry_run:
        echo(f"would import {source} as {name} into {workspace.yard.base(name).root}")
        return

    def licences(root: Path) -> tuple[Sequence[Mapping[str, Any]], Sequence[tuple[str, str]]]:
        return _accepted(context, workspace, name, root, declared, accept_licence)

    request = BaseImport(source, name, digest, platform, int(limit_gib * (1 << 30)), licences)
    with writing(workspace):
        base = import_base(workspace.yard, request, on_wait=context.notice)
    show_base(base, as_json)
    if source.kind == "sif" and (text := how_to_verify_sif(read_sif(Path(source.place)))):
        context.notice(f"{source.place} was imported as it is, and its signature not verified: {text}")
    if not as_json:
        for finding in base_findings(base.base, site):
            context.notice(finding.message)


def _agreed(listed: BaseImage | None, digest: str, platform: str, file: str) -> tuple[str, str]:
    """Require that the command line and the site's file agree."""
    if listed is None:
        return digest, platform
    for value, pinned, what in ((digest, listed.digest, "digest"), (platform, listed.platform, "platform")):
        if value and pinned and value != pinned:
            raise InputError(f"--{what} {value} differs from {file}, which has {pinned}", hint="use another --name")
    return digest or listed.digest, platform or listed.platform


def _check_names(name: str, accepting: Sequence[str], declared: Sequence[BaseLicence]) -> None:
    unknown = sorted(set(accepting) - {licence.name for licence in declared})
    if unknown:
        names = ", ".join(licence.name for licence in declared) or "none"
        raise InputError(f"the base {name} has no licence {unknown[0]!r}",
                         hint=f"`bases: {name}: licences` in the site's file declares them: {names}")  # fmt: skip


def _accepted(
    context: Context, workspace: Workspace, name: str, root: Path, declared: Sequence[BaseLicence],
    accepting: Sequence[str],
) -> tuple[Sequence[Mapping[str, Any]], Sequence[tuple[str, str]]]:  # fmt: skip
    """The acceptances for an unpacked image, and the lines in the image that record them.

    Raises:
        InputError: the image has no such text.
        MissingError: one is not accepted; nothing is kept.
    """
    from stackyard.deploy.api import accepted_licence, require_licences
    from stackyard.inputs.api import Licence

    said = set(accepting)
    texts = {licence: Licence(name=licence.name, text=_text_of(licence, root, name)) for licence in declared}
    for declaration, licence in texts.items():
        if declaration.name not in said and accepted_licence(workspace, licence) is None:
            _ask(context, workspace.yard, name, licence)
            said.add(declaration.name)
    entries = require_licences(workspace, tuple(texts.values()), said)
    return entries, [(licence.file, licence.line) for licence in declared if licence.file]


def _text_of(licence: BaseLicence, root: Path, name: str) -> str:
    """The path of a licence's text on this machine; empty if the site's file has none."""
    if not licence.text:
        return ""
    from stackyard.images.api import Tree

    path = Tree((root,)).find(licence.text)
    if path is None or not path.outside.is_file():
        raise InputError(f"the base {name} has no file {licence.text}, the text of the licence {licence.name}",
                         hint=f"correct `bases: {name}: licences` in the site's file")  # fmt: skip
    return str(path.outside)


def _ask(context: Context, yard: Yard, name: str, licence: Any) -> None:
    """Ask a person at a terminal; elsewhere say what to type.

    Raises:
        MissingError: it is not accepted.
    """
    from stackyard.cli.agreeing import confirmed
    from stackyard.deploy.api import account_here

    text = Path(licence.text).read_text(encoding="utf-8", errors="replace") if licence.text else ""
    again = shlex.join([*context.command, "--accept-licence", licence.name])
    if not confirmed(licence.name, name, text):
        raise MissingError(f"licence not accepted by {account_here()} in {yard.root}: {licence.name}",
                           detail=text or None, hint=f"read it, then type: {again}")  # fmt: skip


def show_base(stored: StoredBase, as_json: bool) -> None:
    """Print the description of a base."""
    base = stored.base
    if as_json:
        show_json({"path": str(stored.paths.root), **base.to_json()})
        return
    software = base.software
    toolkits = [
        f"{'CUDA' if toolkit['vendor'] == 'nvidia' else 'ROCm'} {toolkit['version']}" for toolkit in software.toolkits
    ]
    pythons = [f"{python.kind} {python.path}" + (f" (Python {python.python})" if python.python else "")
               for python in software.environments]  # fmt: skip
    rows = {
        "base": base.name,
        "source": base.source,
        "digest": base.manifest,
        "platform": base.platform,
        "size": f"{human_bytes(base.root.bytes)}, {base.root.entries:,} entries, {counted(len(base.layers), 'layer')}",
        "C library": software.libc or "none",
        "GPU": ", ".join(toolkits),
        "Python": "; ".join(pythons),
        "activated by": software.activate,
        "licences": ", ".join(
            f"{licence['name']} (accepted by {licence['who']}, {licence['when']})" for licence in base.licences
        ),
        "without set-user-ID": " ".join(base.without_rights),
        "imported by": f"{base.who}, {base.when}",
    }
    for key, value in rows.items():
        if value:
            echo(f"{key}: {value}")


def inspect_file(file: Path, as_json: bool) -> None:
    """The metadata of a SIF file."""
    from dataclasses import asdict

    from stackyard.images.api import how_to_verify_sif, read_sif

    sif = read_sif(file)
    labels = sif.labels()
    if as_json:
        show_json({"file": str(file), "uuid": sif.uuid, "labels": labels, "parts": list(map(asdict, sif.parts))})
        return
    echo(f"SIF {file}")
    for part in sif.parts:
        echo(f"  {part.title} {part.name}: {human_bytes(part.size)}")
    for key, value in sorted(labels.items()):
        echo(f"{key}: {value}")
    if text := how_to_verify_sif(sif):
        echo(text)


def check_file(file: Path) -> None:
    """Compare the partitions of a SIF file of ours with the hashes in its labels."""
    from stackyard.images.api import check_sif

    parts = check_sif(file)
    echo(f"{file}: {' and '.join(parts)} are as they were written")
