"""Whom the POSIX ACL of a file lets write to it besides its owner: asked of the kernel, without a program.

acl(5); the bytes are those of ``linux/posix_acl_xattr.h``: a version, then tag, permissions and number of each entry.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from stackyard.core.late import dataclass

ATTRIBUTE = "system.posix_acl_access"
"""Where the kernel keeps it. A file system with the ACLs of NFSv4 or none has no such attribute."""

USER, GROUP_OWNER, GROUP, MASK = 0x02, 0x04, 0x08, 0x10
_VERSION, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_WRITE = 0o2


@dataclass(frozen=True)
class Writers:
    """Who may write by an ACL: accounts and groups that it names, by number, and whether the file's own group may."""

    users: tuple[int, ...]
    groups: tuple[int, ...]
    own_group: bool


def writers(place: Path) -> Writers | None:
    """Who may write to a file or directory by its ACL; None: it has none, and its mode says all."""
    try:
        text = os.getxattr(place, ATTRIBUTE)
    except OSError:
        return None
    entries = [_ENTRY.unpack_from(text, at) for at in range(_VERSION.size, len(text) - _ENTRY.size + 1, _ENTRY.size)]
    mask = next((bits for tag, bits, _ in entries if tag == MASK), 0o7)
    can = [(tag, number) for tag, bits, number in entries if bits & mask & _WRITE]
    return Writers(
        tuple(number for tag, number in can if tag == USER),
        tuple(number for tag, number in can if tag == GROUP),
        any(tag == GROUP_OWNER for tag, _ in can),
    )
