"""The input of every check: the record, the environment of the loaded module, the machine and the exceptions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.late import dataclass
from stackyard.host.machine.probe import Machine
from stackyard.host.run.command import Result, run
from stackyard.host.run.view import PLAIN, View
from stackyard.verify.report import Kind
from stackyard.yard import formats
from stackyard.yard.kinds.payload import Payload
from stackyard.yard.revision.contents import Tree
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.inputs.models import Site


@dataclass(frozen=True)
class Exceptions:
    """The exclusions that a stack's author declared; each entry is a name or a glob.

    `broken_commands` is ``warn`` if a command that does not import is only a warning.
    """

    imports: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    broken_commands: str = "fail"

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Exceptions:
        """The exceptions in a record."""
        known = ("imports", "commands", "libraries", "distributions")
        names = {name: tuple(declared.get(name, ())) for name in known}
        return cls(**names, broken_commands=declared.get("broken_commands") or "fail")


@dataclass(frozen=True)
class Python:
    """The properties of the stack's interpreter, as reported by itself.

    Attributes:
        path: the interpreter on PATH of the loaded environment, in the prefix.
        site_packages: directories of the prefix that contain distributions.
    """

    path: Path
    version: str
    site_packages: tuple[Path, ...]

    @property
    def major(self) -> int:
        """2 or 3."""
        return int(self.version.split(".", maxsplit=1)[0])


@dataclass(frozen=True)
class Context:
    """The environment and options for the checks of one revision.

    Attributes:
        environ: the environment of the loaded module, in which all checks run; before loading, the one to load it in.
        work: an empty directory of this verification; programs run in it.
        python: the stack's Python; None if it has none, or it does not run.
        view: the stack's programs' view of the files: read-only if possible.
        no_view: why a read-only view is impossible; empty: there is one.
        kinds: the requested kinds of checks.
        deep: read every byte of every file.
        tree: the files of the revision before any program of it ran.
        as_read: the record as signed; `record` has the present checks.
        yards: the yards in which revisions are looked up, from the verifying account's own to the topmost parent.
    """

    record: BuildRecord
    site: Site | None
    machine: Machine
    environ: Mapping[str, str]
    work: Path
    exceptions: Exceptions
    python: Python | None = None
    view: View = PLAIN
    no_view: str = ""
    kinds: tuple[Kind, ...] = ()
    deep: bool = False
    tree: Tree = field(default_factory=dict)
    as_read: BuildRecord | None = None
    yards: tuple[Path, ...] = ()

    @property
    def payload(self) -> Payload:
        """The content of the revision, with the paths of its programs."""
        return self.record.payload

    @property
    def prefix(self) -> Path:
        """The directory that the stack is installed in."""
        return self.payload.root

    def run(self, argv: Sequence[str | os.PathLike[str]], **options: Any) -> Result:
        """Run a program of the stack with this view; `options` are those of `command.run`."""
        return run(argv, view=self.view, **options)

    def conda_records(self) -> Iterable[Mapping[str, Any]]:
        """The JSON records in ``conda-meta``, sorted by file name, without damaged ones.

        Other checks report damaged ones: those of the files and of conda's requirements.

        Raises:
            OSError: a record cannot be read, which proves nothing about the revision.
        """
        for path in sorted((self.prefix / "conda-meta").glob("*.json")):
            try:
                value = formats.content(path.read_bytes())
            except ValueError:
                continue
            if isinstance(value, dict) and "name" in value:
                yield value


def excepted(name: str, patterns: Iterable[str]) -> bool:
    """Whether a declared exception matches `name` or a package that contains it (``a`` covers ``a.b``)."""
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)
