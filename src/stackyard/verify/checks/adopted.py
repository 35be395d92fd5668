"""Checks that an adopted prefix is unchanged: its packages, and sizes and times of its files.

Other users may change it at any time. It is checked last, so that changes by the checks themselves show too.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, some
from stackyard.lock.base.installed import installed
from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult
from stackyard.yard import disk, formats
from stackyard.yard.revision import adoptedfiles, contents
from stackyard.yard.revision.contents import Contents, Damage
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

_SHOWN = 4


def check_adopted(record: BuildRecord) -> list[CheckResult]:
    """Compare the packages and the files of an adopted prefix with the adopted state; no result for other revisions."""
    if record.origin.owns_files:
        return []
    if not disk.is_directory(Path(record.prefix)):
        text = f"{record.prefix} not found: it was moved or removed since it was adopted"
        remedy = f"restore it; or remove the revision: `stackyard remove {record.module}`"
        return [CheckResult("content", "adopted prefix", "failed", text, remedy)]
    try:
        return [_packages(record), *_files(record)]
    except (OSError, StackyardError) as error:
        return [CheckResult("content", "adopted prefix", "failed", str(error), _again(record))]


def _again(record: BuildRecord) -> str:
    return f"adopt it as it is now: `stackyard adopt {shlex.quote(record.prefix)} --name {record.stack}`"


def _packages(record: BuildRecord) -> CheckResult:
    now = installed(Path(record.prefix))
    from stackyard.lock.explain.diff import compare

    lines = compare(record.packages, (*now.conda, *now.pip)).lines()
    if not lines:
        text = f"{counted(len(record.packages), 'package')}, as adopted"
        return CheckResult("content", "adopted packages", "passed", text)
    text = "\n".join([*lines, f"changed since it was adopted: {some(lines, _SHOWN)}"])
    return CheckResult("content", "adopted packages", "failed", text, _again(record))


def _files(record: BuildRecord) -> Iterator[CheckResult]:
    started = time.perf_counter()
    prefix, noted = Path(record.prefix), noted_files(record)
    damages = adoptedfiles.changed(noted, prefix, adoptedfiles.look(prefix))
    seconds = time.perf_counter() - started
    new = [damage for damage in damages if damage.what == "unexpected"]
    others = [damage for damage in damages if damage.what != "unexpected"]
    if others:
        yield CheckResult("content", "adopted files", "failed", _text(others), _again(record), seconds)
    if new:
        yield CheckResult("content", "added files", "warned", _text(new), _again(record), required=False)
    if not damages:
        text = f"{len(noted.files):,} files have the size and the time that they had"
        yield CheckResult("content", "adopted files", "passed", text, seconds=seconds)


def _text(damages: Sequence[Damage]) -> str:
    names = sorted(str(damage) for damage in damages)
    return f"{counted(len(damages), 'file')} not as adopted: {some(names, _SHOWN)}"


def noted_files(record: BuildRecord) -> Contents:
    """The recorded files of an adopted prefix.

    Raises:
        StackyardError: the list is missing, or its hash differs from the record.
    """
    assert record.adopted is not None
    path = RevisionPaths.of(record.path).adopted
    text = disk.content(path)
    if text is None or hashlib.sha256(text).hexdigest() != record.adopted.files_sha256:
        raise StackyardError(f"{path} is missing or was changed: its hash is not the one in the record")
    return formats.load(path, contents.KIND)


ADOPTED = Check(("content",), "after", lambda context: check_adopted(context.record))
