"""A revision as an OCI image: its prefix at a neutral path, in layers by package, on the layers of a base.

python -m stackyard.images.oci.build FOLDER carries out the request that `build` has written there, within a mounted
image
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted, some
from stackyard.host.files.scratch import scratch
from stackyard.images.oci import base as bases
from stackyard.images.oci import check, layers, settings
from stackyard.images.oci.layers import Compression, Entry, Layer, PackedLayer
from stackyard.images.oci.layout import (
    CONFIG,
    MANIFEST,
    NAME,
    Descriptor,
    Image,
    Reference,
    blob,
    image,
    index,
    size_of,
    tag,
)
from stackyard.images.oci.owners import owners
from stackyard.images.oci.writer import Writer, writer
from stackyard.images.relocation import parts as relocation
from stackyard.images.relocation.paths import Moves, place_of, require_place
from stackyard.images.relocation.prefix import RelocatedPrefix
from stackyard.images.squashfs import within
from stackyard.make.job import cores
from stackyard.yard import disk
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord


@dataclass(frozen=True)
class OciRequest:
    """The request to build an image.

    Attributes:
        change: the environment change of the module.
        base: the base image; None: none, so that only a program with its own system can run it.
        target: the layout, and the name of the image in it.
        prefix: where the stack is in the image; empty: a path that all its revisions share.
        base_name: the name of the base as given.
        compression: of the new layers; those of the base are unchanged.
    """

    record: BuildRecord
    change: EnvironmentChange
    base: Reference | None
    target: Reference
    prefix: str = ""
    base_name: str = ""
    compression: Compression = "gzip"

    @property
    def place(self) -> str:
        """The prefix in the image: the same for all revisions of a stack, so that they can share layers."""
        return place_of(self.record.stack, self.prefix)


@dataclass(frozen=True)
class BuiltImage:
    """A built image: its place, the sizes of the new layers and of those new to the layout, and notices."""

    reference: Reference
    digest: str
    layers: int
    bytes: int
    bytes_new: int
    notices: tuple[str, ...] = field(default=())


def name_of(record: BuildRecord) -> str:
    """The name of a revision's image: its module name as a tag."""
    return tag(record.module.replace("/", "-"))


def build(request: OciRequest) -> BuiltImage:
    """Build the image of a revision into a layout.

    Raises:
        InputError: the base does not fit, the prefix in the image is too long, or an interpreter is missing.
        MissingError: the revision is an image that cannot be mounted on this machine.
        DiskFull: the disk has too little room for it.
        StackyardError: a file cannot be read or written; existing images of the layout are unchanged.
    """
    require_place(request.place)
    return within.call(request.record.payload, carry_out, request, f"building the image of {request.record.module}")


def carry_out(request: OciRequest) -> BuiltImage:
    """`build`, with the files of the prefix readable at their paths."""
    record = request.record
    base = bases.read(request.base, record.platform)
    notices = _interpreter(record, base)
    moves = Moves.of(relocation.pairs(record, request.place))
    with scratch("oci") as work:
        parts = [_Part(*part) for part in relocation.relocated(record, request.place, moves, work)]
        programs = [part.tree / name for part in parts for name in part.found.programs]
        bases.refuse_older(base, programs, record.module)
        below = len(base.image.layers) if base.image else 0
        planned = _plan(request, parts, work, layers.MOST - below)
        notices += [sentence for part in parts for sentence in _said(part, base)]
        if lacking := [f"{name} (for {file})" for name, file in bases.lacking(base, programs).items()]:
            notices.append(f"{len(lacking)} libraries that neither the base nor the stack has: {some(lacking, 3)}")
        with writer(request.target.directory) as into:
            return _write(request, into, base, planned, moves, notices)


@dataclass(frozen=True)
class _Part:
    """A directory to put into the image: the prefix, or an interpreter outside of it."""

    tree: Path
    found: RelocatedPrefix


def _interpreter(record: BuildRecord, base: bases.Base) -> list[str]:
    """Notices on an interpreter outside of the prefix.

    Raises:
        InputError: it is the host's, and the base does not have the same.
    """
    source, path = record.interpreter.get("source"), Path(record.interpreter.get("path", ""))
    if source == "uv":
        _, (home, place), *_ = relocation.pairs(record, "")
        return [f"{home} is included at {place}: the prefix's Python is there"]
    if source != "host":
        return []
    if not bases.interpreter_in(base, path):
        raise InputError(
            f"the Python of {record.module} is not in its prefix but the host's {path}, which the base does not have",
            hint="name a base that has it, or build the stack with conda's Python or `interpreter: {source: uv}`",
        )
    return [f"its Python is {path} of the base"]


def _plan(request: OciRequest, parts: list[_Part], work: Path, most: int) -> list[Layer]:
    """The layers from the bottom up: the interpreter, the packages, and the description of the revision."""
    if most < layers.BUCKETS:
        raise InputError(f"{request.base} has more layers than fit below a stack", hint="flatten it to a single layer")
    prefix, *others = parts
    entries = prefix.found.entries
    owner = owners(prefix.tree, entries)
    owned: dict[str, list[Entry]] = {}
    for name, entry in entries.items():
        owned.setdefault(owner.get(name, ""), []).append(entry)
    versions = {package.name: package.version for package in request.record.packages}
    plan = [Layer(f"interpreter {part.tree.name}", tuple(part.found.entries.values())) for part in others]
    plan += layers.grouped(owned, versions, most - len(plan) - 1)
    return [*plan, _description(request, work)]


def _description(request: OciRequest, work: Path) -> Layer:
    """A last layer with the lock, the recipe and the packages."""
    paths, place = RevisionPaths.of(request.record.path), request.place.lstrip("/")
    listed = [[package.name, package.version, package.build, package.kind] for package in request.record.packages]
    file = work / "packages.json"
    file.write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    sources = {"packages.json": file, "stack.lock": paths.lock}
    if paths.recipe.is_dir():
        sources |= {f"recipe/{item.name}": item for item in sorted(paths.recipe.iterdir()) if item.is_file()}
    entries = [Entry(f"{place}/.stackyard/{name}", str(source), size=source.stat().st_size)
               for name, source in sorted(sources.items())]  # fmt: skip
    return Layer("lock and recipe", tuple(entries))


def _said(part: _Part, base: bases.Base) -> Iterator[str]:
    gone = sorted(name for name, target in part.found.outside.items() if not base.resolve(target))
    if gone:
        yield f"{counted(len(gone), 'link')} to what the image does not have: {some(gone, 3)}"
    if part.found.traces:
        yield f"{counted(len(part.found.traces), 'file')} still with a path of the yard: {some(part.found.traces, 3)}"


# --------------------------------------------------------------------------- writing


def _write(
    request: OciRequest, into: Writer, base: bases.Base, planned: list[Layer], moves: Moves, notices: list[str]
) -> BuiltImage:
    before = {path.name for path in (into.directory / "blobs" / "sha256").iterdir()}
    # the layers: those of the base as they are, then one per group of packages
    there = _known(into, planned, request.compression)
    _require_room(into, base, [layer for layer, known in zip(planned, there, strict=True) if known is None])
    below = _take_over(into, base)
    packed = _pack(into, planned, there, request.compression)
    # the settings: the base's, with the stack's environment and labels
    config = dict(base.settings)
    yard = str(RevisionPaths.of(request.record.path).yard)
    variables, lost = settings.environment(request.change, moves, yard, list(config.get("Env") or ()))  # type: ignore[call-overload]
    digest = base.image.manifest.digest if base.image else ""
    labels = settings.labels(request.record, request.place, request.base_name if base.image else "", digest,
                             request.compression)  # fmt: skip
    config |= {"Env": variables, "Labels": {**(config.get("Labels") or {}), **labels}}  # type: ignore[dict-item]
    below_settings = base.image.settings if base.image else {}
    architecture = bases.ARCHITECTURES[request.record.platform]
    value = settings.configuration(architecture, below_settings, config, packed)
    described = into.add_json(CONFIG, value)
    manifest = into.add_json(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "config": described.to_json(), "annotations": labels,
        "layers": [layer.to_json() for layer in (*below, *(layer.descriptor for layer in packed))],
    })  # fmt: skip
    into.publish(request.target.name, manifest)
    # for the report: bytes of the layers, and of those that the directory did not have before
    new = sum(
        layer.descriptor.size for layer in packed if layer.descriptor.digest.removeprefix("sha256:") not in before
    )
    total = sum(layer.descriptor.size for layer in packed)
    notices += [f"not in the image's environment: {sentence}" for sentence in lost]
    return BuiltImage(request.target, manifest.digest, len(below) + len(packed), total, new, tuple(notices))


def _known(into: Writer, planned: list[Layer], compression: Compression) -> list[PackedLayer | None]:
    """What the layout has already of these layers."""
    there = _packed_before(into.directory, layers.compressor(compression))
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(lambda layer: layers.known(layer, there), planned))


def _require_room(into: Writer, base: bases.Base, new: list[Layer]) -> None:
    """Require room for new layers, and for those of the base that the layout lacks."""
    below = base.image.layers if base.image else ()
    lacking = (one for one in below if size_of(blob(into.directory, one.digest)) != one.size)
    layers.require_room(into.work, new, sum(layer.size for layer in lacking))


def _take_over(into: Writer, base: bases.Base) -> tuple[Descriptor, ...]:
    """Copy the layers of the base into the layout."""
    if base.image is None or base.reference is None:
        return ()
    for layer in base.image.layers:
        copy_blob(base.reference.directory, layer, into)
    return base.image.layers


def copy_blob(source: Path, descriptor: Descriptor, into: Writer) -> int:
    """Copy a verified blob of another layout into this one; the bytes that it lacked."""
    if size_of(blob(into.directory, descriptor.digest)) == descriptor.size:
        return 0
    path = into.work / descriptor.digest.removeprefix("sha256:")
    disk.link_or_copy(blob(source, descriptor.digest), path, link=False)
    into.add_file(path, descriptor.digest)
    return descriptor.size


def _pack(
    into: Writer, planned: list[Layer], there: list[PackedLayer | None], compression: Compression
) -> list[PackedLayer]:
    """Write all layers that the layout lacks, using all cores: compression and hashing release the interpreter lock."""

    def one(number: int) -> PackedLayer:
        packed = there[number] or layers.write(planned[number], into.work / f"layer-{number}", compression)
        if packed.file is not None:
            into.add_file(packed.file, packed.descriptor.digest)
        return packed

    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(one, range(len(planned))))


def _packed_before(directory: Path, compressor: str) -> dict[str, Descriptor]:
    """The layers in a layout that the same compressor made, by their digests before compression."""
    by_digest: dict[str, Descriptor] = {}
    for entry in index(directory):
        try:
            known_image = image(Reference(directory, entry.annotations.get(NAME, "")))
        except StackyardError:  # damaged, or for several architectures
            continue
        if known_image.annotations.get(settings.COMPRESSOR) == compressor:
            pairs = zip(known_image.diff_ids, known_image.layers, strict=True)
            by_digest |= {diff: one for diff, one in pairs if size_of(blob(directory, one.digest)) == one.size}
    return by_digest


def verified(source: Reference) -> Image:
    """The image of a reference, with all its blobs verified.

    Raises:
        StackyardError: it is damaged.
    """
    source_image = image(source)
    if wrong := check.problems(source.directory, source_image):
        raise StackyardError(f"{source} is damaged: {some(wrong, 3)}", hint="pull or build it again")
    return source_image
