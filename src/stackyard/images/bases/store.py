"""The bases of a yard: importing, finding and checking them.

A base appears complete: it is made in a temporary directory, which is then renamed. Leftovers of a killed import are
removed by the next one of the same name.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import ChecksFailed, InputError, StackyardError
from stackyard.core.findings import some
from stackyard.core.grammar import LABEL, GrammarError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.files.scratch import scratch
from stackyard.host.machine.platforms import this_platform
from stackyard.host.run.identity import account_name, process_token
from stackyard.images.bases import software
from stackyard.images.bases.blobs import EPOCH, Layout, manifest_of
from stackyard.images.bases.directory import write_layer
from stackyard.images.bases.model import ARCHITECTURES, BASE, Base, Defaults, Layer, Root
from stackyard.images.bases.sources import FetchedImage, Source, fetch
from stackyard.images.bases.unpack import MOST_BYTES, UnpackedTree
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import possible
from stackyard.inputs.sites.sitemodels import Site
from stackyard.inputs.sites.siteyard import in_sites_yard
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk, formats
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import BasePaths
from stackyard.yard.revision.record import now
from stackyard.yard.write import atomic
from stackyard.yard.write.claim import claim
from stackyard.yard.write.lease import lease
from stackyard.yard.write.permissions import file_mode, program_mode

Licences = Callable[[Path], tuple[Sequence[Mapping[str, Any]], Sequence[tuple[str, str]]]]
"""Given the unpacked image: who accepted which licences, and the lines to add, each with the path of its file."""


@dataclass(frozen=True)
class BaseImport:
    """The request to import a base.

    Attributes:
        name: the name of the base in its yard.
        digest: the required digest (one of `Base.digests`); empty: any.
        platform: conda's name of its architecture; empty: this machine's.
        most_bytes: the size limit when unpacked.
        licences: is called before the base is saved; raises if one is not accepted.
        origin: replaces the source in the record, for an image that was made here.
    """

    source: Source
    name: str
    digest: str = ""
    platform: str = ""
    most_bytes: int = MOST_BYTES
    licences: Licences = lambda root: ((), ())
    origin: str = ""


@dataclass(frozen=True)
class StoredBase:
    """A base and its paths."""

    base: Base
    paths: BasePaths

    @property
    def layout(self) -> Layout:
        """The OCI layout with its layers."""
        return Layout(self.paths.layout)


def add(yard: Yard, request: BaseImport, on_wait: Callable[[str], None] | None = None) -> StoredBase:
    """Import a base; an existing one of the same name and digest is returned unchanged.

    Call it within `deploy.writing`. Two imports of one name wait for each other.

    Raises:
        InputError: the name is invalid, or another base has it; the image is for another platform.
        StackyardError: the source is damaged or harmful, its digest differs, the disk is full.
        MissingError: a program is missing, or a licence is not accepted.
    """
    try:
        LABEL(request.name)
    except GrammarError as error:
        raise InputError(str(error), hint=error.hint) from error
    there = _read(yard.base(request.name))
    if there is not None and request.digest in there.digests:
        return StoredBase(there, yard.base(request.name))
    possible.require_packing()
    with lease(yard.lease(f"base {request.name}"), f"the base {request.name}", on_wait=on_wait) as own_lease:
        _remove_left(yard, request.name)
        there = _read(yard.base(request.name))
        draft = yard.base_draft(request.name, process_token())
        try:
            yard.bases.mkdir(parents=True, exist_ok=True)
            draft.root.mkdir(mode=0o700)  # until it is sealed
            base = _make(draft, request, there)
            if base is not there:
                own_lease.check()
                _seal(draft)
                atomic.fault_point("base")
                _claim(draft.root, yard.base(request.name), base)
            return StoredBase(base, yard.base(request.name))
        except OSError as error:
            raise disk.failure(error, f"importing the base {request.name}") from error
        finally:
            disk.remove_tree(draft.root, yard.root)


def find(workspace: Workspace, name: str) -> StoredBase:
    """The base of this name, in this yard or in the site's.

    A base that another account imported is used only from the site's yard, which staff maintain.

    Raises:
        InputError: it does not exist, is retired, or differs from the one that the site's file pins.
        StackyardError: its record is damaged, or it belongs to another account.
    """
    listed = workspace.site.bases.get(name)
    if listed is not None and listed.successor:
        raise InputError(f"the base {name} is retired", hint=f"use {listed.successor}")
    for ancestor in workspace.yard.lineage():
        base = _read(ancestor.base(name))
        if base is not None:
            _trust(ancestor.base(name), base, workspace.site)
            if listed is not None:
                _pinned(base, listed.digest, f"{workspace.site.file}")
            return StoredBase(base, ancestor.base(name))
    names = sorted({base.name for base, _ in everything(workspace.yard)})
    hint = f"its bases: {some(names, 8)}" if names else "`stackyard image from SOURCE --name NAME` imports one"
    raise InputError(f"no such base in {workspace.yard.root}: {name}", hint=hint)


def named(yard: Yard, name: str) -> StoredBase | None:
    """The base of this name without any checks, for displaying it; None if the yard has none."""
    return next((StoredBase(base, paths) for base, paths in everything(yard) if base.name == name), None)


def everything(yard: Yard) -> Iterator[tuple[Base, BasePaths]]:
    """Every base of this yard and of its parents, by name; of equal names the nearest."""
    seen: dict[str, tuple[Base, BasePaths]] = {}
    for ancestor in yard.lineage():
        for name in disk.names(ancestor.bases) if disk.is_directory(ancestor.bases) else ():
            base = None if name.startswith(".") else _read(ancestor.base(name))
            if base is not None:
                seen.setdefault(name, (base, ancestor.base(name)))
    yield from (seen[name] for name in sorted(seen))


def check(stored: StoredBase) -> None:
    """Verify every byte of a base against its record and digests.

    Raises:
        ChecksFailed: a file differs.
        StackyardError: a file is missing, or cannot be read.
    """
    squashfs.superblock(stored.paths.image)
    if sha256_file(stored.paths.image) != stored.base.root.sha256:
        raise StackyardError(
            f"{stored.paths.image} has changed: its hash is not the one in the record", hint=_again(stored)
        )
    manifest = stored.layout.read_json(stored.base.manifest)
    for entry in (manifest["config"], *manifest["layers"]):
        path = stored.layout.path(entry["digest"])
        if sha256_file(path) != path.name:
            raise ChecksFailed(f"{path} has changed: its hash is not its name", hint=_again(stored))


def _again(stored: StoredBase) -> str:
    return f"move {stored.paths.root} away and import it again from {stored.base.source}"


def _read(paths: BasePaths) -> Base | None:
    return formats.load(paths.record, BASE) if disk.is_there(paths.record) else None


def _trust(paths: BasePaths, base: Base, site: Site) -> None:
    owner = paths.record.stat().st_uid
    if owner in (os.geteuid(), 0) or in_sites_yard(str(paths.root), site):
        return
    raise StackyardError(
        f"the base {base.name} in {paths.root} was imported by {account_name(owner)}",
        hint="import it into a yard of your own, or ask your site to do so",
    )


def _pinned(base: Base, digest: str, by: str) -> None:
    if digest and digest not in base.digests:
        raise InputError(f"wrong digest: the base {base.name} is {base.digests[0]}, and {by} pins {digest}",
                         hint="correct `digest:`, or import the image under another name")  # fmt: skip


def _remove_left(yard: Yard, name: str) -> None:
    """Remove leftovers of killed imports; the lease on the name excludes other imports."""
    for place in yard.bases.glob(yard.base_draft(name, "*").root.name) if yard.bases.is_dir() else ():
        disk.remove_tree(place, yard.root)


def _make(paths: BasePaths, request: BaseImport, there: Base | None) -> Base:
    platform = request.platform or this_platform()
    layout = Layout(paths.layout)
    fetched = fetch(request.source, layout, platform, request.most_bytes)
    if request.digest and request.digest not in fetched.digests:
        raise StackyardError(f"wrong digest: {request.source} is {fetched.digests[0]}, expected {request.digest}",
                             hint=f"its digests are {', '.join(dict.fromkeys(fetched.digests))}")  # fmt: skip
    if there is not None:
        if set(there.digests) & set(fetched.digests):
            return there
        differs = f"the base {request.name} exists and is another image: {there.digests[0]}, not {fetched.digests[0]}"
        raise InputError(differs, hint="choose another --name: what is imported never changes")
    with scratch("base") as work:
        root = work / "root"
        root.mkdir(mode=0o700)
        unpacked = UnpackedTree(root, request.most_bytes)
        for layer in fetched.layers:
            unpacked.apply(layer, layout.path(layer.digest))
        _check_platform(request, fetched, root, platform)
        return _kept(paths, request, fetched, unpacked, platform)


def _check_platform(request: BaseImport, fetched: FetchedImage, root: Path, platform: str) -> None:
    said = str(fetched.config.get("architecture"))
    own_platform = software.platform_of(root) or ARCHITECTURES.get(said, "")
    if own_platform != platform:
        what = f"its programs are for {own_platform}" if own_platform else f"its architecture is {said!r:.40}"
        hint = f"say so with --platform {own_platform}" if own_platform else "use an image for a platform that is known"
        raise InputError(f"{request.source} is not for {platform}: {what}", hint=hint)


def _kept(paths: BasePaths, request: BaseImport, fetched: FetchedImage, unpacked: UnpackedTree, platform: str) -> Base:
    """Pack the unpacked image, and write the record."""
    accepted, lines = request.licences(unpacked.root)
    fetched = _with_lines(Layout(paths.layout), fetched, unpacked, lines)
    Layout(paths.layout).finish(fetched.manifest, request.name)
    unpacked.settle()
    packed = squashfs.pack(unpacked.root, paths.image, as_it_is=True)
    defaults = _defaults(fetched.config)
    base = Base(
        name=request.name,
        source=request.origin or str(request.source),
        manifest=fetched.manifest.digest,
        digests=tuple(dict.fromkeys(fetched.digests)),
        platform=platform,
        root=Root(packed.sha256, packed.size, packed.entries, packed.tool),
        layers=fetched.layers,
        who=account_name(os.getuid()),
        uid=os.getuid(),
        when=now(),
        defaults=defaults,
        software=software.software_of(unpacked.root, defaults.env),
        licences=tuple(accepted),
        without_rights=tuple(sorted(unpacked.without_rights)),
    )
    atomic.write_json(paths.record, base.to_json(), checked=True)
    return base


def _with_lines(
    layout: Layout, fetched: FetchedImage, unpacked: UnpackedTree, lines: Sequence[tuple[str, str]]
) -> FetchedImage:
    """Add lines to files of the image, as one more layer: they record accepted licences."""
    if not lines:
        return fetched
    for name, line in lines:
        unpacked.append(name, line)
    with scratch("layer") as work:
        for name in dict.fromkeys(name for name, _ in lines):
            target = work / "root" / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(unpacked.place(name), target)
        write_layer(work / "root", work / "tar")
        with (work / "tar").open("rb") as stream:
            blob = layout.add(stream)
    layer = Layer(blob.digest, blob.size, "application/vnd.oci.image.layer.v1.tar", blob.digest)
    config = dict(fetched.config)
    config["rootfs"] = {**config["rootfs"], "diff_ids": [*config["rootfs"]["diff_ids"], layer.diff_id]}
    note = {"created": EPOCH, "created_by": "stackyard image from --accept-licence"}
    if config.get("history"):
        config["history"] = [*config["history"], note]
    layers = (*fetched.layers, layer)
    manifest = layout.add_json(manifest_of(layout.add_json(config), layers))
    return FetchedImage(manifest, config, layers, (*fetched.digests, manifest.digest))


def _defaults(config: Mapping[str, Any]) -> Defaults:
    said = config.get("config") or {}
    try:
        return Defaults(
            env=tuple(map(str, said.get("Env") or ())),
            entrypoint=tuple(map(str, said.get("Entrypoint") or ())),
            command=tuple(map(str, said.get("Cmd") or ())),
            directory=str(said.get("WorkingDir") or ""),
            user=str(said.get("User") or ""),
            labels={str(key): str(value) for key, value in (said.get("Labels") or {}).items()},
        )
    except (AttributeError, TypeError) as error:
        raise InputError(f"cannot read the image's configuration: {error}", hint="save the image again") from error


def _seal(paths: BasePaths) -> None:
    """Make all files read-only, also for their owner, and flush them to disk before the rename."""
    paths.image.chmod(file_mode() & 0o444)
    blobs = paths.layout / "blobs" / "sha256"
    for path in (*blobs.iterdir(), paths.layout / "index.json", paths.layout / "oci-layout", paths.record):
        path.chmod(file_mode() & 0o444)
    paths.root.chmod(program_mode() | paths.root.stat().st_mode & stat.S_ISGID)
    Layout(paths.layout).sync()


def _claim(draft: Path, paths: BasePaths, base: Base) -> None:
    if not claim(draft, paths.root):
        raise StackyardError(f"cannot name the base {base.name}: {paths.root} exists",
                             hint="move that directory away: it is not a base")  # fmt: skip
