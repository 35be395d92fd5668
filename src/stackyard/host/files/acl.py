"""Reads from a file's POSIX ACL which accounts other than its owner may write to it; no program is started.

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
    """The accounts with write permission in an ACL: named users and groups, by id, and the file's own group."""

    users: tuple[int, ...]
    groups: tuple[int, ...]
    own_group: bool


def writers(place: Path) -> Writers | None:
    """The accounts with write permission in an ACL; None: there is only the mode."""
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
