"""The identity of a process, precise enough for another one, on any host, to tell whether it still runs.

A process id alone is not enough: it may belong to another process by now, to one of another PID namespace, or to one of
another machine with the same host name. Only a process of the same boot and the same namespaces can be looked up; the
state of any other is unknown here, and only its silence can be observed.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from stackyard.core.digest import sha256_hex
from stackyard.core.late import dataclass
from stackyard.core.quoting import plain

Fate = Literal["running", "dead", "unknown"]
_MOST_PIDS = 1 << 22  # PID_MAX_LIMIT of the kernel
_MOST_SHOWN = 80


@dataclass(frozen=True)
class Identity:
    """A process.

    Attributes:
        started: its start time in ticks since boot, as the kernel has it; empty where /proc does not show it.
        place: boot id, PID and time namespace, within which `pid` and `started` are unique; empty if unknown.
        since: when its task began, in local time; for display only, never compared.
        token: random, so that two threads or two attempts of one process differ.
    """

    user: str
    host: str
    pid: int
    started: str
    place: str
    since: str
    token: str

    def __str__(self) -> str:
        user, host, since = (plain(text, _MOST_SHOWN) for text in (self.user, self.host, self.since))
        return f"{user} on {host}, process {self.pid}, since {since}"

    def to_json(self) -> dict[str, Any]:
        """The identity as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Identity | None:
        """Parse the output of `to_json`, possibly among other keys; None for anything else."""
        if not isinstance(value, Mapping):
            return None
        fields = {name: value.get(name) for name in cls.__dataclass_fields__}
        texts = [field for name, field in fields.items() if name != "pid"]
        pid = fields["pid"]
        if not all(isinstance(text, str) for text in texts) or type(pid) is not int or not 0 < pid <= _MOST_PIDS:
            return None
        return cls(**fields)  # type: ignore[arg-type]

    @property
    def is_this_process(self) -> bool:
        """Whether it is this process."""
        return bool(self.place) and (self.pid, self.started, self.place) == (os.getpid(), _start("self"), _place())

    @property
    def fate(self) -> Fate:
        """Its present state: ``running``, ``dead`` for certain, or ``unknown`` from here."""
        if not self.place or self.place != _place():
            return "unknown"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "dead"
        except PermissionError:  # it exists and belongs to another user
            pass
        now = _start_of(self.pid)
        if not now or not self.started:  # hidden, e.g. by the mount option hidepid
            return "unknown"
        return "running" if now == self.started else "dead"

    @property
    def before_restart(self) -> bool:
        """Whether it ran on a host of this name before the present boot: then it has ended.

        Two hosts that share a name are the exception.
        """
        boot_id, here = self.place.partition(" ")[0], _place().partition(" ")[0]
        return self.host == hostname() and bool(boot_id) and bool(here) and boot_id != here


def whoami() -> str:
    """The name of your account, independent of LOGNAME and USER."""
    return account_name(os.getuid())


def hostname() -> str:
    """The name of this host."""
    return os.uname().nodename


def this_process() -> Identity:
    """The identity of this process, with a new token."""
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return Identity(whoami(), hostname(), os.getpid(), _start("self"), _place(), since, os.urandom(8).hex())


@cache
def process_token() -> str:
    """A token unique among all processes of all hosts, for temporary files in shared directories."""
    return os.urandom(6).hex()


MARK = r"[0-9a-f]{6}-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{6}"


def mark() -> str:
    """A new token unique to this process, from which `fate_of` tells whether it still runs."""
    return f"{_mark_of(os.getpid())}-{os.urandom(3).hex()}"


def own_mark() -> str:
    """A `mark` of this process that is always the same."""
    return f"{_mark_of(os.getpid())}-{process_token()[:6]}"


@lru_cache(maxsize=1)
def _mark_of(pid: int) -> str:
    """The constant part of this process's marks; different for each process, also after a fork."""
    place, started = _place(), _start("self")
    known = f"{pid:x}-{int(started):x}" if place and started.isdecimal() else "0-0"
    return f"{_in_short(place)}-{known}"


def fate_of(word: str) -> Fate:
    """The state of the process of a `mark`; ``unknown`` for other hosts, and for invalid marks."""
    if not re.fullmatch(MARK, word):
        return "unknown"
    place, pid, started, token = word.split("-")
    here = _place()
    number = int(pid, 16)
    if place != _in_short(here) or not 0 < number <= _MOST_PIDS:
        return "unknown"
    return Identity("", "", number, str(int(started, 16)), here, "", token).fate


def _in_short(place: str) -> str:
    return sha256_hex(place.encode())[:6]


@cache
def boot() -> str:
    """A token for this boot of this machine; one unique to this process if the kernel does not show the boot id."""
    try:
        return sha256_hex(_boot_id().encode())[:12]
    except OSError:
        return process_token()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def account_name(uid: int) -> str:
    """The name of an account by its id, independent of $USER; the id if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _place() -> str:
    try:
        return f"{_boot_id()} {Path('/proc/self/ns/pid').readlink()} {_time_namespace()}"
    except OSError:
        return ""


def _time_namespace() -> str:
    """The time namespace (Linux 5.6), which shifts start times; a constant if the kernel has none."""
    try:
        return str(Path("/proc/self/ns/time").readlink())
    except FileNotFoundError:
        return "time"


def _start_of(pid: int) -> str:
    """The start time of a process of this namespace; empty if not shown, or if /proc belongs to another namespace."""
    try:
        shown = int(Path("/proc/self").readlink().name)
    except (OSError, ValueError):
        return ""
    return _start(str(pid)) if shown == os.getpid() else ""


def _start(name: str) -> str:
    """The start time in /proc/<name>/stat (proc(5), field 22); ``ended`` for a process that only waits to be reaped."""
    words = stat_words(name)
    if len(words) < 20:
        return ""
    return "ended" if words[0] in "ZX" else words[19]


def stat_words(name: str) -> list[str]:
    """State, parent, group and the rest of /proc/<name>/stat (proc(5)); empty if the process has ended."""
    try:
        return Path("/proc", name, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
