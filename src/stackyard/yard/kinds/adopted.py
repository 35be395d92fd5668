"""An adopted prefix: third-party files that stay in place; the revision's directory has no files of its own."""

from __future__ import annotations

from typing import Literal

from stackyard.core.late import dataclass

Kind = Literal["conda", "venv"]

FOR_ADOPTED = "adopted"
"""The link mode of its disk use: nothing of it is the yard's."""


@dataclass(frozen=True)
class AdoptedPrefix:
    """The prefix of an adopted revision, and its state at adoption.

    Attributes:
        kind: the tool that made it: conda (or mamba, micromamba, pixi), or venv (also virtualenv and uv).
        prefix: its absolute path, as it was given.
        files_sha256: sha256 of ``adopted.json``, which lists its files with sizes and times.
    """

    kind: Kind
    prefix: str
    files_sha256: str
