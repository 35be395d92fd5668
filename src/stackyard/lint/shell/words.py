"""Shell words: the parts of a word, and a parser for a single word.

The grammar is that of POSIX "Token Recognition" and "Quoting" (Shell Command Language, 2.2 and 2.3) with bash's
``$'..'``, ``$((..))`` and arrays. The reader is tolerant: an unclosed quote ends with the text; it never raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

OPEN, CLOSE, TASK = "\ue000", "\ue001", "\ue002"
"""Delimiters around text whose value is known only at run time; between them is its source.

TASK follows OPEN where not the batch script but a shell of each task fills the piece in.
"""

PLACEHOLDER = re.compile(r"\{\{[^{}\n]*\}\}|<[A-Z]\w*>(?![\w.$])|<\w[\w-]*(?: [\w-]+)*>(?=[ \t]*(?:[;#]|$))", re.M)
"""What is filled in: one piece of a word, whatever blanks it has.

``{{ nodes }}``; ``<NODES>``; ``<nodes>`` or ``<your project>`` at the end of a line, where nothing follows that a
redirection could name.
"""
_META = set(" \t\n;&|<>()")


@dataclass(frozen=True)
class Part:
    """A piece of a word. `text` is a literal's text, or the content of ``${..}``, ``$(..)`` or ``$((..))``."""

    kind: Literal["literal", "variable", "command", "arithmetic"]
    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Word:
    """One word with its source text and line."""

    parts: tuple[Part, ...]
    raw: str
    line: int

    @property
    def plain(self) -> str | None:
        """Its text if it is one unquoted literal (only such a word can be a keyword), else None."""
        if len(self.parts) == 1 and self.parts[0].kind == "literal" and not self.parts[0].quoted:
            return self.parts[0].text
        return None


def unknown(source: str, task: bool = False) -> str:
    """A placeholder for a value known only at run time (`task`: only in each task's shell)."""
    return OPEN + (TASK if task else "") + shown(source) + CLOSE


def is_known(text: str) -> bool:
    """Whether the text does not depend on the run."""
    return OPEN not in text


_BRACELESS = re.compile(rf"{OPEN}{TASK}?\$([A-Za-z_]\w*){CLOSE}(?=\w)")


def shown(text: str) -> str:
    """The text as in the script: ``${A}`` with braces before a letter, which would otherwise extend the name."""
    return _BRACELESS.sub(r"${\1}", text).replace(OPEN, "").replace(CLOSE, "").replace(TASK, "")


_WHICH = re.compile(rf"{OPEN}\$\(\s*(?:which|command\s+-v|type\s+-p)\s+([A-Za-z][\w.+-]*)\s*\){CLOSE}")


def command_name(word: str) -> str:
    """The first word of a command, where ``$(which python)`` is ``python``, which the shell finds itself."""
    match = _WHICH.fullmatch(word)
    return match[1] if match else word


def closing(text: str, start: int, opening: str, closer: str) -> int:
    """The index of the closer for an opener before `start`; else the text's end.

    Quotes are respected; in parentheses, which hold commands or items, so are comments and here-documents.
    """
    depth, at = 1, start
    while at < len(text):
        char = text[at]
        if opening == "(" and char in "#<" and (inert := _INERT.match(text, at)):
            at = inert.end() - 1
        elif char == "\\":
            at += 1
        elif char == "'":
            at = _quote_end(text, at + 1, "'")
        elif char == '"':
            at = _quote_end(text, at + 1, '"')
        elif char == opening:
            depth += 1
        elif char == closer:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(text)


def arithmetic_end(text: str, start: int) -> int | None:
    """The index of the ``))`` that closes arithmetic opened at `start`; None if it is a subshell.

    bash's rule: ``((`` is arithmetic if ``))`` closes it, as ``$(((a + b) * 2))``; ``$((cat a; cat b) | sort)`` is not.
    An unclosed one ends with the text.
    """
    end = closing(text, start, "(", ")")
    return end if end == len(text) or text.startswith("))", end) else None


_INERT = re.compile(
    r"(?<=[\s;(])#[^\n]*"
    r"|<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1[^\n]*\n(?:[^\n]*\n){0,400}?[ \t]*\2(?=[ \t]*(?:\n|$|\)))"
)
"""A comment, or a here-document with its lines."""


def _quote_end(text: str, at: int, quote: str) -> int:
    while at < len(text) and text[at] != quote:
        if text[at] == "\\" and quote != "'":
            at += 1
        elif quote == '"' and text.startswith("$(", at):
            at = closing(text, at + 2, "(", ")")
        at += 1
    return at


_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.S)
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def open_quote(raw: str) -> bool:
    """Whether a quote in the source of a word is not closed."""
    at = 0
    while at < len(raw):
        if raw[at] in "'\"":
            at = _quote_end(raw, at + 1, raw[at])
            if at >= len(raw):
                return True
        at += 2 if raw[at] == "\\" else 1
    return False


def _escape(match: re.Match[str]) -> str:
    if match[3]:
        return _LETTERS.get(match[3], match[3] if match[3] in "\\'\"?" else match[0])
    return chr(int(match[1], 16) if match[1] else int(match[2], 8) % 256)


class WordReader:
    """Parses the word at position `at` of a text and moves `at` past it."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at
        self._parts: list[Part] = []
        self._buffer: list[str] = []

    def read(self, line: int, stop: set[str] | None = None) -> Word:
        """One word, up to an unquoted blank or operator (or one of `stop`; an empty set reads all)."""
        ends = _META if stop is None else stop
        start = self.at
        while self.at < len(self.text) and (self.text[self.at] not in ends or PLACEHOLDER.match(self.text, self.at)):
            self._step()
        self._flush(False)
        return Word(tuple(self._parts), self.text[start : self.at], line)

    def quoted(self, line: int) -> Word:
        """The whole rest, parsed as if in double quotes."""
        start = self.at
        self._double(end="")
        return Word(tuple(self._parts), self.text[start:], line)

    def _step(self) -> None:
        char = self.text[self.at]
        if char == "\\":
            self._escape()
        elif char == "'":
            self._single()
        elif char == '"':
            self._flush(False)
            self.at += 1
            self._double(end='"')
        elif char == OPEN:
            self._marker()
        elif char in "$`":
            self._dollar(False)
        elif hole := PLACEHOLDER.match(self.text, self.at):
            self._buffer.append(hole.group())
            self.at = hole.end()
        else:
            self._buffer.append(char)
            self.at += 1

    def _flush(self, quoted: bool) -> None:
        if self._buffer:
            self._parts.append(Part("literal", "".join(self._buffer), quoted))
            self._buffer.clear()

    def _escape(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following and following != "\n":
            self._flush(False)
            self._parts.append(Part("literal", following, True))
        self.at += 2

    def _single(self) -> None:
        self._flush(False)
        end = _quote_end(self.text, self.at + 1, "'")
        self._parts.append(Part("literal", self.text[self.at + 1 : end], True))
        self.at = end + 1

    def _escaped_string(self) -> None:
        """Parse ``$'a\\tb'``: a string with the escapes of C."""
        self._flush(False)
        end = self.at + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        self._parts.append(Part("literal", _ESCAPE.sub(_escape, self.text[self.at + 2 : end]), True))
        self.at = end + 1

    def _marker(self) -> None:
        end = self.text.find(CLOSE, self.at)
        end = len(self.text) if end < 0 else end + 1
        self._buffer.append(self.text[self.at : end])
        self.at = end

    def _double(self, end: str) -> None:
        count = len(self._parts)
        while self.at < len(self.text) and self.text[self.at] != end:
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`", "\n"):
                self._buffer.append(self.text[self.at + 1].replace("\n", ""))
                self.at += 2
            elif char in "$`":
                self._dollar(True)
            elif char == OPEN:
                self._marker()
            else:
                self._buffer.append(char)
                self.at += 1
        self.at += 1
        self._flush(True)
        if len(self._parts) == count:
            self._parts.append(Part("literal", "", True))

    def _dollar(self, quoted: bool) -> None:
        text, at = self.text, self.at
        if text.startswith("$((", at) and (end := arithmetic_end(text, at + 3)) is not None:
            self._add("arithmetic", at + 3, end, end + 2, quoted)
        elif text.startswith("$[", at):
            end = closing(text, at + 2, "[", "]")
            self._add("arithmetic", at + 2, end, end + 1, quoted)
        elif text.startswith("$(", at):
            end = closing(text, at + 2, "(", ")")
            self._add("command", at + 2, end, end + 1, quoted)
        elif text[at] == "`":
            end = _quote_end(text, at + 1, "`")
            self._add("command", at + 1, end, end + 1, quoted)
        elif text.startswith("${", at):
            end = closing(text, at + 2, "{", "}")
            self._add("variable", at + 2, end, end + 1, quoted)
        elif text.startswith("$'", at) and not quoted:
            self._escaped_string()
        else:
            self._name(quoted)

    def _name(self, quoted: bool) -> None:
        end = self.at + 1
        if self.text[end : end + 1] in tuple("@*#?$!-0123456789"):
            end += 1
        else:
            while end < len(self.text) and (self.text[end].isalnum() or self.text[end] == "_"):
                end += 1
        if end == self.at + 1:
            self._buffer.append("$")
            self.at = end
        else:
            self._add("variable", self.at + 1, end, end, quoted)

    def _add(
        self, kind: Literal["variable", "command", "arithmetic"], start: int, end: int, after: int, quoted: bool
    ) -> None:
        self._flush(quoted)
        self._parts.append(Part(kind, self.text[start:end], quoted))
        self.at = after
