"""Checks that a revision has the signatures that its yard and that yard's parents require."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult, Status
from stackyard.yard.revision import signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord


def check_signatures(record: BuildRecord, yards: Iterable[Path] = ()) -> list[CheckResult]:
    """One result for each signature; none for a revision that neither has nor needs one.

    An invalid signature is a failure if the yard demands a valid one, else a warning.

    Args:
        yards: the yards in which revisions are looked up, from the verifying account's own to the topmost parent.
    """
    started = time.perf_counter()
    paths = RevisionPaths.of(record.path)
    rows = [(demand, signatures.signatures(paths, demand)) for _, demand in signatures.demands(paths.yard, yards)]
    rows = rows or [(signatures.Demand(), signatures.signatures(paths, None))]
    demanded = any(demand.require for demand, _ in rows)
    lines = [str(signature) for _, several in rows for signature in several]
    misplaced = signatures.misplaced(record)
    if not (lines or demanded or misplaced):
        return []
    valid = not misplaced and all(any(not signature.problem for signature in several) for _, several in rows)
    status: Status = "passed" if valid else "failed" if demanded else "warned"
    if status == "passed" and not any(signature.signer for _, several in rows for signature in several):
        status = "skipped"
    remedy = f"sign it again once you know why: `stackyard sign {record.module}`" if not valid else ""
    text = "\n".join([*lines, misplaced] if misplaced else lines) or signatures.NONE
    return [CheckResult("content", "signatures", status, text, remedy, time.perf_counter() - started, demanded)]


SIGNATURES = Check(
    ("content",), "files", lambda context: check_signatures(context.as_read or context.record, context.yards)
)
