"""A revision as an artefact in an OCI registry, from which a yard at the same path makes the same revision.

Its files are unchanged and contain the path of their yard, so it is for yards and not for containers: these have their
own path (`images.oci.build`). The configuration has the record; annotations of the manifest have the requirements on a
machine, so that they can be checked before the download.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import some
from stackyard.host.files.hashing import sha256_file
from stackyard.host.tools.sshkeygen import fingerprint
from stackyard.images import needs
from stackyard.images.bases.model import ARCHITECTURES
from stackyard.images.bases.model import Layer as Applied
from stackyard.images.bases.unpack import UnpackedTree
from stackyard.images.oci import layers
from stackyard.images.oci.layers import Compression, Entry, Layer, PackedLayer
from stackyard.images.oci.layout import MANIFEST, TITLE, Descriptor, Image, Reference, blob, image, index
from stackyard.images.oci.owners import owners
from stackyard.images.oci.writer import Writer, writer
from stackyard.images.relocation.parts import interpreter
from stackyard.images.squashfs import possible
from stackyard.images.squashfs.launcher import compare
from stackyard.make.job import cores
from stackyard.make.seal import PARTS
from stackyard.yard import checksum, disk, formats, members
from stackyard.yard.revision import contents, manifest, signatures
from stackyard.yard.revision.contents import Damage, Tree
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

FORMAT = 1
KIND = "application/vnd.stackyard.revision.config.v1+json"
IMAGE = "application/vnd.stackyard.revision.image.v1.squashfs"
PART = "io.stackyard.part"
"""The note on a layer: beside (what lies around the prefix), prefix, image or interpreter."""
ABOUT = "io.stackyard.revision-format"
BESIDE, INTERPRETER, IMAGE_FILE = "beside", "interpreter", "image"
DIRECTORIES = PARTS[1:]
FILES = ("files.json", "module.json", "report.json", "report.xml", "build.log")
LAUNCHER = "launch"
"""That of an image, where the record has its hash: then the record of each yard is the same, and so are signatures."""
LEFT_OUT = ("condarc", "commands", "checks.json", "checks")
"""What has no hash in the record, and says what is run: each yard writes its own. Earlier versions sent it."""


@dataclass(frozen=True)
class Fit:
    """The requirements of a revision on a machine and a yard.

    Attributes:
        path: the directory of the revision.
        glibc: the version of the C library; empty: none is needed.
        glibc_file: the file that needs it.
        host_python: the host's interpreter that it uses; empty: none. `host_sha256` is its hash.
        base: for an extension, the module of its base; with its input hash and its prefix.
        form: the form of its files; empty in artefacts of earlier versions.
    """

    module: str
    path: str
    platform: str
    glibc: str = ""
    glibc_file: str = ""
    host_python: str = ""
    host_sha256: str = ""
    base: str = ""
    base_hash: str = ""
    base_prefix: str = ""
    form: str = ""

    def notes(self) -> dict[str, str]:
        """The requirements as annotations."""
        return {f"io.stackyard.{key.replace('_', '-')}": value for key, value in asdict(self).items() if value}

    @classmethod
    def of_notes(cls, notes: Mapping[str, str], origin: str) -> Fit:
        """Parse the annotations from `notes`.

        Raises:
            InputError: it is not a revision, or a later version wrote it.
        """
        text = notes.get(ABOUT, "")
        if not text:
            hint = "`stackyard push REV` makes one; images for containers: `stackyard image pull`"
            raise InputError(f"{origin} is not a revision", hint=hint)
        if text != str(FORMAT):
            raise InputError(f"{origin} has format {text}, and this version reads {FORMAT}", hint="update Stackyard")
        try:
            keys = {key: notes[f"io.stackyard.{key}"] for key in ("module", "path", "platform")}
        except KeyError as error:
            raise InputError(f"{origin} is not complete: missing {error}", hint="push it again") from error
        more = ("glibc", "glibc-file", "host-python", "host-sha256", "base", "base-hash", "base-prefix", "form")
        return cls(**keys, **{key.replace("-", "_"): notes.get(f"io.stackyard.{key}", "") for key in more})


@dataclass(frozen=True)
class SignedRecord:
    """The signed text of a record, all signed values (`yard.revision.signatures`), and the signatures."""

    record: str
    statement: str
    signatures: tuple[str, ...]


@dataclass(frozen=True)
class Artefact:
    """An artefact in a layout: the record of its revision, and its published entry in the source yard."""

    reference: Reference
    image: Image
    fit: Fit
    record: BuildRecord
    entry: Mapping[str, Any]
    signed: SignedRecord | None = None


def fit_of(record: BuildRecord) -> Fit:
    """The requirements of a revision.

    Raises:
        MissingError: its image cannot be mounted on this machine.
    """
    needed, own = needs.of_record(record), record.interpreter
    host = own if own.get("source") == "host" else {}
    below = record.base
    on = (below.id, below.hash, below.prefix) if below else ("", "", "")
    return Fit(record.module, record.path, record.platform, needed.glibc, needed.file, host.get("path", ""),
               host.get("sha256", ""), *on, record.payload.kind)  # fmt: skip


def require_sendable(record: BuildRecord) -> None:
    """Require that another yard can reproduce a revision: all its bytes are recorded and unchanged.

    Raises:
        InputError: revisions of this kind cannot be sent.
        StackyardError: its files differ from the build.
    """
    cannot = f"cannot push {record.module}: "
    record.origin.require_sendable()
    if not record.files_sha256:
        raise InputError(
            f"{cannot}an earlier version built it, which did not note what its files hold, so that no yard could "
            "compare them", hint="push the next revision of it: `stackyard deploy --rebuild FILE` builds that",
        )  # fmt: skip
    wrong = [str(bad)] if record.payload.launcher_sha256 and (bad := compare.problem(record)) else []
    wrong = wrong or _changed(record, RevisionPaths.of(record.path))
    if wrong:
        raise StackyardError(f"{cannot}it does not hold what was built: {some(wrong, 3)}",
                             hint=f"`stackyard fsck --deep --repair {record.module}`")  # fmt: skip


def _changed(record: BuildRecord, paths: RevisionPaths) -> list[str]:
    """The files that differ from the build, every byte compared; for an image the image file, not the files in it."""
    if not disk.is_there(paths.files) or sha256_file(paths.files) != record.files_sha256:
        return [f"{paths.files} is not the list of its files whose hash the record has"]
    noted, parts = formats.load(paths.files, contents.KIND), list(PARTS)
    if record.payload.is_packed:
        if bad := record.payload.changed(paths.image):
            return [bad]
        noted, parts = noted.without(PARTS[0]), list(PARTS[1:])
    damages = contents.compare(noted, paths.root, contents.scan(paths.root, parts), noted.hashed)
    return sorted(str(damage) for damage in damages if not _is_bytecode(damage))


def _is_bytecode(damage: Damage) -> bool:
    """Whether the damage is bytecode that Python added, which is not sent."""
    return damage.what == "unexpected" and "__pycache__" in damage.path.split("/")


def _built(tree: Tree, paths: RevisionPaths) -> Tree:
    """The part of a tree that was built."""
    noted = formats.load(paths.files, contents.KIND)
    known = noted.files.keys() | noted.directories
    return {name: status for name, status in tree.items() if name.rstrip("/") in known}


def pack(record: BuildRecord, entry: Mapping[str, Any], target: Reference, compression: Compression = "gzip") -> Image:
    """Write a revision into a layout.

    Args:
        entry: its published entry.

    Raises:
        InputError: as for `require_sendable`; or the directory is not a layout.
        MissingError: the revision is an image that cannot be mounted on this machine.
        DiskFull: the disk has too little room for it.
        StackyardError: a file cannot be read or written; existing images of the layout are unchanged.
    """
    possible.require_readable(record, f"cannot push {record.module}")
    require_sendable(record)
    paths, fit = RevisionPaths.of(record.path), fit_of(record)
    with writer(target.directory) as into:
        parts = list(_parts(record, paths))
        if not index(target.directory):  # else it may have most of them
            image_bytes = paths.image.stat().st_size if record.payload.is_packed else 0
            layers.require_room(into.work, (layer for _, layer in parts), image_bytes)
        with ThreadPoolExecutor(cores()) as pool:
            numbers = range(len(parts))
            packed = list(pool.map(lambda number: _layer(into, number, *parts[number], compression), numbers))
        if record.payload.is_packed:
            packed.append(_image(into, paths, record))
        notes = {TITLE: record.module, ABOUT: str(FORMAT), **fit.notes(), "io.stackyard.input-hash": record.input_hash,
                 "io.stackyard.lock-sha256": sha256_file(paths.lock)}  # fmt: skip
        _publish(into, target.name, record, entry, packed, notes, _signed(paths))
    return image(target)


def _signed(paths: RevisionPaths) -> SignedRecord | None:
    texts = signatures.texts(paths)
    return SignedRecord(signatures.record_text(paths), signatures.statement(paths), texts) if texts else None


def _publish(
    into: Writer, name: str, record: BuildRecord, entry: Mapping[str, Any],
    packed: Sequence[tuple[Descriptor, str]], notes: Mapping[str, str], signed: SignedRecord | None = None,
) -> None:  # fmt: skip
    architecture = next((key for key, platform in ARCHITECTURES.items() if platform == record.platform), "unknown")
    config = into.add_json(KIND, {
        "architecture": architecture, "os": "linux", "format": FORMAT, "record": record.to_json(), "entry": dict(entry),
        "rootfs": {"type": "layers", "diff_ids": [diff for _, diff in packed]},
        **({"signed": asdict(signed)} if signed else {}),
    })  # fmt: skip
    into.publish(name, into.add_json(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": KIND, "config": config.to_json(),
        "layers": [descriptor.to_json() for descriptor, _ in packed], "annotations": dict(notes),
    }))  # fmt: skip


def _parts(record: BuildRecord, paths: RevisionPaths) -> Iterator[tuple[str, Layer]]:
    """The layers that are archives, each with the name of its part."""
    directories = [directory for directory in DIRECTORIES if disk.is_directory(paths.root / directory)]
    beside = contents.scan(paths.root, directories + (["prefix/"] if record.payload.is_packed else []))
    own = (*FILES, LAUNCHER) if record.payload.launcher_sha256 else FILES
    beside |= {name: (paths.root / name).lstat() for name in own if disk.is_there(paths.root / name)}
    yield BESIDE, Layer("beside the prefix", tuple(_entries(paths.root, beside)))
    if not record.payload.is_packed:
        yield from (("prefix", layer) for layer in _of_prefix(record, paths))
    homes = interpreter(record)
    if homes:
        yield INTERPRETER, Layer("interpreter", tuple(_outside(paths.yard, homes.values())))


def _of_prefix(record: BuildRecord, paths: RevisionPaths) -> list[Layer]:
    """The layers of the prefix, by package: revisions of one stack share equal packages in spite of their paths."""
    built = _built(contents.scan(paths.root, PARTS[:1]), paths)
    entries = {entry.name: entry for entry in _entries(paths.root, built)}
    owner = owners(paths.prefix, [name.removeprefix(PARTS[0]) for name in entries])
    owned: dict[str, list[Entry]] = {}
    for name, entry in entries.items():
        owned.setdefault(owner.get(name.removeprefix(PARTS[0]), ""), []).append(entry)
    return layers.grouped(owned, {package.name: package.version for package in record.packages}, layers.MOST - 3)


def _outside(yard: Path, homes: Any) -> Iterator[Entry]:
    """The entries of an interpreter of the yard, by path in the yard."""
    for home in homes:
        inside = home.relative_to(yard).as_posix()
        if home.is_symlink():
            yield Entry(inside, target=str(home.readlink()))
        else:
            tree = contents.scan(home)
            yield from (_placed(entry, inside) for entry in _entries(home, tree))


def _placed(entry: Entry, directory: str) -> Entry:
    return Entry(f"{directory}/{entry.name}", entry.source, entry.target, entry.size, entry.mode, entry.directory)


def _entries(root: Path, tree: Tree) -> Iterator[Entry]:
    for name, status in sorted(tree.items()):
        place = root / name
        if name.endswith("/"):
            yield Entry(name.rstrip("/"), mode=0o755, directory=True)
        elif place.is_symlink():
            yield Entry(name, target=str(place.readlink()))
        else:
            yield Entry(name, str(place), size=status.st_size, mode=layers.mode_of(status))


def _layer(into: Writer, number: int, part: str, layer: Layer, compression: Compression) -> tuple[Descriptor, str]:
    packed: PackedLayer = layers.write(layer, into.work / f"layer-{number}", compression)
    assert packed.file is not None
    into.add_file(packed.file, packed.descriptor.digest)
    descriptor = packed.descriptor
    return Descriptor(
        descriptor.kind, descriptor.digest, descriptor.size, {**descriptor.annotations, PART: part}
    ), packed.diff_id


def _image(into: Writer, paths: RevisionPaths, record: BuildRecord) -> tuple[Descriptor, str]:
    path, facts = into.work / "image", record.payload.facts()
    digest = f"sha256:{facts['sha256']}"
    disk.link_or_copy(paths.image, path, link=False)
    into.add_file(path, digest)
    return Descriptor(IMAGE, digest, facts["bytes"], {TITLE: paths.image.name, PART: "image"}), digest


# --------------------------------------------------------------------------- reading


def read(reference: Reference) -> Artefact:
    """An artefact in a layout. The caller has verified its blobs.

    Raises:
        InputError: it is not a revision.
        StackyardError: it is damaged.
    """
    layout_image = image(reference)
    fit = Fit.of_notes(layout_image.annotations, str(reference))
    try:
        record = BuildRecord.from_json(layout_image.settings["record"], str(reference))
        entry = members.make(manifest.Entry, layout_image.settings["entry"])
        signed = _read_signed(layout_image.settings.get("signed"), record, str(reference))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StackyardError(f"cannot read {reference}: {error}", hint="push it again") from error
    if (record.module, record.path, record.platform) != (fit.module, fit.path, fit.platform):
        raise StackyardError(f"{reference} is damaged: its record is of another revision", hint="push it again")
    return Artefact(reference, layout_image, fit, record, asdict(entry), signed)


def _read_signed(value: Any, record: BuildRecord, origin: str) -> SignedRecord | None:
    """The signed values of a revision, if any. Raises ValueError if invalid, or of another record."""
    if value is None:
        return None
    signed: SignedRecord = members.make(SignedRecord, value)
    for signature in signed.signatures:
        fingerprint(signature)
    text, _ = checksum.remove(signed.record)
    if BuildRecord.from_json(formats.content(text), origin) != record:
        raise ValueError("the record that was signed is another one")
    return signed


def unpack(arrived: Artefact, directory: Path) -> None:
    """Unpack the parts of an artefact, each into a directory (`BESIDE`, with the prefix; `INTERPRETER`) or file.

    Raises:
        StackyardError: it is damaged or harmful, or the disk is full.
    """
    trees = {name: UnpackedTree(directory / name) for name in (BESIDE, INTERPRETER)}
    for tree in trees.values():
        tree.root.mkdir()
    for layer, diff in zip(arrived.image.layers, arrived.image.diff_ids, strict=True):
        source, part = blob(arrived.reference.directory, layer.digest), layer.annotations.get(PART, "")
        if part == "image":
            disk.link_or_copy(source, directory / IMAGE_FILE, link=False)
        else:
            trees[INTERPRETER if part == INTERPRETER else BESIDE].apply(
                Applied(layer.digest, layer.size, layer.kind, diff), source
            )
