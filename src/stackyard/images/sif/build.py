"""Writes a revision on a base as one SIF file: checked first, and written completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stackyard import __version__
from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import ChecksFailed, InputError
from stackyard.host.files.hashing import sha256_file
from stackyard.host.files.scratch import scratch
from stackyard.images.bases import fit
from stackyard.images.bases.store import StoredBase
from stackyard.images.sif import file as sif
from stackyard.images.sif import inside, overlay
from stackyard.images.squashfs import file as squashfs
from stackyard.inputs.sites.sitemodels import Site
from stackyard.yard.kinds.payload import IMAGES
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write.atomic import fault_point
from stackyard.yard.write.permissions import program_mode

BASE_LABEL, OVERLAY_LABEL = "io.stackyard.base-sha256", "io.stackyard.overlay-sha256"
"""The labels with the hashes of a SIF's two partitions."""


@dataclass(frozen=True)
class SifRequest:
    """The request for a SIF: revision, environment change, base, file, and the site whose nodes run it."""

    record: BuildRecord
    change: EnvironmentChange
    base: StoredBase
    file: Path
    site: Site


def build(request: SifRequest, *, dry_run: bool = False) -> list[str]:
    """Write a SIF; returns sentences for the user.

    Args:
        dry_run: only check.

    Raises:
        InputError: the revision does not run on the base, or the base on no node kind of the site.
        StackyardError: it cannot be written.
    """
    if not request.file.parent.is_dir():
        raise InputError(f"no such directory: {request.file.parent}", hint="create it, or choose another -o")
    record, base, change = request.record, request.base, _within(request.change)
    fit.require(record, base)
    findings = fit.require_driver(base.base, request.site)
    if not dry_run:
        _write(request, change, labels_of(record, base))
    return [*(finding.message for finding in findings), *fit.notices(record, base), *inside.left_out_of(change)]


def _within(change: EnvironmentChange) -> EnvironmentChange:
    """The change without variables that name images to mount: inside, the files are unpacked."""
    return EnvironmentChange(tuple(operation for operation in change if getattr(operation, "variable", "") != IMAGES))


def labels_of(record: BuildRecord, base: StoredBase) -> dict[str, str]:
    """The labels of an image, deterministic for the same revision and base."""
    paths = RevisionPaths.of(record.path)
    recipe = {path.name: sha256_file(path) for path in sorted(paths.recipe.glob("*")) if path.is_file()}
    licences = (*record.licences, *base.base.licences)
    labels = {
        "org.opencontainers.image.title": record.module,
        "org.opencontainers.image.description": record.summary,
        "org.opencontainers.image.version": record.version,
        "org.opencontainers.image.licenses": ", ".join(str(licence["name"]) for licence in licences),
        "io.stackyard.prefix": record.prefix,
        "io.stackyard.platform": record.platform,
        "io.stackyard.version": __version__,
        "io.stackyard.input-hash": record.input_hash,
        "io.stackyard.lock-sha256": sha256_file(paths.lock) if paths.lock.exists() else "",
        "io.stackyard.recipe": " ".join(f"{name}={digest}" for name, digest in recipe.items()),
        "io.stackyard.packages": " ".join(sorted(f"{package.name}={package.version}" for package in record.packages)),
    }
    all_labels = {**base.base.defaults.labels, **labels, **_labels_of_base(base)}
    return {key: value for key, value in all_labels.items() if value}


def _labels_of_base(base: StoredBase) -> dict[str, str]:
    return {
        "org.opencontainers.image.base.name": base.base.source,
        "org.opencontainers.image.base.digest": base.base.manifest,
        BASE_LABEL: base.base.root.sha256,
    }


def build_base(base: StoredBase, file: Path) -> None:
    """Write a base alone as a SIF, with the scripts by which a runtime provides the host's libraries.

    Raises:
        StackyardError: it cannot be written.
    """
    labels = {**base.base.defaults.labels, **_labels_of_base(base)}
    with scratch("sif", file.parent) as work:
        root = _root(work, base, EnvironmentChange(), labels)
        upper = work / "overlay.sqsh"
        squashfs.pack(root, upper)
        _put_together(base, upper, labels, f"# the base {base.base.name}\n".encode(), file, work)


def _write(request: SifRequest, change: EnvironmentChange, labels: Mapping[str, str]) -> None:
    """Write the base's SquashFS unchanged, and the revision as an overlay: nothing is packed twice."""
    record, base = request.record, request.base
    with scratch("sif", request.file.parent) as work:
        root = _root(work, base, change, labels)
        upper = overlay.pack(record, root, overlay.SideFiles.of(record), work)
        _put_together(base, upper, labels, _recipe(record), request.file, work)


def _root(work: Path, base: StoredBase, change: EnvironmentChange, labels: Mapping[str, str]) -> Path:
    root = work / "root"
    root.mkdir()
    inside.write(root, base.base.defaults.env, change, labels)
    return root


def _put_together(
    base: StoredBase, upper: Path, labels: Mapping[str, str], recipe: bytes, file: Path, work: Path
) -> None:
    path, said = work / "new.sif", {**labels, OVERLAY_LABEL: sha256_file(upper)}
    sif.write(path, base.base.architecture, [
        sif.PartSource(sif.DEFINITION, "recipe", recipe),
        sif.PartSource(sif.JSON, sif.INSPECT, _metadata(said, recipe)),
        sif.PartSource(sif.PARTITION, f"base-{base.base.name}", base.paths.image, sif.SYSTEM, base.base.root.sha256),
        sif.PartSource(sif.PARTITION, "prefix", upper, sif.OVERLAY, said[OVERLAY_LABEL]),
    ])  # fmt: skip
    path.chmod(program_mode())
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
    for part, label in ((sif.SYSTEM, BASE_LABEL), (sif.OVERLAY, OVERLAY_LABEL)):
        partition = image_file.partition(part)
        if partition is None or label not in labels:
            raise InputError(f"{file} was not written by stackyard: no hash of its {sif.PARTS[part]} partition",
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
