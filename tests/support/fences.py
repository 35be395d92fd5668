"""The fenced blocks of a page of documentation, and what a reader of it types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHELL = ("console", "bash", "sh")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")


@dataclass(frozen=True)
class Command:
    """A line that is typed, without its comment, and what the page shows that it prints.

    Attributes:
        line: several lines where a here-document or a backslash goes on.
    """

    line: str
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A block of commands; `number` counts those of the page, from 1."""

    page: str
    number: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}#{self.number}"

    @property
    def commands(self) -> tuple[Command, ...]:
        """What is typed: behind a prompt in a ``console`` block, every line in the others."""
        return tuple(_of_console(self.text) if self.language == "console" else _of_shell(self.text))


def blocks(page: Path, languages: tuple[str, ...] = SHELL) -> tuple[Block, ...]:
    """The blocks of a page in these languages."""
    found = [(language, text) for language, text in _FENCE.findall(page.read_text()) if language in languages]
    return tuple(Block(page.name, number, *each) for number, each in enumerate(found, start=1))


def languages(page: Path) -> tuple[str, ...]:
    """The language of each block of a page; empty where none is named."""
    return tuple(language for language, _ in _FENCE.findall(page.read_text()))


def _of_shell(text: str) -> Iterator[Command]:
    for line in _whole_lines(text):
        if command := _without_comment(line.strip()):
            yield Command(command)


def _of_console(text: str) -> Iterator[Command]:
    line, output = "", list[str]()
    prompts = ("$ ", "# ") if text.startswith("# ") else ("$ ",)  # else what a command prints may begin like root's
    for each in _whole_lines(text):
        if each.startswith(prompts) and not each.startswith("$ ..."):  # which a command prints
            if line:
                yield Command(line, tuple(output))
            line, output = _without_comment(each[2:].strip()), []
        else:
            output.append(each)
    if line:
        yield Command(line, tuple(output))


def _whole_lines(text: str) -> Iterator[str]:
    """The lines, those that belong together as one."""
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        ends = _HERE_DOCUMENT.search(line)
        document = [line]
        while ends and document[-1].strip() != ends[1]:
            document.append(next(lines))
        yield "\n".join(document)


def _without_comment(line: str) -> str:
    return "" if line.startswith("#") else line if "\n" in line else re.split(r"\s+# ", line)[0]
