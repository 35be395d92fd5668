"""Mounting an image by the kernel: by a loop device whose sectors let the kernel keep what it has read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from image_bed import Revision, make

from stackyard.images.squashfs import bykernel
from stackyard.images.squashfs import file as squashfs
from support import programs
from support.processes import wait_for

pytestmark = pytest.mark.real

MOUNTED = """
overlay=$1 image=$2 prefix=$3
mount -t tmpfs none "$overlay"
mkdir "$overlay/upper" "$overlay/work"
mount -t overlay -o "lowerdir=$(readlink -f /sbin),upperdir=$overlay/upper,workdir=$overlay/work" none /sbin
cp "$overlay.helper" /sbin/mount.stackyard
chmod 755 /sbin/mount.stackyard
mount -t stackyard -o ro,nodev,nosuid "$image" "$prefix"
device=$(findmnt -n -o SOURCE "$prefix")
echo "$device" $(cat "/sys/class/block/${device#/dev/}/queue/logical_block_size")
findmnt -n -o OPTIONS "$prefix"
cat "$prefix/share/data"
umount "$prefix"
"""


@pytest.fixture
def demo(tmp_path: Path) -> Revision:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    programs.need("mksquashfs", "unshare")
    made = make(tmp_path)
    maps = bykernel.autofs_maps([SimpleNamespace(path=str(made.paths.root), prefix=str(made.paths.prefix))])  # type: ignore[list-item]
    (tmp_path / "overlay.helper").write_text(maps[bykernel.HELPER])
    (tmp_path / "overlay").mkdir()
    return made


@pytest.mark.parametrize(("odd", "sector"), [(False, 4096), (True, 512)])
def test_the_automounters_helper_makes_sectors_of_4_kib(demo: Revision, tmp_path: Path, odd: bool, sector: int) -> None:
    """As mount(8) runs it for the automounter; where the file ends within such a sector, its end would be cut off."""
    image = demo.paths.image
    if odd:
        whole = squashfs.superblock(image).size
        os.truncate(image, whole + 512 - whole % 512 + (512 if (whole // 512 + 1) % 8 == 0 else 0))
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", MOUNTED, "sh", tmp_path / "overlay"]
    done = subprocess.run([*words, image, demo.paths.prefix], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    device, size, options, data = done.stdout.split()
    assert (int(size), data) == (sector, "data") and {"ro", "nosuid", "nodev"} <= set(options.split(","))
    backing = Path("/sys/class/block", Path(device).name, "loop/backing_file")
    wait_for(lambda: not backing.exists() or str(image) not in backing.read_text())


def test_a_file_that_is_no_image_is_not_mounted_and_keeps_no_device(demo: Revision) -> None:
    demo.paths.image.chmod(0o644)
    demo.paths.image.write_bytes(b"x" * 8192)
    words = bykernel.words(demo.paths.image, str(demo.paths.prefix))
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 32 and "wrong fs type" in done.stderr
    held = subprocess.run(["losetup", "--associated", demo.paths.image], capture_output=True, text=True, check=True)
    assert held.stdout == ""


def test_what_a_start_reads_first_is_read_ahead(tmp_path: Path) -> None:
    """With the rights of the image's owner: a link in an image of another user may lead anywhere."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    programs.need("mksquashfs", "unshare")
    tree, image, prefix, private = (tmp_path / name for name in ("tree", "image.sqsh", "prefix", "private"))
    tree.mkdir()
    prefix.mkdir()
    for path in (tree / "first", tree / "other", private):
        path.write_bytes(b"x" * 20_000)
    private.chmod(0o600)
    tmp_path.chmod(0o755)
    (tree / "link").symlink_to(private)
    squashfs.pack(tree, image)
    shutil.chown(image, "nobody")
    order = {"form": {"order": ["first", "link", "no such file"]}, "sources": ["other"]}
    (tmp_path / "record.json").write_text(json.dumps(order, indent=2))
    kept = f"fincore -b -n -r -o RES {prefix}/first {prefix}/other {private}"
    forget = f"sync {private}; dd of={private} oflag=nocache conv=notrunc,fdatasync count=0 status=none"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{forget}; "$@"; {kept}; umount {prefix}']
    done = subprocess.run(
        [*words, "sh", *bykernel.words(image, str(prefix))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, other, outside = map(int, done.stdout.split())
    assert first >= 20_000 and other == 0 and outside == 0
