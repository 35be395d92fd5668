"""Checksums in text files: each has the sha256 of the rest of its own text, so that damage is noticed on reading.

In JSON it is the first key, on a line of its own; in TOML the first line, as a comment. It covers every other byte of
the file, including spaces.
"""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.core.digest import sha256_hex
from stackyard.host.files import at

_JSON = r'\{\n  "checksum": "([0-9a-f]{64})",\n'
_TOML = r"# checksum ([0-9a-f]{64})\n"
_ATTEMPT = r'\{\s*"checksum"|# checksum'


def add(text: str) -> str:
    """The text of a JSON object (indented, with at least one key), or of a TOML file, with its checksum."""
    if text.startswith("{\n"):
        return f'{{\n  "checksum": "{_digest(text)}",\n{text[2:]}'
    return f"# checksum {_digest(text)}\n{text}"


def read(path: Path) -> str:
    """The text of a file without its checksum, which is verified; earlier versions wrote none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8, or its checksum does not match.
    """
    return remove(at.read_regular(path).decode("utf-8"))[0]


def remove(text: str) -> tuple[str, bool]:
    """The text without its checksum, and whether it had one.

    Raises:
        ValueError: the checksum does not match.
    """
    match = re.match(_JSON, text) or re.match(_TOML, text)
    if match is None:
        if re.match(_ATTEMPT, text):
            raise ValueError("checksum mismatch: its first line is damaged")
        return text, False
    rest = text[match.end() :]
    plain = f"{{\n{rest}" if text.startswith("{") else rest
    if _digest(plain) != match[1]:
        raise ValueError("checksum mismatch: the file was changed after it was written")
    return plain, True


def _digest(text: str) -> str:
    return sha256_hex(text.encode("utf-8", "surrogateescape"))
