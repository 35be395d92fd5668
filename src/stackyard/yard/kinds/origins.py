"""The origin of a revision's files, and its consequences: whether the yard owns them, and how to make them again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.findings import some
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut
from stackyard.yard.kinds.table import OriginKind

if TYPE_CHECKING:
    from stackyard.yard.revision.record import BuildRecord

Again = Literal["build", "adopt", "copy"]


@dataclass(frozen=True)
class Built:
    """The files were built in the yard, from a lock.

    Attributes:
        kind: its name in `yard.kinds.table`.
        again: how to make the same revision at another place.
        owns_files: whether the yard owns the files, and so seals, repairs, packs and deletes them.
    """

    record: BuildRecord
    kind: ClassVar[OriginKind] = "built"
    again: ClassVar[Again] = "build"
    owns_files: ClassVar[bool] = True

    @property
    def outside(self) -> tuple[Path, ...]:
        """The directories of its files outside of the yard."""
        return ()

    @property
    def adopted_from(self) -> str:
        """The prefix that it was adopted from; empty: it was not adopted."""
        return self.record.adopted.prefix if self.record.adopted else ""

    @property
    def needs(self) -> str:
        """The path that must exist when its module is loaded."""
        return self.record.path

    @property
    def remark(self) -> str:
        """A remark to show after its prefix; empty: none."""
        return ""

    @property
    def commands(self) -> Mapping[str, str]:
        """The programs that it offers, by name, if these are not all of its prefix."""
        return {}

    @property
    def facts(self) -> dict[str, str]:
        """Additional facts to show."""
        return {}

    def shell(self, own: str) -> str:
        """The shell to start in it. `own`: the user's.

        Raises:
            MissingError: the revision has no shell.
        """
        return own

    def require_present(self) -> None:
        """Raises MissingError: files outside the yard were moved or removed."""

    def require_repairable(self) -> None:
        """Raises StackyardError: its files cannot be built again."""

    def require_sendable(self) -> None:
        """Raises InputError: it cannot be pushed to another yard."""

    def require_packable(self) -> None:
        """Raises InputError: its files cannot be put into an image for other machines."""

    def require_common_mount(self) -> None:
        """Raises InputError: its image cannot be mounted for all processes, but only for each command."""


@dataclass(frozen=True)
class Adopted(Built):
    """The files existed before, and stay in place: their owner may change or remove them at any time."""

    kind: ClassVar[OriginKind] = "adopted"
    again: ClassVar[Again] = "adopt"
    owns_files: ClassVar[bool] = False

    @property
    def outside(self) -> tuple[Path, ...]:
        """The adopted prefix."""
        return (Path(self.adopted_from),)

    @property
    def needs(self) -> str:
        """The adopted prefix."""
        return self.record.prefix

    @property
    def remark(self) -> str:
        """That it was adopted, and the tool that made it."""
        return f"adopted, {self.record.adopted.kind}" if self.record.adopted else ""

    def require_present(self) -> None:
        """Raises MissingError: the prefix no longer exists."""
        if not Path(self.record.prefix).is_dir():
            raise MissingError(
                f"{self.record.prefix} not found: its files were adopted where they were, and have been moved or "
                "removed since",
                hint="restore the directory; or use another revision (`stackyard list`), and remove this one: "
                "`stackyard remove REV`",
            )

    def require_repairable(self) -> None:
        """Raises StackyardError, always: its contents are not in a lock."""
        again = f"stackyard adopt {shlex.quote(self.record.prefix)} --name {self.record.stack}"
        raise StackyardError(
            f"cannot repair {self.record.module}: it was adopted, so it cannot be built again",
            hint=f"adopt it as it is now: `{again}`",
        )

    def require_sendable(self) -> None:
        """Raises InputError, always: its files are not in the yard."""
        where = f"its files are in {self.record.prefix}, not in the yard"
        raise InputError(
            f"cannot push {self.record.module}: it was adopted, and {where}",
            hint="adopt the same prefix there: `stackyard adopt`",
        )

    def require_packable(self) -> None:
        """Raises InputError, always: its files may change meanwhile."""
        raise InputError(
            f"{self.record.module} cannot be packed: it was adopted, and others may change its files",
            hint="list its packages in a file, and deploy that: `stackyard deploy FILE --image squashfs`",
        )


@dataclass(frozen=True)
class AdoptedImage(Built):
    """The files of an adopted prefix in an image of the yard, as they were then.

    They name each other by their former path, so the image is mounted there too, in the namespace of each command.
    """

    kind: ClassVar[OriginKind] = "adopted"
    again: ClassVar[Again] = "copy"

    @property
    def remark(self) -> str:
        """The prefix that it was adopted from, and the tool that made it."""
        return f"adopted from {self.adopted_from}, {self.record.adopted.kind}" if self.record.adopted else ""

    def require_repairable(self) -> None:
        """Raises StackyardError, always: its contents are not in a lock."""
        again = f"stackyard adopt --image {shlex.quote(self.adopted_from)} --name {self.record.stack}"
        raise StackyardError(
            f"cannot repair {self.record.module}: it was adopted, so it cannot be built again",
            hint=f"restore its image from a copy; or, if the prefix is still there, adopt it as it is now: `{again}`",
        )

    def _refuse(self, cannot: str, hint: str) -> InputError:
        where = f"its files name each other by {self.adopted_from}, where each command mounts them"
        return InputError(f"{self.record.module} cannot be {cannot}: it was adopted, and {where}", hint=hint)

    def require_sendable(self) -> None:
        """Raises InputError, always: the other machine may not have a directory at that path."""
        raise self._refuse("pushed", "adopt the same prefix there: `stackyard adopt --image`")

    def require_packable(self) -> None:
        """Raises InputError, always: a container has other files at that path."""
        raise self._refuse(
            "packed for other machines",
            "list its packages in a file, and deploy that: `stackyard deploy FILE --image squashfs`",
        )

    def require_common_mount(self) -> None:
        """Raises InputError, always: what is at that path now would be hidden from all."""
        raise self._refuse("mounted for all processes", "its commands mount it by themselves")


@dataclass(frozen=True)
class Wrapped(Built):
    """The files are a third-party image, kept in the yard."""

    kind: ClassVar[OriginKind] = "wrapped"
    again: ClassVar[Again] = "copy"

    @property
    def commands(self) -> Mapping[str, str]:
        """The wrapped commands, with their paths in the image."""
        wrapped: Mapping[str, str] = self.record.container["commands"]
        return wrapped

    @property
    def facts(self) -> dict[str, str]:
        """The image's identity, and the wrapped commands."""
        fields = self.record.container
        labels = " ".join(f"{key}={text}" for key, text in sorted(fields["labels"].items()))
        return {
            "image": f"{fields['source']} {fields['digest']}",
            "mode": fields["mode"],
            "commands": some(list(self.commands), 10),
            "labels": cut(labels, 200),
        }

    def shell(self, own: str) -> str:
        """The shell of the image, which may not have the user's."""
        if not self.record.container["shell"]:
            raise MissingError(
                f"the image of {self.record.module} has no shell",
                hint=f"its commands are {', '.join(list(self.commands)[:5])}",
            )
        return str(self.record.container["shell"])

    def require_sendable(self) -> None:
        """Raises InputError, always: the image can be wrapped again from its source."""
        raise InputError(
            f"cannot push {self.record.module}: it is a wrapped image", hint="wrap the image there: `stackyard wrap`"
        )

    def require_packable(self) -> None:
        """Raises InputError, always: it is an image already, without packages of a lock."""
        source = self.record.container["source"]
        raise InputError(f"{self.record.module} is a wrapped image itself", hint=f"use {source}")


def origin_of(record: BuildRecord) -> Built:
    """The origin of a revision, by its record."""
    if record.adopted is not None:
        return Adopted(record) if record.form.kind == "prefix" else AdoptedImage(record)
    return Wrapped(record) if record.container else Built(record)
