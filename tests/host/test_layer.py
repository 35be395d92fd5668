"""A program over a layer changes files as it likes; below it nothing changes until the layer is merged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stackyard.host.run import layer
from stackyard.host.run.layer import Layer

SCRIPT = """
echo two >> text                       # a file that is shared
sed -i s/one/three/ other
rm removed
rm -r folder && mkdir folder && echo new > folder/new
mv tree/inner tree/outer
ln -sf elsewhere link
chmod 755 program
mkdir -p made/deep && echo x > made/deep/x
rm -r gone && echo file > gone         # a directory becomes a file
ln text hard
test "$(cat text)" = "one
two"
"""


def tree(directory: Path) -> dict[str, str]:
    """Every path with its mode and content."""
    found = {}
    for path in sorted(directory.rglob("*")):
        text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "/"
        found[str(path.relative_to(directory))] = f"{path.lstat().st_mode:o} {text}"
    return found


def fill(directory: Path) -> Path:
    for name in ("text", "other", "removed", "folder/old", "tree/inner/a", "program", "gone/b"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\n")
        path.chmod(0o444)
    (directory / "link").symlink_to("text")
    return directory


def test_changes_are_merged_and_shared_files_stay(tmp_path: Path) -> None:
    if not layer.works(tmp_path):
        pytest.skip("no layer over a directory can be mounted here: needs root and overlayfs")
    prefix, plain = fill(tmp_path / "prefix"), fill(tmp_path / "plain")
    (tmp_path / "cache").mkdir()
    for name in ("text", "other", "removed"):
        (tmp_path / "cache" / name).hardlink_to(prefix / name)
    before = tree(prefix)
    over = Layer(prefix, tmp_path / "layer")
    subprocess.run(over.argv(["sh", "-e", "-c", SCRIPT]), cwd=prefix, check=True)
    assert tree(prefix) == before
    over.merge()
    subprocess.run(["sh", "-e", "-c", SCRIPT], cwd=plain, check=True)
    assert tree(prefix) == tree(plain)
    assert {p.read_text() for p in (tmp_path / "cache").iterdir()} == {"one\n"}
    assert (prefix / "text").stat().st_ino == (prefix / "hard").stat().st_ino
    assert not [name for name in os.listxattr(prefix / "text") if "overlay" in name]


def test_where_no_layer_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "a,b"
    odd.mkdir()
    assert not layer.works(odd)
    monkeypatch.setattr(layer, "_SCRIPT", Path("/bin/false"))
    assert not layer.works(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a,b"]
