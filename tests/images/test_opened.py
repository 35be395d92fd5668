"""An image's files: the same from a directory, a SquashFS file, and a SIF file with an overlay."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, MissingError
from stackyard.images.bindings.opened import opened
from support import images, programs

pytestmark = pytest.mark.real


@pytest.fixture
def root(tmp_path: Path) -> Path:
    programs.need("mksquashfs", "squashfuse")
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/name").write_text("base")
    (tmp_path / "root/etc/only").write_text("base")
    return tmp_path / "root"


def squash(directory: Path, file: Path) -> Path:
    subprocess.run(["mksquashfs", directory, file, "-quiet", "-noappend"], check=True, stdout=subprocess.DEVNULL)
    return file


def sif(file: Path, *parts: tuple[int, Path]) -> Path:
    """A SIF file by hand: header, descriptors, partitions (kind of partition, SquashFS file)."""
    table, data, at = b"", b"", 32768
    for number, (kind, part) in enumerate(parts, 1):
        content = part.read_bytes()
        content += b"\0" * (-len(content) % 4096)
        extra = struct.pack("<ii3s", 1, kind, b"02\0")
        fields = (0x4004, True, number, 0xF0000001, 0, at, len(content), len(content), 0, 0, 0, 0, b"part", extra)
        table += struct.pack("<i?IIIqqqqqqq128s384s", *fields)
        data, at = data + content, at + len(content)
    head = struct.pack(
        "<32s10s3s3s16sqqqqqqqq", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", b"02\0", b"", 0, 0,
        48 - len(parts), 48, 4096, 48 * 585, 32768, len(data),
    )  # fmt: skip
    file.write_bytes((head.ljust(4096, b"\0") + table).ljust(32768, b"\0") + data)
    return file


def texts(image: Path) -> tuple[str, str, str]:
    with opened(image) as found:
        name, only = found.tree.find("/etc/name"), found.tree.find("/etc/only")
        assert name is not None and only is not None
        return name.outside.read_text(), only.outside.read_text(), found.how


def test_all_kinds(root: Path, tmp_path: Path) -> None:
    assert texts(root) == ("base", "base", "directory")
    file = squash(root, tmp_path / "x.sqsh")
    assert texts(file) == ("base", "base", "mounted")
    (tmp_path / "over/etc").mkdir(parents=True)
    (tmp_path / "over/etc/name").write_text("overlay")
    over = squash(tmp_path / "over", tmp_path / "over.sqsh")
    assert texts(sif(tmp_path / "a.sif", (2, file))) == ("base", "base", "mounted")
    assert texts(sif(tmp_path / "b.sif", (2, file), (4, over))) == ("overlay", "base", "mounted")
    assert "stackyard.images" not in Path("/proc/mounts").read_text()


def test_without_a_mount_it_is_unpacked(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stackyard.host.run import command
    from stackyard.images.bindings import opened as module

    hidden = lambda name: None if name.startswith("squashfuse") else command.which(name)  # noqa: E731
    monkeypatch.setattr(module, "which", hidden)
    assert texts(squash(root, tmp_path / "x.sqsh")) == ("base", "base", "unpacked")


def test_what_squashfuse_said_is_kept(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that begins like an image: it is not squashfuse that is not found."""
    from stackyard.host.run import command
    from stackyard.images.bindings import opened as module

    monkeypatch.setattr(module, "which", lambda name: None if name == "unsquashfs" else command.which(name))
    damaged = tmp_path / "x.sqsh"
    damaged.write_bytes(squash(root, damaged).read_bytes()[:100])
    with pytest.raises(MissingError, match=r": unsquashfs not found") as caught, opened(damaged):
        pass
    assert "squashfuse" in (caught.value.detail or "") and "exited with status" in (caught.value.detail or "")


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    (tmp_path / "y").write_bytes(b"#!".ljust(32, b"\0") + b"SIF_MAGIC\0")
    for name, why in (("x", "not an image"), ("y", "not an image"), ("z", "No such file")):
        with pytest.raises(InputError, match=why), opened(tmp_path / name):
            pass


def test_a_sif_of_apptainer() -> None:
    try:
        file = images.image_sif()
    except MissingError as error:
        pytest.skip(f"{error}; {error.detail}")
    with opened(file) as found:
        shell = found.tree.find("/bin/bash")
        assert shell is not None and shell.inside == "/usr/bin/bash"
