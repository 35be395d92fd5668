"""Finds the first known cause of a failure in logs: of all ranks, in all files.

Each rank of each log is a stream of lines with failures (`launch.run.causes.lines`). A log in which nothing has ended
badly has none. Otherwise the failures that ended a stream are compared: causes before consequences before what is
general, then by the time printed with them, else by the order of the lines, or of the last change of the files.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stackyard.doctor.logs.sources import LogSource
from stackyard.launch.api.causes import (
    KINDS,
    LAST,
    Cause,
    Found,
    Line,
    LineFailure,
    Rule,
    Scan,
    exit_status,
    first_observed,
    is_quiet,
    matcher,
    mentions_failure,
    named_rank,
    parse,
    raised_hint,
    rules,
    shown,
    signal_name,
    site_rules,
    traceback_place,
    traceback_told,
    unpacked,
    without_lines,
)  # fmt: skip

MOST_RANKS, MOST_LINE = 20_000, 1 << 14
EXCEPTION, REPORTED = "exception", "reported-error"
UNKNOWN, VAGUE = KINDS.index("unknown"), KINDS.index("vague")
_LONG = re.compile(r"\d{4,}")
LAST_WORDS = 0.3
"""The life of a stream after a line that only reports an error, which it still ended with."""
LAST_LINES = 1.0
"""The life of a stream after a program's or shell's own error, whatever a script around it prints of a good end."""
MOST_FORMS = 50_000
"""Different lines that mention an error and have no cause, after which single lines are no longer compared."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found in logs.

    Attributes:
        failed: whether something failed.
        log, line: the place of the first failure; 0: a line without a number.
        text: that line, without secrets.
        rank: the rank that failed first; empty where not known.
        rule, cause, hint, source: the cause and its rule; `EXCEPTION` for an exception without a rule, empty for a
            failure of which nothing else is known.
        others: what failed after it, by rule, with the number of times.
        logs: the number of logs; `notes`: what was not read.
    """

    failed: bool
    log: str = ""
    line: int = 0
    text: str = ""
    rank: str = ""
    rule: str = ""
    cause: str = ""
    hint: str = ""
    source: str = ""
    others: Mapping[str, int] = field(default_factory=dict)
    logs: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class _Stream:
    source: LogSource
    rank: str
    scan: Scan[Found]


def diagnose(
    sources: Sequence[LogSource], *, code: int | None = None, facts: Mapping[str, object] | None = None,
    causes: Sequence[str] = (),
) -> Diagnosis:  # fmt: skip
    """Read logs and find the first cause of their failure.

    Args:
        code: the exit status of the program; None: not known.
        facts: of the step, as far as known (`launch.run.causes.table.FACTS`).
        causes: the site's files of causes.

    Raises:
        InputError: a log cannot be read, or a file of causes is invalid.
    """
    tried = (*site_rules(causes), *rules())
    reader = _Reader(tried, code, facts or {}, itertools.count(), compares_all=bool(causes))
    streams = [stream for source in sources for stream in reader.read(source)]
    notes = tuple(f"{source.name}: {note}" for source in sources for note in source.notes)
    failures = [_Failing(stream, one, _of(one, tried)) for stream in streams for one in stream.scan.all]
    if not (code or any(map(_has_failed, failures))):
        return Diagnosis(False, logs=len(sources), notes=notes)
    known = [one for one in failures if one.found]
    if min((one.kind for one in known), default=UNKNOWN) >= UNKNOWN:
        caught = ((stream, stream.scan.caught) for stream in streams)
        known += [_Failing(stream, one, one.found) for stream, one in caught if one]
    first = _first([*failures, *(one for one in known if one not in failures)], several=len(sources) > 1)
    if first is None:
        return Diagnosis(True, logs=len(sources), notes=notes)
    others = Counter(one.found.cause.rule for one in known if one.found and one is not first)
    return _described(first, others, len(sources), notes)


@dataclass(frozen=True, eq=False)
class _Failing:
    """A failure in a stream, with its cause."""

    stream: _Stream
    failure: LineFailure[Found]
    found: Found | None

    @property
    def kind(self) -> int:
        """Its precedence (`KINDS`); that of what nothing is known of is between causes and consequences, or last."""
        if self.found:
            return self.found.kind
        return UNKNOWN if self.failure.is_raised else len(KINDS)


class _Reader:
    """Reads logs into streams, one for each rank that is named before lines."""

    def __init__(
        self, tried: Sequence[Rule], code: int | None, facts: Mapping[str, object], orders: Iterator[int],
        *, compares_all: bool,
    ) -> None:  # fmt: skip
        self._compare, self._orders, self._compares_all = matcher(tried, code, facts), orders, compares_all
        self._unknown: set[str] = set()

    def read(self, source: LogSource) -> list[_Stream]:
        """The streams of a log."""
        scans: dict[str, Scan[Found]] = {}
        number, former = 0, None
        for block, is_searched in source.blocks():
            rows = block.split(b"\n")[: -1 if block.endswith(b"\n") else None]
            if not is_searched:
                number += len(rows)
                for scan in scans.values() if len(scans) == 1 else ():  # of several, whose lines they are is not known
                    scan.skip(len(rows))
                continue
            is_plain = all(scan.is_idle for scan in scans.values()) and not self._compares_all
            if is_plain and not mentions_failure(block):
                number += len(rows) - 1
                rows = rows[-1:]
            for row in rows:
                number += 1
                for text in unpacked(_text(row)):
                    former = line = parse(0 if source.skipped else number, text, former)
                    rank = line.rank if line.rank in scans or len(scans) < MOST_RANKS else ""
                    if rank not in scans:
                        scans[rank] = Scan(self._matched, self._orders, compares_all=self._compares_all)
                    scans[rank].feed(line)
                    source.first_rank = source.first_rank or first_observed(text)
        for scan in scans.values():
            scan.end()
        return [_Stream(source, rank or source.rank, scan) for rank, scan in scans.items()]

    def _matched(self, lines: list[Line], quiet: bool) -> tuple[Found, Line] | None:
        """As `matcher`, without comparing a line again that differs from one in long numbers only."""
        if len(lines) > 1:
            return self._compare(lines, quiet)
        form = _LONG.sub("0", lines[0].text[:400]) + "q" * quiet
        if form in self._unknown or len(self._unknown) > MOST_FORMS:
            return None
        found = self._compare(lines, quiet)
        if found is None:
            self._unknown.add(form)
        return found


def _text(row: bytes) -> str:
    """A line as text, without the middle of a very long one."""
    half = MOST_LINE // 2
    return (row if len(row) <= MOST_LINE else row[:half] + row[-half:]).decode("utf-8", "replace")


def _of(one: LineFailure[Found], tried: Sequence[Rule]) -> Found | None:
    """The cause of a failure; without one what its exit status or signal alone says."""
    code = exit_status(one.line.text) if one.is_end and not one.found else None
    return one.found or next(iter(without_lines(tried, code, {"whose": "rank"}) if code else ()), None)


def _has_failed(one: _Failing) -> bool:
    """Whether a failure is that of its log: reported by a launcher, or not followed by a good end."""
    failure, scan = one.failure, one.stream.scan
    after = scan.life - failure.born
    if failure.is_end or (failure.is_raised and after <= LAST):
        return True
    if one.found and is_quiet(failure.line.text):
        return False
    if scan.ended_well:
        return one.kind == UNKNOWN and after <= LAST_LINES
    return one.kind != VAGUE or after <= LAST_WORDS


def _first(failures: Sequence[_Failing], *, several: bool) -> _Failing | None:
    """The first failure of the most telling kind."""
    best = min((one.kind for one in failures), default=0)
    told = [one for one in failures if one.kind == best]
    if several and all(one.failure.line.when for one in told):
        return min(told, key=lambda one: (one.failure.line.when, one.failure.order), default=None)
    return min(told, key=lambda one: (one.stream.source.changed if several else 0, one.failure.order), default=None)


def _described(first: _Failing, others: Counter[str], logs: int, notes: tuple[str, ...]) -> Diagnosis:
    source, line, found = first.stream.source, first.failure.line, first.found
    rank = first.stream.rank or named_rank(line.text)
    rank = rank or source.first_rank
    cause = _placed(found, first.failure) if found else _unknown(first.failure)
    return Diagnosis(
        True, source.name, line.number, shown(line.text), rank, cause.rule, cause.cause, cause.remedy,
        found.rule.source if found else "", dict(others), logs, notes,
    )  # fmt: skip


def _placed(found: Found, failure: LineFailure[Found]) -> Cause:
    """The cause, with the place in the program for what it may itself be to blame for."""
    fatal = failure.is_end and bool(failure.frames)
    at = traceback_place(failure.frames, innermost_first=fatal)
    told = found.cause.cause
    if at and (fatal or failure.is_raised):
        told = f"{told}, at {shown(at.text)}"
    elif failure.after and found.kind >= UNKNOWN:
        told = f"{told.rstrip(': ')}: {shown(failure.after)}"
    return replace(found.cause, cause=told)


def _unknown(failure: LineFailure[Found]) -> Cause:
    """What can be said of a failure without a known cause."""
    if failure.is_raised:
        what = shown(traceback_told(failure.line.text, failure.before, failure.frames))
        hint = shown(raised_hint(failure.line.text, failure.frames))
        return Cause(EXCEPTION, f"the program raised {what}", hint or "look at the traceback before this line")
    if at := traceback_place(failure.frames):
        what = f"the program raised an exception, which the log does not name, at {shown(at.text)}"
        hint = raised_hint("", failure.frames) or "look for the end of the traceback in another log of the program"
        return Cause(EXCEPTION, what, hint)
    status = exit_status(failure.line.text)
    how = f"a program ended with status {status}" if status else "a program failed"
    how = f"a program was ended by signal {status - 128} ({name})" if (name := signal_name(status)) else how
    if told := failure.before.strip() or ("" if status else failure.line.text.strip()):
        hint = "look at the lines around that error"
        return Cause(REPORTED, f"{how}; the last error that it reports: {shown(told)}", hint)
    return Cause("", f"{how}, and no log explains why", "look for the logs of its ranks or processes")
