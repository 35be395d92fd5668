"""Checks that a revision is unchanged since its build: size and time of every file, and the bytes of some or of all.

Changed files are read, and a sample that differs from day to day; the interpreter, conda's records and the lists of
wheels are always read. A deep check reads every byte. A second comparison shows changes by the checks themselves,
because not every machine can provide a read-only view.
"""

from __future__ import annotations

import hashlib
import stat
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.host.files import at
from stackyard.make.hashes.tree import tree_hash
from stackyard.make.seal import PARTS
from stackyard.verify.checks import revisionfiles as beside
from stackyard.verify.checks.base import Check
from stackyard.verify.report import CheckResult, Status
from stackyard.yard import formats
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents, Damage, Tree
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

SAMPLE_BYTES = 32 << 20
_SHOWN, _LISTED = 3, 200
REMEDY = "restore the files from what is locked: `stackyard verify --repair {module}`"


def check_files(record: BuildRecord, tree: Tree, *, deep: bool) -> list[CheckResult]:
    """Compare every file of a revision with the build. `tree`: its present files (`look`)."""
    started = time.perf_counter()
    if not record.files_sha256:
        return [_without_note(record, deep=deep)]
    try:
        noted = noted_contents(record)
    except StackyardError as error:
        return [CheckResult("content", "files", "failed", error.message, REMEDY.format(module=record.module))]
    root = Path(record.path)
    seed = datetime.now(timezone.utc).toordinal()
    read = noted.hashed if deep else contents.sample(noted, SAMPLE_BYTES, seed, always_read(record))
    damages = list(contents.compare(noted, root, tree, read))
    seconds = time.perf_counter() - started
    return [_result(record, noted, damages, read, seconds), *own_files(record)]


def noted_contents(record: BuildRecord) -> Contents:
    """The recorded contents of a revision's files.

    Raises:
        StackyardError: ``files.json`` is missing, or its hash differs from the record.
    """
    path = RevisionPaths.of(record.path).files
    try:
        data = at.read_regular(path)
    except OSError as error:
        raise StackyardError(f"cannot read {path}: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != record.files_sha256:
        raise StackyardError(f"{path} has changed: its hash is not the one in the record")
    return formats.load(path, contents.KIND)


def look(record: BuildRecord) -> Tree:
    """The present files of a revision."""
    return contents.scan(Path(record.path), PARTS)


def seen(record: BuildRecord) -> Tree:
    """The present files of a revision that this process can compare, without those in an image."""
    return contents.scan(Path(record.path), PARTS[1:]) if record.payload.has_stubs else look(record)


def seen_of(record: BuildRecord, noted: Contents) -> Contents:
    """The note, restricted to the files of `seen`."""
    return noted.without(PARTS[0]) if record.payload.has_stubs else noted


def compare_after(record: BuildRecord, before: Tree, no_view: str) -> CheckResult:
    """Whether the checks left every file as it was.

    Args:
        no_view: why the checks had no read-only view of the files; empty: they had one.
    """
    started = time.perf_counter()
    changed = contents.changes(before, look(record))
    seconds = time.perf_counter() - started
    if changed:
        text = f"{listed(changed)}: changed by programs of the stack while they were checked"
        remedy = f"leave out the package that does; then {REMEDY.format(module=record.module)}"
        return CheckResult("content", "unchanged by the checks", "failed", text, remedy, seconds)
    text = f"compared before and after, without a read-only view: {no_view}" if no_view else "on a read-only view"
    return CheckResult("content", "unchanged by the checks", "passed", text, seconds=seconds)


def _result(
    record: BuildRecord, noted: Contents, damages: Sequence[Damage], read: Sequence[str], seconds: float
) -> CheckResult:
    size = sum(noted.files[name].size for name in read) / 1e6
    text = f"{len(noted.files):,} files; {len(read):,} of them read, {size:,.0f} MB"
    serious = [damage for damage in damages if not _is_bytecode(damage)]
    if not damages:
        return CheckResult("content", "files", "passed", text, seconds=seconds)
    status: Status = "failed" if serious else "warned"
    named = listed(sorted(str(damage) for damage in serious or damages))
    remedy = REMEDY.format(module=record.module)
    return CheckResult("content", "files", status, f"{text}\n{named}", remedy, seconds, required=bool(serious))


def _is_bytecode(damage: Damage) -> bool:
    """Whether the damage is bytecode that Python wrote for a file that had none."""
    return damage.what == "unexpected" and ("/__pycache__/" in damage.path or damage.path.endswith("/__pycache__"))


def _without_note(record: BuildRecord, *, deep: bool) -> CheckResult:
    """The result for a revision of an earlier version: only a deep check can compare it, by a hash of the tree."""
    if deep and record.tree_hash:
        if tree_hash(Path(record.prefix)) == record.tree_hash:
            return CheckResult("content", "files", "passed", "the tree has the recorded hash")
        return CheckResult("content", "files", "failed", "the tree does not have the recorded hash")
    text = "built by an earlier version, which did not note what each file holds: bytes cannot be compared"
    return CheckResult("content", "files", "skipped", text, required=False)


def always_read(record: BuildRecord) -> Callable[[str], bool]:
    """A function that tells which files every check reads: small reference files, and the interpreter."""
    interpreter = _inside(Path(record.path), record.payload.python)

    def wanted(name: str) -> bool:
        small = name.startswith(("prefix/conda-meta/", "lock/", "recipe/")) or name.endswith(".dist-info/RECORD")
        return small or name == interpreter

    return wanted


def _inside(root: Path, path: Path) -> str:
    """The relative path of the file that a link leads to; empty if that is outside of `root` or does not exist."""
    try:
        real = path.resolve(strict=True)
        return real.relative_to(root.resolve()).as_posix() if stat.S_ISREG(real.stat().st_mode) else ""
    except (OSError, ValueError):
        return ""


def own_files(record: BuildRecord) -> list[CheckResult]:
    """Check the files beside the prefix that were written at publication."""
    problems = list(beside.problems(record))
    remedy = REMEDY.format(module=record.module)
    return [CheckResult("content", "published files", "failed", listed(problems), remedy)] if problems else []


def listed(problems: Sequence[str]) -> str:
    """The problems, one per line, with a summary as the last line: the first problem, and the number."""
    last = some(problems, _SHOWN)
    return "\n".join([*problems[:_LISTED], last]) if len(problems) > _SHOWN else last


FILES = Check(
    ("content",),
    "files",
    lambda context: check_files(context.record, context.tree, deep=context.deep),
    title="files",
)
UNCHANGED = Check(("content",), "after", lambda context: [compare_after(context.record, context.tree, context.no_view)])
