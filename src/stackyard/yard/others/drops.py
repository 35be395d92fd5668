"""Drop directories, in which other accounts leave files: uses (`uses`), yards below (`children`), counts (`usage`).

Any account that may read the yard can create anything there: links, pipes, directories, a hundred thousand names. So
these directories are opened without following links; only regular files are read, up to a number for each account and a
size (`host.files.at`). Everything else is reported and left. Outdated files are unlinked, never moved.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path

from stackyard.core.errors import cause
from stackyard.core.late import dataclass
from stackyard.core.quoting import LONG, plain
from stackyard.host.files import at

_NAMED = 3
_NOT_OURS = {errno.EFBIG, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO}
"""Larger than what this program writes, or exchanged for a directory, a link, a pipe."""


@dataclass
class Drop:
    """An open drop directory.

    Attributes:
        files: its regular files, except those with a leading dot, which are being written.
        strange: the names of everything else; `strangers` counts them all, and these are the first.
        crowded: the accounts with more files in it than the limit.
    """

    fd: int
    directory: Path
    files: dict[str, os.stat_result] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)
    strangers: int = 0
    crowded: set[int] = field(default_factory=set)

    def read(self, name: str, most: int) -> tuple[bytes, os.stat_result]:
        """The content of a file. Raises OSError: it is no longer a regular file, or larger."""
        return at.read_bounded(self.fd, name, most)

    def take(self, name: str, most: int, unread: dict[int, str]) -> tuple[bytes, os.stat_result] | None:
        """The content and status; None if it was removed meanwhile, is skipped, or cannot be read.

        Args:
            unread: receives the reason for an unreadable file, by account.
        """
        try:
            return self.read(name, most)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_OURS:
                self.leave(name)
            else:
                why = f"{cause(error).lower()}: {self.directory.name}/{plain(name, LONG)}"
                unread.setdefault(self.files[name].st_uid, why)
            return None

    def unlink(self, name: str) -> None:
        """Remove an entry, whatever its kind; a directory is left.

        Raises:
            OSError: it is a directory, or another account's in a directory of a third one.
        """
        os.unlink(name, dir_fd=self.fd)

    def leave(self, name: str) -> None:
        """Count an entry as foreign."""
        self.strangers += 1
        if len(self.strange) < _NAMED:
            self.strange.append(name)

    @property
    def left(self) -> list[str]:
        """A sentence for each foreign entry, and one for those beyond the limit."""
        texts = [
            f"{self.directory.name}/{plain(name, LONG)}: not a file that stackyard writes; left"
            for name in self.strange
        ]
        more = self.strangers - len(self.strange)
        return texts + ([f"{self.directory.name}/: {more:,} more that stackyard does not write; left"] if more else [])


@contextmanager
def opened(directory: Path, most: int) -> Iterator[Drop]:
    """An open drop directory; empty if it does not exist.

    Args:
        most: the limit of files for each account.

    Raises:
        OSError: it cannot be listed, or is a link.
    """
    with ExitStack() as stack:
        drop = Drop(-1, directory)
        with suppress(FileNotFoundError):
            top, name = stack.enter_context(at.parent(directory.parent, directory))
            drop.fd = stack.enter_context(at.opened(top, name))
            _list(drop, most)
        yield drop


def _list(drop: Drop, most: int) -> None:
    count: Counter[int] = Counter()
    with os.scandir(drop.fd) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                status = os.stat(entry.name, dir_fd=drop.fd, follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            if not stat.S_ISREG(status.st_mode):
                drop.leave(entry.name)
            elif count[status.st_uid] < most:
                count[status.st_uid] += 1
                drop.files[entry.name] = status
            else:
                drop.crowded.add(status.st_uid)
