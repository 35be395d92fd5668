"""The result of a verification: a list of checks and the node they ran on. Standard library only, fast to read.

A check is passed, failed, skipped (with the reason) or warned. A skipped check never counts as passed: a required
check that was skipped makes the whole report ``unverified``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from stackyard.core.errors import StackyardError
from stackyard.core.findings import Finding, Severity, counted
from stackyard.core.late import dataclass
from stackyard.host.files import space
from stackyard.host.machine.probe import machine
from stackyard.yard import formats, members
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, now

REPORT_FORMAT = 3
Status = Literal["passed", "failed", "skipped", "warned"]
State = Literal["passed", "failed", "unverified"]
Kind = Literal["load", "symmetry", "content", "interpreter", "import", "command", "consistency", "library", "own"]

KINDS: Mapping[Kind, str] = {
    "load": "the module loads with every module system of this machine and sets what the record lists",
    "symmetry": "unloading the module restores the environment as exactly as for a one-line module",
    "content": "every file is what was built, and the checks changed none",
    "interpreter": "the stack's Python runs, has the recorded version and uses no user files",
    "import": "every distribution's public modules import",
    "command": "every console script has its file, interpreter and object",
    "consistency": "every requirement of every conda and pip package is satisfied",
    "library": "every required shared library is found",
    "own": "the stack's own checks",
}
"""What each kind of check verifies, in the order of a report."""

RUNS_NOTHING: tuple[Kind, ...] = ("load", "symmetry", "content")
"""The kinds that run no program of the stack."""

EXCEPTIONS: Mapping[Kind, str] = {
    "import": "imports",
    "command": "commands",
    "library": "libraries",
    "consistency": "distributions",
}
"""The key under a stack's ``exceptions`` for each kind of check that can have one."""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]|\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: the subject: a distribution, a command, a library, the name of one of the stack's checks.
        detail: the cause if it did not pass, else the observation; several lines are possible.
        remedy: the remedy for a check that did not pass.
        required: whether skipping it makes the revision unverified.
        exceptions: the names to declare under ``exceptions`` in the stack file to skip this check.
    """

    kind: Kind
    name: str
    status: Status
    detail: str = ""
    remedy: str = ""
    seconds: float = 0.0
    required: bool = True
    exceptions: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """The last line of the detail, which names the cause."""
        return "".join(self.detail.strip().splitlines()[-1:])

    @property
    def finding(self) -> Finding:
        """A finding for a check that did not pass; its rule is the kind of check."""
        severity: Severity = "refused" if self.status == "failed" else "warning"
        message = f"{self.name}: {self.cause}" if self.cause else self.name
        return Finding(self.kind, severity, message, remedy=self.remedy)

    def line(self) -> str:
        """Status, kind, name and cause in one line."""
        return f"{self.status} {self.kind} {self.name}" + (f": {self.cause}" if self.cause else "")


@dataclass(frozen=True)
class Report:
    """All checks of one revision on one node.

    Attributes:
        created: the time, ISO 8601 in UTC.
        node: the machine, from `host.probe.Machine.to_json`.
        systems: the module systems used, e.g. ``Lmod 8.6.19``.
        only: the requested kinds; empty means all.
        load_seconds: duration of ``module load`` per module system, in seconds.
        check_hash: the hash of the own checks and the exceptions; empty in a report of an earlier version.
    """

    module: str
    input_hash: str
    created: str
    node: Mapping[str, Any] = field(default_factory=dict)
    systems: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    only: tuple[str, ...] = ()
    load_seconds: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    check_hash: str = ""

    @property
    def state(self) -> State:
        """failed: a check failed; unverified: a required one was skipped; passed: neither."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        if not self.checks or any(check.status == "skipped" and check.required for check in self.checks):
            return "unverified"
        return "passed"

    def problems(self) -> tuple[CheckResult, ...]:
        """The checks that need attention: failed ones, required ones that were skipped, warnings, in this order."""
        failed = [check for check in self.checks if check.status == "failed"]
        skipped = [check for check in self.checks if check.status == "skipped" and check.required]
        warned = [check for check in self.checks if check.status == "warned"]
        return (*failed, *skipped, *warned)

    def tolerated(self) -> tuple[CheckResult, ...]:
        """The warnings that would be failures in a stack.yaml, e.g. a command that does not import."""
        return tuple(check for check in self.checks if check.status == "warned" and check.exceptions)

    def exceptions(self) -> dict[str, list[str]]:
        """The ``exceptions`` that would make it pass; empty if a failed check cannot have one."""
        failed = [check for check in self.checks if check.status == "failed" and check.exceptions]
        result: dict[str, list[str]] = {}
        for check in (*failed, *(self.tolerated() if failed else ())):
            names = result.setdefault(EXCEPTIONS[check.kind], [])
            names += [name for name in check.exceptions if name not in names]
        return result

    def tally(self) -> str:
        """The short addition to a state: ``2 of 24 checks`` failed, ``155 checks, 2 skipped``, as in the summary."""
        counts = Counter(check.status for check in self.checks)
        if counts["failed"]:
            return f"{counts['failed']} of {counted(len(self.checks), 'check')}"
        others = (f", {counts[status]} {status}" for status in ("skipped", "warned") if counts[status])
        return counted(counts["passed"], "check") + "".join(others)

    def summary(self) -> str:
        """One line: the state, the number of checks by status, and the duration."""
        counts = Counter(check.status for check in self.checks)
        order: tuple[Status, ...] = ("passed", "failed", "skipped", "warned")
        parts = ", ".join(f"{counts[status]} {status}" for status in order if counts[status])
        host = self.node.get("hostname", "this machine")
        return f"{self.state}: {parts or 'no checks'} on {host} in {self.seconds:.1f} s"

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values; `state` and `summary` are written for readers and recomputed on reading."""
        return {"format": REPORT_FORMAT, "state": self.state, "summary": self.summary(), **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: str = "report.json") -> Report:
        """Parse the output of `to_json` of this version or an earlier one; `origin` names the file in errors."""
        return formats.read(value, origin, REPORT)

    def junit(self) -> str:
        """The report as JUnit XML, one suite per kind of check; warnings pass, with their text as output."""
        counts = Counter(check.status for check in self.checks)
        root = ElementTree.Element("testsuites", {"name": _xml(self.module), **_counts(counts, self.seconds)})
        for kind in KINDS:
            checks = [check for check in self.checks if check.kind == kind]
            if checks:
                root.append(_suite(self, kind, checks))
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _report(value: dict[str, Any]) -> Report:
    checks = [members.make(CheckResult, check) for check in value.get("checks", ())]
    computed = {"state", "summary"}
    return members.make(Report, {**{k: v for k, v in value.items() if k not in computed}, "checks": checks})


REPORT = formats.Kind(
    REPORT_FORMAT,
    _report,
    hint=lambda _: "verify the revision again with this version: `stackyard verify REV`",
    checked_since=2,
)


def without_record(entry: Entry, error: StackyardError) -> Report:
    """The report of a published revision whose record is missing or damaged, so that its checks cannot run.

    If the file system failed to read it, nothing is known about the revision.
    """
    cause = error.__cause__
    if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
        return stopped(entry, cause)
    return only(entry, CheckResult("consistency", "record.json", "failed", error.message, error.hint or ""))


def lacking_licences(report: Report, error: StackyardError) -> Report:
    """A report of the kinds in `RUNS_NOTHING` only: other checks need a licence to be accepted first."""
    check = CheckResult("own", "licences", "skipped", error.message, error.hint or "")
    return replace(report, checks=(*report.checks, check), only=())


def not_mounted(record: BuildRecord, error: StackyardError) -> Report:
    """The report of a revision whose image this machine cannot mount: nothing is known about its files."""
    return only(record, CheckResult("content", "image", "skipped", error.message, error.hint or ""))


def stopped(entry: Entry, error: StackyardError | OSError) -> Report:
    """The report of a revision whose verification was aborted: nothing is known about it."""
    if isinstance(error, StackyardError):
        return only(entry, CheckResult("consistency", "verification", "skipped", error.message, error.hint or ""))
    detail = f"{(error.strerror or str(error)).lower()}: {error.filename}" if error.filename else str(error)
    return only(entry, CheckResult("consistency", "files", "skipped", detail, _remedy(error)))


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "verify it as an account that can read all its files"
    return (
        "free some space and verify it again"
        if space.is_full(error)
        else "verify it again once the file system answers"
    )


def only(of: Entry | BuildRecord, check: CheckResult) -> Report:
    """The report of a revision with a single check."""
    return Report(of.module, of.input_hash, now(), machine().to_json(), checks=(check,))


def read_report(path: Path) -> Report:
    """Read a ``report.json``. Raises StackyardError when it is missing, damaged or of a newer format."""
    return formats.load(path, REPORT)


def _suite(report: Report, kind: Kind, checks: list[CheckResult]) -> ElementTree.Element:
    counts = Counter(check.status for check in checks)
    seconds = sum(check.seconds for check in checks)
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": _xml(f"{report.module} {kind}"),
            "timestamp": report.created,
            "hostname": _xml(str(report.node.get("hostname", ""))),
            **_counts(counts, seconds),
        },
    )
    for check in checks:
        suite.append(_case(report.module, check))
    return suite


def _case(module: str, check: CheckResult) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=_xml(f"{module}.{check.kind}"), name=_xml(check.name), time=f"{check.seconds:.3f}"
    )
    text = _xml("\n".join(part for part in (check.detail, check.remedy) if part))
    if check.status in ("failed", "skipped"):
        tag = "failure" if check.status == "failed" else "skipped"
        ElementTree.SubElement(case, tag, message=_xml(check.line())).text = text
    elif text:
        ElementTree.SubElement(case, "system-out").text = text
    return case


def _counts(counts: Counter[Status], seconds: float) -> dict[str, str]:
    return {
        "tests": str(counts.total()),
        "failures": str(counts["failed"]),
        "errors": "0",
        "skipped": str(counts["skipped"]),
        "time": f"{seconds:.3f}",
    }


def _xml(text: str) -> str:
    """Text without characters that are invalid in XML 1.0, and without colours."""
    return _NOT_XML.sub("", text)
