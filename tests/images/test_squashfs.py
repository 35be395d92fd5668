"""Packing a tree: the same bytes every time, nothing lost in silence, and what an image says of itself."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.images import room
from stackyard.images.squashfs import file as squashfs
from stackyard.yard import disk
from support import programs

pytestmark = pytest.mark.real


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    programs.need("mksquashfs")
    root = tmp_path / "tree"
    for name, text in (("bin/tool", "#!/bin/sh\n"), ("lib/a b", "two words\n"), ("lib/private", "x" * 300_000)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "bin/tool").chmod(0o750)
    (root / "lib/private").chmod(0o600)
    (root / "lib").chmod(0o700)
    (root / "bin/link").symlink_to("tool")
    return root


def listed(image: Path) -> dict[str, str]:
    """The modes of what is in an image, by path."""
    out = subprocess.run(["unsquashfs", "-lln", image], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=5) for line in out.splitlines() if line[:1] in "-dl"]
    return {row[5].split(" -> ")[0].removeprefix("squashfs-root").lstrip("/"): row[0] for row in rows}


def test_everybody_may_read_and_nobody_write(tree: Path, tmp_path: Path) -> None:
    packed = squashfs.pack(tree, tmp_path / "a.sqsh")
    assert listed(tmp_path / "a.sqsh") == {
        "": "dr-xr-xr-x", "bin": "dr-xr-xr-x", "bin/link": "lrwxrwxrwx", "bin/tool": "-r-xr-xr-x",
        "lib": "dr-xr-xr-x", "lib/a b": "-r--r--r--", "lib/private": "-r--r--r--",
    }  # fmt: skip
    found = squashfs.superblock(tmp_path / "a.sqsh")
    assert (found.compressor, found.block, found.entries) == ("zstd", 128 << 10, packed.entries) and packed.entries == 7
    assert packed.size == (tmp_path / "a.sqsh").stat().st_size
    assert packed.tool.startswith("mksquashfs version")


def test_the_same_tree_gives_the_same_image(tree: Path, tmp_path: Path) -> None:
    """With another order of names, other times and owners, hard links, one processor, and a second later."""
    order = ["lib/private", "lib/a b", "no/such/file", "bin/tool"]
    first = squashfs.pack(tree, tmp_path / "a.sqsh", order=order)
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy, symlinks=True)
    for path in sorted(copy.rglob("*"), reverse=True):
        os.utime(path, (1, 1), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(path, 12345, 54321, follow_symlinks=False)
    (tmp_path / "other name").hardlink_to(copy / "bin/tool")
    time.sleep(1.1)
    assert squashfs.pack(copy, tmp_path / "b.sqsh", order=order, processors=1).sha256 == first.sha256
    assert squashfs.pack(tree, tmp_path / "c.sqsh").sha256 != first.sha256, "the order counts"


@pytest.mark.parametrize("what", ["set-user-ID", "special file"])
def test_what_an_image_may_not_hold_is_named(tree: Path, tmp_path: Path, what: str) -> None:
    if what == "special file":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(tree / "bin" / "odd"))
    else:
        (tree / "bin" / "odd").write_text("")
        (tree / "bin" / "odd").chmod(0o4755)
    with pytest.raises(StackyardError, match=f"{what}.*: bin/odd"):
        squashfs.pack(tree, tmp_path / "a.sqsh")
    assert not (tmp_path / "a.sqsh").exists()


def test_a_file_that_cannot_be_read_is_no_empty_file(tree: Path, tmp_path: Path) -> None:
    """mksquashfs by itself would pack an empty one and exit with status 0."""
    script = f"""
import sys
from pathlib import Path
from stackyard.core.errors import StackyardError
from stackyard.images import room
from stackyard.images.squashfs import file as squashfs
try:
    squashfs.pack(Path({str(tree)!r}), Path({str(tmp_path / "out" / "a.sqsh")!r}))
except StackyardError as error:
    print(error.message, error.detail)
"""
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    (tree / "lib").chmod(0o755)
    (tree / "lib/private").chmod(0)
    if os.geteuid() == 0:  # who may read everything gives that right up
        words = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search",
                 "--inh-caps", "-dac_override,-dac_read_search", "sh", "-c", 'exec "$@"', "sh"]  # fmt: skip
    else:
        words = []
    done = subprocess.run([*words, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "lib/private" in done.stdout, done.stderr
    assert not (tmp_path / "out" / "a.sqsh").exists()


@pytest.mark.parametrize("certain", [0.0, room.CERTAIN])
def test_a_full_disk_leaves_nothing(
    tree: Path, tmp_path: Path, certain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is packed it is said how much is needed; and what an estimate does not find is found then."""
    programs.need("mount")
    monkeypatch.setattr(room, "CERTAIN", certain)
    says = "no space left: about 2.9 MiB are needed, 1.0 MiB are free in " if certain else "no space left on device"
    (tree / "lib" / "noise").write_bytes(os.urandom(3_000_000))
    (tmp_path / "small").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path / "small"], check=False)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        with pytest.raises(disk.DiskFull, match=f"cannot write .*/a.sqsh: {says}"):
            squashfs.pack(tree, tmp_path / "small" / "a.sqsh")
        assert not list((tmp_path / "small").iterdir())
        (tree / "lib" / "noise").write_bytes(b"\0" * 30_000_000)
        assert squashfs.pack(tree, tmp_path / "small" / "a.sqsh").size < 100_000, "which packs to nothing"
    finally:
        subprocess.run(["umount", tmp_path / "small"], check=True)


@pytest.mark.parametrize("noise", [0, 1 << 20, 40 << 20])
def test_the_size_of_an_image_is_estimated(tree: Path, tmp_path: Path, noise: int) -> None:
    """Of many files of two kinds, by a sample."""
    for number in range(200):
        (tree / f"lib/text{number}").write_text("".join(f"{number * n} words {n}\n" for n in range(5000)))
    (tree / "lib/noise").write_bytes(os.urandom(noise))
    os.link(tree / "lib/noise", tree / "lib/again")
    estimate = room.estimate(room.files_of(tree), squashfs.packed_bytes)
    size = squashfs.pack(tree, tmp_path / "a.sqsh").size
    assert abs(estimate - size) < size * (1 - room.CERTAIN), (estimate, size)


def shortened(data: bytes) -> bytes:
    """Without its last byte; what follows is padding."""
    return data[: int.from_bytes(data[40:48], "little") - 1]


@pytest.mark.parametrize(("change", "said"), [
    (shortened, "is truncated"), (lambda data: b"x" + data[1:], "is not a SquashFS image"),
    (lambda data: b"", "is not a SquashFS image"),
])  # fmt: skip
def test_a_damaged_image_is_recognised(tree: Path, tmp_path: Path, change: object, said: str) -> None:
    file = tmp_path / "a.sqsh"
    squashfs.pack(tree, file)
    file.write_bytes(change(file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(StackyardError, match=said):
        squashfs.superblock(file)
    with pytest.raises(StackyardError, match=r"cannot read .*: No such file"):
        squashfs.superblock(tmp_path / "none")


def test_a_quota_that_is_used_up_is_a_full_disk(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a build left is removed then, as with a full disk; how much is free is not known."""
    program = tmp_path / "bin" / "mksquashfs"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\ncase $1 in -help | -version) echo zstd; exit ;; esac\n"
        'touch "$2"; echo "Write on output file failed because Disk quota exceeded"; exit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(disk.DiskFull, match=r"disk quota exceeded: 0 MiB to pack, [^;]*$"):
        squashfs.pack(tree, tmp_path / "a.sqsh")
    assert not (tmp_path / "a.sqsh").exists()
