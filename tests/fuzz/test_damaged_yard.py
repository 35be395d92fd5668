"""Files that the program wrote itself, damaged by a disk or an editor: every command names them, or mends them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.command import stackyard
from fuzz.limits import bounded
from support.plainwheel import write_wheel

DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "a list": lambda data: b"[]",
    "a number": lambda data: b"7",
    "other values": lambda data: b'{"format": 1, "files": 3, "modules": 4, "entries": 5, "sha256": [], "shared": 1}',
    "deep": lambda data: b"[" * 100_000,
    "bytes": lambda data: bytes(range(256)),
    "a flipped bit": lambda data: bytes([*data[:-20], data[-20] ^ 4, *data[-19:]]) if len(data) > 20 else b"x",
}
KINDS = (
    "record.json", "report.json", "module.json", "manifest.json", "files.json", "notes/**/*.json",
    "stack.lock", "bytecode/**/files.json",
)  # fmt: skip
COMMANDS = (
    ("list", "--all"),
    ("show", "demo"),
    ("history",),
    ("why", "demo", "demo"),
    ("diff", "demo", "demo"),
    ("sbom", "demo"),
    ("show", "demo", "--cite"),
)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A yard with one published revision, and the file that it was made of."""
    directory = tmp_path_factory.mktemp("damaged")
    wheel = write_wheel(directory, "demo", "X = 1\n")
    file = directory / "demo" / "requirements.txt"
    file.parent.mkdir()
    file.write_text(f"demo @ {wheel.as_uri()}\n")
    code, output = stackyard("--yard", directory / "yard", "deploy", file)
    assert code == 0, output
    yield directory / "yard", file


def _own_file(yard: Path, kind: str) -> Path:
    """A file of one kind, not one that belongs to a package."""
    found = (path for path in sorted(yard.rglob(kind)) if "/prefix/" not in str(path))
    return next(path for path in found if path.is_file() and not path.is_symlink())


@pytest.mark.parametrize("damage", DAMAGE)
def test_no_damage_ends_in_a_traceback(yard: tuple[Path, Path], damage: str) -> None:
    root, _ = yard
    for path in (_own_file(root, kind) for kind in KINDS):
        good, mode = path.read_bytes(), path.stat().st_mode
        path.chmod(0o644)
        path.write_bytes(DAMAGE[damage](good))
        try:
            for words in COMMANDS:
                with bounded():
                    code, output = stackyard("--yard", root, *words)
                assert code == 0 or output.strip(), f"{path}: exit status {code} of {words} without a word"
        finally:
            path.write_bytes(good)
            path.chmod(mode)
    for words in COMMANDS:
        assert stackyard("--yard", root, *words)[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_deploy_mends_or_names_what_is_damaged(yard: tuple[Path, Path], kind: str) -> None:
    root, file = yard
    path = _own_file(root, kind)
    good, mode = path.read_bytes(), path.stat().st_mode
    for damage in ("cut", "other values"):
        path.chmod(0o644)
        path.write_bytes(DAMAGE[damage](good))
        code, output = stackyard("--yard", root, "deploy", file)
        assert code == 0 or path.name in output, f"exit status {code}: {output}"
        path.unlink(missing_ok=True)
        path.write_bytes(good)
        path.chmod(mode)
    assert stackyard("--yard", root, "deploy", file)[0] == 0
