"""Lines of logs of any program: of which rank, when, how severe; and the failures in them, in their order. Pure.

A *failure* is a Python traceback with those that it is chained to, or one line. Its `life` afterwards is what the same
rank still printed: a line of progress counts 1, any other a tenth. A failure after which its rank went on is not what
ended it: a caught exception, a retry.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from stackyard.launch.run.causes.reports import Reports, reports
from stackyard.launch.run.causes.tracebacks import is_frame

T = TypeVar("T")
PREFIX = re.compile(
    r"(?:(?:\w{3} \w{3} +\d+ [\d:]{8} \d{4})?"  # horovodrun --prefix-output-with-timestamp
    r"(?:\[(?:rank|default)?(?P<a>\d+)(?:, ?(?P<b>\d+))?\](?:<std(?:out|err)>)?: ?"  # torch, torchrun, mpirun
    r"|\[[\w.-]+@\d+,(?P<c>\d+)\](?:<std(?:out|err)>)?: ?"  # prterun
    r"|\[(?P<d>\d+)\] (?=\S)"  # mpiexec -prepend-rank
    r"|[\w.-]+: (?=\[(?:rank|default)?\d+\]: ?)"  # a host, of pdsh
    r"|\((?:[\w.]+ )?pid=(?P<f>\d+)(?:, ip=[\d.:]+)?\) ?"  # Ray
    r"| *(?P<e>\d+): ))"  # srun -l
)
"""What launchers put before the lines of a rank."""
_RANK = re.compile(
    r"\[rank ?(\d+)\]|\(rank (\d+) in comm|\brank\s*:\s*(\d+)|process rank (\d+)|\btasks? (\d+)(?:[,-][\d,-]+)?:",
    re.IGNORECASE,
)
_OBSERVED = re.compile(r"\s*rank\s*: (\d+) \(local_rank:")
_STATUSES = tuple((re.compile(text), code) for text, code in (
    (r"(?:code|status) *[:=]? *-(\d+)", 128), (r"Signals\.SIG\w+: (\d+)", 128),
    (r"(?i:signal):? \(?(\d+)\b", 128), (r"EXIT CODE: (\d)$", 128),
    (r"Segmentation fault|SIGSEGV", 139), (r"Bus error", 135), (r"Illegal instruction", 132),
    (r"Aborted\b.*core dumped|line \d+: +\d+ Aborted", 134), (r"\bKilled\b", 137),
    (r"[Ee]xit(?:ed)?(?: with)?(?: exit)? (?:code|status)\s*[:=]?\s*(\d+)", 0),
))  # fmt: skip
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
_CLOCK = re.compile(r"(?P<t>\d\d:\d\d:\d\d)(?P<f>[.,]\d+)?")
_TIMES = (
    re.compile(rf"\d{{4}}[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[ T_]{_CLOCK.pattern}"),
    re.compile(rf"[IWEF](?P<mo>\d\d)(?P<d>\d\d) {_CLOCK.pattern}"),
    re.compile(rf"(?P<m>[A-Z][a-z]{{2}}) +(?P<d>\d+) {_CLOCK.pattern}"),
)
_MONTHS = {
    name: number + 1
    for number, name in enumerate(re.findall("...", "JanFebMarAprMayJunJulAugSepOctNovDec"))
}  # fmt: skip
_TRACEBACK = "Traceback (most recent call last)"
_LINK = ("During handling of the above exception", "The above exception was the direct cause")
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?=:|\s*$)|\w+(?:Error|Exception|Interrupt|Exit|Quit|Died|Failed)\b(?=:|\(|\s*$))"
    r"|(?:[a-z_]\w*\.)+\w*(?:error|timeout)\b(?=:|\s*$)"
)
"""How the line of a traceback begins that names the exception."""
_CARRIES = re.compile(r"Error: Caught \w+ in |\bRayTaskError\(")
"""An exception that only carries the one of a worker, whose traceback follows."""
_INNER = re.compile(r'\s|File "|File \S+\.py|Cell In|Input In |<ipython-input|-+> ?\d|[╭│╰┌└❱]|\S+\.py in ')
"""How a line within a traceback begins: of Python, IPython, rich."""
_NAMED = re.compile(r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception)|Exception)\b(?=: |\s*$)")
PLAIN = 0.1
"""How much a line counts as life that is not one of progress."""
_IGNORED = "Exception ignored in"
"""What Python prints before the traceback of an exception in a finaliser, which ends nothing."""
_FATAL = "Fatal Python error"
_OPEN = re.compile(r":\s*$|LINE: +\d+\s*$|^terminate called after")
"""How a line ends whose message is in the next one."""
LAST = 3.0
"""The life of a stream after an exception that ended it, whatever a script around it prints of a good end."""
FEWEST_FRAMES = 3
"""Frames at the end of a log, without more, that are the rest of a traceback."""
MOST_LOOSE = 5
"""Lines without a margin in a traceback, as several ranks cause by printing at once; after more it was cut off."""


@dataclass(frozen=True)
class Signs:
    """The lists of signs.yaml, which describes them."""

    words: tuple[str, ...]
    quiet: re.Pattern[str]
    beside: re.Pattern[str]
    progress: re.Pattern[str]
    ends: re.Pattern[str]
    well: re.Pattern[str]


@functools.cache
def signs() -> Signs:
    """What lines say of failures."""
    from stackyard.inputs.reading.yamlfile import packaged

    lists = packaged(__package__, "rules/signs.yaml")
    flags = {"progress": re.IGNORECASE, "well": re.IGNORECASE}
    found = {name: re.compile("|".join(lists[name]), flags.get(name, 0)) for name in lists if name != "words"}
    return Signs(tuple(lists["words"]), **found)


@dataclass(frozen=True)
class Line:
    """A line of a log. `rank` is empty if the launcher has put none before it; `dated` is the last text with a time."""

    number: int
    text: str
    rank: str = ""
    dated: str = ""

    @property
    def when(self) -> tuple[float, ...]:
        """Month, day, hour, minute, second; empty if not known."""
        return _time(self.dated)


Match = Callable[[list[Line], bool], "tuple[T, Line] | None"]


@dataclass
class LineFailure(Generic[T]):
    """A failure in a log, with what is `found` in its lines.

    Attributes:
        line: the line in which `found` was found; for an unknown exception the line that names it.
        order: its place among all failures.
        is_raised: whether it is the traceback of an exception that nothing seems to have caught.
        is_end: whether a launcher, a scheduler or a kernel reports that a program has failed.
        born: the life of its stream before it.
        most_life: what the stream may print afterwards, if it has ended it: other ranks and scripts go on for a while.
        frames: the lines of its stack; for a chain of exceptions of the last one.
        before: the line of the first exception of its chain, or for one of which nothing is known the last line before
            it that reports an error; empty without one.
        after: the next line, where its own ends with a colon.
    """

    line: Line
    order: int
    found: T | None
    is_raised: bool
    is_end: bool
    born: float
    most_life: float
    frames: list[str] = field(default_factory=list)
    before: str = ""
    after: str = ""


def parse(number: int, text: str, former: Line | None = None) -> Line:
    """A line without what its launcher put before it. Without a time of its own it has that of `former`, before it."""
    text = text.rstrip("\r\n").rpartition("\r")[2]
    text = _ESCAPES.sub("", text) if "\x1b" in text else text
    text = text if text.isascii() else text.translate(_QUOTES)
    rank = ""
    while match := PREFIX.match(text):
        groups = match.groupdict()
        rank = next((groups[name] for name in "bacde" if groups[name]), rank)
        rank = f"pid {groups['f']}" if groups["f"] and not rank else rank
        text = text[match.end() :]
    head = text[:80]
    return Line(number, text, rank, head if _CLOCK.search(head) else former.dated if former else "")


def named_rank(text: str) -> str:
    """The rank that a line names in its text; empty without one."""
    match = _RANK.search(text)
    return next(filter(None, match.groups()), "") if match else ""


def first_observed(text: str) -> str:
    """The rank that torchrun names as the first that failed; empty for another line."""
    match = _OBSERVED.match(text) if "(local_rank:" in text else None
    return match[1] if match else ""


def exit_status(text: str) -> int:
    """The exit status that a line reports, 128 + signal after a signal; 0 without one."""
    for pattern, code in _STATUSES:
        if match := pattern.search(text):
            return code + int(match[1]) if match.groups() else code
    return 0


def _time(head: str) -> tuple[float, ...]:
    for pattern in _TIMES if head else ():
        match = pattern.search(head)
        named = match.groupdict() if match else {}
        month = _MONTHS.get(named["m"], 0) if "m" in named else int(named.get("mo", 0))
        if month:
            hours, minutes, seconds = map(int, named["t"].split(":"))
            return (month, int(named["d"]), hours, minutes, seconds + float(f"0.{(named['f'] or '.0')[1:]}"))
    return ()


def _shape(text: str) -> str:
    """A text with 0 for each digit: equal for what a logger puts before each line."""
    return re.sub(r"\d", "0", text)


def mentions_failure(block: bytes) -> bool:
    """Whether a block of lines has a word without which none of its lines is compared with the rules."""
    return any(map(block.lower().__contains__, (word.encode() for word in signs().words)))


def is_quiet(text: str) -> bool:
    """Whether a line is a warning, information, or about something that was tried again or done otherwise."""
    return signs().quiet.search(text[:400]) is not None


class Scan(Generic[T]):
    """The failures of one stream of lines (of a rank, or of a log without ranks), fed line by line.

    Args:
        match: returns what is found in the lines of a failure, and its line; None for an unknown one. Its second
            argument is whether the line is quiet.
        orders: the places of failures, shared by streams.
        compares_all: whether lines without a word of failures are compared too.
        forgets: whether a failure after which the stream went on is dropped.
    """

    MOST = 400

    def __init__(
        self, match: Match[T], orders: Iterator[int], *, compares_all: bool = False, forgets: bool = True
    ) -> None:
        self.all: list[LineFailure[T]] = []
        self.caught: LineFailure[T] | None = None
        """The first exception with a cause after which the stream went on: of it, or of another rank."""
        self.life = 0.0
        self.ended_well = False
        self._match, self._orders, self._forgets, self._signs = match, orders, forgets, signs()
        self._words = () if compares_all else self._signs.words
        self._trace: list[Line] = []
        self._raised: Line | None = None
        self._last, self._margin, self._is_muted, self._loose = "", "", False, 0
        self._muted: tuple[list[Line], Line | None, float] | None = None
        self._frame: Line | None = None
        self._loose_stack: list[str] = []
        self._reports, self._number = Reports(), 0
        self._open: LineFailure[T] | None = None

    def feed(self, line: Line) -> None:
        """Add a line."""
        text, self._number = line.text, line.number
        if self._open and text.strip():
            self._open.after = text.strip()
            self._open = None
        if _TRACEBACK in text:
            self._begin(line)
        elif self._trace and self._goes_on(line):
            return
        elif self._signs.beside.match(text):
            self._stack(line)
        elif not self._words or any(map(text.lower().__contains__, self._words)):
            self._single(line)
        else:
            self._lives(text)

    @property
    def is_idle(self) -> bool:
        """Whether nothing has failed so far, so that lines without a word of failures change nothing."""
        return not self.all and not self._trace and self._muted is None

    def skip(self, lines: float) -> None:
        """Count lines that were not fed."""
        self.life += lines * PLAIN

    def end(self) -> None:
        """The end of the stream. A traceback at the end is a failure, also after a line that warns."""
        self._close()
        if self._muted and self.life - self._muted[2] <= LAST:
            self._add_trace(*self._muted[:2])
        self._forget()
        if self._forgets and not self.all and (told := self._reports.at_the_end(self._number)):
            self.all = [LineFailure(told, next(self._orders), None, False, False, self.life, PLAIN, before=told.text)]
        if self._forgets and not self.all and self._frame and self._number - self._frame.number <= 2:
            frames = [*self._loose_stack, self._last]
            if sum(map(is_frame, frames)) >= FEWEST_FRAMES:  # the end of a log that was cut off
                self.all = [LineFailure(self._frame, next(self._orders), None, False, True, self.life, PLAIN, frames)]

    def _begin(self, line: Line) -> None:
        is_linked = self._raised is None and any(one.text.startswith(_LINK) for one in self._trace[-3:])
        is_carried = self._raised is not None and _CARRIES.search(self._raised.text) is not None
        if not (self._trace and (is_linked or is_carried)):
            self._close()
            before = line.text.partition(_TRACEBACK)[0]
            self._is_muted = is_quiet(self._last) or is_quiet(before)
            self._margin, self._loose = _shape(before), 0
        self._trace.append(line)
        self._raised = None

    def _goes_on(self, line: Line) -> bool:
        """Whether a line belongs to the open traceback."""
        if self._margin and _shape(line.text[: len(self._margin)]) == self._margin:
            line = replace(line, text=line.text[len(self._margin) :])
        text = line.text
        is_link, is_blank = text.startswith(_LINK), not text.strip()
        if self._raised is not None and not is_link:
            if _CARRIES.search(self._raised.text) and is_frame(text):
                self._raised = None
            elif not is_blank:
                self._close()
            if self._raised is not None or not self._trace:
                return is_blank
        is_inner = is_blank or _INNER.match(text) is not None
        self._raised = line if not is_link and not is_inner and _RAISED.match(text) else None
        self._loose = 0 if is_link or is_inner else self._loose + 1
        if self._loose > MOST_LOOSE:
            self._close()
            return False
        if len(self._trace) < self.MOST:
            self._trace.append(line)
        return True

    def _close(self) -> None:
        trace, self._trace, raised, self._raised = self._trace, [], self._raised, None
        if trace and self._is_muted:
            self._muted = None if _IGNORED in self._last else (trace, raised, self.life)
        elif trace:
            self._add_trace(trace, raised)

    def _add_trace(self, trace: list[Line], raised: Line | None) -> None:
        told = [one for one in trace if not one.text.startswith((" ", "\t")) or _TRACEBACK in one.text]
        self._add(told, raised or told[-1], raised=raised is not None, is_cut=raised is None)
        if self.all:
            start = max(number for number, one in enumerate(trace) if _TRACEBACK in one.text)
            self.all[-1].frames = [one.text for one in trace[start:]]
            chain = (one.text for one in told if _RAISED.match(one.text) and not _CARRIES.search(one.text))
            self.all[-1].before = next(chain, "")
        self._last = told[-1].text

    def _stack(self, line: Line) -> None:
        """Keep a frame outside of a traceback: of a mistake of syntax, before its name; of a fatal error, after it."""
        if is_frame(line.text) and self.all and self.all[-1].line.text.startswith(_FATAL):
            self.all[-1].frames.append(line.text)
        elif is_frame(line.text):
            goes_on = self._frame and line.number - self._frame.number <= MOST_LOOSE
            self._loose_stack = [*self._loose_stack[-self.MOST :], self._last] if goes_on else []
            self._loose_stack.append(line.text)
            self._frame = line

    def _single(self, line: Line) -> None:
        ends, quiet = self._signs.ends.search(line.text) is not None, is_quiet(line.text)
        named = not quiet and _NAMED.match(line.text) is not None
        if not self._add([line], line, raised=named, ends=ends, quiet=quiet and not ends):
            self._lives(line.text)
            if not quiet and reports(line.text):
                self._reports.add(line)
        elif named:
            is_near = self._frame and line.number - self._frame.number <= MOST_LOOSE
            near = [self._frame.text] if self._frame and is_near else []
            self.all[-1].frames = [*near, *([self._last] if self._last.startswith("  ") else [])]
        elif ends:
            self.all[-1].before = self._reports.last
        self._last = line.text

    def _add(
        self, lines: list[Line], last: Line, *, raised: bool = False, ends: bool = False, is_cut: bool = False,
        quiet: bool = False,
    ) -> bool:  # fmt: skip
        found = self._match(lines, quiet)
        if found is None and not (raised or ends or is_cut):
            return False
        self._forget()
        what, line = found or (None, last)
        most = 60.0 if ends else 25.0 if len(lines) > 1 else 3.0
        failure = LineFailure(line, next(self._orders), what, raised, ends, self.life, most)
        self.ended_well = False
        if len(self.all) < self.MOST:
            self.all.append(failure)
        else:  # the first ones are of interest; and that it still fails
            self.all[-1] = failure
        self._open = failure if _OPEN.search(line.text) and len(lines) == 1 else None
        return True

    def _lives(self, text: str) -> None:
        self._last = text or self._last
        if not self.all and self._muted is None:
            return
        self.life += 1.0 if self._signs.progress.search(text) else PLAIN
        if self._signs.well.search(text):
            self.ended_well = True

    def _forget(self) -> None:
        if not self._forgets:
            return
        stay: list[LineFailure[T]] = []
        for one in self.all:
            if self.life - one.born <= one.most_life:
                stay.append(one)
            elif one.is_raised and one.found:
                self.caught = self.caught or one
        self.all = stay
