"""Runs the checks of the shell, the machine and the yard: at once, each within a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.doctor.checks.base import Check, Surroundings, said
from stackyard.doctor.checks.table import TABLE
from stackyard.inputs.workspace import Workspace

DEADLINE_S = 2.0
"""How long the checks may take together; `places.ANSWER_S` is less, so that what hangs is also named."""
MOST_S = 8.0
"""How much longer on a busy machine, which is not a file system that does not answer."""


@dataclass(frozen=True)
class Examination:
    """What was found, by what it is about; the number of checks, and the time that they took."""

    findings: Mapping[str, Sequence[Finding]]
    checks: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found but notes."""
        return all(one.severity == "note" for findings in self.findings.values() for one in findings)

    def to_json(self) -> dict[str, Any]:
        """The values for JSON."""
        rows = [{"about": about, **one.to_json()} for about, found in self.findings.items() for one in found]
        return {"findings": rows, "checks": self.checks, "seconds": round(self.seconds, 3)}


def _is_late(started: float) -> bool:
    """Whether the deadline is over. On a busy machine the time counts in which threads wait for a processor."""
    waited_ns = 0
    with suppress(OSError, ValueError, IndexError):  # the second number of schedstat, proc(5)
        waited_ns = max(int(file.read_text().split()[1]) for file in Path("/proc/self/task").glob("*/schedstat"))
    return time.monotonic() - started > DEADLINE_S + min(waited_ns / 1e9, MOST_S)


def examine(
    environ: Mapping[str, str], workspace: Callable[[], Workspace], *, root: Path = Path("/"),
    checks: Sequence[Check] = TABLE,
) -> Examination:  # fmt: skip
    """Look at the shell, the machine and the yard. Writes nothing and uses no network.

    Args:
        environ: the variables of the shell.
        workspace: finds the site and the yard, in a thread, since their file system may not answer.
        root: the root directory of the machine.
    """
    around, started = Surroundings(environ, workspace, root), time.monotonic()
    answers: dict[str, list[Finding]] = {check.name: [] for check in checks}

    def look(check: Check) -> None:
        try:
            for finding in check.look(around):
                answers[check.name].append(finding)
        except Exception as error:  # the others say more than a traceback
            answers[check.name].append(said("no-check", what=check.name, why=f"{type(error).__name__}: {error}"))

    for check in checks:
        if not check.reads:  # before there are threads: one of them forks
            look(check)
    # a thread that hangs is left behind: the process ends without it
    threads = {check.name: threading.Thread(target=look, args=(check,), daemon=True) for check in checks if check.reads}
    for thread in threads.values():
        thread.start()
    while any(thread.is_alive() for thread in threads.values()) and not _is_late(started):
        time.sleep(0.02)
    found: dict[str, list[Finding]] = {"shell": [], "machine": [], "yard": []}
    for check in checks:
        found[check.about] += answers[check.name]
        if check.name in threads and threads[check.name].is_alive():
            what = f"the check {check.name} ({check.reads})"
            found[check.about].append(said("no-answer", what=what, seconds=f"{DEADLINE_S:g}"))
    return Examination(found, len(checks), time.monotonic() - started)
