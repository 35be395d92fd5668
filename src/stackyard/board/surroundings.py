"""Where a tool runs: in a revision, or in the environment of your shell, with a module or an environment of yours."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stackyard.board.tools import PYTHON, Tool
from stackyard.core.errors import InputError, MissingError
from stackyard.core.late import dataclass
from stackyard.expose.published import change_of
from stackyard.host.run import command
from stackyard.launch.api.jobs import Workspace
from stackyard.yard.catalogue import record_of
from stackyard.yard.revision import signatures
from stackyard.yard.revision.record import BuildRecord

_FINDS = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


@dataclass(frozen=True)
class Surroundings:
    """An environment for a tool: that of a revision with this `record`; None: of your shell."""

    record: BuildRecord | None
    environ: dict[str, str]

    def __str__(self) -> str:
        return self.record.module if self.record else f"this shell ({self.command([PYTHON])[0][0]})"

    def command(self, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The command line and the variables that run a tool's words here. Raises MissingError: its files are gone."""
        if self.record:
            payload = self.record.payload
            return payload.command(_with_python(words, payload.python), self.environ)
        python = command.which("python3", self.environ) or command.which(PYTHON, self.environ) or Path(PYTHON)
        return _with_python(words, python), self.environ

    def has(self, tool: Tool) -> bool:
        """Whether the tool is here: its Python module, else the first word of its command."""
        if not tool.module and tool.words[0] != PYTHON:
            finds = self.record.payload.finds if self.record else command.which
            return bool(finds(tool.words[0], self.environ))
        with suppress(MissingError):  # no Python
            words, environ = self.command([PYTHON, "-c", _FINDS, tool.module or "sys"])
            return command.run(words, env=environ, timeout_s=120, check=False).returncode == 0
        return False


def surroundings(tool: Tool, workspace: Workspace, stack: str, of_run: str) -> Surroundings:
    """Where the tool runs: in the revision `stack`, else in the first that has it of the run's own and of this shell.

    Args:
        of_run: the module of the run. It may be another account's: so it is looked up in this yard, and the directory
            that the run's record has is not used.

    Raises:
        InputError: no such revision.
        MissingError: the tool is not there.
    """
    candidates = [_of_revision(workspace, stack)] if stack else [Surroundings(None, dict(os.environ))]
    if of_run and not stack:
        with suppress(InputError, MissingError):  # another yard's, or removed since
            candidates.insert(0, _of_revision(workspace, of_run))
    for candidate in candidates:
        if candidate.has(tool):
            return candidate
    hint = f"add the package {tool.name} to the stack, or " if tool.module else ""
    raise MissingError(f"{tool.name} not found in {' and not in '.join(map(str, candidates))}",
                       hint=f"{hint}name a stack that has it: --stack REV")  # fmt: skip


def _with_python(words: Sequence[str], python: Path) -> list[str]:
    return [str(python) if words[0] == PYTHON else words[0], *words[1:]]


def _of_revision(workspace: Workspace, name: str) -> Surroundings:
    record = record_of(workspace.yard, name)
    signatures.require(record, "load", workspace.yard)
    record.origin.require_present()
    return Surroundings(record, change_of(record, workspace.site).apply(os.environ))
