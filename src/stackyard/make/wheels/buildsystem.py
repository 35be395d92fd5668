"""Adds build requirements to an isolated compilation, by editing the source's own pyproject.toml.

uv's settings need the name of the project, which is known only after a build if there is only a setup.py. The source is
a copy (`source.prepare`), so no file of a user is changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stackyard.core import toml
from stackyard.core.errors import StackyardError
from stackyard.lock.lockfile.text import toml_value

_DEFAULT = {"requires": ["setuptools>=40.8.0"], "build-backend": "setuptools.build_meta:__legacy__"}
"""What a project without the table means (PEP 518; uv and pip use this backend)."""
_NEXT = r"(?=^[ \t]*\[[ \t]*[\w\"'\[]|\Z)"
_TABLE = re.compile(r"^[ \t]*\[[ \t]*build-system[ \t]*\][^\n]*\n.*?" + _NEXT, re.MULTILINE | re.DOTALL)


def add_requires(root: Path, requires: Sequence[str]) -> None:
    """Add requirements to those of a project's build.

    Raises:
        StackyardError: its pyproject.toml is invalid, or written in a way in which they cannot be added.
    """
    path = root / "pyproject.toml"
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        before = toml.loads(text)
        table = before.get("build-system") or dict(_DEFAULT)
        build_system = {**table, "requires": [*table.get("requires", ()), *requires]}
        result = _with_table(text, build_system)
        if toml.loads(result) != {**before, "build-system": build_system}:
            raise ValueError("its table build-system is not written as one")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StackyardError(
            f"cannot add build requirements to {path}: {error}",
            hint="compile it in the stack (`isolation: false`), or change the file with `patches`",
        ) from error
    path.write_text(result, encoding="utf-8")


def _with_table(text: str, table: Mapping[str, Any]) -> str:
    """The text with this table replaced, or appended."""
    lines = ["[build-system]", *(f"{key} = {toml_value(value)}" for key, value in table.items()), ""]
    written = "\n".join(lines)
    match = _TABLE.search(text)
    if match:
        return f"{text[: match.start()]}{written}{text[match.end() :]}"
    return f"{text}\n{written}" if text else written
