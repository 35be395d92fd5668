"""SquashFS files: reads the superblock, and packs a tree deterministically.

Source: the format's superblock is described in the kernel's Documentation/filesystems/squashfs.rst; the options are
those of squashfs-tools 4.4 and newer.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from stackyard.core.errors import MissingError, StackyardError, cause
from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.host.files import at, space
from stackyard.host.files.hashing import sha256_file
from stackyard.host.files.scratch import scratch
from stackyard.host.run.command import CommandError, run, which
from stackyard.images import room
from stackyard.yard import disk

_SUPERBLOCK = struct.Struct("<IIIIIHHHHHHQQ")
_MAGIC = 0x73717368
_COMPRESSORS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
LEVEL, BLOCK = 9, 128 << 10
"""zstd's level and the bytes of a block: level 15 takes six times as long and saves 5 %; larger blocks save 10 % and
make the first reads of an import larger."""
QUICK = 3
"""zstd's level for a file that is made on demand: a quarter of the time of level 9, 9 % larger."""
PACK_TIMEOUT_S = 4 * 3600.0
_FIRST_PRIORITY = 30_000
_SAME_TIME = ("-mkfs-time", "0")
EPOCH = {"SOURCE_DATE_EPOCH": "0"}
"""The environment by which mksquashfs gives the time 0 to everything."""
_READ_ONLY = ("-action", "chmod(a-w)@true")
APPEND = (
    "-all-root", "-no-xattrs", "-exit-on-error", "-no-progress", "-no-recovery", "-quiet",
    "-action", "chmod(a+rX)@true", "-action", "chmod(go-w)@true",
)  # fmt: skip
"""Options by which mksquashfs adds a directory to a file of ours."""


@dataclass(frozen=True)
class Superblock:
    """The superblock of a SquashFS file: compressor, block size, number of entries (inodes), bytes in use.

    Of a SIF file: those of its system partition, the entries of all that are joined over it, and the bytes of the file.
    """

    compressor: str
    block: int
    entries: int
    size: int


def superblock(file: Path) -> Superblock:
    """Read the superblock of a SquashFS file, or of a SIF file that was wrapped.

    Raises:
        StackyardError: it cannot be read, is of another format, or ends before its last block.
    """
    try:
        with at.open_regular(file) as stream:
            data = stream.read(_SUPERBLOCK.size)
            present = os.fstat(stream.fileno()).st_size
    except OSError as error:
        hint = None
        if isinstance(error, FileNotFoundError):
            hint = "restore it from a copy, or move the revision away and deploy it again"
        elif isinstance(error, PermissionError):
            hint = "ask its owner for read permission"
        raise StackyardError(f"cannot read {file}: {cause(error)}", hint=hint) from error
    if not is_squashfs(data):
        if layers := _of_layers(file, data):
            return layers
        raise StackyardError(f"{file} is not a SquashFS image", hint="it may be truncated or of another format")
    _, inodes, _, block, _, kind, _, _, _, _, _, _, size = _SUPERBLOCK.unpack(data)
    if present < size:
        raise StackyardError(f"{file} is truncated: {present} of {size} bytes",
                             hint="restore it from a copy, or build it again")  # fmt: skip
    return Superblock(_COMPRESSORS.get(kind, str(kind)), block, inodes, size)


def is_squashfs(head: bytes) -> bool:
    """Whether data with this beginning are a SquashFS file system."""
    return len(head) >= _SUPERBLOCK.size and int.from_bytes(head[:4], "little") == _MAGIC


def _of_layers(file: Path, head: bytes) -> Superblock | None:
    """The layers of a SIF file together; None for a file of another format."""
    from stackyard.images.sif import file as sif  # an extension of wheels does without it

    if not sif.is_one(head):
        return None
    image = sif.read(file)
    blocks = [_SUPERBLOCK.unpack(image.read(part, _SUPERBLOCK.size)) for part in image.layers()]
    if not blocks:
        raise StackyardError(f"{file} has no system partition", hint="restore it from a copy, or build it again")
    kinds = _COMPRESSORS.get(blocks[0][5], str(blocks[0][5]))
    return Superblock(kinds, blocks[0][3], sum(block[1] for block in blocks), file.stat().st_size)


@dataclass(frozen=True)
class PackedTree:
    """A packed tree: sha256, size, number of entries, and the packing program."""

    sha256: str
    size: int
    entries: int
    tool: str


def pack(
    tree: Path, file: Path, *, order: Sequence[str] = (), processors: int = 0, as_it_is: bool = False,
    hidden: Sequence[str] = (), level: int = LEVEL,
) -> PackedTree:  # fmt: skip
    """Pack a tree; the same tree gives the same bytes, whatever its times, owners, or the processors used.

    Inside, files are readable for all, and executable for all if their owner may execute them: the image file's own
    mode controls access.

    Args:
        order: paths in the tree, in the order in which they are read at a start.
        processors: the maximal number; 0: all that this process may use.
        as_it_is: keep write permissions, for a container with a writable layer (/tmp), and the times of files, by which
            Python recognises bytecode: for a third-party system. The bytes then depend on the times.
        hidden: paths of a layer below that this one hides, in directories of the tree: a device 0:0 each, as overlayfs
            has it.
        level: zstd's.

    Raises:
        MissingError: mksquashfs is missing, or cannot compress with zstd.
        StackyardError: the tree has set-user-ID programs or special files, or a file cannot be read.
        DiskFull: the disk has no room for the estimated size; or it, or the user's quota, is full, and the partial
            file is removed.
    """
    program = require_program()
    _refuse(tree)
    room.require(file.parent, room.files_of(tree), f"cannot write {file}", partial(packed_bytes, level=level))
    with scratch("pack") as work:
        words = [*_words(program, tree, file, level), "-processors", str(processors or len(os.sched_getaffinity(0)))]
        words += _SAME_TIME if as_it_is else _READ_ONLY
        if order:
            (work / "order").write_text(_sorted(tree, order), encoding="utf-8")
            words += ["-sort", str(work / "order")]
        if hidden:
            (work / "hidden").write_text(
                "".join(f"{_quoted(name)} c 0644 0 0 0 0\n" for name in hidden), encoding="utf-8"
            )
            words += ["-pf", str(work / "hidden")]
        try:
            run(words, env=_environment(as_it_is), timeout_s=PACK_TIMEOUT_S)
        except CommandError as error:
            file.unlink(missing_ok=True)
            raise failure(error, file, tree) from error
    _sync(file)
    return PackedTree(sha256_file(file), file.stat().st_size, superblock(file).entries, version_of(program))


def packed_bytes(blocks: Iterable[bytes], level: int = LEVEL) -> int:
    """The bytes that blocks take in an image.

    Raises:
        MissingError: mksquashfs is missing, or cannot compress with zstd.
    """
    program = require_program()
    with scratch("sample") as work:
        (work / "tree").mkdir()
        for number, block in enumerate(blocks):
            (work / "tree" / str(number)).write_bytes(block)
        run(_words(program, work / "tree", work / "image", level), timeout_s=PACK_TIMEOUT_S)
        return superblock(work / "image").size


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _environment(as_it_is: bool) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in EPOCH}
    return own if as_it_is else {**own, **EPOCH}


def _words(program: Path, tree: Path, file: Path, level: int) -> list[str]:
    return [
        str(program), str(tree), str(file), "-noappend", "-all-root", "-no-xattrs", "-exit-on-error", "-no-progress",
        "-comp", "zstd", "-Xcompression-level", str(level), "-b", str(BLOCK),
        "-action", "chmod(a+rX)@true",
    ]  # fmt: skip


def require_program() -> Path:
    """The program that packs.

    Raises:
        MissingError: mksquashfs is missing, or cannot compress with zstd.
    """
    path = which("mksquashfs")
    if path is None:
        raise MissingError("mksquashfs not found", hint="install squashfs-tools (4.4 or newer)")
    said = run([path, "-help"], check=False, timeout_s=60).output
    if "zstd" not in said:
        raise MissingError(f"{path} cannot compress with zstd", hint="install squashfs-tools built with zstd")
    return Path(path)


def version_of(program: Path) -> str:
    """The version line of a program, e.g. ``mksquashfs version 4.5.1``."""
    said = run([program, "-version"], check=False, timeout_s=60).output.splitlines()
    return said[0].partition(" (")[0] if said else program.name


def _refuse(tree: Path) -> None:
    """Reject trees with set-user-ID programs or devices, which other users of the image could exploit."""
    problems = [f"{what}: {name}" for name, what in special(tree)]
    if problems:
        raise StackyardError(
            f"cannot pack {tree}: {some(problems, 3)}",
            hint="remove them in the stack's post script, or leave out `image: squashfs`",
        )


def special(tree: Path) -> Iterable[tuple[str, str]]:
    """Files that images cannot have: set-user-ID and set-group-ID programs, devices, sockets, pipes; relative paths."""
    for directory, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(directory, name)  # noqa: PTH118 - a tree has 100,000 files
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                yield os.path.relpath(path, tree), "set-user-ID or set-group-ID"
            elif not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                yield os.path.relpath(path, tree), "special file"


def _sorted(tree: Path, order: Sequence[str]) -> str:
    """mksquashfs' sort file: a path and its priority, the highest first. Paths with spaces or newlines are left out."""
    names = [name for name in dict.fromkeys(order) if not set(name) & set(" \t\n\\\"'") and (tree / name).is_file()]
    last = -_FIRST_PRIORITY
    return "".join(f"{name} {max(last, _FIRST_PRIORITY - place)}\n" for place, name in enumerate(names))


def failure(error: CommandError, file: Path, tree: Path | None = None) -> StackyardError:
    """The error for a failed mksquashfs. `tree`: the tree to pack."""
    if not space.says_full(error.result.output):
        return StackyardError(f"cannot pack {file}: {error.message}", detail=error.detail, hint=error.hint)
    is_quota = "quota exceeded" in error.result.output.lower()
    why = "disk quota exceeded" if is_quota else "no space left on device"
    if tree is not None:
        entries = (os.lstat(os.path.join(directory, name)) for directory, _, names in os.walk(tree) for name in names)  # noqa: PTH118
        why += f": {sum({entry.st_ino: entry.st_size for entry in entries}.values()) >> 20:,} MiB to pack"
        why += ", of which an image keeps a third to a half"
    if not is_quota:
        why += f"; {room.free(file.parent) >> 20:,} MiB are free"
    return disk.DiskFull(f"cannot write {file}: {why}", hint=disk.MAKE_ROOM)


def _sync(file: Path) -> None:
    with at.closing(os.open(file, os.O_RDONLY)) as handle:
        os.fsync(handle)
