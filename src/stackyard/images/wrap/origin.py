"""Resolves the source of a wrapped image to a digest before a copy, and copies the image as a SquashFS file."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.files.hashing import sha256_file, sha256_once
from stackyard.host.machine.platforms import this_platform
from stackyard.host.run.command import run
from stackyard.images import inventory
from stackyard.images.bases import sources, store
from stackyard.images.bases.model import ARCHITECTURES, Defaults
from stackyard.images.bases.sources import Source, source_of
from stackyard.images.sif import file as sif
from stackyard.images.squashfs import file as squashfs
from stackyard.images.wrap import layers
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths

if TYPE_CHECKING:
    from stackyard.inputs.models import Wrap

_BLOCK = 4 << 20
_MOST_HEAD = 4096
_NOT_ALL = 2
"""The exit status of unsquashfs where it could not make an entry, as a device without the rights of root."""
_NOT_PACKED = squashfs.PackedTree("", 0, 0, "")
UNPACK_S = 4 * 3600.0
NAME = "wrapped"
"""What the image is called in the scratch yard through which it is unpacked."""


@dataclass(frozen=True)
class CopiedImage:
    """An image that was copied into a revision: `source` and `digest` identify it.

    Attributes:
        layers: the offsets of its partitions, the lowest first; empty: it is one SquashFS file.
        notices: sentences for the user.
        environment: the variables that it sets, with those of its scripts; None: not known yet.
    """

    source: str
    digest: str
    packed: squashfs.PackedTree
    defaults: Defaults
    labels: Mapping[str, str]
    layers: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None


def digest_of(wrap: Wrap, workspace: Workspace, directory: Path) -> str:
    """The digest of an image: the one pinned in the file, else that of the present source.

    Args:
        directory: the directory to which paths are relative.

    Raises:
        InputError: no such image, or its digest is known only after an import.
        StackyardError: it cannot be read.
    """
    if wrap.digest:
        return wrap.digest
    source = _source(wrap.image, directory)
    if source is None:
        return store.find(workspace, wrap.image).base.manifest
    if source.kind == "oci":
        return sources.digest_in_layout(source, this_platform())
    if source.kind == "docker":
        return sources.digest_in_registry(source, this_platform())
    file = Path(source.place)
    if source.kind in ("sif", "docker-archive"):
        if not disk.is_file(file):
            raise InputError(f"no such image: {file}", hint="check the path")
        return f"sha256:{sha256_once(file)}"
    raise InputError(
        f"cannot tell which image {source} is without copying it",
        hint=f"import it first: stackyard image from {source} --name NAME; or pin it with `digest:`",
    )


def _source(text: str, directory: Path) -> Source | None:
    """The source that a text names; None for a base's name."""
    if ":" in text:
        return source_of(text, directory)
    if "/" in text or text.endswith(".sif"):
        place = (directory / text).absolute()
        return Source("folder" if place.is_dir() else "sif", str(place))
    return None


def take(wrap: Wrap, workspace: Workspace, directory: Path, target: Path, work: Path) -> CopiedImage:
    """Copy an image to `target`: as one SquashFS file, or as the SIF file that it is, if that has overlays.

    Args:
        work: a directory on the same file system, which is removed afterwards.

    Raises:
        InputError: it is for another platform, or its digest differs from the pinned one.
        StackyardError: it is damaged or harmful, or the disk is full.
    """
    shared = _shared(workspace.yard, wrap.digest, target)
    if shared is not None:
        return shared
    source = _source(wrap.image, directory)
    if source is not None and source.kind == "sif":
        return _of_sif(Path(source.place), wrap.digest, target, work)
    if source is None:
        stored = store.find(workspace, wrap.image)
        if wrap.digest not in stored.base.digests:
            raise InputError(f"wrong digest: the base {wrap.image} is {stored.base.manifest}, expected {wrap.digest}")
        _require_platform(wrap.image, stored.base.platform)
        shutil.copyfile(stored.paths.image, target)
    else:
        stored = store.add(Yard(work / "yard"), store.BaseImport(source, NAME, digest=wrap.digest))
        stored.paths.root.chmod(0o700)
        stored.paths.image.rename(target)
    base = stored.base
    packed = squashfs.PackedTree(base.root.sha256, base.root.bytes, base.root.entries, base.root.packed_with)
    if sha256_file(target) != packed.sha256:
        raise StackyardError(f"{target} is not what was read", hint="see whether the disk of this machine is faulty")
    return CopiedImage(str(source or f"base {base.name}"), wrap.digest, packed, base.defaults, base.defaults.labels)


def _shared(yard: Yard, digest: str, target: Path) -> CopiedImage | None:
    """The image of a revision that was made of the same one: as a further name of its file, without unpacking again.

    Its bytes are compared first. None: no revision of this yard has it, or none that records all that is needed.
    """
    for record in revisions.built(yard, on_damage=lambda *_: None):
        facts, form = record.container, record.form
        environment, place = (facts or {}).get("environment"), (facts or {}).get("directory")
        if not facts or facts["digest"] != digest or not isinstance(environment, dict) or not isinstance(place, str):
            continue
        image = RevisionPaths.of(record.path).image
        if not disk.is_file(image):
            continue
        disk.link_or_copy(image, target)
        if sha256_file(target) != form.sha256:  # `verify` names it; the source may have the image still
            target.unlink()
            continue
        packed = squashfs.PackedTree(form.sha256, form.bytes, form.entries, form.packed_with.partition("; launcher")[0])
        offsets = inventory.offsets(target)
        if offsets[1:] and layers.lacking():
            target.unlink()
            continue
        taken = CopiedImage(facts["source"], digest, packed, Defaults(directory=place), facts["labels"])
        return replace(taken, layers=tuple(offsets) if offsets[1:] else (), environment=environment)
    return None


def _of_sif(file: Path, digest: str, target: Path, work: Path) -> CopiedImage:
    """Copy its system partition, which is a SquashFS file; with overlays all of the file, whose partitions are mounted.

    Where they cannot be joined, they are unpacked and packed as one tree.
    """
    image = sif.read(file)
    part = image.partition(sif.SYSTEM)
    if part is None:
        raise InputError(f"{file} has no system partition", hint="it holds data only: nothing to run in")
    _require_platform(str(file), ARCHITECTURES.get(part.architecture, part.architecture))
    parts = image.layers()
    if other := next((each for each in parts if not squashfs.is_squashfs(image.read(each, _MOST_HEAD))), None):
        raise InputError(f"cannot wrap {file}: its {other.title} is not SquashFS", hint="convert it to SquashFS")
    taken = CopiedImage(f"sif:{file}", digest, _NOT_PACKED, Defaults(), image.labels())
    why = layers.lacking() if parts[1:] else ""
    if why:
        _require_digest(file, sha256_file(file), digest)
        text = f"{file} has overlays, which were unpacked and packed as one image: {why}"
        return replace(taken, packed=_united(file, parts, target, work), notices=(text,))
    if parts[1:]:
        sha256 = _copy(file, 0, file.stat().st_size, target)
        _require_digest(file, sha256, digest)
        entries = squashfs.superblock(target).entries
        packed = squashfs.PackedTree(sha256, target.stat().st_size, entries, "the SIF file's builder")
        return replace(taken, packed=packed, layers=tuple(each.offset for each in parts))
    _require_digest(file, sha256_file(file), digest)
    sha256 = _copy(file, part.offset, part.size, target)
    entries = squashfs.superblock(target).entries
    return replace(taken, packed=squashfs.PackedTree(sha256, part.size, entries, "the SIF file's builder"))


def _require_digest(file: Path, sha256: str, digest: str) -> None:
    if f"sha256:{sha256}" != digest:
        raise StackyardError(f"wrong digest: {file} is not {digest}", hint="correct `digest:`, or get that image")


def _copy(file: Path, offset: int, size: int, target: Path) -> str:
    """Copy bytes of a file; returns their sha256."""
    digest = hashlib.sha256()
    with file.open("rb") as source, target.open("wb") as copy:
        source.seek(offset)
        left = size
        while left and (block := source.read(min(_BLOCK, left))):
            digest.update(block)
            copy.write(block)
            left -= len(block)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


def _united(file: Path, parts: Sequence[sif.Part], target: Path, work: Path) -> squashfs.PackedTree:
    """Merge the partitions, later ones over earlier ones. Each is unpacked separately: no link leads into another."""
    trees = [work / f"partition-{number}" for number in range(len(parts))]
    for part, tree in zip(parts, trees, strict=True):
        gone = [path for path, entry in inventory.layer(file, part.offset).items() if entry.hides]
        words = ["unsquashfs", "-no-progress", "-no-xattrs", "-offset", str(part.offset), "-dest", str(tree), str(file)]
        done = run(words, timeout_s=UNPACK_S, check=not gone)
        if done.returncode not in (0, *([_NOT_ALL] * bool(gone))):
            raise StackyardError(f"cannot unpack {file}: unsquashfs failed", detail=done.output)
        if tree != trees[0]:
            _lay(tree, trees[0])
            _hide(trees[0], gone)
    for name, _ in list(squashfs.special(trees[0])):
        _without_rights(trees[0] / name)
    return squashfs.pack(trees[0], target, as_it_is=True)


def _hide(tree: Path, gone: Sequence[str]) -> None:
    """Remove what the whiteouts of a merged tree name, and the whiteouts, which only root can unpack."""
    for path in gone:
        *above, name = path.strip("/").split("/")
        directory = tree
        for step in above:
            directory /= step
            if not _is_directory(directory):
                break
        else:
            _remove(directory, name)


def _remove(directory: Path, name: str) -> None:
    place, mode = directory / name, stat.S_IMODE(directory.lstat().st_mode)
    directory.chmod(mode | stat.S_IRWXU)
    if _is_directory(place):
        disk.delete_tree(place)
    else:
        place.unlink(missing_ok=True)
    directory.chmod(mode)


def _without_rights(path: Path) -> None:
    """Remove set-user-ID and set-group-ID, which the container ignores, as for an imported base."""
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode):
        path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _lay(over: Path, below: Path) -> None:
    """Merge a tree over another with overlayfs semantics: directories are merged, other entries replaced.

    Links are never followed. Modes and times of directories are those of the upper one.
    """
    joined, links = [(over, below)], []
    for upper, lower in joined:
        links.append((lower, upper.lstat()))
        for directory in (upper, lower):
            directory.chmod(0o700)
        for path in upper.iterdir():
            place = lower / path.name
            if _is_directory(path) and _is_directory(place):
                joined.append((path, place))
            else:
                _replace(path, place)
    for directory, status in reversed(links):
        directory.chmod(stat.S_IMODE(status.st_mode))
        os.utime(directory, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace(path: Path, place: Path) -> None:
    """Move a file, link or directory to a path, replacing an existing entry."""
    if _is_directory(place):
        disk.delete_tree(place)
    else:
        place.unlink(missing_ok=True)
    mode, is_directory = stat.S_IMODE(path.lstat().st_mode), _is_directory(path)
    if is_directory:
        path.chmod(mode | stat.S_IWUSR)  # without it a directory cannot be moved
    path.rename(place)
    if is_directory:
        place.chmod(mode)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _require_platform(image: str, platform: str) -> None:
    if platform != this_platform():
        raise InputError(
            f"{image} is for {platform or 'no platform that is known'}, and this machine is {this_platform()}",
            hint="deploy it on a machine of that platform, or get the image for this one",
        )
