"""The commands of the READMEs in examples/, and a copy of one example in which they are typed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from sitebed import EXAMPLES

from support import fences
from support.desk import Desk

READMES = {path.parent.name: path for path in sorted(EXAMPLES.glob("*/README.md"))}


def lines(example: str) -> tuple[str, ...]:
    """The commands of a README: what a person types, without comments."""
    found = fences.blocks(READMES[example], ("", "sh"))  # others are of files (yaml)
    return tuple(command.line for block in found for command in block.commands)


@dataclass
class Copy(Desk):
    """The examples as a clone has them.

    Args:
        name: the example whose README is typed.
    """

    name: str = ""

    def __post_init__(self) -> None:
        left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "*.lock")
        shutil.copytree(EXAMPLES, self.directory / "examples", ignore=left)
        super().__post_init__()
        for file in self.here.glob("*.yaml"):
            file.write_text(self.placed(file.read_text()))

    @property
    def here(self) -> Path:
        """Where the README is, and its commands are typed."""
        return self.directory / "examples" / self.name
