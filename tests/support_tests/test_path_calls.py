"""The linter for calls by path sees what changes, opens or walks by one, and nothing that goes by descriptors."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def linter() -> ModuleType:
    file = Path(__file__).parents[2] / "scripts" / "path_calls.py"
    spec = util.spec_from_file_location("path_calls", file)
    assert spec and spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "call",
    [
        "os.chmod(path, 0o700)", "os.rename(one, other)", "os.open(path, flags)", "os.walk(top)",
        "shutil.rmtree(path)", "path.chmod(0o700)", "paths.root.unlink(missing_ok=True)", "path.replace(other)",
        "(top / name).write_text(text)", "path.open('rb')", "atomic.write_text(path, text)", "disk.remove_tree(path)",
        "settle(path, policy)",
    ],
)  # fmt: skip
def test_calls_by_path_are_found(linter: ModuleType, call: str) -> None:
    assert len(list(linter.calls(f"def act():\n    {call}\n"))) == 1


@pytest.mark.parametrize(
    "call",
    [
        "os.rename(a, b, src_dir_fd=one, dst_dir_fd=other)", "os.open(name, flags, dir_fd=top)", "os.fchmod(fd, mode)",
        "at.rename(top, name)", "within.unlink(top, path)", "text.replace('a', 'b')", "replace(record, path=path)",
        "atomic.write_text(path, text, top=top)", "disk.remove_tree(path, top)", "settle(path, policy, top=top)",
    ],
)  # fmt: skip
def test_calls_by_descriptor_are_not(linter: ModuleType, call: str) -> None:
    assert list(linter.calls(call)) == []
