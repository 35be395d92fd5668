"""Verifies a revision with an image: the checks run in a child process, where the image is mounted.

Outside, only stubs are visible, so checks of files would find none and pass.
"""

from __future__ import annotations

from typing import Any

from stackyard.core.errors import MissingError, StackyardError, cause
from stackyard.images.squashfs import within as mounted
from stackyard.images.squashfs.file import superblock
from stackyard.verify.report import CheckResult, Report, only
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord


def within(record: BuildRecord, *request: Any, **options: Any) -> Report:
    """Run `verify.verify` with these arguments where the image of the record is mounted.

    A missing, truncated or invalid image is a failed check: no machine can mount it. Where a check fails, or the
    process of the checks ends, the image is read whole: in a damaged one programs fail in many ways.

    Raises:
        MissingError: the image cannot be mounted on this machine.
        StackyardError: the checks could not be run.
    """
    if bad := _damage(record):
        return _damaged(record, bad.message, bad.hint or "")
    hint = f"`stackyard fsck --deep --repair {record.module}`, or restore it from a copy"
    try:
        what = f"verifying {record.module}"
        report = mounted.call(record.payload, _verify, (record, request, options), what)
    except MissingError:
        raise
    except StackyardError:
        if text := _different(record):
            return _damaged(record, text, hint)
        raise
    if report.state == "failed" and (text := _different(record)):
        return _damaged(record, text, hint)
    return report


def _verify(request: tuple[BuildRecord, tuple[Any, ...], dict[str, Any]]) -> Report:
    from stackyard.verify.verify import verify

    record, words, options = request
    if not record.payload.is_visible:
        raise StackyardError(f"{RevisionPaths.of(record.path).image.name} is not mounted on {record.prefix}")
    return verify(record, *words, **options)


def _damaged(record: BuildRecord, text: str, hint: str) -> Report:
    name = RevisionPaths.of(record.path).image.name
    return only(record, CheckResult("consistency", name, "failed", text, hint))


def _different(record: BuildRecord) -> str:
    """How the image differs from its record, every byte of it."""
    try:
        return record.payload.changed(RevisionPaths.of(record.path).image)
    except OSError as error:
        return f"cannot read {RevisionPaths.of(record.path).image}: {cause(error)}"


def _damage(record: BuildRecord) -> StackyardError | None:
    """The damage of the image itself; None also if this user cannot read the image, so that nothing is known."""
    try:
        superblock(RevisionPaths.of(record.path).image)
    except StackyardError as error:
        reason = error.__cause__
        return None if isinstance(reason, OSError) and not isinstance(reason, FileNotFoundError) else error
    return None
