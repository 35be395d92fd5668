"""Checks that the launcher of an image, through which all its content is used, matches the record."""

from __future__ import annotations

from stackyard.images.squashfs.launcher.compare import has_launcher, is_recorded, problem
from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult
from stackyard.yard.revision.record import BuildRecord


def wrong_launcher(record: BuildRecord) -> CheckResult | None:
    """The failed check of a missing or different launcher; None: it matches, or is not recorded."""
    defect = problem(record)
    if defect is None:
        return None
    remedy = f"`stackyard fsck --repair {record.module}` makes it again"
    return CheckResult("content", "launcher", "failed", f"{defect}; nothing else was checked", remedy)


def check_launcher(record: BuildRecord) -> list[CheckResult]:
    """The result for a correct launcher, or for one without a recorded hash, which was not compared."""
    if is_recorded(record):
        return [CheckResult("content", "launcher", "passed", f"sha256 {record.payload.launcher_sha256[:16]}")]
    text = "launcher not recorded: an earlier version made it, so that it cannot be compared"
    remedy = f"`stackyard fsck --repair {record.module}` makes it again, and records its hash"
    return [CheckResult("content", "launcher", "skipped", text, remedy, required=False)]


LAUNCHER = Check(("content",), "files", lambda context: check_launcher(context.record), has_launcher)
