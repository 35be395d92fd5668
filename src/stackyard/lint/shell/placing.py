"""Inlines functions that are called once: their commands replace the call, with its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from stackyard.lint.shell.command import Assignment, Command
from stackyard.lint.shell.words import Part, Word, WordReader

_OWN_INSIDE = re.compile(r"\$\{?[0-9@*#]")
"""A variable of the function itself: ``$1``, ``$@``, ``${2:-x}``."""
_DEEPEST = 5
"""How deep functions call others in a script; real ones seldom go beyond three."""
_LOCAL = ("local", "declare", "typeset")
_DEFAULT = re.compile(r"([1-9]):?-(.*)", re.S)


class _UnclearCall(Exception):
    """The commands of a function depend on its arguments in an unsupported way."""


def placed(commands: Sequence[Command]) -> list[Command]:
    """The commands, with the body of each function that is called by one plain line in place of that line.

    Arguments replace ``$1`` and ``"$@"``, also after a ``shift``; local variables are set there. Functions that are
    called twice, or with unsupported arguments, are not inlined.
    """
    result = list(commands)
    for _ in range(_DEEPEST):  # the functions that a function calls follow when it stands in its place
        before, mentions = result, _mentions(result)
        for name in dict.fromkeys(name for command in result for name in command.functions):
            result = _put(result, name, mentions.get(name, ()))
        if result is before:
            break
    return result


def _mentions(commands: Sequence[Command]) -> dict[str, list[Command]]:
    """For each function, the commands outside of it that name it."""
    names, result = {name for command in commands for name in command.functions}, dict[str, list[Command]]()
    for command in commands:
        texts = [*(word.raw for word in command.words), *(value.raw for value in command.assignments), command.here]
        for name in names.intersection(*[re.findall(r"[\w./-]+", " ".join(texts))]).difference(command.functions):
            result.setdefault(name, []).append(command)
    return result


def _put(commands: list[Command], name: str, named: Sequence[Command]) -> list[Command]:
    """The commands with one function inlined at its only call; the same list without a call."""
    if len(named) != 1 or not _is_plain(named[0], name):
        return commands
    body = [command for command in commands if name in command.functions]
    at = next((number for number, command in enumerate(commands) if command is named[0]), 0)
    if not body or not any(command is body[-1] for command in commands[:at]) or not _is_whole(body):
        return commands
    try:
        moved = _Call(named[0], commands[at + 1 :]).moved(body)
    except _UnclearCall:
        return commands
    inside = {id(command) for command in body}
    return [
        new
        for command in commands
        if id(command) not in inside
        for new in (moved if command is named[0] else [command])
    ]


def _is_plain(command: Command, name: str) -> bool:
    beside = command.background or command.piped or command.fed or command.conditional
    inside = any(kind in ("function", "subshell") for _, kind in command.blocks)
    more = command.redirects or command.assignments or command.here
    alone = not (beside or inside or more)
    return alone and command.words[0].raw == name and not any(_has(w, name) for w in command.words[1:])


def _has(word: Word, name: str) -> bool:
    return bool(re.search(rf"\b{re.escape(name)}\b", word.raw))


def _is_whole(body: Sequence[Command]) -> bool:
    """Whether a function is defined once, at the top level, without here-documents."""
    tops = {command.blocks[:1] for command in body}
    alone = all(len(command.functions) == 1 and not command.here for command in body)
    return len(tops) == 1 and next(iter(tops))[0][1] == "function" and alone


class _Call:
    """One call of a function; `after` are the later commands, which must not see its local variables."""

    def __init__(self, call: Command, after: Sequence[Command]) -> None:
        self.call = call
        self.words: Sequence[Word] = call.words[1:]
        self._after = after

    def moved(self, body: Sequence[Command]) -> list[Command]:
        """The commands of the function, for the place of the call."""
        return [new for command in body for new in self._own(command, last=command is body[-1])]

    def _own(self, command: Command, *, last: bool) -> list[Command]:
        """The inlined form of one command: without ``shift``, with ``local`` as assignments."""
        name, alone = command.words[0].plain if command.words else "", _is_alone(command)
        if name == "return" and last and alone:
            return []
        if name == "shift":
            self._shift(command, alone=alone)
            return []
        if name == "set" and any(not (word.plain or "").startswith(("-", "+")) for word in command.words[1:2]):
            raise _UnclearCall
        if name == "set" and any(word.plain in ("-", "--") for word in command.words):
            raise _UnclearCall
        if name in _LOCAL:
            return [self._placed(part) for part in self._of_local(command)]
        return [self._placed(command)]

    def _shift(self, command: Command, *, alone: bool) -> None:
        count = command.words[1].plain if len(command.words) > 1 else "1"
        if not alone or not count or not count.isdecimal():
            raise _UnclearCall
        self.words = self.words[int(count) :]

    def _of_local(self, command: Command) -> list[Command]:
        """``local A=1 B`` as ``A=1``."""
        pairs = [(word, re.match(r"([A-Za-z_]\w*)(\+?)=(.*)$", word.raw, re.S)) for word in command.words[1:]]
        if any(word.raw.startswith("-") for word, _ in pairs):
            raise _UnclearCall
        own = [
            Assignment(match[1], WordReader(match[3]).read(word.line, set()), match[3], bool(match[2]))
            for word, match in pairs
            if match
        ] + command.assignments
        if any(re.search(rf"\b{assignment.name}\b", _text(other)) for assignment in own for other in self._after):
            raise _UnclearCall
        return [replace(command, words=[], assignments=[assignment]) for assignment in own]

    def _placed(self, command: Command) -> Command:
        return replace(
            command,
            line=self.call.line,
            words=[new for word in command.words for new in self._filled(word)],
            assignments=[self._assignment(assignment) for assignment in command.assignments],
            redirects=[(operator, self._joined(word)) for operator, word in command.redirects],
            blocks=(*self.call.blocks, *command.blocks[1:]),
            functions=(),
        )

    def _assignment(self, assignment: Assignment) -> Assignment:
        if not _OWN_INSIDE.search(assignment.raw):
            return assignment
        if assignment.value is not None:
            value = self._joined(assignment.value)
            return replace(assignment, value=value, raw=value.raw)
        raw = re.sub(r"\"\$(?:@|\{@\})\"", " ".join(word.raw for word in self.words), assignment.raw)
        if _OWN_INSIDE.search(raw):
            raise _UnclearCall
        return replace(assignment, raw=raw)

    def _filled(self, word: Word) -> list[Word]:
        """The words that replace one word of a function."""
        alone = word.parts[0] if len(word.parts) == 1 else None
        every = alone and alone.kind == "variable" and alone.text in ("@", "*")
        if alone and every and (alone.quoted or all(w.plain for w in self.words)):
            return list(self.words)
        return [self._joined(word)]

    def _joined(self, word: Word) -> Word:
        """A word with the arguments in place of its ``$1``."""
        raw, parts = word.raw, list[Part]()
        for part in word.parts:
            if part.kind == "variable" and (value := self._given(part)):
                parts.append(value)
                raw = raw.replace("${" + part.text + "}", _raw(value, part)).replace(f"${part.text}", _raw(value, part))
            elif part.kind != "literal" and _OWN_INSIDE.search(f"${{{part.text}"):
                raise _UnclearCall
            else:
                parts.append(part)
        return replace(word, parts=tuple(parts), raw=raw)

    def _given(self, part: Part) -> Part | None:
        """The replacement of ``$1`` or ``${1:-x}``; None for another variable."""
        default = _DEFAULT.fullmatch(part.text)
        number = part.text if re.fullmatch("[1-9]", part.text) else default[1] if default else ""
        if not number:
            return None
        if int(number) > len(self.words) and default:
            return _plain(default[2], part)
        parts = self.words[int(number) - 1].parts if int(number) <= len(self.words) else ()
        if len(parts) != 1 or parts[0].kind in ("command", "arithmetic"):
            raise _UnclearCall
        if parts[0].kind == "variable" and parts[0].text.isidentifier():
            return replace(parts[0], quoted=part.quoted or parts[0].quoted)
        return _plain(parts[0].text if parts[0].kind == "literal" else "*", part)


def _plain(text: str, part: Part) -> Part:
    """A literal with the same meaning with quotes and without."""
    if not re.fullmatch(r"[\w./:=,+%@-]+", text):
        raise _UnclearCall
    return Part("literal", text, part.quoted)


def _raw(part: Part, place: Part) -> str:
    """The source of an argument in place of `place` in a word of the function."""
    text = part.text if part.kind == "literal" else f"${{{part.text}}}"
    return f'"{text}"' if part.kind == "variable" and part.quoted and not place.quoted else text


def _is_alone(command: Command) -> bool:
    """Whether a command of a function always runs, in the function's own shell."""
    return len(command.blocks) == 1 and not (command.background or command.piped or command.fed or command.conditional)


def _text(command: Command) -> str:
    values = [f"{assignment.name}={assignment.raw}" for assignment in command.assignments]
    words = (word.raw for word in (*command.words, *(word for _, word in command.redirects)))
    return " ".join([*values, *words, command.here])
