"""The commands of the READMEs in examples/, and a shell in which those of one README are typed one after the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sitebed import EXAMPLES

from support import modules
from support.cli import STACKYARD

READMES = {path.parent.name: path for path in sorted(EXAMPLES.glob("*/README.md"))}
LIMIT_S = 1200
MARK = "@@ end of line"
_BLOCK = re.compile(r"^```(?:sh|console)?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def lines(example: str) -> tuple[str, ...]:
    """The commands of a README: what a person types, without comments.

    Blocks without a language are commands too; those of files (yaml) are not.
    """
    return tuple(_lines(READMES[example].read_text()))


def _lines(text: str) -> Iterator[str]:
    for block in _BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.split(r"\s+# ", line.strip())[0]
            if command and not command.startswith("#"):
                yield command


@dataclass(frozen=True)
class Ended:
    """A line that was typed: its exit status, and what was printed."""

    line: str
    status: int
    printed: str


@dataclass
class Copy:
    """The examples as a clone has them, in a directory of their own, with a home and the site's directories below it.

    Args:
        name: the example whose README is typed.
        directory: an empty directory.
        places: absolute paths that the README and its site file name; they are taken to be below `directory`.
    """

    name: str
    directory: Path
    places: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "*.lock")
        shutil.copytree(EXAMPLES, self.directory / "examples", ignore=left)
        (self.directory / "home").mkdir()
        (self.directory / "bin").mkdir()
        (self.directory / "bin/stackyard").symlink_to(STACKYARD)
        for file in self.here.glob("*.yaml"):
            file.write_text(self.placed(file.read_text()))

    @property
    def here(self) -> Path:
        """Where the README is, and its commands are typed."""
        return self.directory / "examples" / self.name

    def placed(self, text: str) -> str:
        """With this machine's directories in the place of the site's."""
        if self.places:
            some = "|".join(map(re.escape, self.places))
            text = re.sub(rf"(?<![\w/.-])(?={some})", str(self.directory), text)
        return text

    def typed(self, typed: tuple[str, ...], **variables: str) -> list[Ended]:
        """Type lines in one shell, with Lmod, as a person does who goes down the page."""
        start = [modules.initialise("lmod", "bash"), "exec 2>&1"]
        numbered = (f"{self.placed(line)}\nprintf '\\n{MARK} %s\\n' $?" for line in typed)
        environ = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        environ |= {"HOME": str(self.directory / "home"), "PATH": f"{self.directory}/bin:/usr/bin:/bin", "USER": "user",
                    "LANG": "C.UTF-8", "TERM": "dumb", **self.environ, **variables}  # fmt: skip
        script = self.directory / "typed.sh"  # not on its standard input, which a program may read
        script.write_text("\n".join([*start, *numbered]) + "\n")
        done = subprocess.run(
            ["bash", script], cwd=self.here, env=environ, text=True, check=False, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
        )  # fmt: skip
        parts = re.split(rf"\n{MARK} (\d+)\n", done.stdout)
        texts, ends = parts[::2], parts[1::2]
        assert len(ends) == len(typed), f"the shell ended at {typed[len(ends)]!r}:\n{texts[-1]}"
        return [Ended(*each) for each in zip(typed, map(int, ends), texts, strict=False)]


def unexpected(ended: list[Ended], ends: Mapping[str, int]) -> str:
    """The lines that ended otherwise than the README says, with what they printed."""
    wrong = (each for each in ended if each.status != ends.get(each.line, 0))
    return "\n\n".join(f"$ {each.line}\n{each.printed}\n-> status {each.status}" for each in wrong)
