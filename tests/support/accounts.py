"""Real accounts of this machine for tests with a second user; needs root, else the tests skip.

    def test_two(accounts, common):                      # fixtures of every test
        anna = accounts.user("anna", "staff", umask=0o077)   # made by useradd, with an empty home (0700)
        bert = accounts.user("bert")                         # a user outside the group
        group = accounts.group("staff")                      # the group's real name: "sy4711staff"
        anna.stackyard("--yard", common / "yard", "list")    # as her: groups, umask, HOME, clean environment
        accounts.as_root("--yard", common / "yard", "gc")    # as root, who goes on as the owner of the yard
    bert.run("cat", anna.home / "x", expect=1)           # any program; another exit code fails the test
        anna.python("import os; print(os.getuid())").out     # the Python that has stackyard
        process = anna.popen("sleep", "60")                  # a subprocess.Popen; killed at the end at the latest

Names hold this process's id, so worktrees and xdist's workers do not collide. At the end of the session, also after
failures, what accounts still run is killed and they are removed; those of a killed session, by the next one.

`common` is a directory for one test that every account can enter (pytest's own `tmp_path` is for root only).
``accounts.readable(path)`` is `path`, or a copy of it where its directory keeps accounts out: a channel of the testbed.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import stackyard
from stackyard.core.errors import MissingError
from stackyard.yard import disk
from support import programs, testbed
from support.cli import Done
from support.pythonpkg import VERSION

LOCK = "/tmp/stackyard-accounts.lock"
OWN = re.compile(r"sy(\d+)[a-z]+")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Account:
    """One account, and how programs run as it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path
    umask: int
    bin: Path
    """Where its `python` and `stackyard` are."""

    def environment(self, **variables: str) -> dict[str, str]:
        """What a login gives, and `variables`; nothing of this process."""
        own = {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/sh"}
        return {**own, "PATH": f"{self.bin}:{SYSTEM_PATH}", "LANG": "C.UTF-8", **variables}

    def popen(self, *argv: str | Path, cwd: Path | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a program in the account's home or `cwd`; `options` are those of Popen."""
        options = {"env": self.environment(), "text": True, "start_new_session": True, **options}
        return subprocess.Popen(
            list(map(str, argv)),
            cwd=cwd or self.home,
            user=self.uid,
            group=self.gid,
            extra_groups=list(self.groups),
            umask=self.umask,
            **options,
        )

    def run(
        self,
        *argv: str | Path,
        expect: int | None = 0,
        cwd: Path | None = None,
        timeout_s: float = 300,
        **variables: str,
    ) -> Done:
        """Run a program to its end; any other exit code than `expect` fails the test with all that was printed."""
        pipe = subprocess.PIPE
        env = self.environment(**variables)
        with self.popen(*argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert expect is None or process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
        return Done(process.returncode, out, err)

    def stackyard(self, *words: str | Path, **options: Any) -> Done:
        """Run ``stackyard WORDS...``; `options` are those of `run`."""
        return self.run(self.bin / "stackyard", *words, **options)

    def python(self, code: str, *words: str | Path, **options: Any) -> Done:
        """Run Python code that can import stackyard; `options` are those of `run`."""
        return self.run(self.bin / "python", "-c", code, *words, **options)


class Accounts:
    """Makes accounts and groups, and removes them.

    Raises:
        MissingError: an interpreter that accounts can run cannot be made.
    """

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="stackyard-accounts-"))
        self.place.chmod(0o755)
        self._users: dict[str, Account] = {}
        self._groups: set[str] = set()
        _remove_stale()
        self.bin = self._installation()

    def group(self, word: str) -> str:
        """The real name of a group, which is made if it is missing. `word` is lower-case letters."""
        name = _own_name(word)
        if name not in self._groups:
            _admin("groupadd", name)
            self._groups.add(name)
        return name

    def user(self, word: str, *groups: str, umask: int = 0o022) -> Account:
        """An account with an empty home, its own group, and these others (words of `group`)."""
        name, home = _own_name(word), self.place / word
        if name not in self._users:
            _admin("useradd", "--no-log-init", "--no-create-home", "--user-group", "--home-dir", home, name)
        real = [self.group(group) for group in groups]
        found = pwd.getpwnam(name)
        _admin("usermod", "--groups", ",".join(real), name)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        os.chown(home, found.pw_uid, found.pw_gid)
        numbers = tuple(grp.getgrnam(group).gr_gid for group in real)
        account = Account(name, found.pw_uid, found.pw_gid, numbers, home, umask, self.bin)
        self._users[name] = account
        return account

    def as_root(self, *words: str | Path, expect: int | None = 0, timeout_s: float = 300, **variables: str) -> Done:
        """Run ``stackyard WORDS...`` as root, by the installation that all accounts can read."""
        argv, environ = [self.bin / "stackyard", *map(str, words)], {**os.environ, **variables}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s, env=environ)
        assert expect is None or done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def readable(self, path: Path) -> Path:
        """`path`, or a copy (hard links where they can be made) where an account cannot reach it."""
        if _reachable(path):
            return path
        copy = self.place / f"{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        if not copy.exists():
            disk.copy_tree(path, copy)
            copy.chmod(0o755)
        return copy

    def _installation(self) -> Path:
        python = self.readable(_interpreter()) / f"bin/python{VERSION}"
        directory = self.place / "stackyard"
        subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
        packages = Path(stackyard.__file__).parents[1], Path(pytest.__file__).parents[1]
        lines = "".join(f"{self.readable(path)}\n" for path in packages)
        (directory / f"lib/python{VERSION}/site-packages/checkout.pth").write_text(lines)
        uv = self.readable(Path(sys.executable).parent) / "uv"
        (directory / "bin/uv").symlink_to(uv)
        program = directory / "bin/stackyard"
        program.write_text(
            f"#!{directory}/bin/python\nimport sys\nfrom stackyard.cli.main import main\n\nsys.exit(main())\n"
        )
        program.chmod(0o755)
        return directory / "bin"

    def remove(self) -> None:
        """Kill what accounts still run, and remove them, their groups and their files."""
        for name in self._users:
            _remove_user(name)
        for name in self._groups:
            _admin("groupdel", name, check=False)
        shutil.rmtree(self.place, ignore_errors=True)


def give(tree: Path, account: Account, group: int | None = None) -> None:
    """Make a tree an account's, and a group's; no link is followed."""
    for directory, directories, files in os.walk(tree):
        for name in (".", *directories, *files):
            gid = account.gid if group is None else group
            os.chown(f"{directory}/{name}", account.uid, gid, follow_symlinks=False)


@pytest.fixture(scope="session")
def accounts() -> Iterator[Accounts]:
    """Real accounts, removed at the end; skips where they cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("creating accounts needs root")
    programs.need("useradd")
    try:
        made = Accounts()
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
    yield made
    made.remove()


@contextlib.contextmanager
def common_directory() -> Iterator[Path]:
    """A directory that every account can enter; root's, 0755."""
    directory = Path(tempfile.mkdtemp(prefix="stackyard-common-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def common() -> Iterator[Path]:
    """A `common_directory` for one test."""
    with common_directory() as directory:
        yield directory


def _own_name(word: str) -> str:
    name = f"sy{os.getpid()}{word}"
    assert OWN.fullmatch(name), f"lower-case letters only: {word}"
    return name


def _admin(*argv: str | Path, check: bool = True) -> None:
    """Run a program that changes the machine's accounts; one at a time, since each locks the file of all."""
    with FileLock(LOCK):
        _run(*argv, check=check)


def _run(*argv: str | Path, check: bool) -> None:
    subprocess.run(list(map(str, argv)), check=check, capture_output=True, text=True)


def _remove_stale() -> None:
    """Remove the accounts and groups of sessions that were killed."""
    for name, home in [(entry.pw_name, Path(entry.pw_dir)) for entry in pwd.getpwall()]:
        if _left(name):
            with contextlib.suppress(KeyError):  # another session was faster
                _remove_user(name)
            shutil.rmtree(home.parent, ignore_errors=True)
    for name in [entry.gr_name for entry in grp.getgrall()]:
        if _left(name):
            _admin("groupdel", name, check=False)


def _left(name: str) -> bool:
    match = OWN.fullmatch(name)
    return match is not None and not Path("/proc", match[1]).exists()


def _remove_user(name: str) -> None:
    """Kill what an account runs, and remove it: while nobody gives its number to another one."""
    with FileLock(LOCK):
        uid = pwd.getpwnam(name).pw_uid
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if process.stat().st_uid == uid:
                    os.kill(int(process.name), signal.SIGKILL)
        _run("userdel", "--force", name, check=False)


def _reachable(path: Path) -> bool:
    """Whether any account can enter a directory: every directory on the way, without links, lets others pass."""
    real = path.resolve()
    return all(part.stat().st_mode & 0o001 for part in (real, *real.parents)) and bool(real.stat().st_mode & 0o004)


def _interpreter() -> Path:
    """The interpreter of the testbed's channel, unpacked: this one may lie in a home that keeps others out."""
    from rattler.package_streaming import extract

    channel = testbed.real_channel()
    (package,) = channel.glob("linux-64/python-*.conda")
    return testbed.kept(f"python-of-{channel.name}", [], lambda directory: extract(package, directory))
