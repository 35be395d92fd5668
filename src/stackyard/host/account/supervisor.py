"""Root's commands on another account's yard: this process forks, and the child works under that account.

No tree is changed with more rights than its owner has. Before anything else of this program is imported, root's process
determines the owner of the yard. If that is another account, a child switches to it permanently and restarts the
command line; this process only waits for it, and forks again for these requests:

    read a child under a user's account reads that user's yard (`host.account.reading`)
    processes  a child looks for processes of this host that name a revision of the yard (`host.run.processes`)
    empty a child under the owner of a trash item empties it; then the one empty directory is removed

The answers of the first two can only keep a revision.

In a yard of root's own, `host.files.at` alone protects. `host.account.supervised` is the worker's side. Little but the
standard library is imported.
"""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import select
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stackyard.core.quoting import harmless
from stackyard.host.account import asaccount
from stackyard.host.files import at
from stackyard.host.run.identity import account_name

if TYPE_CHECKING:
    import socket

VARIABLE = "STACKYARD_SUPERVISOR"
"""The number of the descriptor by which the worker asks."""
FOR_THE_MACHINE: list[bool] = []
"""Not empty where root's command changes nothing in a yard, and is root's own, independent of the yard's owner."""
OWN: list[Path] = []
"""The yard of the command line, once it was found to be root's own."""
LOOK_S = 10.0
TAKE_S = 10.0
"""How long the worker may leave an answer before there is none any more."""
_SHOWN = 4
_OURS = ("stackyard", "entry.py", "main.py")
"""How this program is called, by its file's name."""
_MOST_LINKS = 40
"""Links in a path; the kernel follows as many."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""What a terminal sends to all processes of the group in its foreground, of which the worker is none."""
_MOST_REQUEST = 1 << 22
_KEPT = ("PATH", "LANG", "LANGUAGE", "TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "TZ", "SHELL", "MODULEPATH",
         "MODULESHOME", "BASH_ENV", "SLURM_CONF", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
         "CURL_CA_BUNDLE", "SUDO_UID", "SUDO_USER", "LD_LIBRARY_PATH")  # fmt: skip
_KEPT_BEGIN = ("LC_", "LMOD_", "STACKYARD_", "PYTHON", "PIP_", "UV_")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_DROPPED = ("TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL", "KEY", "USER", "CONFIG", "CACHE")
"""Words in names of variables that hold a login, or a path of root's own."""


def supervise(yard: Path, *, giving: bool = False) -> None:
    """Return in the process that works on a yard: the same one if it is root's, else never.

    Args:
        yard: its directory; if it does not exist yet, the owner of the one above counts.
        giving: first give the owner files that an older version left there as root.
    """
    try:
        account = owner(yard)
    except TimeoutError as error:
        _say(f"error: {yard} does not answer: {error.strerror}\n  hint: its file system hangs (`df` would too): "
             "try again later, or ask its administrators")  # fmt: skip
        os._exit(1)
    if account == 0:
        _require_alone(yard)
        OWN.append(yard.absolute())
    else:
        if giving:
            _give(yard, account)
        sys.exit(_started(yard, account))


def _require_alone(yard: Path) -> None:
    """Exit if another account can replace the directory of root's yard, or a link to it."""
    for place, link in _on_the_way(yard):
        status = _status(place)
        account = status.st_uid if link is None or status.st_uid not in (0, _unmapped()) else link
        open_to = "" if status.st_mode & stat.S_ISVTX else _open_to(status)
        if account in (0, _unmapped()) and not open_to:
            continue
        who = account_name(account) if account not in (0, _unmapped()) else open_to
        hint = f"give it to {account_name(account)}, as whom root then works: chown -hR {account_name(account)} {yard}"
        _say(f"error: cannot work on {yard} as root: {who} may write to {place}, and could exchange it\n"
             f"  hint: {hint if account else f'chmod go-w {place}'}")  # fmt: skip
        sys.exit(2)


def _open_to(status: os.stat_result) -> str:
    """Other accounts that may write to a directory, as a phrase; root's group and empty groups do not count."""
    if status.st_mode & stat.S_IWOTH:
        return "every account"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, _unmapped()):
        with suppress(KeyError):  # a group without a name has no members that are known
            group = grp.getgrgid(status.st_gid)
            if {*group.gr_mem, *(account.pw_name for account in pwd.getpwall() if account.pw_gid == group.gr_gid)} - {
                "root"
            }:
                return f"group {group.gr_name}"
    return ""


def _on_the_way(yard: Path) -> Iterator[tuple[Path, int | None]]:
    """The directories through which a path is looked up, and the owner of the component if it is a link."""
    at_place, rest, links = Path("/"), list(reversed(yard.absolute().parts[1:])), 0
    while rest:
        name = rest.pop()
        if name == "..":
            at_place = at_place.parent
            continue
        place = at_place / name
        try:
            target, account = place.readlink(), place.lstat().st_uid
        except OSError:  # no link, or nothing yet
            yield at_place, None
            at_place = place
            continue
        yield at_place, account
        links += 1
        if links > _MOST_LINKS:  # the kernel does not follow it either
            return
        at_place = Path("/") if target.is_absolute() else at_place
        rest += reversed([part for part in target.parts if part != "/"])


def _give(yard: Path, uid: int) -> None:
    try:
        with at.directory(yard, yard) as directory:
            paths = asaccount.give(directory, uid)
    except OSError as error:
        _say(f"note: cannot look for what root left in {yard}: {error.strerror}")
        return
    if paths:
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        shown = ", ".join(ascii(path)[1:-1] for path in paths[:_SHOWN])
        _say(f"note: given to {account_name(uid)}, left by root: {shown}{more}")


def owner(yard: Path) -> int:
    """The owner of a yard: of the first of its directory and its parents that can be read.

    Root cannot look into a home on a file system with root_squash; the home's owner is known all the same. Accounts
    that a user namespace does not map count as its own: root of such a namespace has no rights there.

    Raises:
        TimeoutError: its file system does not answer.
    """
    uid = _looked(yard)
    return os.geteuid() if uid == _unmapped() else uid


def _looked(yard: Path) -> int:
    """The owner as determined by a child: a process that waits for a file system cannot always be ended."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(into, str(_owner(yard)).encode())
        finally:
            os._exit(0)
    os.close(into)
    with at.closing(out):
        if not select.select([out], [], [], LOOK_S)[0]:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(errno.ETIMEDOUT, f"timed out after {LOOK_S:g} s", str(yard))
        told = os.read(out, 64)
        os.waitpid(pid, 0)
    return int(told or os.geteuid())


def _owner(yard: Path) -> int:
    for place in (yard, *yard.absolute().parents):
        try:
            return place.stat().st_uid
        except OSError:
            continue
    return os.geteuid()


def _unmapped() -> int:
    """The id shown for accounts that this user namespace does not map; -1 if it maps all."""
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]:
            return -1
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except OSError:
        return -1


# --------------------------------------------------------------------------- the worker


def _started(yard: Path, uid: int) -> int:
    """Start the worker, and answer it until it ends; returns its exit status."""
    import socket  # late, as in `supervised`: root's other commands start without it

    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _work(yard, uid, theirs)
    theirs.close()
    for number in asaccount.FORWARDED:
        signal.signal(number, lambda number, _: _send(pid, number))
    for number in _OF_TERMINAL:
        signal.signal(number, lambda number, _: _send(-pid, number))
    signal.signal(signal.SIGTSTP, lambda *_: _stop(pid))
    status = _Server(ours, pid, yard, uid).serve()
    if os.WIFSIGNALED(status):  # end as it ended
        with suppress(OSError):  # SIGKILL has no other way
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _stop(pid: int) -> None:
    """Handle Ctrl-Z: the worker stops, then this process, until continued."""
    _send(-pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    _send(-pid, signal.SIGCONT)


def _work(yard: Path, uid: int, asking: socket.socket) -> NoReturn:
    """Switch to the owner of a yard and restart the command line: nothing of root stays in memory or open.

    It gets a new session, since processes in a terminal's session can type into it (ioctl TIOCSTI).
    """
    try:
        os.setsid()
        mode, program = _status(yard).st_mode, _program()
        home = asaccount.become(uid)
        os.umask(0o002 if mode & stat.S_ISGID and mode & stat.S_IWGRP else 0o022)
        unreadable = next((file for file in program if not os.access(file, os.R_OK)), None)
        if unreadable:
            _refuse(uid, unreadable)
        fd = asking.fileno()
        os.closerange(3, fd)
        os.closerange(fd + 1, 1 << 16)
        os.set_inheritable(fd, True)
        _start_anew(_environment(uid, home, fd))
    except BaseException as error:  # whatever it is: this child must not go on as root
        _say(f"error: cannot continue as {account_name(uid)}, who owns the yard: {error!r}")
    finally:
        os._exit(4)


def _status(place: Path) -> os.stat_result:
    """The status of a directory; zeros if it cannot be read."""
    try:
        return place.stat()
    except OSError:
        return os.stat_result((0,) * 10)


def _start_anew(environ: dict[str, str]) -> None:
    """Restart the same command line; if another program has called this one, only our part."""
    words, called = sys.argv[1:], os.path.basename(sys.argv[0])  # noqa: PTH119
    is_ours = called in _OURS and sys.orig_argv[-len(words) :] == words
    module = [*(["-I"] if sys.flags.isolated else []), "-m", "stackyard.cli.entry"]
    again = sys.orig_argv[1:] if is_ours else [*module, *words]
    os.execve(sys.executable, [sys.executable, *again], environ)


def _program() -> list[str]:
    """The files that the worker reads first: interpreter, library, this package, and the started program."""
    script = sys.argv[0] if os.path.isfile(sys.argv[0]) else __file__  # noqa: PTH113
    return [os.path.realpath(sys.executable), os.__file__, __file__, script]


def _refuse(uid: int, unreadable: str) -> NoReturn:
    name = account_name(uid)
    _say(
        f"error: cannot continue as {name}, who owns the yard: permission denied: {unreadable}\n"
        f"  hint: install stackyard where {name} can read it (scripts/install-site.sh), and run that"
    )
    os._exit(4)


def _say(text: str) -> None:
    sys.stderr.write(harmless(text) + "\n")
    sys.stderr.flush()


def _environment(uid: int, home: str, fd: int) -> dict[str, str]:
    """The worker's part of root's environment: display and search settings, and no secrets."""
    variables = {name: value for name, value in os.environ.items() if _is_kept(name, value)}
    mine = {"HOME": home, "USER": account_name(uid), "LOGNAME": account_name(uid)} if home else {}
    return {**variables, **mine, VARIABLE: str(fd)}


def _is_kept(name: str, value: str) -> bool:
    if name in _KEPT:
        return True
    is_known = name.lower() in _PROXIES or name.startswith(_KEPT_BEGIN)
    return is_known and "@" not in value and not any(word in name.upper() for word in _DROPPED)


# --------------------------------------------------------------------------- its requests


def _roots(value: Sequence[str]) -> list[bytes]:
    """The paths of a yard that a worker asks about; anything but a path would match unrelated processes."""
    roots = [bytes.fromhex(path) for path in value]
    if not all(root.startswith(b"/") and len(root) > 1 for root in roots):
        raise ValueError("not absolute")
    return roots


class _Server:
    """Answers one worker: a line of JSON for each line of JSON."""

    def __init__(self, asking: socket.socket, pid: int, yard: Path, uid: int) -> None:
        self.asking, self.pid, self.yard, self.uid = asking, pid, yard, uid
        self.waking, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> int:
        """Serve until the worker has ended; returns its status."""
        listening, text = True, b""
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return status
            sources: list[Any] = [self.waking, *([self.asking] if listening else [])]
            ready, _, _ = select.select(sources, [], [])
            if self.waking in ready:
                os.read(self.waking, 4096)
            if self.asking in ready:
                more = self._heard()
                text += more
                listening = bool(more) and len(text) <= _MOST_REQUEST
            while listening and b"\n" in text:
                line, _, text = text.partition(b"\n")
                listening = self._answer(line)

    def _heard(self) -> bytes:
        try:
            return self.asking.recv(1 << 16)
        except OSError:  # it ended without taking an answer
            return b""

    def _answer(self, line: bytes) -> bool:
        """Answer one request; False if the worker no longer listens, or the request is unknown."""
        try:
            verb, value = json.loads(line)
            answer = self._done(verb, value)
            self.asking.settimeout(TAKE_S)
            self.asking.sendall(json.dumps(answer).encode() + b"\n")
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, OSError):
            return False
        return True

    def _is_there(self) -> bool:
        """Whether the worker still runs."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def _done(self, verb: str, value: Any) -> Any:
        if verb == "read":
            return asaccount.read_as([(int(uid), str(root)) for uid, root in value], self._is_there)
        if verb == "processes":
            return asaccount.one_child(0, partial(asaccount.tell_processes, _roots(value)))
        if verb == "empty":
            return self._empty(str(value))
        raise ValueError(verb)

    def _empty(self, name: str) -> str:
        """Empty a trash item of the yard under its owner; returns why that failed, or an empty string."""
        try:
            at.component(name)
            with at.directory(self.yard, self.yard) as top:
                if os.fstat(top).st_uid != self.uid:
                    return "another directory is in the place of the yard"
                here = Path(f"/proc/self/fd/{top}")
                with at.directory(here, here / "trash" / name) as entry:
                    asaccount.empty_in(entry)
                    os.rmdir("doomed", dir_fd=entry)
        except (OSError, ValueError) as error:
            return str(error.strerror if isinstance(error, OSError) else error)
        return ""
