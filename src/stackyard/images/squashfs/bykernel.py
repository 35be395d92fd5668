"""Mounts an image by the kernel, as root for all users, at once or on first use by the automounter.

The image is read through a loop device with sectors of 4 KiB. With those of 512 bytes, which mount(8) makes, the kernel
(6.3 and newer) keeps none of the blocks in which directories and inodes are, so every listing of a directory waits for
the loop device again: 58 times in an import of pandas. The first import also reads the file in 730 pieces in place of
2,740. Source: squashfs_bio_read in the kernel's fs/squashfs/block.c.

Once mounted, the files that a start reads first are read, in their order in the image: the 89 MB of a stack with pandas
in a quarter of a second. Otherwise many processes that start at once wait for each other at every piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

HELPER = "/sbin/mount.stackyard"
"""What mount(8) runs for the type ``stackyard``; the automounter asks mount(8)."""
AHEAD_BYTES, AHEAD_S = 128 << 20, 2
"""How much is read ahead at most, unpacked, and for how long."""
LISTED = r"""sed -n '/^    "order": \[/,/^    \]/s/^ *"\([^"\\]*\)",\{0,1\}$/\1/p'"""
"""Prints the order of a record's form, a file a line; names that JSON has to escape are not in it."""
SCRIPT = rf"""#!/bin/sh
# mount -t stackyard IMAGE DIRECTORY: a SquashFS image by a loop device with sectors of 4 KiB, of which the kernel keeps
# the directories that it has read. The device goes when the image is unmounted.
PATH=$PATH:/usr/sbin:/sbin:/usr/bin:/bin
sector=4096
[ $(($(stat -L -c %s -- "$1") % sector)) -eq 0 ] || sector=512
device=$(losetup --find --show --read-only --sector-size "$sector" -- "$1") || exit 32
mount -t squashfs -o ro,nodev,nosuid -- "$device" "$2"
status=$?
losetup --detach "$device"
# what a start reads first is read now, with the rights of the image's owner: a link in it may lead anywhere
[ "$status" -ne 0 ] || (
  cd -- "$2" && {LISTED} "${{1%/*}}/record.json" |
    timeout --foreground {AHEAD_S} setpriv --reuid "$(stat -L -c %u -- "$1")" --regid "$(stat -L -c %g -- "$1")" \
      --clear-groups xargs -d '\n' cat -- | head -c {AHEAD_BYTES}
) > /dev/null 2>&1
exit "$status"
"""


def words(image: Path, prefix: str) -> list[str]:
    """The command with which root mounts an image for all users of this node."""
    return ["sh", "-c", SCRIPT, HELPER, str(image), prefix]


def autofs_maps(records: Iterable[BuildRecord], timeout_s: int = 300) -> dict[str, str]:
    """The files that make the automounter mount each image on first use, by path. Source: autofs(5)."""
    rows = "".join(
        f"{record.prefix}  -fstype=stackyard,ro,nodev,nosuid  :{RevisionPaths.of(record.path).image}\n"
        for record in records
    )
    return {
        "/etc/auto.master.d/stackyard.autofs": f"/-  /etc/auto.stackyard  --timeout={timeout_s}\n",
        "/etc/auto.stackyard": rows,
        HELPER: SCRIPT,
    }
