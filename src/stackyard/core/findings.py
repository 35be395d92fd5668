"""`Finding`: one problem in a layout, a plan, a batch script or a built revision, with its reason and its remedy.

Every part of the program that reports problems returns this type, so that they look the same in text (`cli.findings`)
and in JSON. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass

Severity = Literal["refused", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One problem.

    Attributes:
        rule: the stable name of the rule or kind of check that found it, e.g. ``straddles-socket``.
        severity: ``refused`` stops a launch and is shown as an error; a ``note`` never changes an exit code.
        message: what is wrong, in one sentence.
        reason: why it matters.
        remedy: the remedy or the correction; several lines are possible.
        where: the place in a file, if the cause is in one.
    """

    rule: str
    severity: Severity
    message: str
    reason: str = ""
    remedy: str = ""
    where: Where | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values; ``better`` is the remedy."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "reason": self.reason,
            "better": self.remedy,
            "where": asdict(self.where) if self.where else None,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Finding:
        """Parse the output of `to_json`."""
        where = Where(**value["where"]) if value["where"] else None
        return cls(value["rule"], value["severity"], value["message"], value["reason"], value["better"], where)


def refuse(findings: Sequence[Finding]) -> None:
    """Raise InputError for the first refused finding, if any."""
    for finding in findings:
        if finding.severity == "refused":
            because = f" ({finding.reason})" if finding.reason else ""
            raise InputError(finding.message + because, where=finding.where, hint=finding.remedy or None)


def some(names: Sequence[str], most: int) -> str:
    """The first names, and the number of others: ``a, b, c and 4 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(number: int, noun: str, plural: str = "s") -> str:
    """``1 rank``, ``2 ranks``. `plural`: the plural ending of the noun."""
    return f"{number} {noun}{plural * (number != 1)}"


def human_bytes(size: float) -> str:
    """A size in binary units with one digit: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
