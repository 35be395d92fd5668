"""The origin of a generation: the account, the host, the command and the files.

It answers the questions that staff ask each other: who did this, from where, with which version of which file?
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from stackyard import __version__
from stackyard.core.digest import sha256_hex
from stackyard.core.late import dataclass
from stackyard.host.account import supervised
from stackyard.host.files import at
from stackyard.host.run.identity import hostname, whoami


@dataclass(frozen=True)
class UsedFile:
    """A file that a deploy read. `sha256` is its content's hash at that time; empty: it could not be read."""

    path: str
    sha256: str = ""


@dataclass(frozen=True)
class Origin:
    """The origin of a generation. Fields are empty in generations of versions that did not record them.

    Attributes:
        user: the name of the account, or its number if it has none.
        uid: the account's number; -1 where it was not recorded.
        sudo: the account that switched to this one: ``root``, ``alice`` by sudo, ``alice, as root``; empty: no other
            account.
        host: the name of the machine.
        program: the version of this program.
        command: the command line, without secrets.
        files: the files that a deploy read.
    """

    user: str = ""
    uid: int = -1
    sudo: str = ""
    host: str = ""
    program: str = ""
    command: tuple[str, ...] = ()
    files: tuple[UsedFile, ...] = ()

    @property
    def who(self) -> str:
        """The account for display: ``alice``, or ``alice, as root`` where she used sudo; ``root, as stacks``."""
        return f"{self.sudo}, as {self.user}" if self.sudo else self.user


def origin(command: Iterable[str] = (), files: Iterable[str | Path] = ()) -> Origin:
    """The origin for a publication of this process.

    Args:
        command: the words of the command line, already without secrets.
    """
    uid = os.getuid()
    return Origin(
        user=whoami(),
        uid=uid,
        sudo=supervised.caller(),
        host=hostname(),
        program=__version__,
        command=tuple(command),
        files=tuple(UsedFile(str(path), _sha256(Path(path))) for path in files),
    )


def _sha256(path: Path) -> str:
    try:
        return sha256_hex(at.read_regular(path))
    except OSError:
        return ""
