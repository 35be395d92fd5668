"""What `host.files.at` opens, changes, removes and copies, and refuses; with a second account and with mounts."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stackyard.host.files import at, copying
from stackyard.yard import disk
from support import programs
from support.accounts import Account, Accounts

DEEP = 3000


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, at.DIR)
    try:
        yield fd
    finally:
        os.close(fd)


def remove(path: Path, *owners: int) -> None:
    with opened(path.parent) as top:
        at.remove_tree(top, path.name, owners)


def copy(source: Path, target: Path, *owners: int, link: bool = False) -> None:
    with opened(source.parent) as before, opened(target.parent) as after:
        copying.copy_tree((before, source.name), (after, target.name), owners, link=link)


def nest(path: Path, count: int) -> None:
    path.mkdir()
    fd = os.open(path, at.DIR)
    for _ in range(count):
        os.mkdir("a", dir_fd=fd)
        below = os.open("a", at.DIR, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@pytest.fixture(params=["openat2", "before Linux 5.6"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the call of the present kernel, and as where it has none."""
    if request.param != "openat2":
        monkeypatch.setattr(at, "_OPENAT2", 9999)
    return str(request.param)


# --------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["a", "a/b", "..a", "a..", "...", "a b", "\\x2e\\x2e", "ü", os.fsdecode(b"\xff/\xfe")])
def test_names_below_a_directory(name: str) -> None:
    assert at.parts(name) == name.split("/")


@pytest.mark.parametrize(
    "name", ["", "/", "/a", "//a", ".", "..", "a/..", "../a", "a/../b", "./a", "a/./b", "a//b", "a/", "a\0b"]
)
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        at.parts(name)


# --------------------------------------------------------------------------- opening


def test_links_are_followed_to_the_top_and_not_below_it(tmp_path: Path, kernel: str) -> None:
    (tmp_path / "real" / "in" / "er").mkdir(parents=True)
    (tmp_path / "top").symlink_to("real")
    (tmp_path / "real" / "aside").symlink_to("in")
    top = tmp_path / "top"
    with at.directory(top, top / "in" / "er") as fd:
        assert os.path.samestat(os.fstat(fd), (top / "in" / "er").stat())
    with at.directory(top, top) as fd:
        assert at.names(fd) == os.listdir(top)
    with pytest.raises(OSError) as error, at.directory(top, top / "aside" / "er"):
        pass
    assert error.value.errno in (errno.ELOOP, errno.ENOTDIR)
    assert error.value.filename == str(top / "aside")
    for path in (top / ".." / "real", tmp_path, Path("/etc")):
        with pytest.raises(ValueError), at.directory(top, path):
            pass


def test_missing_directories_are_made_where_that_is_asked_for(tmp_path: Path) -> None:
    with at.parent(tmp_path, tmp_path / "a" / "b" / "c", make=True) as (fd, name):
        at.open_new(fd, name).close()
    assert (tmp_path / "a" / "b" / "c").is_file()
    with pytest.raises(FileNotFoundError), at.parent(tmp_path, tmp_path / "x" / "c"):
        pass


def test_a_directory_on_the_way_need_not_be_readable(accounts: Accounts, common: Path) -> None:
    user = accounts.user("user")
    (common / "drop" / "own").mkdir(parents=True)
    (common / "drop").chmod(0o1733)
    code = "import sys; from pathlib import Path; from stackyard.host.files import at; top = Path(sys.argv[1])\n"
    code += "with at.parent(top, top / 'drop' / 'note') as place: at.open_new(*place).close()\n"
    user.python(code, common)
    assert (common / "drop" / "note").stat().st_uid == user.uid


def test_no_descriptor_is_left_open(tmp_path: Path, kernel: str) -> None:
    nest(tmp_path / "t", 80)
    (tmp_path / "link").symlink_to("t")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with suppress(OSError), at.directory(tmp_path, tmp_path / "link" / "a"):
            pass
        with suppress(OSError):
            copy(tmp_path / "t", tmp_path / "copy")
        remove(tmp_path / "copy")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_new_file_takes_the_place_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    with opened(tmp_path) as top:
        for name in ("file", "link", "pipe"):
            with pytest.raises(FileExistsError):
                at.open_new(top, name)
        at.open_new(top, "new").close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert not (tmp_path / "nowhere").exists()


# --------------------------------------------------------------------------- reading


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with opened(tmp_path) as top:
        assert at.read_bounded(top, "file", 5)[0] == b"12345"
        assert at.read_bounded(top, "file", 5, os.geteuid())[1].st_size == 5
        for name, most, owner in [("file", 4, None), ("file", 9, 12345), ("pipe", 9, None), ("folder", 9, None)]:
            with pytest.raises(at.UnexpectedFileError) as refused:
                at.read_bounded(top, name, most, owner)
            assert refused.value.filename == name
        with pytest.raises(OSError):
            at.read_bounded(top, "link", 9)


def test_a_file_without_an_end_is_read_no_further(tmp_path: Path) -> None:
    with (
        opened(Path(f"/proc/{os.getpid()}")) as top,
        pytest.raises(at.UnexpectedFileError, match="larger than 100 bytes"),
    ):
        at.read_bounded(top, "maps", 100)  # its size is said to be 0


# --------------------------------------------------------------------------- modes


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_modes_are_set_on_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0)
    (tmp_path / "file").touch(mode=0o444)
    (tmp_path / "file").chmod(0o4444)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with opened(tmp_path) as top:
        at.set_mode(top, "folder", lambda status: status.st_mode | 0o700)
        at.set_mode(top, "file", lambda status: status.st_mode & 0o777 | 0o200)
        for name in ("link", "pipe"):
            with pytest.raises(at.UnexpectedFileError):
                at.set_mode(top, name, lambda _: 0o777)
        with pytest.raises(at.UnexpectedFileError):
            at.set_mode(top, "file", lambda _: 0o777, kinds=(stat.S_IFDIR,))
        with pytest.raises(at.UnexpectedFileError):
            at.set_mode(top, "file", lambda _: 0o777, owners=(12345,))
    assert [mode(tmp_path / name) for name in ("folder", "file", "pipe")] == [0o700, 0o644, 0o600]


def test_a_file_with_other_names_gets_no_bits_where_others_could_have_named_it(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "private").touch(mode=0o640)
    (shared / "name").hardlink_to(tmp_path / "private")
    with opened(shared) as top:
        shared.chmod(0o777)
        with pytest.raises(at.UnexpectedFileError, match="other names"):
            at.set_mode(top, "name", lambda _: 0o644)
        assert mode(tmp_path / "private") == 0o640
        at.set_mode(top, "name", lambda _: 0o600)  # fewer bits harm nothing
        shared.chmod(0o755)
        at.set_mode(top, "name", lambda _: 0o644)
    assert mode(tmp_path / "private") == 0o644


# --------------------------------------------------------------------------- removing


def test_a_tree_is_removed_with_its_links_and_not_what_they_lead_to(tmp_path: Path, kernel: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    tree = tmp_path / "tree"
    (tree / "sealed" / "below").mkdir(parents=True)
    (tree / "sealed" / "below" / "file").touch()
    (tree / "to").symlink_to(tmp_path / "outside")
    (tree / "same").hardlink_to(tmp_path / "outside" / "file")
    os.mkfifo(tree / "pipe")
    for directory in (tree / "sealed" / "below", tree / "sealed", tree):
        directory.chmod(0o555)
    remove(tree)
    remove(tree)  # it may be missing
    assert not tree.exists()
    assert mode(tmp_path / "outside" / "file") == 0o644
    (tmp_path / "link").symlink_to("outside")
    remove(tmp_path / "link")
    remove(tmp_path / "outside" / "file")
    assert os.listdir(tmp_path / "outside") == []
    assert not (tmp_path / "link").is_symlink()


REMOVE = "import sys; from pathlib import Path; from stackyard.yard import disk; disk.delete_tree(Path(sys.argv[1]))"


@pytest.fixture
def owner(accounts: Accounts) -> Account:
    return accounts.user("owner")


def given(path: Path, account: Account) -> None:
    subprocess.run(["chown", "-hR", f"{account.uid}:{account.gid}", path], check=True)


def test_an_owner_removes_what_is_closed_and_leaves_what_is_anothers(common: Path, owner: Account) -> None:
    top = common / "top"
    tree = top / "tree"
    for name in ("closed/a", "sealed/b", "z"):
        (tree / name).mkdir(parents=True)
    for name in ("closed/f", "sealed/f", "f"):
        (tree / name).touch()
    given(top, owner)
    (tree / "closed").chmod(0)
    (tree / "sealed").chmod(0o555)
    (tree / "foreign").mkdir()  # root's
    (tree / "foreign" / "file").touch()
    done = owner.python(REMOVE, tree, expect=1)
    assert "Permission denied" in done.err
    assert str(tree / "foreign" / "file") in done.err
    assert os.listdir(tree) == ["foreign"]
    assert mode(tree / "foreign") == 0o755
    (tree / "foreign" / "file").unlink()
    owner.python(REMOVE, tree)
    assert not tree.exists()


def test_a_tree_of_any_depth_is_removed(common: Path, owner: Account, kernel: str) -> None:
    nest(common / "roots", DEEP)
    remove(common / "roots")
    assert os.listdir(common) == []
    top = common / "top"
    top.mkdir()
    nest(top / "deep", DEEP)
    fd = os.open(top / "deep", at.DIR)
    for depth in range(200):  # sealed, and with files
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o444, dir_fd=fd))
        below = os.open("a", at.DIR, dir_fd=fd)
        os.fchown(fd, owner.uid, owner.gid)
        os.fchmod(fd, 0o555 if depth % 2 else 0)
        os.close(fd)
        fd = below
    while True:
        os.fchown(fd, owner.uid, owner.gid)
        try:
            below = os.open("a", at.DIR, dir_fd=fd)
        except FileNotFoundError:
            os.close(fd)
            break
        os.close(fd)
        fd = below
    os.chown(top, owner.uid, owner.gid)
    owner.python(REMOVE, top / "deep")
    assert os.listdir(top) == []


def test_what_a_killed_removal_moved_up_is_known_as_a_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nest(tmp_path / "t", 200)
    real = os.rmdir

    def killed(name: str, *, dir_fd: int) -> None:
        if name != "a":
            raise KeyboardInterrupt
        real(name, dir_fd=dir_fd)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(at.os, "rmdir", killed)
        remove(tmp_path / "t")
    left = disk.leftovers(tmp_path)
    assert len(left) == 1
    assert sorted([*left, tmp_path / "t"]) == sorted(tmp_path.iterdir())
    for path in tmp_path.iterdir():
        remove(path)
    assert os.listdir(tmp_path) == []


def test_many_names_are_removed(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with opened(tmp_path / "t") as top:
        for number in range(100_000):
            os.mknod(f"{number:06d}", dir_fd=top)
    remove(tmp_path / "t")
    assert os.listdir(tmp_path) == []


MOUNTED = """
import os, sys
from pathlib import Path
from stackyard.host.files import at, copying
if "old" in sys.argv: at._OPENAT2 = 9999
top = Path(sys.argv[1])
with at.directory(top, top) as fd:
    for act in (lambda: at.remove_tree(fd, "tree"), lambda: copying.copy_tree((fd, "tree"), (fd, "copy")),
                lambda: at.open_directory(fd, "tree/mounted") if False else None):
        try: act()
        except OSError as error: print(type(error).__name__, error.errno, error.filename)
    try:
        with at.directory(top, top / "tree" / "mounted"): print("entered")
    except OSError as error: print("folder", error.errno, error.filename)
print(sorted(os.listdir(top / "tree")), os.listdir(top / "tree" / "mounted"))
"""


@pytest.mark.parametrize(("mount", "kernels"), [("tmpfs", ("new", "old")), ("bind", ("new",))])
def test_nothing_is_removed_or_copied_from_what_is_mounted(
    tmp_path: Path, mount: str, kernels: tuple[str, ...]
) -> None:
    programs.need("unshare", "mount")
    if os.geteuid():
        pytest.skip("mounting needs root")
    for kernel in kernels:
        for name in ("tree/mounted", "tree/other", "elsewhere"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "elsewhere" / "kept").touch()
        place = tmp_path / "tree" / "mounted"
        how = (
            f"-t tmpfs none {place} && touch {place}/kept"
            if mount == "tmpfs"
            else f"--bind {tmp_path}/elsewhere {place}"
        )
        words = ["unshare", "--mount", "sh", "-c", f'mount {how} && exec "$@"', "sh", sys.executable, "-c", MOUNTED]
        done = subprocess.run([*words, tmp_path, kernel], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [
            f"OSError {errno.EXDEV} tree/mounted",
            f"OSError {errno.EXDEV} mounted",
            f"folder {errno.EXDEV} {place}",
            "['mounted'] ['kept']",
        ]
        assert (tmp_path / "elsewhere" / "kept").exists()
        remove(tmp_path / "copy")


# --------------------------------------------------------------------------- copying


def test_a_copy_has_the_same_files_links_modes_and_times(tmp_path: Path, kernel: str) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "program").write_bytes(b"x" * 100_000)
    (tree / "sub" / "program").chmod(0o4755)
    os.utime(tree / "sub" / "program", ns=(1_500_000_000_123_456_789, 1_600_000_000_123_456_789))
    (tree / "link").symlink_to("/etc/shadow")
    (tree / os.fsdecode(b"\xff")).write_bytes(b"")
    copy(tree, tmp_path / "copy")
    made = (tmp_path / "copy" / "sub" / "program").stat()
    assert (stat.S_IMODE(made.st_mode), made.st_size, made.st_nlink) == (0o755, 100_000, 1)
    assert made.st_mtime_ns == 1_600_000_000_123_456_789
    assert os.readlink(tmp_path / "copy" / "link") == "/etc/shadow"
    assert sorted(os.listdir(os.fsencode(tmp_path / "copy"))) == [b"link", b"sub", b"\xff"]
    with pytest.raises(FileExistsError):
        copy(tree, tmp_path / "copy")
    copy(tree, tmp_path / "linked", link=True)
    assert (tmp_path / "linked" / "sub" / "program").samefile(tree / "sub" / "program")


def make_pipe(tree: Path, _: Account) -> None:
    os.mkfifo(tree / "x")


def make_device(tree: Path, _: Account) -> None:
    os.mknod(tree / "x", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


def make_foreign(tree: Path, account: Account) -> None:
    (tree / "x").touch()
    os.chown(tree / "x", account.uid, account.gid)


def make_named_elsewhere(tree: Path, _: Account) -> None:
    (tree.parent / "private").touch(mode=0o600)
    (tree / "x").hardlink_to(tree.parent / "private")
    tree.chmod(0o777)


def make_deep(tree: Path, _: Account) -> None:
    nest(tree / "x", DEEP)


@pytest.mark.parametrize("make", [make_pipe, make_device, make_foreign, make_named_elsewhere, make_deep])
@pytest.mark.parametrize("link", [False, True])
def test_nothing_else_is_copied(
    common: Path, owner: Account, make: Callable[[Path, Account], None], link: bool
) -> None:
    tree = common / "tree"
    tree.mkdir()
    make(tree, owner)
    with pytest.raises(at.UnexpectedFileError):
        copy(tree, common / "copy", os.geteuid(), link=link)
    for path in (common / "copy", tree):
        remove(path)
    assert not tree.exists()


def test_files_of_other_accounts_are_copied_and_never_linked(common: Path, owner: Account) -> None:
    (common / "file").write_text("x")
    os.chown(common / "file", owner.uid, owner.gid)
    copy(common / "file", common / "copy", link=True)
    assert not (common / "copy").samefile(common / "file")
    assert (common / "copy").stat().st_uid == os.geteuid()


# --------------------------------------------------------------------------- how long it takes
