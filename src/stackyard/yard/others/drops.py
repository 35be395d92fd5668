"""What other accounts leave in a yard: notes on uses (`uses`), on yards below (`children`), counts of uses (`usage`).

Who may read the yard may put anything there: links, pipes, directories, a hundred thousand names. So each of these
directories is opened behind no link, only regular files in it are looked at, so many of each account, and each is read
up to a size (`host.files.at`). Everything else is named and left. What is over is unlinked, and never moved anywhere.
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
    """One of these directories, open.

    Attributes:
        files: the regular files in it, without those whose name begins with a dot: they are being written.
        strange: the names of everything else; `strangers` counts them all, and these are the first.
        crowded: the accounts that have more files in it than are looked at.
    """

    fd: int
    directory: Path
    files: dict[str, os.stat_result] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)
    strangers: int = 0
    crowded: set[int] = field(default_factory=set)

    def read(self, name: str, most: int) -> tuple[bytes, os.stat_result]:
        """What a file holds. Raises OSError: it is not a regular file any more, or larger."""
        return at.read_bounded(self.fd, name, most)

    def take(self, name: str, most: int, unread: dict[int, str]) -> tuple[bytes, os.stat_result] | None:
        """The same; None for what was removed meanwhile, is left, or cannot be read.

        Args:
            unread: gets why the last of these could not be, by account.
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
        """Remove one name, of whatever it is by now; a directory is left.

        Raises:
            OSError: it is a directory, or another account's in a directory of a third one.
        """
        os.unlink(name, dir_fd=self.fd)

    def leave(self, name: str) -> None:
        """Count a name among the strange ones."""
        self.strangers += 1
        if len(self.strange) < _NAMED:
            self.strange.append(name)

    @property
    def left(self) -> list[str]:
        """Files that this program did not write, a sentence for each, and one for those that are not named."""
        texts = [
            f"{self.directory.name}/{plain(name, LONG)}: not a file that stackyard writes; left"
            for name in self.strange
        ]
        more = self.strangers - len(self.strange)
        return texts + ([f"{self.directory.name}/: {more:,} more that stackyard does not write; left"] if more else [])


@contextmanager
def opened(directory: Path, most: int) -> Iterator[Drop]:
    """A directory of a yard in which other accounts leave files; without any where it does not exist.

    Args:
        most: files of each account that are looked at.

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
