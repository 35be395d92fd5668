"""Compares one tree with its note: the difference of each file, and the write permissions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import StackyardError, cause
from stackyard.host.files.hashing import sha256_file
from stackyard.host.run.identity import account_name
from stackyard.upkeep.health.fsck.fault import Fault, What
from stackyard.upkeep.health.originals import first_difference
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents, Damage, Digest, Item, Tree

Find = Callable[[Item], Path | None]
"""Finds a file elsewhere that has the bytes which were noted."""
_DIGITS = 16


def differences(
    root: Path, tree: Tree, noted: Contents, read: Collection[str], digest: Digest, find: Find = lambda _: None
) -> Iterator[tuple[str, Fault]]:
    """Differences from the note, by path in the tree. Bytecode that Python added is not a fault.

    Args:
        read: the files to read in addition to those with a changed time.
        digest: hashes a file; called from several threads.
        find: finds the original of a changed file.
    """
    for damage in contents.compare(noted, root, tree, read, digest):
        if not _is_bytecode(damage):
            yield damage.path, _fault(root, damage, noted.files.get(damage.path), find)


def _is_bytecode(damage: Damage) -> bool:
    """Whether the damage is bytecode that Python added: neither a record nor a listing has it."""
    directory = "__pycache__" in damage.path.split("/")
    return damage.what == "unexpected" and directory


def _fault(root: Path, damage: Damage, item: Item | None, find: Find) -> Fault:
    path = root / damage.path
    if damage.what == "missing":
        return Fault(path, "missing", "is missing")
    if damage.what == "unexpected":
        return Fault(path, "added", "was added")
    assert item is not None
    try:
        status = path.lstat()
    except OSError as error:
        return Fault(path, "unreadable", f"cannot be read: {cause(error)}")
    if damage.what == "permissions":
        mode = stat.S_IMODE(status.st_mode)
        return Fault(path, "permissions", f"mode {mode:04o} instead of {item.mode:04o}", inode=inode_of(status))
    what, text = _change(path, status.st_mode, item, find)
    return Fault(path, what, text, inode=inode_of(status))


def inode_of(status: os.stat_result) -> tuple[int, int] | None:
    """Device and inode of a file with several hard links; None: it has only one."""
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and stat.S_ISREG(status.st_mode) else None


def known(tree: Tree, noted: Contents) -> Tree:
    """The part of a tree that the note has."""
    return {name: s for name, s in tree.items() if name in noted.files or name[:-1] in noted.directories}


def _change(path: Path, mode: int, item: Item, find: Find) -> tuple[What, str]:
    """The difference of a file from its note."""
    if stat.S_ISLNK(mode):
        what = f"instead of {item.target}" if item.target else "and was a file"
        return "changed", f"is a link to {path.readlink()} {what}"
    if item.target or not stat.S_ISREG(mode):
        return "changed", f"is {'a file' if stat.S_ISREG(mode) else 'not a file'} and was " + (
            f"a link to {item.target}" if item.target else "one"
        )
    try:
        digest, size = sha256_file(path), path.stat().st_size
    except (OSError, StackyardError) as error:
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        return "unreadable", f"cannot be read: {cause(reason)}"
    text = f"sha256 {digest[:_DIGITS]} instead of {item.sha256[:_DIGITS]}"
    if size != item.size:
        text = f"{size:,} bytes instead of {item.size:,}, {text}"
    original = find(item)
    return "changed", text + (f", from byte {first_difference(path, original):,} on" if original else "")


@dataclass(frozen=True)
class Rights:
    """The accounts that may own and write files of a yard.

    Attributes:
        umask: the permission bits that must be clear everywhere.
        owners: ids of accounts; empty for a yard with a writing group: any member of it.
        left: files of root come from a run of an older version; this yard belongs to another account, as which root
            works now.
    """

    umask: int
    owners: frozenset[int] = frozenset()
    left: bool = False

    def faults(self, root: Path, tree: Tree, sealed: Callable[[str], bool]) -> Iterator[tuple[str, Fault]]:
        """Files with a wrong owner or too many write permissions, by path in the tree.

        Args:
            sealed: paths that are read-only even for the owner; directories end with a slash.
        """
        for name, status in tree.items():
            mode, inode = stat.S_IMODE(status.st_mode), inode_of(status)
            is_left = self.left and status.st_uid == 0
            if is_left or (self.owners and status.st_uid not in self.owners):
                text, remedy = f"belongs to {account_name(status.st_uid)}", _GIVE if is_left else _CHOWN
                yield name, Fault(root / name, "owner", text, remedy=remedy, inode=inode)
            if not stat.S_ISLNK(status.st_mode) and (bits := mode & self.closed(sealed(name))):
                text = f"mode {mode:04o}: {_who(bits)} may write to it"
                yield name, Fault(root / name, "permissions", text, inode=inode)

    def closed(self, is_sealed: bool) -> int:
        """The permission bits that must be clear."""
        return 0o222 if is_sealed else self.umask & 0o022


_GIVE = (
    "an older version left it when root ran it: `stackyard fsck --repair` as root gives it to the yard's owner; "
    "what lets only root in, give with `chown`"
)
_CHOWN = "see what that account changed, then give it back: `chown`, as root"


def _who(bits: int) -> str:
    if bits & 0o002:
        return "everybody"
    return "its group" if bits & 0o020 else "its owner"


def once(faults: Iterable[tuple[str, Fault]]) -> Iterator[tuple[str, Fault]]:
    """The faults without duplicates of file and kind."""
    seen: set[tuple[str, str]] = set()
    for name, fault in faults:
        key = name.rstrip("/"), fault.what
        if key not in seen:
            seen.add(key)
            yield name.rstrip("/"), fault
