"""A command line read by a table of documented options. Each row names the manual that documents it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

NUMBER = r"[0-9]+"
POSITIVE = r"0*[1-9][0-9]*"
ANY = r"(?s).*"
SOME = r"(?s).+"


class Refused(Exception):
    """The real program would end here: its kind of message, and its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Option:
    """One documented option: its spellings, the pattern of its value (None: takes none) and the manual's name."""

    names: tuple[str, ...]
    value: str | None
    source: str
    many: bool = False

    @property
    def key(self) -> str:
        """Under which name its value is found: the longest spelling without its dashes."""
        return max(self.names, key=len).lstrip("-")


@dataclass
class Given:
    """What was given. `values` holds the last value of an option, `lists` all; a flag's value is an empty string."""

    rest: list[str] = field(default_factory=list)
    lists: dict[str, list[str]] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.lists

    def get(self, key: str, default: str = "") -> str:
        """The last value."""
        return self.lists[key][-1] if key in self.lists else default

    def number(self, key: str, default: int) -> int:
        """The last value as a number."""
        return int(self.lists[key][-1]) if key in self.lists else default

    def under(self, defaults: Given) -> Given:
        """These options over those of a script."""
        return Given(self.rest or defaults.rest, {**defaults.lists, **self.lists})


@dataclass(frozen=True)
class Style:
    """How a family of programs spells options.

    `attached`: ``-r1``. `equals`: ``--nrs=1`` (and ``-ppn=1`` with `single`). `single`: long names with one dash.
    `prefix`: long names may be shortened (argparse). `message` makes the refusal, `code` is its exit code.
    """

    program: str
    attached: bool = True
    equals: bool = True
    single: bool = False
    prefix: bool = False
    code: int = 1
    unknown: str = "{program}: unrecognized option '{word}'"
    missing: str = "{program}: option requires an argument -- '{word}'"
    invalid: str = "{program}: invalid value for {word}: {value}"


def table(rows: str, source: str | Mapping[str, str] = "") -> tuple[Option, ...]:
    """Read a table: one option a line, ``names | value pattern or - | source [| many]``."""
    named = {"number": NUMBER, "positive": POSITIVE, "any": ANY, "some": SOME}
    options = []
    for line in filter(str.strip, rows.splitlines()):
        names, value, *more = (part.strip() for part in line.split(" | "))
        where = more[0] if more else str(source)
        pattern = None if value == "-" else named.get(value, value)
        options.append(Option(tuple(names.split()), pattern, where, "many" in more[1:]))
    return tuple(options)


def parse(words: Sequence[str], options: Iterable[Option], style: Style, *, stop: bool = True) -> Given:
    """Read options up to the first word that is none (`stop`), or everywhere."""
    rows = tuple(options)
    given = Given()
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            given.rest += queue
            break
        if not word.startswith("-") or word == "-":
            given.rest.append(word)
            if stop:
                given.rest += queue
                break
            continue
        _one(word, queue, rows, style, given)
    return given


def _one(word: str, queue: list[str], rows: tuple[Option, ...], style: Style, given: Given) -> None:
    name, value = word, None
    option = _find(word, rows, style)
    if option is None and "=" in word and style.equals:
        name, value = word.split("=", 1)
        option = _find(name, rows, style)
        if option is not None and len(name) == 2:
            option = None
    if option is None and style.attached and not word.startswith("--"):
        name, value = word[:2], word[2:]
        option = next((row for row in rows if name in row.names), None)
        if option is not None and option.value is None:
            queue.insert(0, "-" + value)
            value = None
    if option is None:
        raise Refused(style.unknown.format(program=style.program, word=word), style.code)
    if option.value is None:
        if value is not None:
            raise Refused(style.invalid.format(program=style.program, word=name, value=value), style.code)
        given.lists.setdefault(option.key, []).append("")
        return
    if value is None:
        if not queue:
            raise Refused(style.missing.format(program=style.program, word=name), style.code)
        value = queue.pop(0)
    if not re.fullmatch(option.value, value):
        raise Refused(style.invalid.format(program=style.program, word=name, value=value), style.code)
    given.lists.setdefault(option.key, []).append(value)


def _find(name: str, rows: tuple[Option, ...], style: Style) -> Option | None:
    for row in rows:
        if name in row.names:
            return row
        if style.single and len(name) > 2 and name[1] != "-" and "-" + name in row.names:
            return row
    if style.prefix and name.startswith("--") and len(name) > 3:
        found = [row for row in rows if any(n.startswith(name) for n in row.names)]
        if len(found) == 1:
            return found[0]
    return None


def main(program: Callable[[list[str]], int]) -> NoReturn:
    """Run a stand-in: a refusal is printed and becomes the exit code."""
    try:
        sys.exit(program(sys.argv[1:]))
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(refusal.code)
    except KeyboardInterrupt:
        sys.exit(130)
