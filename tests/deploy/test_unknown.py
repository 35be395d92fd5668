"""What the file system does not tell is not taken for missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.deploy.entries import identity
from stackyard.deploy.locking import former_locks
from stackyard.inputs.models import Stack, Variant
from stackyard.yard.layout import Yard
from support.failing import nothing_answers


def test_a_lock_and_a_work_tree_that_cannot_be_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tmp_path / "stack.yaml")
    stack = Stack(name="s", file=file, kind="stack", variants=(Variant(stack="s", version="1", name=""),))
    assert former_locks([stack], Yard(tmp_path / "yard")) == [] and identity(file) == file
    nothing_answers(monkeypatch)
    for call in (lambda: former_locks([stack], Yard(tmp_path / "yard")), lambda: identity(file)):
        with pytest.raises(OSError, match="Stale file handle"):
            call()
