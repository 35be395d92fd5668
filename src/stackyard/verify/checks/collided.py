"""Checks that each path installed by several packages has the file of the recorded package."""

from __future__ import annotations

import stat
import time
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.core.quoting import LONG, plain
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.verify.checks.base import Check
from stackyard.verify.checks.content import REMEDY, listed
from stackyard.verify.report import CheckResult
from stackyard.yard.revision.collision import Collision, sentences
from stackyard.yard.revision.record import BuildRecord

_NAME = "path collisions"
_CHOOSE = "leave one of the packages out; or choose in the stack's file: `collisions: {PATH: PACKAGE}`"


def check_collisions(record: BuildRecord) -> list[CheckResult]:
    """One result if packages of a revision install the same path: a warning if that may matter."""
    if not record.collisions:
        return []
    started = time.perf_counter()
    root = record.payload.root
    wrong = [problem for collision in record.collisions for problem in _problems(root, collision)]
    seconds = time.perf_counter() - started
    if wrong:
        remedy = REMEDY.format(module=record.module)
        return [CheckResult("content", _NAME, "failed", listed(wrong), remedy, seconds)]
    bad = [collision for collision in record.collisions if collision.kind == "warning"]
    if bad:
        text = listed([sentence.removeprefix("path collision: ") for sentence in sentences(bad)])
        return [CheckResult("content", _NAME, "warned", text, _CHOOSE, seconds, required=False)]
    count = counted(sum(len(collision.files) for collision in record.collisions), "path")
    text = f"{count} of several packages: the file is that of the package in the record"
    return [CheckResult("content", _NAME, "passed", text, seconds=seconds)]


def _problems(root: Path, collision: Collision) -> list[str]:
    of = f"is not that of {collision.winner}"
    return [
        f"{plain(path, LONG)} {of}"
        for path, digest in collision.files.items()
        if digest and _hash(root / path) != digest
    ]


def _hash(path: Path) -> str:
    """The hash in the build's format; empty for anything missing, unreadable, or neither file nor link."""
    try:
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            return sha256_text(str(path.readlink()))
        return sha256_file(path) if stat.S_ISREG(kind) else ""
    except (OSError, StackyardError):
        return ""


COLLISIONS = Check(("content",), "files", lambda context: check_collisions(context.record))
