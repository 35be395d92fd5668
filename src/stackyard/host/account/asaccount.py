"""Child processes of root that switch to another account and work with its rights; their answers are untrusted data.

Answers are limited in time and size; information on users' yards and processes can only keep a revision. Standard
library only.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import resource
import select
import signal
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

from stackyard.host.files import at

ANSWER_S, MOST_ANSWER = 5.0, 1 << 20
_AT_ONCE = 32
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
"""What a supervisor passes on, and its children hear as any process."""
_MEMORY, _CPU_S = 1 << 29, 5
_EMPTYING_S = 3600
_NOGROUP = 65534
_DEEPEST = 100


def account_of(uid: int) -> tuple[int, list[int], str]:
    """Group, groups and home of an account; no groups for an unlisted one."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return _NOGROUP, [], ""
    return entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid), entry.pw_dir


def become(uid: int) -> str:
    """Switch to an account irrevocably; returns its home. The number of root changes nothing."""
    gid, groups, home = account_of(uid)
    if uid == 0:
        return home
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        os._exit(70)
    return home


def _as(uid: int, work: Callable[[], None]) -> NoReturn:
    """Run a function in this child under an account, and exit."""
    try:
        for number in (*FORWARDED, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.umask(0o077)
        os.chdir("/")
        become(uid)
        work()
    finally:
        os._exit(0)


def read_as(requests: Sequence[tuple[int, str]], is_wanted: Callable[[], bool] = lambda: True) -> list[Any]:
    """The contents of accounts' yards, each read by a child of that account (`host.account.reading`): plain lists.

    A child has `ANSWER_S` seconds, and may answer `MOST_ANSWER` bytes; one that hangs in the kernel is left behind.

    Args:
        is_wanted: whether the answer is still wanted: called before each batch of 32.

    Raises:
        BrokenPipeError: the answer is no longer wanted.
    """
    answers: list[Any] = []
    _load()
    for start in range(0, len(requests), _AT_ONCE):
        if not is_wanted():
            raise BrokenPipeError
        answers += _answers(
            [_Child(uid, partial(_told, uid, root)) for uid, root in requests[start : start + _AT_ONCE]]
        )
    return answers


@cache
def _load() -> None:
    """Load the children's modules in advance: the account of a child may not read this program."""
    from stackyard.host.account.reading import read_yard

    read_yard(Path("/"))
    _used()


def one_child(uid: int, tell: Callable[[int], None]) -> Any:
    """The answer of one child. Raises ValueError if it failed."""
    answer, problem = _answers([_Child(uid, tell)])[0]
    if problem:
        raise ValueError(problem)
    return answer


def _answers(children: Sequence[_Child]) -> list[Any]:
    _listen({child.out: child for child in children})
    return [child.answer() for child in children]


def _listen(children: dict[int, _Child]) -> None:
    """Receive the children's answers until each has ended, exceeded its limit, or the time is over."""
    until = time.monotonic() + ANSWER_S
    while children:
        left = until - time.monotonic()
        ready = select.select(list(children), [], [], left)[0] if left > 0 else []
        if not ready:
            for child in children.values():
                child.problem = f"timed out after {ANSWER_S:g} s"
            return
        for fd in ready:
            if not children[fd].hear():
                del children[fd]


class _Child:
    """A child working under an account, its answer, and why the answer is incomplete."""

    def __init__(self, uid: int, tell: Callable[[int], None]) -> None:
        self.out, into = os.pipe()
        self.data, self.problem = b"", ""
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.out)
            _as(uid, lambda: tell(into))
        os.close(into)

    def hear(self) -> bool:
        """Receive pending data; False if no more is wanted."""
        more = os.read(self.out, 1 << 16)
        self.data += more
        if len(self.data) > MOST_ANSWER:
            self.problem = f"an answer of more than {MOST_ANSWER:,} bytes"
        return bool(more) and not self.problem

    def answer(self) -> Any:
        """Its items, and why the answer is incomplete."""
        os.close(self.out)
        os.kill(self._pid, signal.SIGKILL)  # also what its account has stopped
        os.waitpid(self._pid, os.WNOHANG if self.problem else 0)
        try:
            return [[], self.problem] if self.problem else json.loads(self.data)
        except ValueError:
            return [[], "the process that reads it failed"]


def _told(uid: int, root: str, into: int) -> None:
    from stackyard.host.account.reading import read_yard

    _limit()
    with suppress(OSError):  # what cannot be looked at is reported by the reading
        if os.stat(root).st_uid != uid:  # noqa: PTH116
            _tell(into, [[], "it belongs to another account"])
            return
    reading = read_yard(Path(root))
    _tell(into, [reading.items, reading.problem])


def tell_processes(roots: Sequence[bytes], into: int) -> None:
    """Report the processes that name something of a yard; for `one_child`."""
    from stackyard.host.run.processes import naming, of_yard

    _limit()
    seen, hidden = naming(of_yard(roots))
    named = [(process.pid, process.user, process.name, [path.hex() for path in process.paths]) for process in seen]
    _tell(into, [[named, hidden], ""])


def _limit() -> None:
    most = _used() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))


def _used() -> int:
    """The size of this process's address space in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def _tell(into: int, value: object) -> None:
    with os.fdopen(into, "wb") as stream:
        stream.write(json.dumps(value).encode())


def empty_in(entry: int) -> None:
    """Empty the directory ``doomed`` of a trash entry in a child under its owner.

    Remaining files make the removal of the directory fail. A child stopped by its account is not waited for.
    """
    with at.opened(entry, "doomed") as doomed:
        uid, pid = os.fstat(doomed).st_uid, os.fork()
        if pid == 0:
            _as(uid, lambda: _emptied(doomed))
        until = time.monotonic() + _EMPTYING_S
        while (ended := os.waitpid(pid, os.WNOHANG | os.WUNTRACED)) == (0, 0) and time.monotonic() < until:
            time.sleep(0.01)
        if ended[0] == 0 or os.WIFSTOPPED(ended[1]):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)


def _emptied(directory: int) -> None:
    os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) | stat.S_IRWXU)
    for name in os.listdir(directory):
        with suppress(OSError):
            at.remove_tree(directory, name)


def give(top: int, uid: int) -> list[str]:
    """Give an account the files that root left in its yard, by descriptors; returns their paths.

    Files stay root's if they have hard links elsewhere, run with root's rights, are behind a mount, are nested too
    deeply, or are accessible to root only: the account may have moved them from another directory. A concurrent link
    could falsify the link count, so files with several links are given only if the kernel forbids accounts to link
    root's files (fs.protected_hardlinks).

    Raises:
        Refused: the directory does not belong to the account, which may have replaced its yard by a link to another
            one.
    """
    if os.fstat(top).st_uid != uid:
        raise at.UnexpectedFileError(errno.EPERM, "it is another directory than it was")
    names = Counter(_inode(status) for _, status, _ in _left(top, ""))
    most = 1 << 30 if _protected() else 1
    paths: list[str] = []
    for path, status, fd in _left(top, ""):
        is_whole = stat.S_ISDIR(status.st_mode) or status.st_nlink == min(names[_inode(status)], most)
        if is_whole and not _is_roots_alone(status):
            os.chown(f"/proc/self/fd/{fd}", uid, os.fstat(top).st_gid)
            paths.append(path)
    return paths


def _is_roots_alone(status: os.stat_result) -> bool:
    """Whether a file or directory of root runs with its rights, or is closed to groups and others."""
    if stat.S_ISLNK(status.st_mode):
        return False
    runs = stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID)
    return bool(runs or not status.st_mode & 0o077)


def _left(directory: int, path: str) -> Iterator[tuple[str, os.stat_result, int]]:
    """Root's files, directories and links below an open directory, each open during the iteration."""
    for name in at.names(directory) if path.count("/") < _DEEPEST else ():
        try:
            fd = os.open(name, at.PEEK, dir_fd=directory)
        except OSError:
            continue
        with at.closing(fd):
            status = os.fstat(fd)
            kinds = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
            if (
                status.st_uid == 0
                and stat.S_IFMT(status.st_mode) in kinds
                and at.mount_of(fd) == at.mount_of(directory)
            ):
                yield path + name, status, fd
            if stat.S_ISDIR(status.st_mode):
                with suppress(OSError), at.opened(directory, name) as below:
                    yield from _left(below, f"{path}{name}/")


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _protected() -> bool:
    with suppress(OSError):
        return Path("/proc/sys/fs/protected_hardlinks").read_text(encoding="ascii").strip() == "1"
    return False
