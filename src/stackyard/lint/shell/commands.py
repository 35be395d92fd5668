"""A shell script as a flat list of simple commands, each with its enclosing blocks.

Enough of bash for batch scripts: continuations, quotes, here-documents, pipes, ``&``, functions, loops, branches,
arrays. Rules need a flat list; order, background and "may not run" are kept, precedence is not. Unparsable parts are
skipped, without guesses or exceptions.
"""

from __future__ import annotations

import re

from stackyard.lint.shell.command import Assignment, Command
from stackyard.lint.shell.words import PLACEHOLDER, Part, Word, WordReader, arithmetic_end, closing, unknown

_DEEPEST = 50
"""How many enclosing blocks are kept; real scripts are not nested deeper."""
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=")
_OPENERS = {"if": "branch", "while": "loop", "until": "loop", "for": "loop", "select": "loop", "case": "branch"}
_OPENERS |= {"{": "group"}
_REDIRECT = re.compile(r"(?:\d*|&|\{\w+\})(?:<<<|<<-|<<|>>|>&|<&|<>|>\||<|>)")


def parse_shell(text: str, line: int = 1) -> list[Command]:
    """The simple commands of a text in their order. `line` is the number of its first line."""
    return _Reader(text, line).run()


def read_shell(text: str) -> tuple[list[Command], frozenset[int]]:
    """As `parse_shell`, with the numbers of lines inside a here-document or a multi-line string."""
    reader = _Reader(text, 1)
    commands = reader.run()
    return commands, frozenset(reader.inner_lines)


class _Reader:
    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.at = 0
        self.first = line
        self.commands: list[Command] = []
        self.inner_lines: set[int] = set()
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._blocks: list[tuple[int, str]] = []
        self._starts: list[int] = []
        self._count = 0
        self._now: Command | None = None
        self._here: list[tuple[Command, str, bool]] = []
        self._closed: int | None = None
        self._files: Command | None = None  # what holds the redirections behind a block
        self._conditional = False
        self._joined = False  # the last token was &&, || or |: a newline does not end the list
        self._list = 0  # where in the commands the current list begins, which & sends to the background
        self._fed = False
        self._function = ""
        self._names: dict[int, str] = {}
        self._conditions: set[int] = set()

    def run(self) -> list[Command]:
        while self.at < len(self.text):
            before = self.at
            self._token()
            if self.at == before:
                self.at += 1
        self._end()
        return self.commands

    def _line(self, at: int | None = None) -> int:
        from bisect import bisect_left

        return self.first + bisect_left(self._breaks, self.at if at is None else at)

    def _token(self) -> None:
        text, char = self.text, self.text[self.at]
        if char in " \t\r":
            self.at += 1
        elif char == "\\" and text[self.at + 1 : self.at + 2] in ("\n", ""):
            self.at += 2
        elif char == "#":
            end = text.find("\n", self.at)
            self.at = len(text) if end < 0 else end
        elif char == "\n":
            self.at += 1
            self._end()
            self._new_list()
            self._closed = None
            self._read_here()
        elif text.startswith("((", self.at) and self._now is None and arithmetic_end(text, self.at + 2) is not None:
            self._arithmetic()
        elif _REDIRECT.match(text, self.at) and not PLACEHOLDER.match(text, self.at):
            self._redirect()
        elif char in ";&|()":
            self._operator()
        else:
            self._word()

    def _arithmetic(self) -> None:
        """Parse ``((i += 1))`` as a command of three words."""
        start, line, command = self.at, self._line(), self._current()
        self.at = self._after_arithmetic(start)
        inner = WordReader(self.text[start + 2 : self.at].removesuffix("))")).quoted(line)
        ends = [Word((Part("literal", text, True),), text, line) for text in ("((", "))")]
        command.words += [ends[0], inner, ends[1]]

    def _after_arithmetic(self, at: int) -> int:
        """The index behind the ``))`` that closes a ``((`` at `at`."""
        inner = closing(self.text, at + 2, "(", ")")
        return min(len(self.text), inner + (2 if self.text.startswith("))", inner) else 1))

    def _operator(self) -> None:
        text, at = self.text, self.at
        pair = text[at : at + 2]
        if pair in ("&&", "||"):
            self.at += 2
            self._end()
            self._conditional = self._joined = True
        elif pair in (";;", ";&"):
            self.at += 3 if text.startswith(";;&", at) else 2
            self._end()
            self._branch_again()
            self._pattern()
        elif text[at] == "|":
            self.at += 2 if pair == "|&" else 1
            if self._now:
                self._now.piped = True
            self._end()
            self._fed = self._joined = True
        elif text[at] == "&":
            self.at += 1
            self._into_background()
            self._new_list()
        elif text[at] == "(":
            self._parenthesis()
        else:
            self.at += 1
            self._end()
            self._closed = None
            self._new_list()
            if text[at] == ")":
                self._leave()

    def _new_list(self) -> None:
        if not self._joined:
            self._conditional = False
            self._list = len(self.commands)

    def _into_background(self) -> None:
        start = self._list if self._now else self._closed
        self._end()
        for command in self.commands[start:] if start is not None else ():
            command.background = True

    def _parenthesis(self) -> None:
        now = self._now
        rest = re.match(r"\(\s*\)", self.text[self.at :])
        if now and len(now.words) == 1 and rest:
            self._now = None
            self._function = now.words[0].raw
            self.at += rest.end()
            return
        end = closing(self.text, self.at + 1, "(", ")")
        if now and now.words and not self.text[self.at - 1].isspace() and "\n" not in self.text[self.at : end + 1]:
            self._lengthen(now, end + 1)
            return
        self.at += 1
        if now is None:
            self._enter("subshell")

    def _lengthen(self, command: Command, end: int) -> None:
        """Parse ``word(..)``, usually a syntax error, as one word: placeholders look like this."""
        raw, last = self.text[self.at : end], command.words[-1]
        command.words[-1] = Word((*last.parts, Part("literal", raw)), last.raw + raw, last.line)
        self.at = end

    def _enter(self, kind: str) -> None:
        self._count += 1
        if kind in ("group", "subshell") and self._function:
            kind, self._names[self._count] = "function", self._function
        elif self._conditional:
            self._conditions.add(self._count)  # cd a || { ...; }
        self._blocks.append((self._count, kind))
        self._starts.append(len(self.commands))
        self._function, self._conditional, self._joined = "", False, False
        self._list = len(self.commands)

    def _leave(self) -> None:
        if self._blocks:
            self._blocks.pop()
            self._closed = self._list = self._starts.pop()
            self._files = None

    def _branch_again(self) -> None:
        if self._blocks and self._blocks[-1][1] == "branch":
            self._count += 1
            self._blocks[-1] = (self._count, "branch")

    def _pattern(self) -> None:
        """Skips ``pattern)`` of a case; stops at ``esac``."""
        match = re.compile(r"(?:\s|#[^\n]*\n)*").match(self.text, self.at)
        self.at = match.end() if match else self.at
        if not re.compile(r"esac\b").match(self.text, self.at):
            start = self.at + 1 if self.text.startswith("(", self.at) else self.at
            self.at = closing(self.text, start, "(", ")") + 1

    def _current(self) -> Command:
        if self._now is None:
            self._now, self._joined = self._new(), False
            self._now.conditional, self._now.fed = self._conditional, self._fed
        return self._now

    def _new(self) -> Command:
        blocks = tuple(
            block
            for number, kind in self._blocks[-_DEEPEST:]
            for block in ((number, "branch"), (number, kind))[number not in self._conditions :]
        )
        return Command(
            self._line(), blocks=blocks, functions=tuple(self._names[n] for n, _ in blocks if n in self._names)
        )

    def _end(self) -> None:
        now, self._now = self._now, None
        if now and (now.words or now.assignments or now.redirects):
            self.commands.append(now)
            self._closed = None
            self._fed = False

    def _redirect(self) -> None:
        match = _REDIRECT.match(self.text, self.at)
        assert match
        if match.group() in ("<", ">") and self.text.startswith("(", match.end()):
            self._current().words.append(self._substituted())
            return
        after_block = self._now is None and self._closed is not None  # `done > file &`
        command = self._of_block() if after_block else self._current()
        operator = match.group().lstrip("0123456789")
        self.at = match.end()
        blank = re.compile(r"(?:[ \t]|\\\n)*").match(self.text, self.at)
        self.at = blank.end() if blank else self.at
        word = self._substituted() if self.text.startswith(("<(", ">("), self.at) else self._read_word()
        if operator in ("<<", "<<-"):
            tag = "".join(part.text for part in word.parts)
            self._here.append((command, tag, operator == "<<-"))
        else:
            command.redirects.append((match.group(), word))

    def _substituted(self) -> Word:
        """Parse ``<(..)`` or ``>(..)``: a file name known only at run time."""
        start, line = self.at, self._line()
        self.at = min(closing(self.text, start + 2, "(", ")") + 1, len(self.text))
        raw = self.text[start : self.at]
        return Word((Part("literal", unknown(raw), True),), raw, line)

    def _of_block(self) -> Command:
        """A command with all redirections after the block that has just ended: ``done > a 2> b``."""
        if self._files is None:
            self._files = self._new()
            self.commands.append(self._files)
        return self._files

    def _read_here(self) -> None:
        for command, tag, indented in self._here:
            start = end_of_body = self.at
            command.here_line = self._line()
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end]
                self.inner_lines.add(self._line())
                self.at = end + 1
                if (row.lstrip("\t") if indented else row) == tag:
                    break
                end_of_body = self.at
            command.here = self.text[start:end_of_body]
        self._here.clear()
        self.at = min(self.at, len(self.text))

    def _read_word(self) -> Word:
        start = self._line()
        reader = WordReader(self.text, self.at)
        word = reader.read(start)
        self.at = min(reader.at, len(self.text))
        self.inner_lines.update(range(start + 1, self._line() + 1) if re.search("[\"']|<<", word.raw) else ())
        return word

    def _word(self) -> None:
        command = self._current()
        if not command.words:
            match = _ASSIGNMENT.match(self.text[self.at : self.at + 200])
            if match:
                self._assignment(command, match)
                return
        word = self._read_word()
        if not command.words and not command.assignments and self._keyword(word):
            return
        if command.words and command.words[0].plain in ("export", "declare", "local", "readonly", "typeset"):
            match = _ASSIGNMENT.match(word.raw)
            if match and word.raw == match.group() and self.text.startswith("(", self.at):
                end = closing(self.text, self.at + 1, "(", ")")
                command.assignments.append(Assignment(match[1], None, self.text[self.at : end + 1], bool(match[3])))
                self.at = end + 1
                return
        command.words.append(word)

    def _assignment(self, command: Command, match: re.Match[str]) -> None:
        self.at += match.end()
        name, append = match[1], bool(match[3])
        if self.text.startswith("(", self.at):
            end = closing(self.text, self.at + 1, "(", ")")
            command.assignments.append(Assignment(name, None, self.text[self.at : end + 1], append))
            self.at = end + 1
            return
        word = self._read_word()
        command.assignments.append(Assignment(name, None if match[2] else word, word.raw, append, match[2] or ""))

    def _keyword(self, word: Word) -> bool:
        text = word.plain
        if text in ("then", "do", "!", "time", "coproc"):
            self._now = None
            self._list = len(self.commands)
            option = re.compile(r"[ \t]+-p\b").match(self.text, self.at) if text == "time" else None
            self.at = option.end() if option else self.at
        elif text in ("else", "elif"):
            self._now = None
            self._list = len(self.commands)
            self._branch_again()
        elif text in ("fi", "done", "esac", "}"):
            self._now = None
            self._leave()
        elif text == "function":
            self._now = None
            match = re.compile(r"\s*([\w.:-]+)\s*(\(\s*\))?").match(self.text, self.at)
            self._function = match[1] if match else "function"
            self.at = match.end() if match else self.at
        elif text in _OPENERS:
            self._open(text)
        elif text == "[[":
            end = re.compile(r"\s\]\](?=\s|;|$|&|\||\))").search(self.text, self.at)
            self.at = end.end() if end else len(self.text)
            self._now = None
        else:
            return False
        return True

    def _words_of_loop(self) -> None:
        """Skip ``in $(find . -exec a \\;) b`` of a for loop."""
        while self.at < len(self.text) and self.text[self.at] not in "\n;":
            before = self.at
            if self.text[self.at] not in " \t&|<>()":
                self._read_word()
            self.at += self.at == before

    def _open(self, keyword: str) -> None:
        self._now = None
        self._enter(_OPENERS[keyword])
        if keyword in ("for", "select"):
            match = re.compile(r"[ \t]*([A-Za-z_]\w*)").match(self.text, self.at)
            if match:
                loop, self.at = self._new(), match.end()
                self._words_of_loop()
                loop.assignments.append(Assignment(match[1], None, self.text[match.end() : self.at].strip()))
                self.commands.append(loop)
            else:
                start = self.text.find("((", self.at)
                self.at = self._after_arithmetic(start) if start >= 0 else self.at
        elif keyword == "case":
            match = re.compile(r".*?\bin\b", re.S).match(self.text, self.at)
            self.at = match.end() if match else self.at
            self._pattern()
