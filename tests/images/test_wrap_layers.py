"""Wrapped SIF files with overlays: their partitions are mounted and joined, and nothing is unpacked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from images.image_bed import confined
from images.wrap_bed import Wrapped, image, need
from stackyard.core.errors import MissingError
from stackyard.images.sif import file as sif
from stackyard.images.wrap import layers
from support import images, nooverlay, programs, usernsroot
from support.accounts import Accounts
from support.processes import wait_for

pytestmark = pytest.mark.real
PARTITIONS = 3


def bed(directory: Path) -> Wrapped:
    """A directory with ``tool.sif``: a system, an overlay with files, and one that hides and replaces some of them."""
    system, first, second = image(directory / "system"), directory / "first", directory / "second"
    for name in ("gone", "tree/gone", "tree/kept", "kind/of"):
        (system / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (system / "data" / name).write_text("system\n")
    (system / "opt/tool/bin/old").write_text("#!/bin/sh\n")
    (system / "opt/tool/bin/old").chmod(0o755)
    for name in ("own", "first", "tree/first", "replaced"):
        (first / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (first / "data" / name).write_text("first\n")
    (first / "opt/tool/bin").mkdir(parents=True)
    (first / "opt/tool/bin/new").write_text("#!/bin/sh\necho new of $0\n")
    (first / "opt/tool/bin/new").chmod(0o755)
    (second / "data/tree").mkdir(parents=True)
    (second / "data/replaced").write_text("second\n")
    (second / "data/kind").write_text("second\n")
    (second / "opt/tool/bin").mkdir(parents=True)
    hidden = [f'"{name}" c 0644 0 0 0 0' for name in ("data/gone", "data/tree/gone", "opt/tool/bin/old")]
    (directory / "hidden").write_text("\n".join(hidden) + "\n")
    sources: list[sif.PartSource] = []
    for tree in (system, first, second):
        packed = directory / f"{tree.name}.sqsh"
        more: list[str | Path] = ["-pf", directory / "hidden"] if tree == second else []
        words: list[str | Path] = ["mksquashfs", tree, packed, "-quiet", "-noappend", *more]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        part = sif.OVERLAY if sources else sif.SYSTEM
        sources.append(sif.PartSource(sif.PARTITION, tree.name, packed, part))
    sif.write(directory / "tool.sif", "amd64", sources)
    return Wrapped(directory)


@pytest.fixture(scope="module")
def module_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapped]:
    need()
    made = bed(tmp_path_factory.mktemp("layers"))
    made.wrap(image="tool.sif")
    made.end()
    yield made
    made.end()


@pytest.fixture
def tool(module_bed: Wrapped) -> Iterator[Wrapped]:
    yield module_bed
    module_bed.end()


def keepers(tool: Wrapped) -> list[int]:
    """The processes that keep containers of this revision."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_one = (process / "comm").read_text() == "stackyard-image\n"
            if is_one and (process / "exe").readlink() == tool.root / "launch":
                found.append(int(process.name))
    return found


SHOWN = "cat /data/own /data/first /data/tree/first /data/tree/kept /data/replaced /data/kind; ls /data /data/tree"
FILES = "first\nfirst\nfirst\nsystem\nsecond\nsecond\n"


def test_the_file_is_kept_and_its_partitions_are_joined(tool: Wrapped) -> None:
    """Every byte is that of the file: nothing was unpacked."""
    kept = (tool.root / "image.sqsh").read_bytes()
    assert kept == (tool.directory / "tool.sif").read_bytes()
    assert tool.record["form"]["sha256"] == hashlib.sha256(kept).hexdigest()
    assert tool.sh(SHOWN) == f"{FILES}/data:\nfirst\nkind\nown\nreplaced\ntree\n\n/data/tree:\nfirst\nkept\n"
    assert tool.run(tool.command("new")).stdout == "new of /opt/tool/bin/new\n"
    assert "old" not in tool.record["container"]["commands"], "a program that an overlay hides"
    tool.stackyard("verify", "--deep", tool.name)
    assert "nothing is wrong" in tool.stackyard("fsck", "--deep", tool.name).out


def test_where_they_cannot_be_joined_they_are_unpacked_and_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need()
    one = bed(tmp_path)
    monkeypatch.setattr(layers, "lacking", lambda: "overlayfs is not there")
    try:
        said = one.wrap(image="tool.sif")
        assert (
            "has overlays, which were unpacked and packed as one image: overlayfs is not there" in said.out + said.err
        )
        assert (one.root / "image.sqsh").read_bytes()[:4] == b"hsqs"
        assert one.sh(SHOWN) == f"{FILES}/data:\nfirst\nkind\nown\nreplaced\ntree\n\n/data/tree:\nfirst\nkept\n"
    finally:
        one.end()


def test_fifty_commands_at_once_share_one_container(tool: Wrapped) -> None:
    with ThreadPoolExecutor(50) as pool:
        spaces = {done.stdout for done in pool.map(lambda _: tool.run(tool.command("space")), range(50))}
    assert len(spaces) == 1
    assert spaces != {f"{Path('/proc/self/ns/mnt').readlink()}\n"}
    assert (len(tool.servers()), len(keepers(tool))) == (PARTITIONS, 1)


@pytest.mark.parametrize("which", range(PARTITIONS + 1))
def test_after_a_process_of_the_container_was_killed_the_next_command_has_a_new_one(tool: Wrapped, which: int) -> None:
    tool.run(tool.command("space"))
    before = tool.servers()
    os.kill([*sorted(before), *keepers(tool)][which], signal.SIGKILL)
    assert tool.sh("cat /data/own /data/replaced /data/tree/kept") == "first\nsecond\nsystem\n"
    wait_for(lambda: not set(before) & set(tool.servers()))
    assert (len(tool.servers()), len(keepers(tool))) == (PARTITIONS, 1)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_stopped_server_is_named(tool: Wrapped) -> None:
    tool.run(tool.command("space"))
    stopped = tool.servers()[1]
    os.kill(stopped, signal.SIGSTOP)
    wait_for(lambda: _state(stopped) == "T")
    try:
        assert f"process {stopped}) is stopped" in tool.run(tool.command("say"), expect=4).stderr
    finally:
        os.kill(stopped, signal.SIGCONT)
    (keeper,) = keepers(tool)
    os.kill(keeper, signal.SIGSTOP)  # which reads no file for others
    wait_for(lambda: _state(keeper) == "T")
    try:
        assert tool.run(tool.command("say"), "x").stdout.startswith("x|")
    finally:
        os.kill(keeper, signal.SIGCONT)


def test_files_of_all_partitions_stay_as_long_as_a_command_runs_and_no_longer(tool: Wrapped) -> None:
    """Longer than an idle image is kept: neither a server nor the container is given up meanwhile."""
    script = "read line; cat /data/first /data/replaced /data/tree/kept"
    words: list[str | Path] = [tool.root / "launch", "sh", "-c", script]
    with subprocess.Popen(words, env=tool.env(STACKYARD_IMAGE_IDLE_S="1"), cwd=tool.directory, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:  # fmt: skip
        wait_for(lambda: len(tool.servers()) == PARTITIONS and keepers(tool))
        time.sleep(3)
        assert len(tool.servers()) == PARTITIONS
        assert running.communicate("go\n", timeout=60)[0] == "first\nsecond\nsystem\n"
    wait_for(lambda: not tool.servers() and not keepers(tool))


def test_what_has_left_the_container_still_reads_its_files(tool: Wrapped) -> None:
    """A mount namespace below it, which the keeper does not see: the kernel keeps the mounts, and then ends them."""
    script = "read line; cat /data/first /data/replaced /data/tree/kept"
    words: list[str | Path] = [tool.root / "launch", "busybox", "unshare", "-m", "sh", "-c", script]
    with subprocess.Popen(words, env=tool.env(STACKYARD_IMAGE_IDLE_S="1"), cwd=tool.directory, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:  # fmt: skip
        wait_for(lambda: len(tool.servers()) == PARTITIONS)
        time.sleep(3)
        beside = {Path(f"/proc/{pid}/ns/mnt").readlink() for pid in (*tool.servers(), *keepers(tool))}
        assert len(beside) == 1, "the keeper is still in the container"
        assert running.communicate("go\n", timeout=60)[0] == "first\nsecond\nsystem\n"
    wait_for(lambda: not tool.servers() and not keepers(tool))


def test_an_idle_container_keeps_no_revision_and_a_command_in_it_does(tmp_path: Path) -> None:
    need()
    one = bed(tmp_path)
    one.wrap(image="tool.sif")
    try:
        words = ["env", "-i", str(one.root / "launch"), "sh", "-c", "echo; read line"]
        with subprocess.Popen(words, cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None and running.stdout.readline()
            said = one.stackyard("remove", f"tool/{one.root.name}", expect=None)
            assert said.code and f"process {running.pid} of " in said.out + said.err
            running.communicate("\n")
        one.run(one.command("say"))
        assert keepers(one)
        assert "removed" in one.stackyard("remove", f"tool/{one.root.name}").out
    finally:
        one.end()


def test_a_truncated_or_exchanged_image_is_named(tool: Wrapped) -> None:
    file, kept = tool.root / "image.sqsh", tool.directory / "kept"
    shutil.copy2(file, kept)
    try:
        os.truncate(file, file.stat().st_size - 4096)
        assert "it is truncated" in tool.run(tool.command("say"), expect=4).stderr
        assert "is truncated" in tool.stackyard("verify", tool.name, expect=3).out
        file.write_bytes(b"x" * file.stat().st_size)
        assert "not a SquashFS image" in tool.run(tool.command("say"), expect=4).stderr
        assert not tool.servers()
        assert not keepers(tool)
    finally:
        file.chmod(0o644)
        shutil.copyfile(kept, file)
        tool.stackyard("verify", tool.name)


def test_an_overlay_that_is_not_squashfs_is_refused(tmp_path: Path) -> None:
    need()
    one = bed(tmp_path)
    (tmp_path / "ext3").write_bytes(b"\0" * 8192)
    sources = [sif.PartSource(sif.PARTITION, "system", tmp_path / "system.sqsh", sif.SYSTEM),
               sif.PartSource(sif.PARTITION, "ext3", tmp_path / "ext3", sif.OVERLAY)]  # fmt: skip
    sif.write(tmp_path / "other.sif", "amd64", sources)
    said = one.wrap(image="other.sif", expect=2)
    assert "other.sif: its overlay partition is not SquashFS" in said.err


def test_without_user_namespaces_apptainer_makes_the_same_container(tool: Wrapped) -> None:
    try:
        path = images.environ()["PATH"]
    except MissingError as error:
        pytest.skip(str(error))
    start = [sys.executable, usernsroot.__file__, "sh", "-ec", 'echo 0 > /proc/sys/user/max_user_namespaces\nexec "$@"']
    done = tool.run(*start, "sh", str(tool.root / "launch"), "sh", "-c", SHOWN, PATH=path)
    assert done.stdout == tool.sh(SHOWN)
    done = tool.run(*start, "sh", str(tool.root / "launch"), "sh", "-c", SHOWN, expect=4, PATH="/usr/bin:/bin")
    assert "user namespaces" in done.stderr


def _without_overlayfs(tool: Wrapped, **more: str) -> subprocess.CompletedProcess[str]:
    """Where the kernel mounts no overlayfs for users, as before Linux 5.11."""
    words = [sys.executable, nooverlay.__file__, str(tool.root / "launch"), "sh", "-c", SHOWN]
    return subprocess.run(words, env=tool.env(**more), cwd=tool.directory, timeout=240, text=True,
                          capture_output=True, check=False)  # fmt: skip


def test_without_overlayfs_fuse_overlayfs_joins_them(tool: Wrapped) -> None:
    programs.need("fuse-overlayfs")
    shown = tool.sh(SHOWN)
    tool.end()
    wait_for(lambda: not keepers(tool))
    done = _without_overlayfs(tool, STACKYARD_IMAGE_IDLE_S="1")
    assert done.stdout == shown, done.stderr
    wait_for(lambda: not tool.servers() and not keepers(tool))


def test_without_overlayfs_and_fuse_overlayfs_what_is_missing_is_named(tool: Wrapped, tmp_path: Path) -> None:
    hidden = tmp_path / "empty"
    hidden.touch()
    inner = [sys.executable, nooverlay.__file__, str(tool.root / "launch"), "sh", "-c", SHOWN]
    script = f"[ ! -e /usr/bin/fuse-overlayfs ] || mount --bind {hidden} /usr/bin/fuse-overlayfs"
    done = tool.run(*confined(script, *inner), expect=4, PATH="/usr/bin:/bin")
    assert "only root can mount overlayfs on this machine" in done.stderr
    assert "fuse-overlayfs was not found" in done.stderr
    assert not tool.servers()


def test_whether_they_can_be_joined_is_tried(tmp_path: Path) -> None:
    """Without overlayfs for users: by fuse-overlayfs, if there is one."""
    ask = "from stackyard.images.wrap import layers; print(layers.lacking())"
    words = [sys.executable, "-c", ask]
    here = subprocess.run(words, env={**os.environ, "PATH": str(tmp_path)}, text=True, capture_output=True, check=True)
    assert here.stdout == "\n"
    words = [sys.executable, nooverlay.__file__, *words]
    there = subprocess.run(words, env={**os.environ, "PATH": str(tmp_path)}, text=True, capture_output=True, check=True)
    assert there.stdout == "overlayfs cannot be mounted by users of this machine, and fuse-overlayfs was not found\n"
    (tmp_path / "fuse-overlayfs").touch(0o755)
    there = subprocess.run(words, env={**os.environ, "PATH": str(tmp_path)}, text=True, capture_output=True, check=True)
    assert there.stdout == "\n"


def test_two_users_have_containers_of_their_own(accounts: Accounts, common: Path, tmp_path: Path) -> None:
    need()
    one, fuse = bed(common), tmp_path / "fuse"
    os.mknod(fuse, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
    fuse.chmod(0o666)
    one.wrap(image="tool.sif")
    one.end()
    subprocess.run(["chmod", "-R", "a+rX", common], check=True)
    spaces = set()
    try:
        for name in ("ada", "bob"):
            user = accounts.user(name)
            script = f"set -e; {one.root}/launch sh -c '{SHOWN}'; {one.command('space')}; {one.command('space')}"
            inner = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "sh", "-c", script]
            own = user.environment(STACKYARD_TMP=str(user.home), STACKYARD_IMAGE_IDLE_S="2")
            done = subprocess.run(confined(f"mount --bind {fuse} /dev/fuse", *inner), env=own, cwd=user.home,
                                  capture_output=True, text=True, check=False)  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(FILES)
            first, second = done.stdout.splitlines()[-2:]
            assert first == second
            spaces.add(first)
        assert len(spaces) == 2
        wait_for(lambda: not one.servers())
    finally:
        one.end()


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    need()
    one, yard = bed(tmp_path), tmp_path / "yard"
    yard.mkdir()
    size = (tmp_path / "tool.sif").stat().st_size
    words = ["mount", "-t", "tmpfs", "-o", f"size={size // 1024 * 3 // 4}k", "none", str(yard)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        said = one.wrap(image="tool.sif", expect=1)
        assert "no space left" in said.err.lower()
        assert not list(yard.rglob("image.sqsh"))
    finally:
        one.end()
        subprocess.run(["umount", "-l", yard], check=True)
