"""A home, a directory and a shell, in which the lines of a page are typed one after the other, as a reader does."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support import modules
from support.cli import STACKYARD

LIMIT_S = 1200
MARK = "@@ end of line"
_PASSED = ("PIP_", "UV_", "SSL_")


@dataclass(frozen=True)
class Ended:
    """A line that was typed: its exit status, and what was printed."""

    line: str
    status: int
    printed: str


@dataclass
class Desk:
    """Where a person works.

    Args:
        directory: an empty directory; the home is in it, and programs that go first on PATH.
        places: absolute paths that a page names; they are taken to be below `directory`.
        environ: variables of the shell.
        replaced: words of a page that stand for something else here, such as the name of a registry.
    """

    directory: Path
    places: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.bin.mkdir()
        self.here.mkdir(exist_ok=True)
        (self.bin / "stackyard").symlink_to(STACKYARD)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def bin(self) -> Path:
        return self.directory / "bin"

    @property
    def here(self) -> Path:
        """Where the lines are typed."""
        return self.directory / "work"

    def program(self, name: str, text: str) -> Path:
        """A program on PATH."""
        file = self.bin / name
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return file

    def write(self, **files: str) -> None:
        """Files of the working directory; ``train_py`` is train.py."""
        for name, text in files.items():
            (self.here / name.replace("_", ".")).write_text(text)

    def placed(self, text: str) -> str:
        """With this machine's directories and names in the place of the page's."""
        for word, here in self.replaced.items():
            text = text.replace(word, here)
        if self.places:
            some = "|".join(map(re.escape, self.places))
            text = re.sub(rf"(?<![\w/.-])(?={some})", str(self.directory), text)
        return text

    def typed(self, typed: Sequence[str], **variables: str) -> list[Ended]:
        """Type lines in one shell, with Lmod, as a person does who goes down the page.

        What follows an ``salloc`` is typed in its allocation.
        """
        script = self._script([self.placed(line) for line in typed], 0)  # not on its standard input: a program may read
        environ = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
        environ |= {"HOME": str(self.home), "PATH": f"{self.bin}:/usr/bin:/bin", "USER": "user", "LANG": "C.UTF-8",
                    "TERM": "dumb", **self.environ, **variables}  # fmt: skip
        done = subprocess.run(
            ["bash", script], cwd=self.here, env=environ, text=True, check=False, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
        )  # fmt: skip
        parts = re.split(rf"\n{MARK} (\d+)\n", done.stdout)
        texts, ends = parts[::2], parts[1::2]
        assert len(ends) == len(typed), f"the shell ended at {typed[len(ends)]!r}:\n{texts[-1]}"
        return [Ended(*each) for each in zip(typed, map(int, ends), texts, strict=False)]

    def _script(self, lines: Sequence[str], number: int) -> Path:
        script = self.directory / f"typed-{number}.sh"
        written = [modules.initialise("lmod", "bash"), "exec 2>&1"]
        for done, line in enumerate(lines, start=1):
            if re.match(r"salloc\b", line):
                inner = self._script(lines[done:], number + 1)
                written += [f"{line} bash -c \"printf '\\n{MARK} 0\\n'; exec bash {inner}\""]
                break
            written.append(f"{line}\nprintf '\\n{MARK} %s\\n' $?")
        script.write_text("\n".join(written) + "\n")
        return script


def unexpected(ended: Sequence[Ended], ends: Mapping[str, int]) -> str:
    """The lines that ended otherwise than the page says, with what they printed."""
    wrong = (each for each in ended if each.status != ends.get(each.line, 0))
    return "\n\n".join(f"$ {each.line}\n{each.printed}\n-> status {each.status}" for each in wrong)


def differs(printed: str, shown: Sequence[str]) -> str:
    """The first line that a page shows and a command did not print, in this order; empty where it printed all.

    Compared are the first three words, without numbers, absolute paths and what follows ``...``: a page shows
    another day and another machine.
    """
    lines = iter(map(_start, printed.splitlines()))
    for line in shown:
        if (start := _start(line)) and not any(each.startswith(start) for each in lines):
            return line
    return ""


def _start(line: str) -> str:
    line = re.sub(r"\d[\d.,:-]*", "0", line.strip().partition("...")[0])
    return " ".join("/" if word.startswith("/") else word for word in line.split()[:3])
