"""What a tree holds is noted once; a comparison finds every change, and reads only what it must."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.yard import checksum, disk, formats
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents
from support.accounts import Accounts


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, text in {"a.py": "one", "bin/run": "#!", "lib/x/b.so": "two" * 9, "lib/Ä\udcff\\x": "name"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "bin/run").chmod(0o755)
    (root / "bin/link").symlink_to("run")
    (root / "empty").mkdir()
    return root


def noted(root: Path) -> Contents:
    return contents.note(root, contents.scan(root))


def compared(known: Contents, root: Path, *read: str) -> list[str]:
    return sorted(map(str, contents.compare(known, root, contents.scan(root), read)))


def flipped(path: Path) -> None:
    """Change one byte and nothing else that a program can see."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "bytes": (lambda root: (root / "a.py").write_text("ome"), ["a.py has changed"]),
    "size": (lambda root: (root / "a.py").write_text("one more"), ["a.py has changed"]),
    "removed": (lambda root: (root / "bin/link").unlink(), ["bin/link is missing"]),
    "directory removed": (lambda root: (root / "empty").rmdir(), ["empty is missing"]),
    "added": (lambda root: (root / "lib/new.pth").write_text(""), ["lib/new.pth was added"]),
    "directory added": (lambda root: (root / "lib/new").mkdir(), ["lib/new was added"]),
    "link": (lambda root: disk_link(root / "bin/link", "/bin/sh"), ["bin/link has changed"]),
    "link for a file": (lambda root: disk_link(root / "a.py", "bin/run"), ["a.py has changed"]),
    "not executable": (lambda root: (root / "bin/run").chmod(0o644), ["bin/run has other permissions"]),
    "setuid": (lambda root: (root / "bin/run").chmod(0o4755), ["bin/run has other permissions"]),
    "same bytes, new time": (lambda root: os.utime(root / "a.py"), []),
    "read-only": (lambda root: (root / "a.py").chmod(0o400), []),
}


def disk_link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("name", CHANGES)
def test_a_comparison_finds_it(root: Path, name: str) -> None:
    change, expected = CHANGES[name]
    known = noted(root)
    assert compared(known, root) == []
    change(root)
    assert compared(known, root) == expected


def test_a_file_that_cannot_be_read_is_never_noted_and_differs_in_a_comparison(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = noted(root)

    def fails(path: Path) -> str:
        raise StackyardError(f"cannot read {path}: Input/output error")

    monkeypatch.setattr(contents, "sha256_file", fails)
    with pytest.raises(StackyardError, match=r"cannot read .*: Input/output error"):
        noted(root)
    assert compared(known, root, "a.py") == ["a.py has changed"]


def test_a_flipped_byte_of_the_same_size_and_time_is_found_where_it_is_read(root: Path) -> None:
    known = noted(root)
    flipped(root / "lib/x/b.so")
    assert compared(known, root) == []
    assert compared(known, root, "lib/x/b.so", "a.py") == ["lib/x/b.so has changed"]


def test_the_note_survives_its_file(root: Path, tmp_path: Path) -> None:
    known = noted(root)
    (tmp_path / "note.json").write_text(checksum.add(known.to_text()))
    assert formats.load(tmp_path / "note.json", contents.KIND) == known
    assert len(known.files) == 5 and {"empty", "lib/x"} < known.directories


def test_known_hashes_are_not_computed_again(root: Path) -> None:
    known = contents.note(root, contents.scan(root), lambda status: "0" * 64 if status.st_size == 27 else "")
    assert known.files["lib/x/b.so"].sha256 == "0" * 64 != known.files["a.py"].sha256


def test_a_sample_has_what_it_must_and_changes_with_its_seed(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.bin").write_bytes(bytes(1000))
    (tmp_path / "RECORD").write_bytes(bytes(50_000))
    known = noted(tmp_path)
    samples = [set(contents.sample(known, 100_000, seed, lambda name: name == "RECORD")) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert all("RECORD" in sample and len(sample) == 51 for sample in samples)


def test_a_sealed_tree_is_read_only_and_can_be_removed(root: Path) -> None:
    tree = contents.scan(root)
    contents.seal(root, tree, directories=True, leave=lambda name: name == "a.py")
    modes = {name: status.st_mode & 0o222 for name, status in contents.scan(root).items()}
    assert [name for name, mode in modes.items() if mode] == ["a.py", "bin/link"]
    assert contents.changes(tree, contents.scan(root)) == []
    disk.remove_tree(root)
    assert not root.exists()


def test_an_account_can_remove_its_sealed_tree(accounts: Accounts) -> None:
    anna = accounts.user("anna")
    code = """
import os, sys
from pathlib import Path
from stackyard.yard.revision import contents; from stackyard.yard import disk
root = Path("tree")
(root / "lib" / "deep").mkdir(parents=True)
(root / "lib" / "deep" / "file").write_text("x")
contents.seal(Path("."), contents.scan(Path("."), ("tree/",)), directories=True)
for change in (lambda: (root / "lib/deep/file").write_text("y"), lambda: (root / "lib/new").write_text("y")):
    try:
        change()
    except PermissionError:
        print("refused")
disk.remove_tree(root)
print(os.listdir("."))
"""
    assert anna.python(code).out == "refused\nrefused\n[]\n"


def test_what_a_check_did_is_named(root: Path) -> None:
    before = contents.scan(root)
    with (root / "a.py").open("a") as stream:
        stream.write("# changed")
    (root / "bin/new").write_text("")
    os.replace(root / "bin/new", root / "bin/run")
    (root / "lib/more").write_text("")
    os.link(root / "lib/x/b.so", root.with_name("outside"))
    assert contents.changes(before, contents.scan(root)) == ["a.py", "bin/run", "lib/more"]
