"""Collisions: paths that several packages of a revision install, with the packages and the kept file.

`make.collisions.rule` decides which are harmless; this module has the record's format and its display.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.core.quoting import LONG, plain

Kind = Literal["note", "warning", "chosen"]
_SHOWN = 3


@dataclass(frozen=True)
class Collision:
    """Paths that the same packages install, with different content.

    Attributes:
        kind: ``note``: licences, documentation and tests; ``warning``: what programs use; ``chosen``: the stack's file
            says whose files are taken.
        packages: all packages that install the paths, in the order of installation.
        winner: the package whose files are kept; empty if unknown, in a third-party prefix.
        files: relative to the prefix, each with its sha256; of a symbolic link that of its target. Empty: of an
            extension, the file of the base, which the layer has not; of an adopted prefix, nothing is compared.
    """

    kind: Kind
    packages: tuple[str, ...]
    winner: str
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The paths for display: the first ones, and the number of others."""
        return some([plain(path, LONG) for path in self.files], 1)

    def __str__(self) -> str:
        winner = f"{self.winner} wins" if self.winner else "it is not known whose is there"
        return f"path collision: {self.shown} of {', '.join(self.packages)}: {winner}"


def sentences(collisions: Sequence[Collision]) -> list[str]:
    """The messages: one sentence for each warning, and one for all notes. Chosen ones are not reported."""
    said = [str(collision) for collision in collisions if collision.kind == "warning"]
    return [*said, *_note([collision for collision in collisions if collision.kind == "note"])]


def _note(notes: Sequence[Collision]) -> Iterable[str]:
    if notes:
        paths = [plain(path, LONG) for note in notes for path in note.files]
        packages = sorted({name for note in notes for name in note.packages})
        text = "path collision in licences, documentation or tests"
        yield f"{text}: {some(paths, _SHOWN)} of {some(packages, _SHOWN)}: the last one installed wins"
