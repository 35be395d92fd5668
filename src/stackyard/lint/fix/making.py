"""An intent under construction: its values, and a sentence for each thing that it cannot have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stackyard.core.quoting import cut
from stackyard.lint.script import Script
from stackyard.lint.shell.words import shown


@dataclass
class Making:
    """The values of an intent and of its batch options, and a sentence for each thing left out."""

    script: Script
    values: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note_lines(self, lines: list[str], text: str) -> None:
        """Say the same of several lines."""
        if lines:
            every = list(dict.fromkeys(lines))
            self.notes.append(f"line{'s' if len(every) > 1 else ''} {', '.join(every)}: {text}")

    def note(self, line: int, text: str) -> None:
        """Say that something of a line is left out or needs a look."""
        self.notes.append(f"line {line}: {cut(' '.join(shown(text).split()), 120)}")
