"""An extension: a revision that is a layer on another one, its base, which is published and immutable.

A layer looks like a virtual environment. Its Python is a link to that of the base, and a ``.pth`` file adds the
packages of the base behind its own. Beside it is a drift directory, for packages that its user installs with ``pip``
after loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import MissingError
from stackyard.core.late import dataclass
from stackyard.yard.kinds.payload import Form, Payload, Prefix, payload_of
from stackyard.yard.kinds.table import FormKind
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths

if TYPE_CHECKING:
    from stackyard.yard.revision.record import BuildRecord


@dataclass(frozen=True)
class BaseRevision:
    """The base of an extension.

    Attributes:
        yard: the root of its yard, absolute.
        id: the name of its module: ``pytorch/2.13-py311-1``.
        hash: its input hash.
        prefix: the absolute path of its prefix, which files of the layer contain.
        form: the form of its files.
    """

    yard: str
    id: str
    hash: str
    prefix: str
    form: FormKind = "prefix"

    @property
    def paths(self) -> RevisionPaths:
        """Its directory."""
        return RevisionPaths(Yard(Path(self.yard)).stacks / self.id)

    @property
    def payload(self) -> Payload:
        """Its payload, which runs its programs."""
        return payload_of(Form(self.form), self.prefix)

    def read(self) -> BuildRecord:
        """Its record.

        Raises:
            StackyardError: it was removed, or cannot be read.
        """
        from stackyard.yard.revision.record import read_record

        return read_record(self.paths.record)

    def lineage(self, find: Callable[[BaseRevision], BuildRecord] = read) -> Iterator[BaseRevision]:
        """The base, its own base, and so on. Raises as `find` does, which reads each record."""
        yield self
        yield from find(self).bases(find)

    def to_json(self) -> dict[str, Any]:
        """The JSON values of the base."""
        return asdict(self)


@dataclass(frozen=True)
class Layer(Prefix):
    """The files of an extension. If its base is an image, its programs run where that is mounted."""

    base: Payload

    @property
    def drift(self) -> Drift:
        """The directory of additional packages that its user installs."""
        return Drift(RevisionPaths(self.root.parent).drift)

    def on_top(self, interpreter: Mapping[str, str], name: str = "DIR") -> list[str]:
        """No commands are needed: a loaded extension has a `pip` that installs into its drift directory."""
        return []

    def command(self, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """The command with its environment, started as by the base.

        Raises:
            MissingError: the base was removed.
        """
        if not self.base.root.exists():
            hint = "type `stackyard rebase NAME`; or put it on another base: stackyard rebase --on REV"
            raise MissingError(f"{self.base.root} not found: the base of this extension was removed", hint=hint)
        return self.base.command(argv, environ)

    @property
    def is_visible(self) -> bool:
        """Whether the files of the base, which it needs, can be read."""
        return self.base.is_visible

    @property
    def listed(self) -> tuple[Path, ...]:
        """The images of the base."""
        return self.base.listed


@dataclass(frozen=True)
class Drift:
    """The directory for packages installed in a loaded extension and not yet recorded: an environment on the layer."""

    root: Path

    @property
    def bin(self) -> Path:
        """Its programs, before those of the layer on PATH."""
        return Prefix(self.root).program_directories[0]

    @property
    def python(self) -> Path:
        """The interpreter that installs into it; not on PATH, where the layer's stays the first."""
        return self.root / "python" / "python"

    def site_packages(self, python_version: str) -> Path:
        """Its packages, found before those of the layer."""
        return Prefix(self.root).site_packages(python_version)


def payload_on(base: BaseRevision, root: str) -> Layer:
    """The payload of an extension.

    Raises:
        ValueError: the form of its base is unknown.
    """
    return Layer(Path(root), base.payload)


def identity_of(base: BaseRevision | None) -> tuple[str, str]:
    """The module and the input hash of a base; empty for a complete revision, which has none."""
    return (base.id, base.hash) if base else ("", "")
