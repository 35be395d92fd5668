"""The worker's side of `host.account.supervisor`: root's help for a process that has given up root's rights.

Root on a yard of its own needs no supervisor: it forks the children that read users' yards itself.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.account import asaccount, supervisor
from stackyard.host.run.identity import account_name

if TYPE_CHECKING:
    import socket

    from stackyard.host.account.reading import Reading
    from stackyard.host.run.processes import ProcessMatch

_MOST = 1 << 28
_MOST_DIGITS = 9  # of the number of an account
_asking: list[socket.socket] = []


def connect() -> None:
    """Take over the connection to the supervisor, so that programs started from here do not inherit it."""
    import socket

    number = os.environ.pop(supervisor.VARIABLE, "")
    if number.isdecimal() and os.geteuid() != 0:
        try:
            connection = socket.socket(fileno=int(number))
        except OSError:
            return
        if _peer(connection) == (os.getppid(), 0):
            connection.set_inheritable(False)
            _asking.append(connection)
        else:
            connection.detach()  # not root's: it stays open


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the account at the other end, from the kernel; for a daemon of root it is not the parent."""
    import socket

    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        return int(pid), int(uid)
    except OSError:
        return 0, -1


def require_rights(yard: Path) -> None:
    """Raise InputError if root is about to work on another account's yard.

    The command line never reaches this: it switches to that account before.
    """
    if yard in supervisor.OWN:
        return
    account = supervisor.owner(yard)
    if account not in (0, os.geteuid()) and not supervisor.FOR_THE_MACHINE:
        name = account_name(account)
        raise InputError(f"cannot work on {yard} as root: it belongs to {name}", hint=f"run it as {name}")


def is_active() -> bool:
    """Whether closed yards of users can be read: this process is root, or has a supervisor."""
    return bool(_asking) or os.geteuid() == 0


def caller() -> str:
    """The account that started this command as another one: ``root``, ``anna`` by sudo, ``anna, as root``; or empty."""
    by_sudo = _by_sudo()
    if not _asking:
        return by_sudo
    return f"{by_sudo}, as root" if by_sudo else "root"


def _by_sudo() -> str:
    number = os.environ.get("SUDO_UID", "")
    if not (number.isdecimal() and len(number) <= _MOST_DIGITS) or int(number) in (0, os.getuid()):
        return ""
    return account_name(int(number))


def read(requests: Sequence[tuple[int, Path]]) -> list[Reading]:
    """The contents of accounts' yards, each read under its account. Failures are in `problem`."""
    from stackyard.host.account.reading import Reading  # late, as below: most commands ask nothing

    pairs = [(uid, str(root)) for uid, root in requests]
    if not pairs:
        return []
    try:
        answers = asaccount.read_as(pairs) if os.geteuid() == 0 else _asked("read", pairs)
        return [Reading([tuple(map(str, item)) for item in items], str(problem)) for items, problem in answers]
    except (OSError, ValueError, TypeError) as error:
        return [Reading([], f"the supervisor does not answer: {error}") for _ in pairs]


def processes(roots: Iterable[Path]) -> tuple[list[ProcessMatch], int]:
    """The processes of this host that name something of a yard, and the number of inaccessible ones.

    Args:
        roots: the paths of the yard.
    """
    from stackyard.host.run.processes import ProcessMatch, naming, of_yard

    places = [os.fsencode(root) for root in roots]
    if _asking:
        try:
            rows, hidden = _asked("processes", [place.hex() for place in places])
            return [
                ProcessMatch(pid, user, name, frozenset(map(bytes.fromhex, paths))) for pid, user, name, paths in rows
            ], hidden
        except (OSError, ValueError, TypeError):
            pass  # as without a supervisor: it counts those that are hidden
    return naming(of_yard(places))


def empty(name: str) -> None:
    """Have a trash item of another account emptied under that account, and removed.

    Raises:
        StackyardError: that failed, or no supervisor answers.
    """
    try:
        why = _asked("empty", name) if _asking else "permission denied"
    except (OSError, ValueError) as error:
        why = f"the supervisor does not answer: {error}"
    if why:
        raise StackyardError(str(why))


def _asked(verb: str, value: object) -> Any:
    connection = _asking[0]
    connection.sendall(json.dumps([verb, value]).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(1 << 16)
        if not more or len(data) > _MOST:
            raise OSError("connection lost")
        data += more
    return json.loads(data)
