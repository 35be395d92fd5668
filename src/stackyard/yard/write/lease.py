"""Leases on parts of a yard, across hosts, without file locks, hard links or comparing clocks.

A lease is a directory of numbered claims, ``<yard>/leases/<name>/<n>/{owner.json,beat}``. The claim with the highest
number counts: it is held while it has an ``owner.json``, free without. Taking a lease means claiming the next number
(`claim.claim`), which only one process can do. The number is a fencing token: a holder that was taken over no longer
has the highest one, and `Lease.check` detects that before anything is made visible.

A holder counts as dead if it ran in the same boot and PID namespace and no longer exists; or if its heartbeat, a number
in ``beat``, did not change while another process watched it for `Pace.stale_s` seconds of its own monotonic clock.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run import clock
from stackyard.host.run.identity import Identity, account_name, this_process
from stackyard.yard import disk
from stackyard.yard.write import within
from stackyard.yard.write.claim import claim


@dataclass(frozen=True)
class Pace:
    """The interval of a holder's heartbeats, and the silence after which it is taken over; both in seconds."""

    beat_s: float = 10.0
    stale_s: float = 120.0

    @property
    def poll_s(self) -> float:
        """The polling interval of a waiting process."""
        return min(self.beat_s / 10, 1.0)


PACE = Pace()


@dataclass(frozen=True)
class Claim:
    """One claim of a lease. `owner` is None if it is free, or its file cannot be read (`damage` has the reason)."""

    directory: Path
    owner: Identity | None = None
    damage: str = ""

    @property
    def number(self) -> int:
        """Its number, which grows with every holder; 0 if the lease was never held."""
        return int(self.directory.name)

    @property
    def is_free(self) -> bool:
        """Whether its holder released it."""
        return self.owner is None and not self.damage

    @property
    def beat(self) -> bytes:
        """Its last heartbeat."""
        with suppress(OSError):
            return at.read_regular(self.directory / "beat")
        return b""

    def __str__(self) -> str:
        return str(self.owner or self.damage or "another process")


class Lease:
    """A claim that this process holds."""

    def __init__(self, name: str, directory: Path, number: int, owner: Identity) -> None:
        self.name = name
        self.directory = directory
        self.number = number
        self._claim, self._owner = directory / str(number), owner
        self._beats = 0

    def check(self) -> None:
        """Return if this process still holds it. Called before anything becomes visible to others.

        Raises:
            StackyardError: another process took it over after missing heartbeats; or that cannot be determined.
        """
        now, hint = latest(self.directory), "nothing was published by this command; run it again"
        if now.number == self.number and now.owner == self._owner:
            return
        if now.number == self.number and now.damage:
            raise StackyardError(f"cannot check the lease of {self.name}: {now.damage}", hint=hint)
        by = f" to {now}" if now.number > self.number and not now.is_free else ""
        raise StackyardError(
            f"lost the lease of {self.name}{by}: this process was stopped or cut off for too long",
            hint=hint,
        )

    def beat(self) -> None:
        """Write the next heartbeat in place; a removed claim is not created again."""
        self._beats += 1
        with suppress(OSError), at.directory(_top(self.directory), self._claim) as claim:
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with at.closing(os.open("beat", flags, dir_fd=claim)) as handle:
                os.pwrite(handle, f"{self._beats:020d}\n".encode(), 0)

    def release(self) -> None:
        """Release it. Removing a file works on a full disk too; the claim stays, so that numbers only grow.

        If the file system does not answer, it stays held until others find that this process has ended.
        """
        with suppress(OSError):
            within.unlink(_top(self.directory), self._claim / "owner.json")

    def withdraw(self) -> None:
        """Remove the claim, if its number had been used before."""
        _remove(self.directory, self._claim)

    def forget_earlier(self) -> None:
        """Remove earlier claims, but not that of a holder that may still be alive somewhere (`others` counts it)."""
        for other in claims(self.directory):
            if other.number < self.number and (other.is_free or (other.owner and other.owner.fate == "dead")):
                _remove(self.directory, other.directory)
        for half in self.directory.glob(".*"):
            owner = _read(half).owner
            if owner and owner.fate == "dead":
                _remove(self.directory, half)


@contextmanager
def lease(
    directory: Path,
    name: str,
    *,
    wait_s: float = 3600,
    on_wait: Callable[[str], None] | None = None,
    pace: Pace | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Lease]:
    """Hold a lease.

    Args:
        directory: its directory (`Yard.lease`).
        name: its name in messages: "the stack pytorch".
        wait_s: seconds to wait for another holder.
        on_wait: is called at once with a sentence about the present holder, and again for each later one.
        pace: the heartbeat interval and the permitted silence; `PACE` by default.
        stop: once it is set, waiting ends.

    Raises:
        StackyardError: another process held it for `wait_s` or until `stop`, or the file system failed.
    """
    pace = pace or PACE
    stop = stop or threading.Event()
    own_lease = _acquire(directory, name, time.monotonic() + wait_s, wait_s, on_wait or (lambda _: None), pace, stop)
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(own_lease, ended, pace.beat_s), daemon=True)
    keeper.start()
    try:
        yield own_lease
    finally:
        ended.set()
        own_lease.release()


def _keep(own_lease: Lease, ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        own_lease.beat()


def _acquire(
    directory: Path, name: str, deadline: float, wait_s: float, tell: Callable[[str], None], pace: Pace,
    stop: threading.Event,
) -> Lease:  # fmt: skip
    watch = _Watch(pace.poll_s)
    told = ""
    while True:
        last = latest(directory)
        if last.is_free or (last.owner and last.owner.fate == "dead") or watch.silence_s(last) > pace.stale_s:
            own_lease = take(directory, name, last)
            if own_lease is not None:
                own_lease.forget_earlier()
                return own_lease
            last = latest(directory)
        if str(last) != told:
            told = str(last)
            tell(f"waiting for {name}: held by {last}")
        if time.monotonic() > deadline:
            raise StackyardError(
                f"timed out after {wait_s:g} s waiting for {name}: held by {last}",
                hint=f"wait for it; if that process no longer exists, remove {last.directory / 'owner.json'}",
            )
        if stop.wait(pace.poll_s):
            raise StackyardError(f"{name} is not waited for any more: held by {last}")


class _Watch:
    """Measures a holder's silence by this process's own clock.

    Only the time between two checks counts, up to twice the usual interval: nothing was observed while this process was
    stopped or the file system did not answer.
    """

    def __init__(self, poll_s: float) -> None:
        self._most_s = 2 * poll_s
        self._seen: tuple[int, bytes] = (0, b"")
        self._at = 0.0
        self._silent_s = 0.0

    def silence_s(self, claim: Claim) -> float:
        """Seconds for which its heartbeat has not changed; 0 for a process that is known to run."""
        seen, now = (claim.number, claim.beat), time.monotonic()
        if seen != self._seen or (claim.owner and claim.owner.fate == "running"):
            self._silent_s = 0.0
        else:
            self._silent_s += min(now - self._at, self._most_s)
        self._seen, self._at = seen, now
        return self._silent_s


def take(directory: Path, name: str, after: Claim, about: Mapping[str, Any] | None = None) -> Lease | None:
    """Claim the number after a claim that is over; None if another process was first.

    Args:
        after: the `latest` one. It is checked again once the new claim is prepared beside it: if the directory was
            removed meanwhile (`idleleases`), the prepared claim is lost too, and numbers restart.
        about: more values for ``owner.json``.

    Raises:
        StackyardError: the file system failed.
    """
    me, number = this_process(), after.number + 1
    draft = directory / f".{number}.{me.token}"
    try:
        _top(directory).mkdir(parents=True, exist_ok=True)
        with at.parent(_top(directory), draft, make=True) as place:
            os.mkdir(place[1], dir_fd=place[0])
            with at.opened(*place) as inner:
                _write(inner, "beat", f"{0:020d}\n")
                _write(inner, "owner.json", json.dumps({**(about or {}), **me.to_json()}))
        if latest(directory) != after or not claim(draft, directory / str(number)):
            return None
    except OSError as error:
        if isinstance(error, (FileNotFoundError, FileExistsError)) and disk.is_there(directory.parent):
            return None  # the whole directory was removed meanwhile: before mkdir, or while mkdir looked again
        raise disk.failure(error, f"taking the lease of {name}") from error
    finally:
        _remove(directory, draft)
    own_lease = Lease(name, directory, number, me)
    if latest(directory).number != number:  # claims above it were made and this one removed while this process slept
        own_lease.withdraw()
        return None
    return own_lease


def _top(directory: Path) -> Path:
    """The directory below which no link is followed to a lease: the yard; for a build's lease, its stack's."""
    return directory.parents[1]


def _write(directory: int, name: str, text: str) -> None:
    with at.open_new(directory, name, 0o666) as stream:
        stream.write(text.encode())


def _remove(directory: Path, claim: Path) -> None:
    with suppress(OSError):
        disk.delete_tree(claim, _top(directory))


def is_occupied(directory: Path) -> bool:
    """Whether another holder of this lease may still be writing, however long it has been silent."""
    return not _is_over(latest(directory))


def _is_over(last: Claim) -> bool:
    return bool(last.is_free or (last.owner and (last.owner.is_this_process or last.owner.fate == "dead")))


def occupy(directory: Path, name: str, about: Mapping[str, Any] | None = None) -> Lease | None:
    """Take a lease without waiting, unless it `is_occupied`: for a directory in which nothing can stop a late writer.

    A build on another host that seems dead may continue at any time. So its directory is never reused.
    """
    last = latest(directory)
    return take(directory, name, last, about) if _is_over(last) else None


def claims(directory: Path) -> list[Claim]:
    """All existing claims of a lease, the highest last."""
    return [_read(directory / str(number)) for number in sorted(_numbers(directory))]


def latest(directory: Path) -> Claim:
    """The highest claim; number 0 and free without claims."""
    return _read(directory / str(max(_numbers(directory), default=0)))


def _numbers(directory: Path) -> list[int]:
    return [int(name) for name in disk.names(directory) if name.isdecimal()]


def _read(directory: Path) -> Claim:
    file = directory / "owner.json"
    try:
        owner = Identity.from_json(json.loads(at.read_regular(file)))
    except FileNotFoundError:
        return Claim(directory)
    except OSError as error:
        return Claim(directory, damage=f"a process of {_owner_of(directory)}: cannot read {file}: {error.strerror}")
    except ValueError:
        owner = None
    return Claim(directory, owner, "" if owner else f"a process of {_owner_of(directory)}: {file} is damaged")


def _owner_of(directory: Path) -> str:
    try:
        return account_name(directory.stat().st_uid)
    except OSError:
        return "another user"


def others(directory: Path, mine: Lease | None = None) -> list[Claim]:
    """Holders of a lease besides `mine` that may still be active, including those taken over while silent."""
    return [
        other
        for other in claims(directory)
        if not other.is_free
        and not (mine and other.number == mine.number)
        and not is_abandoned(other.directory / "owner.json", other.directory / "beat")
    ]


def is_abandoned(file: Path, sign: Path) -> bool:
    """Whether the process named in a file is dead; one that cannot be looked up counts as dead after a day.

    Args:
        file: an identity as JSON.
        sign: the file that the process changed last. A day exceeds any difference between clocks.
    """
    owner = _owner(file)
    if owner and owner.fate != "unknown":
        return owner.fate == "dead"
    try:
        return time.time() - sign.stat().st_mtime > clock.DAY_S
    except OSError:
        return False


def _owner(file: Path) -> Identity | None:
    with suppress(OSError, ValueError):
        return Identity.from_json(json.loads(at.read_regular(file)))
    return None
