"""The sources of a base: an archive of docker or podman, an OCI layout, a registry, a directory.

Each source is copied into an OCI layout, byte for byte, and all its digests are verified.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from stackyard.core.errors import InputError, MissingError, StackyardError, cause
from stackyard.core.grammar import shown
from stackyard.core.secrets import redacted
from stackyard.host.files.hashing import sha256_file
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import run, which
from stackyard.images.bases.blobs import EPOCH, TAR, Blob, Layout, digest_of, manifest_of, parsed, read_small
from stackyard.images.bases.directory import write_layer
from stackyard.images.bases.model import ARCHITECTURES, Layer
from stackyard.images.bases.unpack import LIMIT_HINT, MOST_BYTES, CheckedHeader
from stackyard.images.oci.gzipped import GzipReader
from stackyard.images.oci.layout import MANIFEST, Reference, image, read
from stackyard.images.oci.transfer import ANSWER_S, failure
from stackyard.images.sif import file as sif

PULL_TIMEOUT_S = 6 * 3600.0
_LAYERS = {
    f"{TAR}": TAR, f"{TAR}+gzip": f"{TAR}+gzip", f"{TAR}+zstd": f"{TAR}+zstd",
    "application/vnd.docker.image.rootfs.diff.tar": TAR,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{TAR}+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": f"{TAR}+zstd",
}  # fmt: skip
_MOST_LAYERS = 4096


@dataclass(frozen=True)
class Source:
    """The source of an import. `kind`: one of `_SOURCES`; `tag` may be empty."""

    kind: str
    place: str
    tag: str = ""

    def __str__(self) -> str:
        return redacted(f"{self.kind}:{self.place}" + (f":{self.tag}" if self.tag else ""))


@dataclass(frozen=True)
class FetchedImage:
    """An image in an OCI layout. `digests`: digests besides its manifest's by which it may be pinned."""

    manifest: Blob
    config: Mapping[str, Any]
    layers: tuple[Layer, ...]
    digests: tuple[str, ...]


def source_of(text: str, directory: Path = Path()) -> Source:
    """Parse a source: ``KIND:PLACE[:TAG]``, with Skopeo's kinds, or a directory.

    Args:
        directory: the directory to which paths are relative.

    Raises:
        InputError: it is not a valid source.
    """
    kind, _, rest = text.partition(":")
    if kind == "docker" and rest.startswith("//") and len(rest) > 2:
        return Source(kind, rest)
    if kind in ("docker-archive", "oci") and rest:
        place, _, tag = rest.partition(":")
        return Source(kind, str((directory / place).absolute()), tag)
    if kind in ("folder", "sif") and rest:
        return Source(kind, str((directory / rest).absolute()))
    known = "docker-archive:FILE[:TAG], oci:DIR[:TAG], docker://REGISTRY/NAME:TAG, sif:FILE or folder:DIR"
    raise InputError(f"unknown source of an image: {shown(redacted(text))}", hint=f"write {known}")


def fetch(source: Source, layout: Layout, platform: str, most_bytes: int = MOST_BYTES) -> FetchedImage:
    """Copy an image into a layout.

    Args:
        platform: conda's name of the architecture to select, if the source has several.
        most_bytes: the size limit of an archive's layers, which may be compressed.

    Raises:
        InputError: the source does not exist, or is of another form.
        StackyardError: it is truncated, or a digest differs.
        MissingError: skopeo is missing, for a registry.
    """
    try:
        return _SOURCES[source.kind](source, layout, platform, most_bytes)
    except (tarfile.TarError, EOFError) as error:
        said = str(error)
        why = "cannot read {}: not a tar archive" if "\n" in said else f"{{}} is damaged: {said}"  # a line per method
        raise StackyardError(why.format(source.place), hint="copy or save the image again") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise _incomplete(source, error) from error


def _from_oci(source: Source, layout: Layout, platform: str, most_bytes: int) -> FetchedImage:
    origin = Layout(Path(source.place))
    data = read(origin.directory, digest_in_layout(source, platform))
    return _copied(parsed(data, str(source)), data, lambda descriptor: _opened(origin.path(descriptor)), layout)


def digest_in_layout(source: Source, platform: str) -> str:
    """The digest of an image's manifest in an OCI layout.

    Raises:
        InputError: the layout does not exist, or does not have this one image for the platform.
    """
    directory = Path(source.place)
    return image(Reference(directory, source.tag), architecture=_architecture(platform)).manifest.digest


def digest_in_registry(source: Source, platform: str) -> str:
    """The digest that a registry has for an image of a platform: a few kilobytes are fetched, by skopeo.

    Raises:
        InputError: the registry has it for other platforms only.
        MissingError: skopeo is missing.
        StackyardError: the registry cannot be reached, or does not have it.
    """
    _require_skopeo()
    words = ["skopeo", "inspect", "--raw", f"docker:{source.place}"]
    done = run(words, check=False, timeout_s=ANSWER_S)
    if done.returncode:
        raise failure(f"look up {source}", source.place.strip("/").partition("/")[0], done)
    data = done.stdout.encode()
    manifest = parsed(data, str(source))
    if "manifests" not in manifest:
        return "sha256:" + hashlib.sha256(data).hexdigest()
    try:
        found = [
            entry
            for entry in _objects(manifest["manifests"], source)
            if (entry["platform"]["os"], entry["platform"]["architecture"]) == ("linux", _architecture(platform))
        ]
        return str(found[0]["digest"])
    except (KeyError, TypeError) as error:
        raise _incomplete(source, error) from error
    except IndexError:
        raise InputError(f"{source} is not for {platform}", hint="name an image for this platform") from None


def _incomplete(source: Source, error: Exception) -> InputError:
    why = f"missing key {error}" if isinstance(error, KeyError) else str(error)
    return InputError(f"{source} is not a complete image: {why}", hint="save the image again")


def _architecture(platform: str) -> str:
    return next(name for name, architecture in ARCHITECTURES.items() if architecture == platform)


def _objects(value: Any, source: Source) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value) or len(value) > _MOST_LAYERS:
        raise InputError(f"{source} is not an image: no list of manifests or layers", hint="save the image again")
    return value


def _copied(
    manifest: Mapping[str, Any], data: bytes, opened: Callable[[str], IO[bytes]], layout: Layout
) -> FetchedImage:
    """Copy a manifest and the blobs it names, unchanged if it is an OCI manifest."""
    place = Source("manifest", manifest["config"]["digest"])
    config = _add(manifest["config"], opened, layout)
    values = layout.read_json(config.digest)
    diffs = values["rootfs"]["diff_ids"]
    entries = _objects(manifest["layers"], place)
    if len(diffs) != len(entries):
        raise InputError(f"the image has {len(entries)} layers, and its configuration names {len(diffs)}")
    layers = []
    for entry, diff in zip(entries, diffs, strict=True):
        kind = _LAYERS.get(entry.get("mediaType", ""))
        if kind is None:
            raise InputError(
                f"unsupported kind of layer: {shown(str(entry.get('mediaType')))}", hint="convert it with skopeo"
            )
        blob = _add(entry, opened, layout)
        layers.append(Layer(blob.digest, blob.size, kind, str(diff)))
    own = manifest.get("mediaType", MANIFEST) == MANIFEST and all(
        entry["mediaType"] == layer.media_type for entry, layer in zip(entries, layers, strict=True)
    )
    manifest_blob = layout.add_bytes(data) if own else layout.add_json(manifest_of(config, layers))
    at_source = "sha256:" + hashlib.sha256(data).hexdigest()
    return FetchedImage(manifest_blob, values, tuple(layers), (manifest_blob.digest, at_source, config.digest))


def _add(entry: Mapping[str, Any], opened: Callable[[str], IO[bytes]], layout: Layout) -> Blob:
    digest, size = str(entry["digest"]), entry.get("size", -1)
    layout.path(digest)
    with opened(digest) as stream:
        return layout.add(stream, expected=digest, size=size if type(size) is int else -1)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise StackyardError(
            f"cannot read {path}: {cause(error)}", hint="the image is not complete: copy it again"
        ) from error


def _require_skopeo() -> None:
    if which("skopeo") is None:
        hint = "install skopeo, or save the image elsewhere: skopeo copy docker://... docker-archive:FILE"
        raise MissingError("skopeo not found: it fetches images from registries", hint=hint)


def _from_registry(source: Source, layout: Layout, platform: str, most_bytes: int) -> FetchedImage:
    """Fetch with skopeo, using its own logins and policy; the manifest is not converted."""
    _require_skopeo()
    architecture = _architecture(platform)
    with scratch("pull") as work:
        words = ["skopeo", "--override-os", "linux", "--override-arch", architecture, "copy", "--retry-times", "3"]
        done = run([*words, f"docker:{source.place}", f"dir:{work / 'image'}"], check=False, timeout_s=PULL_TIMEOUT_S)
        if done.returncode:
            raise failure(f"fetch {source}", source.place.strip("/").partition("/")[0], done)
        place = work / "image"
        data = read_small(place / "manifest.json")
        fetched = _copied(parsed(data, str(source)), data, lambda digest: _opened(place / digest.split(":")[1]), layout)
    index = re.findall(r"@(sha256:[0-9a-f]{64})$", source.place)  # of several platforms; skopeo compared it
    return replace(fetched, digests=(*fetched.digests, *index))


def _from_archive(source: Source, layout: Layout, platform: str, most_bytes: int) -> FetchedImage:
    """Read an archive of `docker save` or `podman save`, optionally compressed with gzip."""
    file = Path(source.place)
    if not file.is_file():
        raise InputError(f"no such file: {file}", hint=f"check the path; `docker save -o {file} IMAGE` writes one")
    with tarfile.open(file, tarinfo=CheckedHeader) as tar:
        members = {posixpath.normpath(info.name): info for info in tar}
        listed = parsed(b'{"images":' + _small(tar, members, "manifest.json", file) + b"}", f"{file}: manifest.json")
        image = _tagged(_objects(listed["images"], source), source)
        config = layout.add_bytes(_small(tar, members, str(image["Config"]), file))
        values = layout.read_json(config.digest)
        diffs, names = values["rootfs"]["diff_ids"], image["Layers"]
        if len(diffs) != len(names):
            raise InputError(f"{file} has {len(names)} layers, and its configuration names {len(diffs)}")
        if sum(_member(members, str(name), file).size for name in names) > most_bytes:
            raise _too_large(source.place, most_bytes)
        layers = tuple(_archived(tar, members, str(n), str(d), layout, file) for n, d in zip(names, diffs, strict=True))
    manifest = layout.add_json(manifest_of(config, layers))
    return FetchedImage(manifest, values, layers, (manifest.digest, config.digest, f"sha256:{sha256_file(file)}"))


def _too_large(place: str, most_bytes: int) -> StackyardError:
    return StackyardError(
        f"{place} has more than {most_bytes / (1 << 30):.4g} GiB when it is unpacked", hint=LIMIT_HINT
    )


def _tagged(images: list[Mapping[str, Any]], source: Source) -> Mapping[str, Any]:
    tags = [tag for candidate in images for tag in candidate.get("RepoTags") or ()]
    matches = [candidate for candidate in images if not source.tag or _is_tagged(candidate, source.tag)]
    if len(matches) != 1:
        hint = f"write docker-archive:{source.place}:NAME:TAG; it has {', '.join(map(str, tags)) or 'no names'}"
        raise InputError(f"{source.place} has {len(matches)} images" + (f" {source.tag}" * bool(source.tag)), hint=hint)
    return matches[0]


def _is_tagged(image: Mapping[str, Any], tag: str) -> bool:
    """Whether an image has this tag, with or without the registry that some tools prefix (docker.io/library/)."""
    return any(f"/{name}".endswith(f"/{tag}") for name in image.get("RepoTags") or ())


Members = Mapping[str, tarfile.TarInfo]


def _member(members: Members, name: str, file: Path) -> tarfile.TarInfo:
    """A file of an archive; older versions of docker link equal layers to each other."""
    path = posixpath.normpath(name)
    for _ in range(8):
        info = members.get(path)
        if info is None:
            break
        if info.isreg():
            return info
        if not (info.issym() or info.islnk()):
            break
        above = posixpath.dirname(path) if info.issym() else ""
        path = posixpath.normpath(posixpath.join(above, info.linkname))
    raise InputError(
        f"{file} is not an image of docker: missing {shown(name)}", hint="make it with `docker save` or `podman save`"
    )


def _small(tar: tarfile.TarFile, members: Members, name: str, file: Path) -> bytes:
    info = _member(members, name, file)
    if info.size > 16 << 20:
        raise InputError(f"{file} is not an image of docker: {shown(name)} has {info.size} bytes")
    return cast(IO[bytes], tar.extractfile(info)).read()


def _archived(tar: tarfile.TarFile, members: Members, name: str, diff: str, layout: Layout, file: Path) -> Layer:
    info = _member(members, name, file)
    blob = layout.add(cast(IO[bytes], tar.extractfile(info)), size=info.size)
    with layout.path(blob.digest).open("rb") as stream:
        magic = stream.read(4)
    packed = {b"\x1f\x8b": "+gzip", b"\x28\xb5": "+zstd"}.get(magic[:2], "")
    return Layer(blob.digest, blob.size, f"{TAR}{packed}", diff)


def _from_directory(source: Source, layout: Layout, platform: str, most_bytes: int) -> FetchedImage:
    """A directory as one layer, deterministic for the same files and times, independent of their owners.

    It is compressed with gzip, whose bytes depend on the zlib. Its configuration names the layer before compression, so
    the configuration's digest does not; nor does that of the manifest with the layer as earlier versions wrote it.
    """
    root = Path(source.place)
    if not root.is_dir():
        raise InputError(f"no such directory: {root}", hint="check the path")
    if root.resolve() == Path("/"):
        raise InputError("cannot import / as a base: it is this machine", hint="name another directory")
    blobs = layout.directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    path = blobs / ".tar"
    try:
        write_layer(root, path)
        with path.open("rb") as stream:
            packed = GzipReader(stream)
            blob = layout.add(cast(IO[bytes], packed))
    finally:
        path.unlink(missing_ok=True)
    layer = Layer(blob.digest, blob.size, f"{TAR}+gzip", packed.digest)
    architecture = _architecture(platform)
    values = {
        "architecture": architecture, "os": "linux", "created": EPOCH, "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
        "history": [{"created": EPOCH, "created_by": "stackyard image from-folder"}],
    }  # fmt: skip
    config = layout.add_json(values)
    manifest = layout.add_json(manifest_of(config, (layer,)))
    plain = digest_of(manifest_of(config, (Layer(layer.diff_id, packed.size, TAR, layer.diff_id),)))
    return FetchedImage(manifest, values, (layer,), (manifest.digest, config.digest, plain))


def _from_sif(source: Source, layout: Layout, platform: str, most_bytes: int) -> FetchedImage:
    """The system partition of a SIF, as a directory; its environment stays in its own scripts."""
    sif_file = sif.read(Path(source.place))
    part = sif_file.partition(sif.SYSTEM)
    if part is None:
        raise InputError(f"{source.place} has no system partition", hint="it holds data only: nothing to build on")
    options = ["-no-progress", "-offset", str(part.offset)]
    rows = (line.split(maxsplit=5) for line in run(["unsquashfs", *options, "-lln", source.place]).stdout.splitlines())
    if sum(int(row[2]) for row in rows if len(row) == 6 and row[0][0] == "-" and row[2].isdigit()) > most_bytes:
        raise _too_large(source.place, most_bytes)
    with scratch("sif") as work:
        root = str(work / "root")
        run(["unsquashfs", *options, "-no-xattrs", "-dest", root, source.place], timeout_s=PULL_TIMEOUT_S)
        fetched = _from_directory(Source("folder", root), layout, platform, most_bytes)
    return replace(fetched, digests=(*fetched.digests, f"sha256:{sha256_file(Path(source.place))}"))


_SOURCES: Mapping[str, Callable[[Source, Layout, str, int], FetchedImage]] = {
    "docker-archive": _from_archive,
    "oci": _from_oci,
    "docker": _from_registry,
    "folder": _from_directory,
    "sif": _from_sif,
}
"""How each kind of source is copied."""
