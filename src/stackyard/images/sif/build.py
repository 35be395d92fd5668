"""Writes a revision on a base as one SIF file: checked first, and written completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from stackyard import __version__
from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import ChecksFailed, InputError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.files.scratch import scratch
from stackyard.images import room
from stackyard.images.bases import fit
from stackyard.images.bases.store import StoredBase
from stackyard.images.labels import labels as revision_labels
from stackyard.images.relocation.paths import Moves, place_of, require_place
from stackyard.images.sif import file as sif
from stackyard.images.sif import inside, overlay, sign
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import possible
from stackyard.inputs.sites.sitemodels import Site
from stackyard.yard.kinds.payload import IMAGES
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write.atomic import fault_point
from stackyard.yard.write.permissions import program_mode

BASE_LABEL, OVERLAY_LABEL = "io.stackyard.base-sha256", "io.stackyard.overlay-sha256"
CHANGES_LABEL = "io.stackyard.changes-sha256"
"""The labels with the hashes of a SIF's partitions."""


@dataclass(frozen=True)
class SifRequest:
    """The request for a SIF: revision, environment change, base, file, and the site whose nodes run it.

    Attributes:
        prefix: where the revision is in the image; empty: where OCI images have it.
        key: the PEM file of the key to sign it with; None: it is not signed.
    """

    record: BuildRecord
    change: EnvironmentChange
    base: StoredBase
    file: Path
    site: Site
    prefix: str = ""
    key: Path | None = None

    @property
    def place(self) -> str:
        """The prefix in the image."""
        return place_of(self.record.stack, self.prefix)


def build(request: SifRequest, *, dry_run: bool = False) -> list[str]:
    """Write a SIF; returns sentences for the user.

    Args:
        dry_run: only check.

    Raises:
        InputError: the revision does not run on the base, or the base on no node kind of the site; the key is unusable.
        MissingError: mksquashfs, or the program that signs, is missing, or the revision is an image that cannot be
            mounted here.
        DiskFull: the disk has too little room for it.
        StackyardError: it cannot be written.
    """
    if not request.file.parent.is_dir():
        raise InputError(f"no such directory: {request.file.parent}", hint="create it, or choose another -o")
    require_place(request.place)
    possible.require_packing()
    if request.key is not None:
        sign.require(request.key)
    record, base = request.record, request.base
    change = _within(request.change, overlay.moves_of(record, request.place))
    fit.require(record, base, request.place)
    findings = fit.require_driver(base.base, request.site)
    if not dry_run:
        _write(request, change, labels_of(record, base, request.place))
    return [*(finding.message for finding in findings), *fit.notices(base, request.place), *inside.left_out_of(change)]


def _within(change: EnvironmentChange, moves: Moves) -> EnvironmentChange:
    """The change at the path in the image, without variables that name images to mount."""
    return EnvironmentChange(
        tuple(moves.operation(operation) for operation in change if getattr(operation, "variable", "") != IMAGES)
    )


def labels_of(record: BuildRecord, base: StoredBase, place: str) -> dict[str, str]:
    """The labels of an image, deterministic for the same revision and base."""
    own = revision_labels(record, place, base.base.source, base.base.manifest, base.base.licences)
    return {**base.base.defaults.labels, **own, **_labels_of_base(base)}


def _labels_of_base(base: StoredBase) -> dict[str, str]:
    return {
        "org.opencontainers.image.base.name": base.base.source,
        "org.opencontainers.image.base.digest": base.base.manifest,
        BASE_LABEL: base.base.root.sha256,
    }


def build_base(base: StoredBase, file: Path, key: Path | None = None) -> None:
    """Write a base alone as a SIF, with the scripts by which a runtime provides the host's libraries.

    Raises:
        InputError: the key is unusable.
        MissingError: mksquashfs, or the program that signs, is missing.
        StackyardError: it cannot be written.
    """
    possible.require_packing()
    if key is not None:
        sign.require(key)
    labels = {**base.base.defaults.labels, **_labels_of_base(base)}
    _require_room(file, base)
    with scratch("sif", file.parent) as work:
        root = _root(work, base, EnvironmentChange(), labels)
        upper = work / "overlay.sqsh"
        squashfs.pack(root, upper, level=squashfs.QUICK)
        _put_together(base, [upper], labels, f"# the base {base.base.name}\n".encode(), file, work, key)


def _write(request: SifRequest, change: EnvironmentChange, labels: Mapping[str, str]) -> None:
    """Write the base's SquashFS unchanged, and the revision as overlays: nothing is packed twice."""
    record, base = request.record, request.base
    _require_room(request.file, base, record)
    with scratch("sif", request.file.parent) as work:
        root = _root(work, base, change, labels, request)
        layers = overlay.pack(overlay.Move(record, request.place, root, work))
        _put_together(base, layers, labels, _recipe(record), request.file, work, request.key)


def _require_room(file: Path, base: StoredBase, record: BuildRecord | None = None) -> None:
    """Require room for a SIF: the base, and the packed revision twice, by itself and in the file."""
    image = record.payload.image if record else None
    files = room.files_of(Path(record.prefix)) if record and image is None else []
    copied = base.base.root.bytes + 2 * (image.stat().st_size if image else 0)
    packed = partial(squashfs.packed_bytes, level=squashfs.QUICK)
    room.require(file.parent, files, f"cannot write {file}", packed, times=2, copied=copied,
                 hint="free some space there, or write it to another disk")  # fmt: skip


def _root(
    work: Path,
    base: StoredBase,
    change: EnvironmentChange,
    labels: Mapping[str, str],
    request: SifRequest | None = None,
) -> Path:
    """The container's ``/``: the runtime's files, and the marker that the files of the revision are visible."""
    root, mark = work / "root", ""
    root.mkdir()
    if request is not None:
        mark = f"{request.place}/{overlay.OWN}/{request.record.input_hash[:16]}"
        (root / mark.lstrip("/")).parent.mkdir(parents=True)
        (root / mark.lstrip("/")).touch()
    inside.write(root, base.base.defaults.env, change, labels, mark)
    return root


def _put_together(
    base: StoredBase, layers: Sequence[Path], labels: Mapping[str, str], recipe: bytes, file: Path, work: Path,
    key: Path | None,
) -> None:  # fmt: skip
    path = work / "new.sif"
    hashes = dict(zip((OVERLAY_LABEL, CHANGES_LABEL), map(sha256_file, layers), strict=False))
    sif.write(path, base.base.architecture, [
        sif.PartSource(sif.DEFINITION, "recipe", recipe),
        sif.PartSource(sif.JSON, sif.INSPECT, _metadata({**labels, **hashes}, recipe)),
        sif.PartSource(sif.PARTITION, f"base-{base.base.name}", base.paths.image, sif.SYSTEM, base.base.root.sha256),
        *(sif.PartSource(sif.PARTITION, layer.stem, layer, sif.OVERLAY, digest)
          for layer, digest in zip(layers, hashes.values(), strict=True)),
    ])  # fmt: skip
    path.chmod(program_mode())
    if key is not None:
        sign.sign(path, key)
    fault_point("sif")
    path.replace(file)


def check(file: Path) -> list[str]:
    """Verify the partitions of a SIF against its labels, every byte; returns what was compared.

    Raises:
        InputError: it is not a SIF, or was not written by this program.
        ChecksFailed: a partition differs.
    """
    image_file = sif.read(file)
    labels, done = image_file.labels(), []
    layers = zip_longest(
        image_file.partitions(sif.OVERLAY), (OVERLAY_LABEL, *([CHANGES_LABEL] * (CHANGES_LABEL in labels)))
    )
    for partition, label in ((image_file.partition(sif.SYSTEM), BASE_LABEL), *layers):
        if partition is None or label not in labels:
            kind = sif.PARTS[sif.SYSTEM if label == BASE_LABEL else sif.OVERLAY]
            raise InputError(f"{file} was not written by stackyard: no hash of its {kind} partition",
                             hint="verify it with the program that made it")  # fmt: skip
        if image_file.sha256(partition) != labels[label]:
            raise ChecksFailed(f"{file} has changed: its {partition.title} is not the one in its labels",
                               hint="copy or build it again")  # fmt: skip
        done.append(partition.title)
    return done


def _metadata(labels: Mapping[str, str], recipe: bytes) -> bytes:
    """The metadata for `apptainer inspect` and its --deffile."""
    attributes = {"labels": dict(labels), "deffile": recipe.decode()}
    return json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True).encode()


def _recipe(record: BuildRecord) -> bytes:
    """The source files of the revision."""
    lines = [f"# {record.module}, written by stackyard {__version__} from these files; see the labels for their hashes"]
    for path in sorted(RevisionPaths.of(record.path).recipe.glob("*")):
        if path.is_file():
            lines += ["", f"# --- {path.name}", path.read_text(encoding="utf-8", errors="replace").rstrip()]
    return ("\n".join(lines) + "\n").encode()
