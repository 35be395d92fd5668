"""A directory of another account, which exchanges what is in it while this process works there as root.

    arena = Arena(common, user)
    arena.tried(lambda directory: remove(directory), "link", "files")      # what went wrong: a set of sentences

Outside of the directory is what only root may read, change or remove: whether it is as it was is seen afterwards. The
other account links to it, or puts pipes and directories of its own in the place of files.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from support import programs
from support.accounts import Account

Kind = Literal["link", "link to a directory", "pipe", "folder"]
Content = Literal["files", "folders"]
KINDS: tuple[Kind, ...] = ("link", "link to a directory", "pipe", "folder")
CONTENTS: tuple[Content, ...] = ("files", "folders")
SECRET = b"only root reads this\n"
COUNT = 100
_PASSES, _MOST_S = 3, 20


class Arena:
    """The directory `content` of an account, in a directory of root's with `secrets`; `copy` is where copies go."""

    def __init__(self, place: Path, account: Account) -> None:
        programs.need("gcc")
        self.place, self.account = place, account
        self.content, self.copy, self._secrets = place / "content", place / "copy", place / "secrets"
        self._program = place / "exchange"
        subprocess.run(["gcc", "-O2", "-o", self._program, Path(__file__).with_name("exchange.c")], check=True)

    def tried(self, act: Callable[[Path], object], kind: Kind, content: Content) -> set[str]:
        """Let root do something with `content` some times, while its owner exchanges what is in it."""
        self._prepare(content)
        target = self._secrets / ("below" if kind == "link to a directory" else "secret")
        words = [self._program, self.content, str(COUNT), kind.partition(" ")[0], target]
        racer = self.account.popen(*words, cwd=self.place, stdout=subprocess.PIPE)
        try:
            assert racer.stdout and racer.stdout.readline() == "ready\n"
            hung = self._act(act)
        finally:
            racer.kill()
            racer.communicate()
        return self._harm() | hung

    def _prepare(self, content: Content) -> None:
        for directory in (self.content, self._secrets, self.copy):
            shutil.rmtree(directory, ignore_errors=True)
        (self._secrets / "below").mkdir(parents=True)
        for secret in (self._secrets / "secret", self._secrets / "below" / "f"):
            secret.write_bytes(SECRET)
            secret.chmod(0o600)
        (self._secrets / "below").chmod(0o700)
        self.copy.mkdir(mode=0o700)
        self.content.mkdir()
        for path in [self.content / str(number) for number in range(COUNT)]:
            path.touch() if content == "files" else path.mkdir()
            if content == "folders":
                (path / "f").touch()
                os.chown(path / "f", self.account.uid, self.account.gid)
            os.chown(path, self.account.uid, self.account.gid)
            path.chmod(0o4755 if content == "files" else 0o077)
        os.chown(self.content, self.account.uid, self.account.gid)

    def _act(self, act: Callable[[Path], object]) -> set[str]:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_MOST_S)
            for _ in range(_PASSES):
                with suppress(OSError, shutil.Error):
                    act(self.content)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return {"hung"} if os.WIFSIGNALED(status) else set()

    def _harm(self) -> set[str]:
        found = set()
        for path, mode in (("secret", 0o600), ("below", 0o700), ("below/f", 0o600)):
            try:
                status = (self._secrets / path).stat()
            except FileNotFoundError:
                found.add(f"{path} was removed")
                continue
            if stat.S_IMODE(status.st_mode) != mode:
                found.add(f"{path} got mode {stat.S_IMODE(status.st_mode):04o}")
        for directory, _, names in os.walk(self.copy):
            paths = [Path(directory, name) for name in names]
            if any(path.is_file() and not path.is_symlink() and path.read_bytes() == SECRET for path in paths):
                found.add("a secret was copied")
        return found
