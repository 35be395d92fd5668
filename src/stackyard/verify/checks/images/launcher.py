"""Whether the launcher of an image, by which all else of it is seen and run, is the one in the record."""

from __future__ import annotations

from stackyard.images.squashfs.launcher.compare import has_launcher, is_recorded, problem
from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult
from stackyard.yard.revision.record import BuildRecord


def wrong_launcher(record: BuildRecord) -> CheckResult | None:
    """The failed check of a launcher that is missing or another program; None: it is as it was, or not recorded."""
    found = problem(record)
    if found is None:
        return None
    remedy = f"`stackyard fsck --repair {record.module}` makes it again"
    return CheckResult("content", "launcher", "failed", f"{found}; nothing else was checked", remedy)


def check_launcher(record: BuildRecord) -> list[CheckResult]:
    """The check of a launcher that is not wrong: where its hash is not recorded, it was not compared."""
    if is_recorded(record):
        return [CheckResult("content", "launcher", "passed", f"sha256 {record.payload.launcher_sha256[:16]}")]
    text = "launcher not recorded: an earlier version made it, so that it cannot be compared"
    remedy = f"`stackyard fsck --repair {record.module}` makes it again, and records its hash"
    return [CheckResult("content", "launcher", "skipped", text, remedy, required=False)]


LAUNCHER = Check(("content",), "files", lambda context: check_launcher(context.record), has_launcher)
