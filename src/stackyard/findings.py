"""What is said about a layout, a plan or a batch script: one sentence with its reason and the better way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stackyard.errors import InputError, Where

Severity = Literal["refused", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing to know.

    `rule` is its stable name (``straddles-socket``), `reason` says why it matters, `better` is what to write instead.
    A ``refused`` finding stops a launch; a ``note`` never changes an exit code.
    """

    rule: str
    severity: Severity
    message: str
    reason: str = ""
    better: str = ""
    where: Where | None = None


def refuse(findings: Sequence[Finding]) -> None:
    """Raise InputError for the first refused finding, if there is one."""
    for finding in findings:
        if finding.severity == "refused":
            because = f" ({finding.reason})" if finding.reason else ""
            raise InputError(finding.message + because, where=finding.where, hint=finding.better or None)
