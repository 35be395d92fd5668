"""Paths as written in spec files: relative to a directory, with ``~``."""

from __future__ import annotations

from pathlib import Path


def absolute(text: str, base_dir: Path) -> Path:
    """The absolute path that `text` means, seen from `base_dir`. ``~name`` of an unknown user stays as
    written, and NUL, which no path can contain, is removed."""
    text = text.replace("\0", "")
    path = Path(text)
    if text.startswith("~"):
        try:
            path = path.expanduser()
        except RuntimeError:
            path = Path(text)
    return (base_dir / path).resolve()
