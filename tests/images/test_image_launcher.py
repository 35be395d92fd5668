"""The launcher of an image, compiled and as a script: what it keeps of a command, and what it does on bad days."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from image_bed import Revision, confined, make

from stackyard.core.errors import StackyardError
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import within
from stackyard.images.squashfs.enter import run_module_within, run_within
from stackyard.yard.kinds.payload import Image
from support import programs
from support.processes import image_servers, wait_for

pytestmark = pytest.mark.real


def test_a_command_keeps_its_arguments_and_its_working_directory(demo: Revision, tmp_path: Path) -> None:
    words = ["a b", "", "*", "'\"$HOME", "\n", "ü"]
    place = tmp_path / "some where"
    place.mkdir()
    done = demo.run(demo.command("say"), *words, cwd=place)
    assert done.stdout == "a b||*|'\"$HOME|\n|ü|\n" + f"{place}\n"
    assert not done.stderr


def test_a_hundred_thousand_arguments(demo: Revision) -> None:
    words = [str(number) for number in range(100_000)]
    assert demo.run(demo.command("say"), *words).stdout.splitlines()[0] == "|".join(words) + "|"


def test_a_script_of_the_image_finds_its_interpreter(demo: Revision, tmp_path: Path) -> None:
    assert demo.run(demo.command("greet"), "x").stdout.splitlines()[0] == f"-x|{demo.command('greet')}|x|"
    own = tmp_path / "own"
    own.write_text(f"#!{demo.command('python')}\n")
    own.chmod(0o755)
    assert demo.run(str(own), "y").stdout.splitlines()[0] == f"{own}|y|"
    by_path = demo.run("env", "say", "z", PATH=f"{demo.paths.prefix}/bin:{os.environ['PATH']}")
    assert by_path.stdout.splitlines()[0] == "z|"


@pytest.mark.parametrize("code", [0, 1, 4, 126, 255])
def test_the_exit_status_is_that_of_the_command(demo: Revision, code: int) -> None:
    demo.run(demo.command("code"), str(code), expect=code)


def test_standard_input_and_a_terminal_reach_the_command(demo: Revision) -> None:
    assert demo.run(demo.command("copy"), stdin="one\ntwo\n").stdout == "one\ntwo\n"
    here, there = pty.openpty()
    with subprocess.Popen(
        [str(demo.paths.launcher), "tty"], env=demo.env(), stdin=there, stdout=subprocess.PIPE
    ) as made:
        assert made.communicate(timeout=240)[0].decode().strip() == os.ttyname(there)
    os.close(here)
    os.close(there)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_command(demo: Revision, number: signal.Signals) -> None:
    with subprocess.Popen(
        [demo.command("wait")], env=demo.env(), stdout=subprocess.PIPE, start_new_session=True
    ) as made:
        assert made.stdout
        assert made.stdout.readline() == b"ready\n"
        os.killpg(made.pid, number)
        assert made.wait(120) == -number


def test_fifty_commands_at_once_share_one_namespace_and_one_server(demo: Revision) -> None:
    with ThreadPoolExecutor(50) as pool:
        spaces = {done.stdout for done in pool.map(lambda _: demo.run(demo.command("space")), range(50))}
    assert len(spaces) == 1
    assert spaces != {f"{Path('/proc/self/ns/mnt').readlink()}\n"}
    assert len(demo.servers()) == 1


def test_after_its_server_was_killed_the_next_command_has_a_new_one(demo: Revision) -> None:
    demo.run(demo.command("pick"))
    (before,) = demo.servers()
    os.kill(before, signal.SIGKILL)
    assert demo.run(demo.command("pick")).stdout == "data\n"
    assert before not in demo.servers()


def test_a_server_that_is_stopped_is_named(demo: Revision) -> None:
    """Whoever reads its image hangs until a kill, so nobody begins to."""
    demo.run(demo.command("pick"))
    (server,) = demo.servers()
    os.kill(server, signal.SIGSTOP)
    try:
        wait_for(lambda: ") T " in Path(f"/proc/{server}/stat").read_text())
        for words in ([demo.command("pick")], [str(demo.paths.launcher), "true"]):
            said = demo.run(*words, expect=4).stderr
            assert f"cannot be read: its file system server (squashfuse_ll, process {server}) is stopped" in said
            assert "hint: let it go on: kill -CONT " in said
    finally:
        os.kill(server, signal.SIGCONT)
    assert demo.run(demo.command("pick")).stdout == "data\n"


def test_a_disk_of_the_node_that_is_full_is_named(demo: Revision) -> None:
    """Without the note the next command would mount it once more, where no rank reads the memory of another one."""
    place = f"{demo.tmp}/.stackyard-images-{os.geteuid()}"
    full = f"mount -t tmpfs -o size=4k none {demo.tmp}; mkdir -m 700 {place}; cat /dev/zero > {place}/x || true"
    said = demo.run(*confined(f"{{ {full}; }} 2>/dev/null", demo.command("pick")), expect=4).stderr
    assert said.startswith("stackyard: cannot write the note that lets other commands share this mount: ")
    assert "hint: set STACKYARD_TMP to a directory on this node that you can write, and that has room" in said
    wait_for(lambda: not demo.servers())


def test_a_program_of_ours_whose_server_was_killed_is_run_again(
    demo: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: where its end is the same then, it is said what has ended."""
    for name, value in demo.env().items():
        monkeypatch.setenv(name, value)
    demo.run(demo.command("pick"))
    (server,), prefix = demo.servers(), demo.paths.prefix
    killed = f"kill -9 {server} && while [ -e /proc/{server}/exe ]; do sleep 0.05; done"
    words = ["sh", "-c", f"{killed}; cat {prefix}/share/data"]
    assert run_within(Image(prefix), words, timeout_s=240).stdout == "data\n"
    with pytest.raises(StackyardError, match=rf"image mounted on {prefix} could no longer be read: .* ended$"):
        run_within(Image(prefix), ["sh", "-c", "kill -BUS $$"], timeout_s=240)
    (server,) = demo.servers()
    monkeypatch.setenv("DATA", f"{prefix}/share/data")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert within.call(Image(prefix), kill_once, server, "reading") == "data\n"
    with pytest.raises(StackyardError, match=r"could no longer be read: its server \(squashfuse_ll\) ended$"):
        within.call(Image(prefix), kill_all, prefix, "reading")
    assert demo.run(demo.command("pick")).stdout == "data\n"


def kill_once(server: int) -> str:
    """Read a file after the end of the first server: an error of the file system, which counts as no result."""
    data = Path(os.environ["DATA"])
    if server in image_servers(data.parents[2] / "image.sqsh"):
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: within.is_lost(data.parent))
    try:
        return data.read_text()
    except OSError as error:
        raise StackyardError(str(error)) from error


def kill_all(prefix: Path) -> None:
    """End the server of this namespace, whichever it is."""
    for server in image_servers(prefix.parent / "image.sqsh"):
        os.kill(server, signal.SIGKILL)
    wait_for(lambda: within.is_lost(prefix))


def spaces(*, without: int) -> Iterator[Path]:
    """The mount namespaces of all processes but one."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.name != str(without):
                yield (process / "ns/mnt").readlink()


def test_a_server_that_is_killed_before_the_command_starts_is_replaced(tmp_path: Path) -> None:
    """Between joining its namespace and the start of the command, which strace holds for three seconds."""
    programs.need("strace", "mksquashfs", "squashfuse")
    demo = make(tmp_path)
    demo.run(demo.command("pick"))
    (server,) = demo.servers()
    space = Path(f"/proc/{server}/ns/mnt").readlink()
    words = ["strace", "-o", "/dev/null", "-e", "inject=execve:delay_enter=3000000", demo.command("pick")]
    try:
        with subprocess.Popen(words, env=demo.env(), stdout=subprocess.PIPE, text=True) as held:
            wait_for(lambda: space in spaces(without=server))
            os.kill(server, signal.SIGKILL)
            assert held.communicate(timeout=240)[0] == "data\n"
        assert len(demo.servers()) == 1, "which the next command joins"
        assert demo.run(demo.command("pick")).stdout == "data\n" and len(demo.servers()) == 1
    finally:
        demo.end()


def test_a_note_with_the_number_of_another_process_is_not_believed(demo: Revision) -> None:
    demo.run(demo.command("pick"))
    demo.end()
    for note in (demo.tmp / f".stackyard-images-{os.geteuid()}").iterdir():
        if not note.name.endswith(".log"):
            note.write_text(f"{os.getpid()} 1\n")
    assert demo.run(demo.command("pick")).stdout == "data\n"


def test_a_later_mount_namespace_does_not_join_that_of_an_earlier_one(demo: Revision, tmp_path: Path) -> None:
    """As of two jobs, one after the other, each with a /tmp of its own: the kernel gives both the same number."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "private"
    place.mkdir()
    for number in map(str, range(4)):
        set_up = f"mount -t tmpfs none {place}; echo {number} > {place}/job"
        words = confined(set_up, str(demo.paths.launcher), "cat", str(place / "job"))
        assert demo.run(*words).stdout == f"{number}\n"


def test_two_launches_share_no_namespace(demo: Revision) -> None:
    """Each ends at its end what has its STACKYARD_DIR: the server of the other's image must not be among it."""
    demo.run(demo.command("say"), "x")
    (own,) = demo.servers()
    for launch in ("/tmp/a", "/tmp/b"):
        for _ in range(2):
            demo.run(demo.command("say"), "x", STACKYARD_DIR=launch)
    assert len(demo.servers()) == 3 and own in demo.servers()


def test_it_is_compiled_where_no_program_of_the_temporary_directory_may_run(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    code = "import sys, pathlib; from stackyard.images.squashfs import launcher; "
    code += "print(launcher.make(pathlib.Path(sys.argv[1])))"
    (tmp_path / "noexec").mkdir()
    set_up = f"mount -t tmpfs -o noexec none {tmp_path}/noexec; export TMPDIR={tmp_path}/noexec"
    words = confined(set_up, sys.executable, "-c", code, str(tmp_path / "launch"))
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("compiled by ") and os.access(tmp_path / "launch", os.X_OK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launch", "noexec"]


def test_an_image_that_is_not_used_is_unmounted(demo: Revision) -> None:
    demo.run(demo.command("pick"), STACKYARD_IMAGE_IDLE_S="1")
    wait_for(lambda: not demo.servers())
    assert demo.run(demo.command("pick")).stdout == "data\n"


def test_an_image_stays_mounted_while_a_program_of_ours_needs_it(demo: Revision) -> None:
    """As a verification does, between checks that open no file of it. On a busy machine the image may be unmounted
    before the program has started: then there is nothing to hold, and it is started again."""
    code = (
        "import sys, time; from pathlib import Path; from stackyard.images.squashfs.enter import staying_mounted\n"
        "from stackyard.yard.kinds.payload import Image\n"
        "image = Image(Path(sys.argv[1]))\n"
        "with staying_mounted(image):\n"
        "    if not image.is_visible: sys.exit(75)\n"
        "    time.sleep(float(sys.argv[2]) + 3); print(image.is_visible)\n"
        "until = time.monotonic() + 120\n"
        "while image.is_visible and time.monotonic() < until: time.sleep(0.2)\n"
        "print(image.is_visible)"
    )
    words = [str(demo.paths.launcher), sys.executable, "-c", code, str(demo.paths.prefix)]
    for idle_s in map(str, range(1, 20)):
        env = demo.env(STACKYARD_IMAGE_IDLE_S=idle_s)
        done = subprocess.run([*words, idle_s], env=env, capture_output=True, text=True, check=False, timeout=240)
        if done.returncode != 75:
            break
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_a_program_of_ours_that_starts_late_finds_the_image(
    demo: Revision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine Python may take longer to start than an unused image stays mounted."""
    late = tmp_path / "python"
    late.write_text(f'#!/bin/sh\nsleep 6\nexec {sys.executable} "$@"\n')
    late.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(late))
    image, data = Image(demo.paths.prefix), demo.paths.prefix / "share" / "data"
    env = demo.env(STACKYARD_IMAGE_IDLE_S="2")
    done = run_module_within(image, "base64", "-e", str(data), timeout_s=60, environ=env)
    assert done.stdout == "ZGF0YQo=\n", done.stderr


def test_within_its_namespace_nothing_is_entered_again(demo: Revision) -> None:
    both = f"readlink /proc/self/ns/mnt; {demo.command('space')}"
    first, second = demo.run(str(demo.paths.launcher), "sh", "-c", both).stdout.split()
    assert first == second


def test_where_root_has_mounted_it_the_launcher_is_not_run(demo: Revision) -> None:
    words = confined(f"mount -o loop {demo.paths.image} {demo.paths.prefix}", demo.command("pick"))
    assert demo.run(*words).stdout == "data\n"
    assert not demo.servers()


def dead_mount(demo: Revision, options: str = "ro") -> str:
    """A piece of shell that leaves the mount of a server that was killed."""
    prefix = demo.paths.prefix
    set_up = f"squashfuse_ll -f -o {options} {demo.paths.image} {prefix} & server=$!\n"
    return set_up + f"while [ -e {prefix}/.stub ]; do sleep 0.05; done; kill -9 $server; wait $server || true"


def test_a_mount_whose_server_was_killed_is_taken_away(demo: Revision) -> None:
    """It hides the stubs; root, and the user whose mount it is, can unmount it."""
    done = demo.run(*confined(dead_mount(demo), str(demo.paths.launcher), "cat", f"{demo.paths.prefix}/share/data"))
    assert (done.stdout, done.stderr.removeprefix("Killed\n")) == ("data\n", ""), "the shell may say it of the server"


@pytest.mark.parametrize("script", [False, True])
def test_a_dead_mount_of_another_account_is_mounted_over(common: Path, script: bool) -> None:
    """In a namespace, where it can be neither read nor taken away. A script cannot: mount(8) needs root."""
    if os.geteuid() != 0:
        pytest.skip("acting as another user needs root")
    programs.need("mksquashfs", "squashfuse")
    demo = make(common, script=script)
    for path in (demo.paths.root, common):
        path.chmod(0o755)
    demo.tmp.chmod(0o1777)
    node = f"mknod {demo.tmp}/fuse c 10 229; chmod 666 {demo.tmp}/fuse; mount --bind {demo.tmp}/fuse /dev/fuse\n"
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(demo.paths.launcher), "pick"]
    path = f"{demo.paths.prefix}/bin:/usr/bin:/bin"
    set_up = node + dead_mount(demo, "ro,allow_other")
    done = demo.run(*confined(set_up, *words), expect=4 if script else 0, cwd=Path("/"), PATH=path)
    demo.end()
    if not script:
        assert (done.stdout, done.stderr.removeprefix("Killed\n")) == ("data\n", ""), (
            "the shell may say it of the server"
        )
        return
    assert f"cannot read {demo.paths.prefix}: the server of its mount has ended" in done.stderr
    assert "stackyard image unmount" in done.stderr


def test_a_command_that_the_image_has_not(demo: Revision) -> None:
    (demo.paths.prefix / "bin" / "gone").symlink_to("../../launch")
    done = demo.run(demo.command("gone"), expect=127)
    assert "gone" in done.stderr and "may be damaged: it is not in the image" in done.stderr, "it is one of its stubs"
    assert "usage:" in demo.run(str(demo.paths.launcher), expect=2).stderr
    said = demo.run(str(demo.paths.launcher), "no-such-command", expect=127).stderr
    assert "no-such-command" in said and "damaged" not in said


def flipped(image: Path, *places: int) -> None:
    """Change some bytes of an image; its size and its first 96 bytes stay."""
    data = bytearray(image.read_bytes())
    for place in places:
        data[place] ^= 0xFF
    image.chmod(0o644)
    image.write_bytes(data)


def test_a_command_that_cannot_be_read_is_named_with_its_image(demo: Revision, tmp_path: Path) -> None:
    """Superblock and tables are whole, so it is mounted; only the blocks of this command are damaged."""
    big = tmp_path / "demo-tree/bin/big"
    big.write_bytes(b"#!/bin/sh\n#" + b"." * 200_000)
    big.chmod(0o755)
    squashfs.pack(tmp_path / "demo-tree", demo.paths.image, order=["bin/big"])
    (demo.paths.prefix / "bin/big").symlink_to("../../launch")
    demo.run(demo.command("big"))
    demo.end()
    flipped(demo.paths.image, demo.paths.image.read_bytes().index(b"\x28\xb5\x2f\xfd"))  # zstd's first block
    for words in ([demo.command("big")], [str(demo.paths.launcher), demo.command("big")]) * 2:
        said = demo.run(*words, expect=126).stderr
        assert f"{demo.command('big')}: " in said and f"the image {demo.paths.image} may be damaged: " in said, said
        assert f"hint: `stackyard verify {tmp_path.name}/demo` compares it with its record; " in said
    assert demo.run(demo.command("pick")).stdout == "data\n", "which is whole"


def test_an_image_in_which_nothing_can_be_read_is_not_an_empty_one(demo: Revision, tmp_path: Path) -> None:
    """The tables at its end are damaged: the server mounts it, and no name is found."""
    size = int.from_bytes(demo.paths.image.read_bytes()[40:48], "little")
    flipped(demo.paths.image, *range(size - 400, size, 3))
    for words in ([demo.command("pick")], [str(demo.paths.launcher), "pick"], [str(demo.paths.launcher), "true"]):
        said = demo.run(*words, expect=4).stderr
        assert f"the image {demo.paths.image} may be damaged: its files cannot be read" in said, said
        assert f"hint: `stackyard verify {tmp_path.name}/demo` compares it with its record; " in said
    wait_for(lambda: not demo.servers())


def test_without_user_namespaces_it_says_so(demo: Revision) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    directory = demo.paths.prefix
    shutil.chown(directory, "nobody")
    words = ["unshare", "-Ur", "sh", "-c", script, "sh", demo.command("pick")]
    done = demo.run(*words, expect=4)
    assert f"cannot mount {demo.paths.image}" in done.stderr
    assert "stackyard image status" in done.stderr


def test_without_fuse_it_says_so(demo: Revision) -> None:
    done = demo.run(*confined("mount --bind /dev/null /dev/fuse", demo.command("pick")), expect=4)
    assert f"cannot mount {demo.paths.image}" in done.stderr


def test_a_truncated_image_is_an_error_and_not_an_empty_directory(demo: Revision) -> None:
    whole = demo.paths.image.stat().st_size
    for size in (whole - 4096, 3 * whole // 4, whole // 2, 300, 40, 0):
        os.truncate(demo.paths.image, size)
        done = demo.run(demo.command("pick"), expect=4)
        assert f"cannot mount {demo.paths.image}" in done.stderr
        assert "truncated" in done.stderr or size < 48


@pytest.mark.parametrize("script", [False, True])
def test_an_image_that_this_user_may_not_read_is_not_called_damaged(common: Path, script: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("acting as another user needs root")
    programs.need("mksquashfs")
    demo = make(common, script=script)
    demo.paths.root.chmod(0o755)
    demo.paths.image.chmod(0o600)
    demo.tmp.chmod(0o1777)
    words = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", demo.command("pick"))
    said = demo.run(*words, expect=4, cwd=Path("/")).stderr
    assert f"cannot mount {demo.paths.image}: Permission denied\n  hint: ask its owner to let you read it" in said


def test_what_was_removed_under_a_namespace_is_named(demo: Revision) -> None:
    """Who is in it works on; after that the launcher says what is missing."""
    demo.run(demo.command("pick"))
    demo.paths.image.unlink()
    assert demo.run(demo.command("pick")).stdout == "data\n", "its server has the file open"
    demo.end()
    done = demo.run(demo.command("pick"), expect=4)
    assert done.stderr.startswith(f"stackyard: cannot mount {demo.paths.image}: not found\n  hint: restore it")
    shutil.rmtree(demo.paths.prefix)
    done = demo.run(str(demo.paths.launcher), "sh", "-c", "echo it runs", expect=4)
    assert f"{demo.paths.prefix} not found: the files of this revision were removed" in done.stderr


def test_an_image_may_be_replaced_while_it_is_mounted(demo: Revision, tmp_path: Path) -> None:
    demo.run(demo.command("pick"))
    shutil.copy(demo.paths.image, tmp_path / "new")
    (tmp_path / "new").replace(demo.paths.image)
    assert demo.run(demo.command("pick")).stdout == "data\n"


def test_other_groups_and_users_cannot_be_used_within(demo: Revision, tmp_path: Path) -> None:
    """As docs/howto/images.md says: one user and one group are known there."""
    (tmp_path / "file").touch()
    groups = [number for number in os.getgroups() if number != os.getegid()] or [1]
    done = demo.run(str(demo.paths.launcher), "chgrp", str(groups[0]), str(tmp_path / "file"), expect=1)
    assert "Invalid argument" in done.stderr
    done = demo.run(str(demo.paths.launcher), "setpriv", "--reuid=1", "id", expect=127)
    assert "Invalid argument" in done.stderr


def test_a_directory_that_another_user_made_first_is_passed_over(demo: Revision) -> None:
    taken = demo.tmp / f".stackyard-images-{os.geteuid()}"
    taken.mkdir(mode=0o777)
    shutil.chown(taken, "nobody")
    assert demo.run(demo.command("pick")).stdout == "data\n"
    assert not list(taken.iterdir())
    assert (demo.tmp / f"{taken.name}.1").stat().st_mode & 0o777 == 0o700


def test_two_images_are_in_one_namespace(tmp_path: Path) -> None:
    """As MPI needs it: what a program of the one starts of the other shares its memory."""
    one, two = make(tmp_path, "one"), make(tmp_path, "two", data="of two\n")
    loaded = f"{two.paths.root}:{one.paths.root}"
    try:
        inner = f"readlink /proc/self/ns/mnt; {two.command('space')}; {two.command('pick')}"
        done = one.run(str(one.paths.launcher), "sh", "-c", inner, STACKYARD_IMAGES=loaded)
        space, other, data = done.stdout.splitlines()
        assert (space, data) == (other, "of two")
        later = one.run(two.command("space"), STACKYARD_IMAGES=loaded).stdout.strip()
        assert later == space, "also from outside"
    finally:
        one.end()
        two.end()
