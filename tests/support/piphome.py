"""A home with places for pip's configuration, for the tests of what reads it."""

from __future__ import annotations

from pathlib import Path


def make_home(directory: Path) -> Path:
    (directory / "etc/pip").mkdir(parents=True)
    (directory / "home/.config/pip").mkdir(parents=True)
    (directory / "venv").mkdir()
    return directory


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home / "home"), "XDG_CONFIG_DIRS": str(home / "etc"), "VIRTUAL_ENV": str(home / "venv"), **more}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
