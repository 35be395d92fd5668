"""A worker that its account has taken over asks the supervisor: what it learns, and how it could end or hold root."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stackyard.host.account import asaccount, supervisor
from stackyard.host.account.reading import read_yard
from stackyard.host.files import at
from support import programs
from support.accounts import Accounts

Hostile = Callable[[socket.socket], object]


def served(hostile: Hostile, within_s: float = 30) -> int:
    """How a supervisor ends whose worker does this, and exits with 7."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_served(hostile))
        finally:
            os._exit(99)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    pytest.fail(f"the supervisor has not ended after {within_s:g} s")


def _served(hostile: Hostile) -> int:
    ours, theirs = socket.socketpair()
    worker = os.fork()
    if worker == 0:
        try:
            ours.close()
            hostile(theirs)
        finally:
            os._exit(7)
    theirs.close()
    return os.waitstatus_to_exitcode(supervisor._Server(ours, worker, Path("/nowhere"), 12345).serve())


def unread(asking: socket.socket) -> None:
    """End without having taken an answer."""
    asking.sendall(b'["empty", "x"]\n')
    time.sleep(0.3)


def infinite(asking: socket.socket) -> None:
    """Ask for the yard of an account that has no number."""
    asking.sendall(b'["read", [[1e999, "/x"]]]\n')
    time.sleep(0.3)


def flood(asking: socket.socket) -> None:
    """End, and leave a process behind that asks, and takes no answer."""
    if os.fork() == 0:
        try:
            while True:
                asking.sendall(b'["empty", "x"]\n' * 2000)
        finally:
            os._exit(0)
    time.sleep(0.5)


def everything(asking: socket.socket) -> None:
    """Ask for more than can be read in hours, and end."""
    asking.sendall(json.dumps(["read", [[1, "/"]] * 100_000]).encode() + b"\n")
    time.sleep(0.5)


@pytest.mark.parametrize("hostile", [unread, infinite, flood, everything])
def test_a_supervisor_ends_as_its_worker_does(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "TAKE_S", 1.0)
    assert served(hostile) == 7


def test_a_file_that_the_account_mounts_is_not_read_for_it(accounts: Accounts) -> None:
    """In a name space of its own an account mounts what it cannot read, and names that by ``/proc/PID/root``."""
    programs.need("unshare")
    anna = accounts.user("anna")
    uses = anna.home / "yard" / "uses"
    anna.run("mkdir", "-p", uses)
    anna.run("touch", uses / "x.json")
    script = f"mount --bind /etc/shadow {uses}/x.json && echo mounted && exec sleep 60"
    with anna.popen("unshare", "-Urm", "sh", "-c", script, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "mounted\n":
            pytest.skip("an account may not make a user namespace here")
        there = Path(f"/proc/{process.pid}/root{uses.parent}")
        answers = asaccount.read_as([(0, str(there))])
        found = read_yard(there)
        process.kill()
    assert answers == [[[], "it belongs to another account"]]
    assert found == ([], "uses/x.json: invalid cross-device link")  # nor where the owner is right


@pytest.mark.parametrize("root", ["", "/", "stacks"])
def test_processes_are_asked_about_paths_alone(root: str) -> None:
    with pytest.raises(ValueError, match="not absolute"):
        supervisor._roots([root.encode().hex()])


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_what_is_mounted_of_the_same_device_is_another_mount(
    common: Path, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.need("mount")
    if kernel == "old":
        monkeypatch.setattr(at, "_open_same_mount", lambda *_: None)
    for name in ("here", "there"):
        (common / name).mkdir()
        (common / f"{name}.json").write_text(name)
    for name in ("there", "there.json"):
        subprocess.run(["mount", "--bind", common / name, common / name.replace("there", "here")], check=True)
    try:
        with at.directory(common, common) as top:
            for name, flags in (("here", at.DIR), ("here.json", at.READ)):
                with pytest.raises(OSError, match="cross-device"):
                    at.open_directory(top, name, flags)
            assert at.read_bounded(top, "there.json", 10)[0] == b"there"
    finally:
        for name in ("here", "here.json"):
            subprocess.run(["umount", common / name], check=True)


def test_a_yard_that_its_owner_exchanged_is_given_to_nobody(
    accounts: Accounts, common: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the look at whose a yard is and the gift its owner can put a link in its place."""
    service = accounts.user("stacks")
    private = common / "private"
    private.mkdir()
    (private / "file").write_text("root's")
    link = service.home / "yard"
    link.symlink_to(private)
    supervisor._give(link, service.uid)
    assert (private.stat().st_uid, (private / "file").stat().st_uid) == (0, 0)
    assert "cannot look for what root left" in capsys.readouterr().err


def test_the_supervisor_says_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    supervisor._say("error: /x\x1b[2J\u202e/y does not answer")
    assert "\x1b" not in (said := capsys.readouterr().err) and "\u202e" not in said


@pytest.mark.parametrize("named", ["link", "link/yard", "folder/../link/yard", "twice/yard"])
def test_a_yard_of_roots_behind_a_link_of_another_account(accounts: Accounts, common: Path, named: str) -> None:
    """Its owner could exchange the link at any time, and root would go on as root in the directory of its choice."""
    anna = accounts.user("anna")
    (common / "yard").mkdir()
    anna.run("mkdir", "folder")
    anna.run("ln", "-s", common / "yard" if named == "link" else common, "link")
    (common / "twice").symlink_to(anna.home / "link")
    yard = (common if named.startswith("twice") else anna.home) / named
    done = accounts.as_root("--yard", yard, "gc", expect=2)
    assert f"{anna.name} may write to {anna.home}, and could exchange it" in done.err
    assert list((common / "yard").iterdir()) == []


def test_a_link_of_another_account_in_a_directory_of_all(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna")
    (common / "open").mkdir()
    (common / "open").chmod(0o1777)
    (common / "yard").mkdir()
    anna.run("ln", "-s", common / "yard", common / "open" / "link")
    (common / "open" / "mine").symlink_to(common / "yard")
    accounts.as_root("--yard", common / "open" / "link", "list", expect=2)
    accounts.as_root("--yard", common / "open" / "mine", "list")


def test_a_private_file_of_roots_that_its_owner_moved_there_is_not_given(accounts: Accounts) -> None:
    """Whoever owns a directory can move a file of root's out of it, and could read it once it were given."""
    service = accounts.user("stacks")
    service.run("mkdir", "yard")
    for name, mode in (("keytab", 0o600), ("log", 0o644)):
        (service.home / name).write_text("root's")
        (service.home / name).chmod(mode)
        service.run("mv", name, "yard")
    supervisor._give(service.home / "yard", service.uid)
    assert (service.home / "yard" / "keytab").stat().st_uid == 0
    assert (service.home / "yard" / "log").stat().st_uid == service.uid
