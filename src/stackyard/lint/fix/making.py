"""An intent under construction: its values, and a sentence for each part that it cannot express."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stackyard.core.quoting import cut
from stackyard.lint.script import Script
from stackyard.lint.shell.words import shown


@dataclass
class IntentDraft:
    """The values of an intent and of its batch options, and a sentence for each omitted part."""

    script: Script
    values: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Why no job file can be made, with lines."""
    asked: set[str] = field(default_factory=set)
    """Those of the notes without an answer to which the job would not do what the script does."""

    def note_lines(self, lines: list[str], text: str) -> None:
        """Add one note for several lines."""
        if lines:
            every = list(dict.fromkeys(lines))
            self.notes.append(f"line{'s' if len(every) > 1 else ''} {', '.join(every)}: {text}")

    def note(self, line: int, text: str) -> None:
        """Note that a part of a line is omitted or needs attention."""
        self.notes.append(self._of_line(line, text))

    def ask(self, line: int, text: str) -> None:
        """Add a note as a question that must be answered before the job file can be submitted."""
        self.note(line, text)
        self.asked.add(self.notes[-1])

    @staticmethod
    def _of_line(line: int, text: str) -> str:
        return f"line {line}: {cut(' '.join(shown(text).split()), 120)}"
