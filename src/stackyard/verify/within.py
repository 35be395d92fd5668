"""Verifies a revision with an image: the checks run in a child process, where the image is mounted.

Outside, only stubs are visible, so checks of files would find none and pass.

    python -m stackyard.verify.within FOLDER carries out the request that `within` has written there
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError, cause
from stackyard.host.files.scratch import scratch
from stackyard.images.squashfs.enter import run_module_within, staying_mounted
from stackyard.images.squashfs.file import superblock
from stackyard.verify.report import CheckResult, Report, only
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

LIMIT_S = 6 * 3600.0
_RESTORE = "`stackyard fsck --deep --repair {}`, or restore it from a copy"


def within(record: BuildRecord, *request: Any, **options: Any) -> Report:
    """Run `verify.verify` with these arguments where the image of the record is mounted.

    A missing, truncated or invalid image is a failed check: no machine can mount it.

    Raises:
        MissingError: the image cannot be mounted on this machine.
        StackyardError: the checks could not be run.
    """
    if bad := _damage(record):
        return _damaged(record, bad.message, bad.hint or "")
    try:
        report = _verified(record, request, options)
    except StackyardError:
        if text := _different(record):  # programs in a damaged image end by signals, as by the OOM killer
            return _damaged(
                record, text, f"`stackyard fsck --deep --repair {record.module}`, or restore it from a copy"
            )
        raise
    if report.state != "failed" or not (text := _different(record)):
        return report
    return _damaged(record, text, _RESTORE.format(record.module))


def _damaged(record: BuildRecord, text: str, hint: str) -> Report:
    name = RevisionPaths.of(record.path).image.name
    return only(record, CheckResult("consistency", name, "failed", text, hint))


def _different(record: BuildRecord) -> str:
    """How the image differs from its record: read whole, since something in it has failed."""
    try:
        return record.payload.changed(RevisionPaths.of(record.path).image)
    except OSError as error:
        return f"cannot read {RevisionPaths.of(record.path).image}: {cause(error)}"


def _verified(record: BuildRecord, request: tuple[Any, ...], options: dict[str, Any]) -> Report:
    with scratch("within") as work:
        (work / "asked").write_bytes(pickle.dumps((record, request, options)))
        done = run_module_within(record.payload, __name__, str(work), timeout_s=LIMIT_S)
        if done.returncode or not (work / "report.json").exists():
            raise StackyardError(f"verifying {record.module} exited with status {done.returncode}", detail=done.output)
        return Report.from_json(json.loads((work / "report.json").read_text(encoding="utf-8")))


def _damage(record: BuildRecord) -> StackyardError | None:
    """The damage of the image itself; None also if this user cannot read the image, so that nothing is known."""
    try:
        superblock(RevisionPaths.of(record.path).image)
    except StackyardError as error:
        reason = error.__cause__
        return None if isinstance(reason, OSError) and not isinstance(reason, FileNotFoundError) else error
    return None


def _main(work: Path) -> None:
    from stackyard.verify.verify import verify

    record, request, options = pickle.loads((work / "asked").read_bytes())
    if not record.payload.is_visible:
        raise StackyardError(f"{RevisionPaths.of(record.path).image.name} is not mounted on {record.prefix}")
    with staying_mounted(record.payload):
        report = verify(record, *request, **options)
    (work / "report.json").write_text(json.dumps(report.to_json()), encoding="utf-8")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
