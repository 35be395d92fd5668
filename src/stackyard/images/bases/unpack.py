"""Applying the layers of an image to a directory, as an ordinary user, and without leaving that directory.

A layer may contain files, directories, symbolic and hard links, and whiteouts. Links on the way to an entry are
followed within the directory, as a container's ``/`` would; nothing is followed out of it. All files belong to the
unpacking user, who can read and remove them; set-user-ID and set-group-ID are dropped; times of files are kept. Source:
the OCI specification's layer.md.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from stackyard.core.errors import StackyardError, cause
from stackyard.core.grammar import shown
from stackyard.host.files import space
from stackyard.images.bases.model import Layer
from stackyard.images.oci.packed import plain

MOST_BYTES, MOST_ENTRIES = 256 << 30, 10_000_000
"""How much an image may be when it is unpacked: some bytes of a gzip file can stand for terabytes."""
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MOST_LINKS = 40
_MOST_HEADER = 1 << 20
_KEPT = 0o1777
_CAPABILITY = "SCHILY.xattr.security.capability"
_LONG = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
_SPECIAL = {tarfile.CHRTYPE: "device node", tarfile.BLKTYPE: "device node", tarfile.FIFOTYPE: "named pipe"}
_AGAIN = "copy or save the image again"
_HINT = "it is damaged or harmful: do not use it"


@dataclass
class UnpackedTree:
    """A directory, and the layers applied to it.

    Attributes:
        without_rights: programs that lost set-user-ID, set-group-ID or capabilities, by their path.
    """

    root: Path
    most_bytes: int = MOST_BYTES
    most_entries: int = MOST_ENTRIES
    without_rights: set[str] = field(default_factory=set)
    _bytes: int = 0
    _entries: int = 0
    _parents: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def apply(self, layer: Layer, blob: Path) -> None:
        """Apply one layer.

        Raises:
            StackyardError: it is damaged, truncated or harmful, its digest differs, or the disk is full.
        """
        try:
            with blob.open("rb") as raw, plain(raw) as unpacked:
                stream = _CountedStream(unpacked, self.most_bytes + (64 << 20))
                self._extract(cast(IO[bytes], stream))
                stream.drain()
        except (tarfile.TarError, EOFError) as error:
            raise StackyardError(f"layer {layer.digest} is damaged: {error}", hint=_AGAIN) from error
        except OSError as error:
            raise _failure(error, self.root) from error
        if stream.digest != layer.diff_id:
            raise StackyardError(f"layer {layer.digest} is not the one that the image names: unpacked, its digest is "
                                 f"{stream.digest}, expected {layer.diff_id}", hint=_AGAIN)  # fmt: skip

    def append(self, name: str, line: str) -> None:
        """Add a line to a file in the image, creating it if needed."""
        place = self.place(name)
        if os.path.lexists(place) and not stat.S_ISREG(place.lstat().st_mode):
            raise StackyardError(f"cannot add a line to {name}: not a file in this image")
        with place.open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
        os.utime(place, (0, 0))

    def settle(self) -> None:
        """Set the times of all directories to 0: otherwise they depend on when the image was unpacked."""
        for directory, _, _ in os.walk(self.root, topdown=False):
            os.utime(directory, (0, 0))

    def place(self, name: str) -> Path:
        """The path of a file in the image; links on the way are followed within the image."""
        parts = _parts(name)
        return self._parent(tuple(parts[:-1])) / parts[-1] if parts else self.root

    def _extract(self, stream: IO[bytes]) -> None:
        made_paths: set[Path] = set()
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=CheckedHeader) as tar:
            for member in tar:
                self._count(member)
                place = self._apply(tar, member, made_paths)
                while place is not None and place not in made_paths and place != self.root:
                    made_paths.add(place)
                    place = place.parent
                vars(tar)["members"].clear()  # else all of them stay in memory

    def _count(self, member: tarfile.TarInfo) -> None:
        self._entries += 1
        self._bytes += max(member.size, 0) if member.isreg() else 0
        if self._bytes > self.most_bytes:
            limit = f"{self.most_bytes / (1 << 30):.4g} GiB"
            raise StackyardError(f"the image has more than {limit} when it is unpacked", hint=LIMIT_HINT)
        if self._entries > self.most_entries:
            raise StackyardError(f"the image has more than {self.most_entries:,} entries", hint=_HINT)

    def _apply(self, tar: tarfile.TarFile, member: tarfile.TarInfo, paths: set[Path]) -> Path | None:
        """Apply one entry; returns the created path, or None."""
        parts = _parts(member.name)
        if not parts:
            self._require_directory(member)
            return None
        parent, name = self._parent(tuple(parts[:-1])), parts[-1]
        if name.startswith(_WHITEOUT):
            self._whiteout(member, parent, name, paths)
            return None
        place = parent / name
        if member.isdir():
            self._directory(place)
        else:
            self._clear(place)
            self._file(tar, member, place)
        if not member.issym() and not member.islnk():
            place.chmod(member.mode & _KEPT | (0o700 if member.isdir() else 0o600))
            self._note_rights(member, parts)
        if not member.islnk() and not member.isdir():
            os.utime(place, (_time(member), _time(member)), follow_symlinks=False)
        return place

    def _require_directory(self, member: tarfile.TarInfo) -> None:
        if not member.isdir():
            raise StackyardError(
                f"the image replaces its root directory by something else: {shown(member.name)}", hint=_HINT
            )

    def _note_rights(self, member: tarfile.TarInfo, parts: list[str]) -> None:
        rights = member.isreg() and member.mode & (stat.S_ISUID | stat.S_ISGID)
        (self.without_rights.add if rights or _CAPABILITY in member.pax_headers else self.without_rights.discard)(
            "/".join(parts)
        )

    def _whiteout(self, member: tarfile.TarInfo, parent: Path, name: str, paths: set[Path]) -> None:
        gone = name.removeprefix(_WHITEOUT)
        if gone in ("", ".", "..") or (name == _OPAQUE and parent == self.root):
            raise StackyardError(f"a layer removes the root directory: {shown(member.name)}", hint=_HINT)
        if name == _OPAQUE:
            self._hide(parent, paths)
        elif not gone.startswith(_WHITEOUT) and parent / gone not in paths:  # .wh..wh.plnk: a note of aufs
            self._clear(parent / gone)

    def _hide(self, directory: Path, paths: set[Path]) -> None:
        """Remove the files in a directory that do not come from this layer."""
        for place in directory.iterdir():
            if place not in paths:
                self._clear(place)
            elif place.is_dir() and not place.is_symlink():
                self._hide(place, paths)

    def _directory(self, place: Path) -> None:
        if place.is_dir() and not place.is_symlink():
            return
        self._clear(place)
        place.mkdir(mode=0o700)

    def _clear(self, place: Path) -> None:
        """Remove the file that a lower layer has at this path."""
        if not os.path.lexists(place):
            return
        self._parents.clear()
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()

    def _file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
        if member.issym():
            place.symlink_to(member.linkname)
        elif member.islnk():
            self._hard_link(member, place)
        elif member.isreg():
            source = cast(IO[bytes], tar.extractfile(member))
            with place.open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        else:
            what = _SPECIAL.get(member.type, "special file")
            raise StackyardError(f"cannot unpack a {what}: {shown(member.name)}", hint=_SPECIAL_HINT)

    def _hard_link(self, member: tarfile.TarInfo, place: Path) -> None:
        parts = _parts(member.linkname)
        target = self._parent(tuple(parts[:-1])) / parts[-1] if parts else self.root
        try:
            linkable = not stat.S_ISDIR(target.lstat().st_mode)
        except OSError:
            linkable = False
        if not linkable:
            raise StackyardError(
                f"{shown(member.name)} is a hard link to {shown(member.linkname)}, which is not a file of the image",
                hint=_HINT,
            )
        os.link(target, place, follow_symlinks=False)

    def _parent(self, parts: tuple[str, ...]) -> Path:
        """The directory of an entry, created if the layer has no entry for it; links are followed within the root."""
        if parts not in self._parents:
            self._parents[parts] = self._walk(parts)
        return self._parents[parts]

    def _walk(self, parts: tuple[str, ...]) -> Path:
        rest, here, links = list(reversed(parts)), self.root, 0
        while rest:
            part = rest.pop()
            if part == "..":
                here = here if here == self.root else here.parent
                continue
            place = here / part
            if not os.path.lexists(place):
                place.mkdir(mode=0o755)
            if place.is_symlink():
                links += 1
                target = os.readlink(place)  # noqa: PTH115
                here = self.root if target.startswith("/") else here
                rest += [step for step in reversed(target.split("/")) if step not in ("", ".")]
            elif place.is_dir():
                here = place
            else:
                raise StackyardError(f"not a directory in the image: {shown('/'.join(parts))}", hint=_HINT)
            if links > _MOST_LINKS:
                raise StackyardError(f"too many symbolic links in the image: {shown('/'.join(parts))}", hint=_HINT)
        return here


LIMIT_HINT = "raise the limit with --limit-gib, if you know the image"
_SPECIAL_HINT = "remove it where the image is made; a container gets /dev from its host"


def _time(member: tarfile.TarInfo) -> int:
    """The modification time in whole seconds, as bytecode stores that of its source; 0 if SquashFS cannot store it."""
    try:
        return int(member.mtime) if 0 <= member.mtime < 1 << 32 else 0
    except ValueError:  # not a number
        return 0


def _parts(name: str) -> list[str]:
    """The components of a path in an image. Raises StackyardError if it leads out of the image."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise StackyardError(f"a path of the image leads out of it: {shown(name)}", hint=_HINT)
    return parts


class CheckedHeader(tarfile.TarInfo):
    """A tar header with limits on its long name and attributes, which are held in memory."""

    @classmethod
    def frombuf(cls, *args: Any, **options: Any) -> CheckedHeader:
        """Parse the header as tarfile does."""
        header = super().frombuf(*args, **options)
        if header.size < 0 or (header.type in _LONG and header.size > _MOST_HEADER):
            raise StackyardError(f"a header of the image has an impossible size: {header.size}", hint=_HINT)
        return header


class _CountedStream:
    """A stream that hashes and counts the bytes as they are read."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._left, self._hash = stream, most, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise StackyardError("a layer is larger than the image may be when it is unpacked", hint=LIMIT_HINT)
        self._hash.update(data)
        return data

    def drain(self) -> None:
        """Read the bytes after the end of the archive, which the digest includes."""
        while self.read(1 << 20):
            pass

    @property
    def digest(self) -> str:
        """The digest of all bytes read."""
        return f"sha256:{self._hash.hexdigest()}"


def _failure(error: OSError, root: Path) -> StackyardError:
    if space.is_full(error):
        return StackyardError(f"cannot unpack the image into {root}: {error.strerror}",
                              hint="free some space there, or set TMPDIR to a directory that has some")  # fmt: skip
    return StackyardError(f"cannot unpack the image: {error.filename or root}: {cause(error)}", hint=_HINT)
