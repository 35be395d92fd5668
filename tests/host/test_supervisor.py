"""Root's commands on yards of other accounts, with real accounts: who works, and what only root can have done."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.host.account import asaccount, supervisor
from stackyard.host.files import at
from stackyard.yard.cache import notes
from stackyard.yard.cache.caches import CONDA
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import trash
from support import programs, smallyard
from support.accounts import Account, Accounts
from support.bindfs import UNCACHED, bindfs
from support.cli import Done

WHO = """
import json, os

status = open("/proc/self/status").read()
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), dict(os.environ), status]))
"""


def as_root(accounts: Accounts, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
    """``stackyard WORDS...`` as root, by the installation that all accounts can read."""
    done = subprocess.run([accounts.bin / "stackyard", *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=120, env={**os.environ, **variables})  # fmt: skip
    assert expect is None or done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return Done(done.returncode, done.stdout, done.stderr)


def give(tree: Path, account: Account) -> None:
    """Make a tree an account's."""
    for directory, directories, files in os.walk(tree):
        for name in (".", *directories, *files):
            os.chown(f"{directory}/{name}", account.uid, account.gid, follow_symlinks=False)


def owners(tree: Path) -> set[int]:
    """Whose the things in a tree are."""
    return {path.lstat().st_uid for path in (tree, *tree.rglob("*"))}


@pytest.fixture
def yard(accounts: Accounts, common: Path) -> tuple[Account, Yard, Path]:
    """A service account, its yard with two revisions, and the site's file that names it."""
    service = accounts.user("stacks", "staff")
    made = smallyard.make(common / "yard", "1.0", "2.0")
    give(made.root, service)
    return service, made, smallyard.give_site(common, made.root)


def test_root_works_as_the_owner_of_the_yard(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, site = yard
    words = ("--site", site, "--yard", made.root)
    as_root(accounts, *words, "default", "tool/1.0", SUDO_UID="0")
    as_root(accounts, "--site", site, "withdraw", "tool/2.0", STACKYARD_HOME=str(made.root))
    as_root(accounts, *words, "gc", "--now")
    assert owners(made.root) == {service.uid}
    newest = next(generations.readable(made)).origin
    assert (newest.user, newest.sudo, newest.who) == (service.name, "root", f"root, as {service.name}")
    assert f"root, as {service.name}" in as_root(accounts, *words, "history").out


def test_who_used_sudo_is_in_the_history(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, site = yard
    anna = accounts.user("anna")
    words = ("--site", site, "--yard", made.root)
    service.stackyard(*words, "default", "tool/1.0", SUDO_UID=str(anna.uid))
    assert next(generations.readable(made)).origin.who == f"{anna.name}, as {service.name}"
    as_root(accounts, *words, "default", "tool/2.0", SUDO_UID=str(anna.uid))
    assert next(generations.readable(made)).origin.who == f"{anna.name}, as root, as {service.name}"


def test_the_worker_has_nothing_of_roots(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, _ = yard
    secret = {
        "MY_TOKEN": "a",
        "STACKYARD_TOKEN": "b",
        "https_proxy": "http://anna:c@proxy",
        "http_proxy": "http://proxy",
    }
    with open("/etc/shadow", "rb") as opened:
        done = subprocess.run(
            [accounts.bin / "stackyard", "--yard", made.root, "run", "tool/2.0", "--",
             accounts.bin / "python", "-c", WHO],
            capture_output=True, text=True, check=True, pass_fds=(opened.fileno(),), umask=0o077,
            env={**os.environ, **secret, "TMPDIR": "/root"},
        )  # fmt: skip
    uids, gids, groups, environ, status = json.loads(done.stdout)
    assert uids == [service.uid] * 3 and gids == [service.gid] * 3
    assert set(groups) == {service.gid, *service.groups}
    assert environ["HOME"] == str(service.home) and environ["http_proxy"] == "http://proxy"
    assert not {"MY_TOKEN", "STACKYARD_TOKEN", "https_proxy", "TMPDIR", supervisor.VARIABLE} & environ.keys()
    assert "CapEff:\t0000000000000000" in status and "Umask:\t0022" in status


def test_a_program_of_the_worker_has_neither_roots_files_nor_its_ear(
    accounts: Accounts, yard: tuple[Account, Yard, Path]
) -> None:
    _, made, _ = yard
    done = as_root(accounts, "--yard", made.root, "run", "tool/2.0", "--", "ls", "-l", "/proc/self/fd")
    assert "socket" not in done.out and "/etc/shadow" not in done.out


TYPES = """
import fcntl, termios
for at in ("ctty", "stdin"):
    try:
        fcntl.ioctl(open("/dev/tty") if at == "ctty" else 0, termios.TIOCSTI, b"x")
        print(at, "typed")
    except OSError as error:
        print(at, "refused", flush=True)
import time
time.sleep(60)
"""


def test_the_worker_cannot_type_into_roots_terminal_and_hears_its_interrupt(
    accounts: Accounts, yard: tuple[Account, Yard, Path]
) -> None:
    _, made, _ = yard
    words = ["--yard", made.root, "run", "tool/2.0", "--", accounts.bin / "python", "-c", TYPES]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(accounts.bin / "stackyard", ["stackyard", *map(str, words)])
    said = b""
    while said.count(b"refused") + said.count(b"typed") < 2:
        said += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert said.split() == [b"ctty", b"refused", b"stdin", b"refused"]
    assert status == signal.SIGINT


def test_a_yard_of_roots_in_a_directory_of_another_account(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna")
    made = smallyard.make(anna.home / "yard", "1.0")
    done = as_root(accounts, "--yard", made.root, "list", expect=2)
    assert f"as root: {anna.name} may write to {anna.home}, and could exchange it" in done.err
    assert f"chown -hR {anna.name} {made.root}" in done.err
    (common / "open").mkdir()
    (common / "open").chmod(0o777)
    done = as_root(accounts, "--yard", common / "open" / "yard", "list", expect=2)
    assert "every account may write to" in done.err and f"chmod go-w {common}/open" in done.err
    (common / "open").chmod(0o1777)
    as_root(accounts, "--yard", common / "open" / "yard", "list")


def test_a_yard_of_roots_in_a_directory_of_a_group(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna", "staff")
    (common / "open").mkdir()
    os.chown(common / "open", 0, anna.groups[0])
    (common / "open").chmod(0o2775)
    done = as_root(accounts, "--yard", common / "open" / "yard", "list", expect=2)
    assert f"group {accounts.group('staff')} may write to {common}/open, and could exchange it" in done.err
    (common / "open").chmod(0o3775)
    as_root(accounts, "--yard", common / "open" / "yard", "list")
    (common / "open").chmod(0o2775)
    os.chown(common / "open", 0, 65533)  # a group that no account is in
    as_root(accounts, "--yard", common / "open" / "yard", "list")


@pytest.mark.parametrize("code", [0, 2])
def test_the_exit_status_is_the_workers(accounts: Accounts, yard: tuple[Account, Yard, Path], code: int) -> None:
    _, made, _ = yard
    as_root(accounts, "--yard", made.root, "show", "tool/2.0" if code == 0 else "none/1", expect=code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_root_reaches_the_worker(
    accounts: Accounts, yard: tuple[Account, Yard, Path], number: signal.Signals
) -> None:
    _, made, _ = yard
    argv = [
        accounts.bin / "stackyard",
        "--yard",
        made.root,
        "run",
        "tool/2.0",
        "--",
        "sh",
        "-c",
        "echo on; exec sleep 60",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "on\n"
        process.send_signal(number)
        assert process.wait(30) == -number


def test_a_worker_that_is_killed_is_not_waited_for(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, _ = yard
    argv = [
        accounts.bin / "stackyard",
        "--yard",
        made.root,
        "run",
        "tool/2.0",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 60",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        service.run("kill", "-9", process.stdout.readline().strip())
        assert process.wait(30) == -signal.SIGKILL


def test_a_yard_that_does_not_exist_belongs_to_whom_the_directory_does(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna")
    assert supervisor.owner(anna.home / "a/b/yard") == anna.uid
    assert supervisor.owner(common / "yard") == 0
    as_root(accounts, "--yard", anna.home / "yard", "gc", expect=2)


def test_root_that_is_nobody_on_a_file_system_works_as_the_owner(accounts: Accounts, common: Path) -> None:
    """A mount of FUSE that only its user may enter keeps root out as NFS with root_squash does."""
    programs.need("bindfs")
    anna = accounts.user("anna")
    anna.run("mkdir", "below", "home")
    device = Path("/dev/fuse").stat().st_mode
    Path("/dev/fuse").chmod(0o666)
    server = anna.popen("bindfs", "-f", "--no-allow-other", anna.home / "below", anna.home / "home")
    try:
        until = time.monotonic() + 20
        while "home fuse" not in Path("/proc/mounts").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        with pytest.raises(PermissionError):
            (anna.home / "home" / "x").stat()
        assert supervisor.owner(anna.home / "home" / "yard") == anna.uid
        done = as_root(accounts, "--yard", anna.home / "home" / "yard", "list")
        assert "no published revisions" in done.out
    finally:
        Path("/dev/fuse").chmod(device & 0o777)
        anna.run("fusermount3", "-u", "-z", anna.home / "home", expect=None)
        server.kill()
        server.wait()


def test_an_installation_that_only_root_can_read_is_named(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, _ = yard
    kept = accounts.place / "kept"
    kept.mkdir(mode=0o700, exist_ok=True)
    program = kept / "stackyard"
    program.write_text((accounts.bin / "stackyard").read_text())
    program.chmod(0o755)
    done = subprocess.run([program, "--yard", made.root, "list"], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert f"cannot continue as {service.name}, who owns the yard: permission denied: {program}" in done.stderr
    assert "hint: install stackyard where" in done.stderr


def test_python_of_root_refuses_the_yard_of_another_account(
    accounts: Accounts, yard: tuple[Account, Yard, Path]
) -> None:
    service, made, _ = yard
    code = "from pathlib import Path; from stackyard.inputs.sites.settings import Settings; "
    code += f"Settings(Path('{made.root}')).yard()"
    done = subprocess.run([accounts.bin / "python", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"as root: it belongs to {service.name}" in done.stderr


# --------------------------------------------------------------------------- what only root can have done


def test_what_an_older_root_left_is_given_to_the_owner(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, site = yard
    secret, linked = made.root.parent / "secret", made.locks / "linked"
    secret.write_text("root's own")
    secret.chmod(0o600)
    made.locks.mkdir(exist_ok=True)
    os.chown(made.locks, service.uid, service.gid)
    linked.hardlink_to(secret)
    program = made.locks / "program"
    program.write_text("")
    program.chmod(0o4755)
    (made.locks / "link").symlink_to("/etc/shadow")
    (made.locks / "folder").mkdir()
    (made.locks / "folder" / "file").write_text("left")
    (made.locks / "folder" / "twin").hardlink_to(made.locks / "folder" / "file")
    before = {path: path.lstat().st_uid for path in (Path("/etc/shadow"), secret)}
    words = ("--site", site, "--yard", made.root, "fsck")
    found = as_root(accounts, *words, expect=3)
    assert "belongs to root" in found.out + found.err
    given = as_root(accounts, *words, "--repair", expect=None)
    assert f"note: given to {service.name}, left by root: locks/" in given.err
    assert (made.locks / "folder" / "file").stat().st_uid == service.uid == (made.locks / "link").lstat().st_uid
    assert {path: path.lstat().st_uid for path in before} == before
    assert (linked.stat().st_uid, program.stat().st_uid) == (0, 0)


def test_what_is_mounted_in_a_yard_is_not_given_to_the_owner(
    accounts: Accounts, yard: tuple[Account, Yard, Path]
) -> None:
    programs.need("mount")
    service, made, site = yard
    elsewhere, file = made.root.parent / "elsewhere", made.root.parent / "file"
    elsewhere.mkdir()
    file.write_text("root's own")
    (made.locks / "folder").mkdir(parents=True)
    (made.locks / "file").touch()
    os.chown(made.locks, service.uid, service.gid)
    mounts = [(elsewhere, made.locks / "folder"), (file, made.locks / "file")]
    for source, target in mounts:
        subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        as_root(accounts, "--site", site, "--yard", made.root, "fsck", "--repair", expect=None)
    finally:
        for _, target in mounts:
            subprocess.run(["umount", target], check=True)
    assert (elsewhere.stat().st_uid, file.stat().st_uid) == (0, 0)


def _thrown(made: Yard, name: str, account: Account, *, doomed: bool = True) -> Path:
    """A thing in the trash whose content belongs to an account."""
    directory = made.thrown(name)
    content = directory / ("doomed" if doomed else "content")
    content.mkdir(parents=True)
    (content / "sealed" / "deep").mkdir(parents=True)
    (content / "sealed" / "deep" / "file").write_text("x")
    (content / "link").symlink_to(made.root.parent / "target")
    give(content, account)
    (content / "sealed").chmod(0o555)
    return directory


def test_a_child_that_is_the_owner_empties_a_thing_in_the_trash(
    accounts: Accounts, yard: tuple[Account, Yard, Path]
) -> None:
    service, made, _ = yard
    anna = accounts.user("anna")
    target = made.root.parent / "target"
    target.mkdir()
    (target / "kept").write_text("")
    directory = _thrown(made, "a", anna)
    os.chown(made.trash, service.uid, service.gid)
    os.chown(directory, service.uid, service.gid)
    assert _answer(made, service, ["empty", "a"]) == ""
    assert os.listdir(directory) == [] and os.listdir(target) == ["kept"]


def test_roots_collection_deletes_what_all_staff_put_aside(accounts: Accounts, common: Path) -> None:
    """A yard of a group: revisions and caches of two of staff, which neither could delete for the other."""
    anna, bert = accounts.user("anna", "staff", umask=0o002), accounts.user("bert", "staff", umask=0o002)
    group = anna.groups[0]
    made = smallyard.make(common / "yard", "1.0", "2.0", "3.0")
    policy = f"permissions: {{group: {accounts.group('staff')}, umask: '0002'}}\nremoval: {{failed_days: 0}}"
    policy += f"\nuser_yard: {common}/users/$USER/yard"  # none of these is closed
    site = smallyard.give_site(common, made.root, policy)
    smallyard.build(made, "tool", "4.0")  # never published
    for version, who in (("1.0", anna), ("2.0", bert), ("3.0", bert), ("4.0", bert)):
        give(smallyard.revision(made, version).root, who)
    for account, who in (("", anna), (str(bert.uid), bert)):
        part = replace(made, account=account)
        entry = part.package(f"unused{account}-1.0-0")
        (entry / "lib").mkdir(parents=True)
        (entry / "lib" / "file").write_text("x" * 5000)
        notes.write(part, CONDA, entry)
        give(part.cache, who)
    for path in (made.root, *made.root.rglob("*")):
        owner = path.lstat().st_uid or anna.uid
        os.chown(path, owner, group, follow_symlinks=False)
        if path.is_dir() and not path.is_symlink() and "prefix" not in path.parts:
            path.chmod(0o2775)
    words = ("--site", site, "--yard", made.root)
    bert.stackyard(*words, "remove", "tool/1.0-py311-1")
    anna.stackyard(*words, "remove", "tool/2.0-py311-1")
    as_root(accounts, *words, "gc", "--now")
    assert trash.items(made) == [] and os.listdir(made.trash) == []
    assert sorted(os.listdir(made.stacks / "tool")) == ["3.0-py311-1"]
    assert not made.package("unused-1.0-0").exists()
    assert not replace(made, account=str(bert.uid)).package(f"unused{bert.uid}-1.0-0").exists()
    assert 0 not in owners(made.root)


@pytest.mark.parametrize("name", ["../target", "/etc", "", ".", "..", "a/doomed", "missing"])
def test_only_what_is_in_the_trash_is_emptied(accounts: Accounts, yard: tuple[Account, Yard, Path], name: str) -> None:
    service, made, _ = yard
    made.trash.mkdir(exist_ok=True)
    target = made.root.parent / "target" / "doomed"
    target.mkdir(parents=True)
    (target / "kept").write_text("")
    assert _answer(made, service, ["empty", name]) != ""
    assert os.listdir(target) == ["kept"]


def test_a_link_in_the_trash_is_not_followed(accounts: Accounts, yard: tuple[Account, Yard, Path]) -> None:
    service, made, _ = yard
    anna = accounts.user("anna")
    target = made.root.parent / "target"
    (target / "doomed").mkdir(parents=True)
    (target / "doomed" / "kept").write_text("")
    give(target, anna)
    (made.trash / "real").mkdir(parents=True)
    (made.trash / "linked").symlink_to(target)
    (made.trash / "real" / "doomed").symlink_to(target / "doomed")
    assert "" not in (_answer(made, service, ["empty", "linked"]), _answer(made, service, ["empty", "real"]))
    assert os.listdir(target / "doomed") == ["kept"]


@pytest.mark.parametrize(
    "line", [b"x", b'["empty"]', b'["shell", "id"]', b"[" * 100_000, b'["read", 1]', b'["processes", ["zz"]]']
)
def test_a_request_that_is_not_known_ends_the_answers(yard: tuple[Account, Yard, Path], line: bytes) -> None:
    service, made, _ = yard
    assert _Server(made, service)._answer(line) is False


def _answer(made: Yard, service: Account, request: Sequence[object]) -> object:
    """What a supervisor answers."""
    server = _Server(made, service)
    assert server._answer(json.dumps(request).encode())
    return json.loads(server.heard.recv(1 << 20))


class _Server(supervisor._Server):
    """A supervisor of this process, without a worker."""

    def __init__(self, made: Yard, service: Account) -> None:
        import socket

        self.asking, self.heard = socket.socketpair()
        self.pid, self.yard, self.uid = 0, made.root, service.uid


def test_a_child_that_its_account_stops_is_not_waited_for(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna")

    def stopped(into: int) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    started = time.monotonic()
    with pytest.raises(ValueError, match="timed out after 5 s"):
        asaccount.one_child(anna.uid, stopped)
    with pytest.raises(ValueError, match="more than"):
        asaccount.one_child(anna.uid, lambda into: [os.write(into, b"x" * 65536) for _ in range(10**6)] and None)
    assert time.monotonic() - started < 60
    directory = common / "entry"
    (directory / "doomed").mkdir(parents=True)
    with at.directory(common, directory) as entry:
        asaccount.empty_in(entry)


def test_root_does_not_wait_for_a_file_system_that_hangs(accounts: Accounts, common: Path) -> None:
    short = "from stackyard.host.account import supervisor as s; from pathlib import Path; s.LOOK_S = 1; "
    short += "s.supervise(Path({!r}))"
    with bindfs(common / "below", common / "hangs", *UNCACHED) as server:
        server.send_signal(signal.SIGSTOP)
        words = [accounts.bin / "python", "-c", short.format(str(common / "hangs" / "yard"))]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1
    assert f"{common}/hangs/yard does not answer: timed out after 1 s" in done.stderr
