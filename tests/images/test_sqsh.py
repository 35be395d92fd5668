"""An image as one SquashFS file for Enroot and Pyxis: its root, and the three files that they read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import basebed
import oci_bed as bed
import pytest
from registry_bed import Registry, registry

from stackyard.core.errors import InputError, StackyardError
from stackyard.images.oci import transfer
from stackyard.images.oci.layout import Reference
from stackyard.images.oci.sqsh import rc_text, write
from support import programs, smallyard
from support.cli import inside as stackyard

pytestmark = pytest.mark.real


def unpacked(file: Path, directory: Path) -> Path:
    subprocess.run(["unsquashfs", "-q", "-n", "-d", directory, file], check=True, stdout=subprocess.DEVNULL)
    return directory


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    programs.need("skopeo", "mksquashfs")
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def test_rc_enters_the_directory_and_keeps_the_words(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    text = rc_text({"Entrypoint": ["echo", "it's"], "Cmd": ["by", "default"], "WorkingDir": str(directory)})
    (tmp_path / "rc").write_text(f"{text}")
    for words, said in ((["a  b"], "it's a  b\n"), ([], "it's by default\n")):
        done = subprocess.run(["sh", tmp_path / "rc", *words], capture_output=True, text=True, check=True)
        assert done.stdout == said
    assert directory.is_dir()


def test_an_image_of_a_registry_becomes_a_file(tmp_path: Path, here: Registry) -> None:
    root = basebed.system(tmp_path / "root")
    (root / "etc/environment").symlink_to("../../escape")
    said = {"Env": ["PATH=/bin", "NAME=a value", "BAD=two\nlines"], "WorkingDir": "/work", "Cmd": ["sh"]}
    basebed.oci(tmp_path / "layout", [basebed.of_directory(root)], **said)
    digest = stackyard(
        "image", "push", f"oci:{tmp_path}/layout:1", f"docker://{here.place}/small:1", "--plain-http"
    ).out
    plain = transfer.Registry(plain_http=True)
    assert transfer.digest_of(f"{here.place}#small:1", plain) in digest
    with pytest.raises(StackyardError, match="cannot resolve"):
        transfer.digest_of(f"{here.place}#none:1", plain)
    file = tmp_path / "x.sqsh"
    words = ("image", "pull", f"{here.place}#small:1", "--format", "sqsh", "-o", file, "--plain-http")
    done = stackyard(*words)
    assert digest.split()[1].rstrip(",") in done.out
    assert "BAD is left out" in done.out
    tree = unpacked(file, tmp_path / "tree")
    assert (tree / "etc/environment").read_text() == "PATH=/bin\nNAME=a value\n"
    assert not (tmp_path / "escape").exists()
    assert (tree / "etc/fstab").read_text() == ""
    assert "cd /work" in (tree / "etc/rc").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_revision_becomes_a_file(tmp_path: Path) -> None:
    programs.need("mksquashfs")
    made, below = bed.revision(tmp_path), bed.base(tmp_path / "base")
    file = tmp_path / "demo.sqsh"
    built = bed.oci(made, tmp_path / "layout", below)
    assert write(built.reference, file).bytes == file.stat().st_size
    tree = unpacked(file, tmp_path / "tree")
    lines = (tree / "etc/environment").read_text().splitlines()
    assert any(line.startswith(f"PATH={bed.PLACE}/bin") for line in lines)
    assert (tree / bed.PLACE.lstrip("/") / "share/data").is_file()
    with pytest.raises(InputError, match="has no /bin/sh"):
        write(bed.oci(made, tmp_path / "other", None).reference, tmp_path / "none.sqsh")
    assert not (tmp_path / "none.sqsh").exists()


def test_the_command_says_what_it_would_write(tmp_path: Path) -> None:
    programs.need("mksquashfs")
    yard, below, file = smallyard.make(tmp_path / "yard", "1"), bed.base(tmp_path / "base"), tmp_path / "x.sqsh"
    words = ("--yard", yard.root, "image", "build", "tool/1", "--format", "sqsh", "--base", str(below), "-o", file)
    assert "would write tool/1" in stackyard(*words, "--dry-run").out
    refused = stackyard(*words, "--name", "x", expect=2)
    assert "are for other formats" in refused.err


def test_a_damaged_image_leaves_the_file_that_is_there(tmp_path: Path) -> None:
    programs.need("mksquashfs")
    directory = basebed.oci(tmp_path / "layout", [basebed.of_directory(basebed.system(tmp_path / "root"))])
    file = tmp_path / "x.sqsh"
    first = write(Reference(directory, "1"), file)
    largest = max((directory / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-9] + b"012345678")
    with pytest.raises(Exception, match=r"digest|changed|damaged"):
        write(Reference(directory, "1"), file)
    assert file.stat().st_size == first.bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layout", "root", "x.sqsh"]
