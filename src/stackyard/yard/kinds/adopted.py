"""A prefix that others made and that stays where it is: a revision whose directory holds no files of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from stackyard.core.errors import MissingError
from stackyard.core.late import dataclass
from stackyard.yard.kinds.payload import Prefix

Kind = Literal["conda", "venv"]

FOR_ADOPTED = "adopted"
"""The link mode of its disk use: nothing of it is the yard's."""


@dataclass(frozen=True)
class Adopted:
    """Where the files of an adopted revision are, and what they were.

    Attributes:
        kind: what made it: conda (or mamba, micromamba, pixi), or venv (also virtualenv and uv).
        prefix: its absolute path, as it was given.
        files_sha256: sha256 of ``adopted.json``, which lists its files with sizes and times.
    """

    kind: Kind
    prefix: str
    files_sha256: str


@dataclass(frozen=True)
class AdoptedPrefix(Prefix):
    """The files of such a revision, which their owner may move or remove at any time."""

    def command(self, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """As in any prefix.

        Raises:
            MissingError: the prefix does not exist any more.
        """
        require(self.root)
        return super().command(argv, environ)


def require(prefix: Path) -> None:
    """Raise MissingError where an adopted prefix does not exist any more."""
    if not prefix.is_dir():
        raise MissingError(
            f"{prefix} not found: its files were adopted where they were, and have been moved or removed since",
            hint="restore the directory; or use another revision (`stackyard list`), and remove this one: "
            "`stackyard remove REV`",
        )
