"""The name of a local project from its files, without building it or running its code."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from stackyard.core import toml
from stackyard.yard import disk

_MOST_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_IN_SETUP = re.compile(r"""\bname\s*=\s*["']([A-Za-z0-9][\w.-]*)["']""")


def project_name(directory: Path) -> str:
    """The name in pyproject.toml, setup.cfg or setup.py; empty if none has it as a literal."""
    for read in (_of_pyproject, _of_cfg, _of_setup):
        try:
            if _NAME.fullmatch(name := read(directory)):
                return name
        except (OSError, ValueError, TypeError, AttributeError, configparser.Error, RecursionError):
            continue
    return ""


def _text(path: Path) -> str:
    return disk.of_anybody(path, _MOST_BYTES)[0].decode("utf-8", "replace")


def _of_pyproject(directory: Path) -> str:
    return str(toml.loads(_text(directory / "pyproject.toml")).get("project", {}).get("name", ""))


def _of_cfg(directory: Path) -> str:
    parser = configparser.RawConfigParser()
    parser.read_string(_text(directory / "setup.cfg"))
    return parser.get("metadata", "name", fallback="")


def _of_setup(directory: Path) -> str:
    names = set(_IN_SETUP.findall(_text(directory / "setup.py")))
    return names.pop() if len(names) == 1 else ""
