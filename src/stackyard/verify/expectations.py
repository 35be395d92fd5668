"""The expectations that a revision is verified against: the stack's own checks and its exceptions.

They do not influence the files of a revision, so a change of them needs no build: the revision is verified again, and
the new expectations are kept beside it as ``checks.json``, which replaces those of its record.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.verify.checks.own import OwnCheck
from stackyard.verify.context import Exceptions
from stackyard.yard import disk, formats, members
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic
from stackyard.yard.write.permissions import file_mode, program_mode

if TYPE_CHECKING:
    from stackyard.inputs.models import Variant


@dataclass(frozen=True)
class Expectations:
    """The checks and the exceptions in a record's format; scripts by absolute path."""

    checks: tuple[Mapping[str, Any], ...] = ()
    exceptions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """sha256 over everything that influences the result; for scripts their content, not their path."""
        checks = [{**asdict(OwnCheck.of(check)), "script": _content(check)} for check in self.checks]
        values = {"checks": checks, "exceptions": asdict(Exceptions.of(self.exceptions))}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def cover(self, other: Expectations) -> bool:
        """Whether passing these implies passing the others: equal, or more tolerant of broken commands."""
        judged = "broken_commands"
        tolerant = replace(self, exceptions={**self.exceptions, judged: other.exceptions.get(judged)})
        is_strict = Exceptions.of(self.exceptions).broken_commands == "fail"
        return other.digest in (self.digest, tolerant.digest if is_strict else "")

    def applied(self, record: BuildRecord) -> BuildRecord:
        """The record with these expectations in place of its own."""
        return replace(record, checks=self.checks, exceptions=self.exceptions)


def asked(variant: Variant) -> Expectations:
    """The present expectations of a stack's file.

    Raises:
        InputError: a script cannot be read.
    """
    checks = tuple(check.model_dump(mode="json") for check in variant.checks)
    for check in variant.checks:
        if check.script and not os.access(check.script, os.R_OK):
            raise InputError(f"cannot read {check.script}", hint="see its path in the stack's file")
    return Expectations(checks, variant.exceptions.model_dump(mode="json"))


def in_force(record: BuildRecord) -> Expectations:
    """The expectations of a revision's last complete verification: kept since its build, else from its record.

    Raises:
        StackyardError: ``checks.json`` is damaged or of a newer format.
    """
    paths = RevisionPaths.of(record.path)
    if disk.is_there(paths.checks):
        return _located(formats.load(paths.checks, CHECKS), paths.check_scripts)
    return _located(Expectations(record.checks, record.exceptions), paths.recipe)


def keep(record: BuildRecord, expectations: Expectations) -> None:
    """Store these in place of the record's own, with copies of their scripts."""
    paths = RevisionPaths.of(record.path)
    rows = []
    for check in expectations.checks:
        name = ""
        if check.get("script"):
            script = Path(check["script"])
            name = f"{_content(check)[:12]}-{script.name}"
            _copy(script, paths.check_scripts / name)
        rows.append({**check, "script": name})
    value = {"format": CHECKS.version, "checks": rows, "exceptions": dict(expectations.exceptions)}
    atomic.write_json(paths.checks, value, checked=True)


def _copy(script: Path, target: Path) -> None:
    """Copy a script under its hash, once, with the yard's usual permissions instead of its own."""
    if disk.is_there(target):
        return
    target.parent.mkdir(exist_ok=True)
    temporary = atomic.temporary(target)
    shutil.copyfile(script, temporary)
    temporary.chmod(program_mode() if script.stat().st_mode & 0o111 else file_mode())
    os.replace(temporary, target)


CHECKS = formats.Kind(
    1,
    lambda value: members.make(Expectations, value),
    hint=lambda path: f"restore it, or remove it: {path.parent} is then verified against the checks of its record",
    checked_since=1,
)
"""``checks.json``: what a revision is verified against since its record was written."""


def _located(expectations: Expectations, directory: Path) -> Expectations:
    """The expectations with absolute script paths."""
    checks = tuple(
        {**c, "script": str(directory / c["script"]) if c.get("script") else ""} for c in expectations.checks
    )
    return replace(expectations, checks=checks)


def _content(check: Mapping[str, Any]) -> str:
    """The hash of a check's script; empty without one, and a marker for a lost one."""
    name = str(check.get("script") or "")
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest() if name else ""
    except OSError:
        return "missing"
