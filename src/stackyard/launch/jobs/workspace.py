"""`Workspace`: the site and yard for jobs, which callers of `launch.api` pass as plain values."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.core.secrets import is_secret
from stackyard.inputs import workspace


@dataclass(frozen=True)
class Workspace(workspace.Workspace):
    """The site, the yard, and the caller's environment.

    Attributes:
        site_file: the file that `site` was read from, absolute; None: the built-in defaults.
        runs: the directory in which run directories are created and found.
        environ: the environment variables of your shell.
        argv: the command line that you typed; records have `command` instead.
    """

    site_file: Path | None
    runs: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...]

    def command(self, program: Sequence[str]) -> tuple[str, ...]:
        """The command line for records and batch scripts, without values of ``--env`` that may be secret.

        Args:
            program: the words of the program, which are not changed at the end of the command line.
        """
        ends = bool(program) and self.argv[-len(program) :] == tuple(program)
        own = self.argv[: -len(program)] if ends else self.argv
        return (*_without_values(own), *self.argv[len(own) :])

    def stackyard(self, *words: str) -> tuple[str, ...]:
        """The command that starts this program with `words` on a node: the same Python, yard and site."""
        site = ("--site", str(self.site_file)) if self.site_file else ()
        isolated = ("-I",) if sys.flags.isolated else ()
        return (sys.executable, *isolated, "-m", "stackyard.cli.main", "--yard", str(self.yard.root), *site, *words)


def _without_values(words: Sequence[str]) -> Iterator[str]:
    """The options, with ``--env NAME=VALUE`` reduced to ``--env NAME`` if the value may be secret."""
    for before, word in itertools.pairwise(("", *words)):
        option = "--env=" if word.startswith("--env=") else ""
        name, equals, value = word.removeprefix(option).partition("=")
        hidden = (option or before == "--env") and equals and is_secret(name, value)
        yield f"{option}{name}" if hidden else word
