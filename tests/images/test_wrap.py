"""Wrapped images: what a command keeps, what its container shows, and what happens on bad days."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from images.image_bed import confined, make
from images.wrap_bed import Wrapped, bed, need
from support import programs
from support.processes import wait_for

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def module_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapped]:
    need()
    made = bed(tmp_path_factory.mktemp("wrap"))
    bound = made.directory / "bound"
    bound.mkdir()
    (bound / "file").write_text("of the host\n")
    made.wrap("--bind", f"{bound}:/data/new/place", "--bind", f"{bound}:/fixed:ro", "--bind",
              f"{bound}/file:/etc/conf:ro", "--env", "TOOL_MODE=fast")  # fmt: skip
    made.end()  # the server by which the scripts of the image were asked, which ends by itself after a while
    yield made
    made.end()


@pytest.fixture
def tool(module_bed: Wrapped) -> Iterator[Wrapped]:
    yield module_bed
    module_bed.end()


def test_a_command_keeps_its_arguments_its_directory_and_its_status(tool: Wrapped, tmp_path: Path) -> None:
    words = ["a b", "", "*", "'\"$HOME", "\n", "ü"]
    done = tool.run(tool.command("say"), *words, cwd=tmp_path)
    assert done.stdout == "a b||*|'\"$HOME|\n|ü|\n" + f"{tmp_path}\n"
    assert not done.stderr
    for code in (0, 1, 4, 126, 255):
        tool.run(tool.command("code"), str(code), expect=code)


def test_standard_input_and_a_terminal_reach_the_command(tool: Wrapped) -> None:
    assert tool.run(tool.command("copy"), stdin="one\ntwo\n").stdout == "one\ntwo\n"
    here, there = pty.openpty()
    words = [str(tool.root / "launch"), "tty"]
    with subprocess.Popen(words, env=tool.env(), stdin=there, stdout=subprocess.PIPE, cwd=tool.directory) as made:
        assert made.communicate(timeout=240)[0].decode().strip() == os.ttyname(there)
    os.close(here)
    os.close(there)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_command(tool: Wrapped, number: signal.Signals) -> None:
    words = [tool.command("wait")]
    with subprocess.Popen(
        words, env=tool.env(), stdout=subprocess.PIPE, start_new_session=True, cwd=tool.directory
    ) as made:
        assert made.stdout
        assert made.stdout.readline() == b"ready\n"
        os.killpg(made.pid, number)
        assert made.wait(30) == -number


def test_the_system_is_that_of_the_image_and_the_files_are_yours(tool: Wrapped, tmp_path: Path) -> None:
    assert tool.sh("cat /etc/os-release") == "ID=small\n"
    tool.sh("echo written > here", cwd=tmp_path)
    assert (tmp_path / "here").read_text() == "written\n"
    assert (tmp_path / "here").stat().st_uid == os.geteuid()
    assert tool.sh("id -u; cat /proc/self/uid_map").split() == [str(os.geteuid())] * 3 + ["1"]
    assert tool.sh("touch /etc/new 2>&1", expect=1).strip().endswith("Read-only file system")
    assert tool.sh("touch /new 2>&1", expect=1).strip().endswith("Read-only file system")


def test_the_directories_that_only_the_host_has_are_bound(tool: Wrapped) -> None:
    ours = sorted(each.name for each in Path("/").iterdir() if each.is_dir() and not each.is_symlink())
    lacks = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "var", "boot", "lost+found"}
    seen = set(tool.sh("ls /").split())
    assert seen >= {name for name in ours if name not in lacks and not name.startswith(".")}
    assert "data" in seen
    assert not {"boot", "lib64"} & seen


def test_bindings_have_a_place_where_the_image_has_none(tool: Wrapped) -> None:
    assert tool.sh("cat /data/new/place/file /data/own /fixed/file") == "of the host\nof the image\nof the host\n"
    assert tool.sh("cat /etc/conf; ls -ld /etc/conf").startswith("of the host\n-"), "not where the link leads"
    tool.sh("touch /data/new/place/more")
    assert (tool.directory / "bound/more").exists()
    assert "Read-only" in tool.sh("touch /fixed/x 2>&1", expect=1)
    assert not (tool.directory / "bound/x").exists()


@pytest.mark.parametrize("options", ["noatime,nodiratime", "noatime,noexec,nosuid,nodev", "strictatime,nodiratime"])
def test_a_read_only_binding_of_a_file_system_with_any_options(tool: Wrapped, options: str) -> None:
    mounted = f"mount -t tmpfs -o {options} none {tool.directory}/bound; echo of the host > {tool.directory}/bound/file"
    script = "cat /fixed/file; touch /fixed/x"
    done = tool.run(*confined(mounted, str(tool.root / "launch"), "sh", "-c", script), expect=1)
    assert done.stdout == "of the host\n"
    assert "Read-only file system" in done.stderr


def test_the_environment_is_the_images_and_the_hosts_loader_settings_stay_out(tool: Wrapped) -> None:
    ours = {"LD_LIBRARY_PATH": "/host/lib", "PYTHONHOME": "/host", "CUDA_HOME": "/host/cuda", "MY_OWN": "a b"}
    seen = dict(line.split("=", 1) for line in tool.sh("env", **ours).splitlines())
    assert seen["LD_LIBRARY_PATH"] == "/opt/tool/lib"
    assert seen["CUDA_HOME"] == "/usr/local/cuda"
    assert (seen["MY_OWN"], seen["TOOL_MODE"], seen["HOME"]) == ("a b", "fast", str(tool.directory))
    assert "PYTHONHOME" not in seen
    bin_ = f"{tool.root}/prefix/bin"
    assert seen["PATH"].startswith(f"{bin_}:/opt/tool/bin:/bin:")
    venv = tool.sh("echo $PATH", PATH=f"/my/venv/bin:{bin_}:/usr/bin")
    assert venv == f"/my/venv/bin:{bin_}:/opt/tool/bin:/bin:/usr/bin\n", "what you put before it stays before it"


def test_scripts_of_the_image_and_of_yours(tool: Wrapped, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text(f"#!{tool.command('copy')}\nthe text\n")
    own.chmod(0o755)
    assert tool.run(str(own), stdin="x").stdout == "x"
    found = tool.run("env", "say", "z", PATH=f"{tool.root}/prefix/bin:{os.environ['PATH']}")
    assert found.stdout.splitlines()[0] == "z|"


def test_within_a_container_nothing_is_entered_again(tool: Wrapped) -> None:
    both = f"readlink /proc/self/ns/mnt; {tool.command('space')}; space; {tool.root}/launch space"
    assert len(set(tool.sh(both).split())) == 1


def test_fifty_commands_at_once_share_one_container(tool: Wrapped) -> None:
    with ThreadPoolExecutor(50) as pool:
        spaces = {done.stdout for done in pool.map(lambda _: tool.run(tool.command("space")), range(50))}
    assert len(spaces) == 1
    assert spaces != {f"{Path('/proc/self/ns/mnt').readlink()}\n"}
    assert len(tool.servers()) == 1


def test_after_its_server_was_killed_the_next_command_has_a_new_one(tool: Wrapped) -> None:
    tool.run(tool.command("space"))
    (before,) = tool.servers()
    os.kill(before, signal.SIGKILL)
    assert tool.run(tool.command("say"), "x").stdout.startswith("x|")
    assert before not in tool.servers()


def test_a_note_with_the_number_of_another_process_is_not_believed(tool: Wrapped) -> None:
    tool.run(tool.command("space"))
    tool.end()
    for note in (tool.node / f".stackyard-images-{os.geteuid()}").iterdir():
        if not note.name.endswith(".log"):
            note.write_text(f"{os.getpid()} 1\n")
    assert tool.run(tool.command("say"), "x").stdout.startswith("x|")


def test_a_stack_of_ours_is_seen_in_the_container_and_the_other_way_round(tool: Wrapped, tmp_path: Path) -> None:
    demo = make(tmp_path)
    try:
        inside = tool.run(str(tool.root / "launch"), demo.command("pick"), STACKYARD_IMAGES=str(demo.paths.root))
        assert inside.stdout == "data\n"
        outer = demo.run(str(demo.paths.launcher), tool.command("say"), "y")
        assert outer.stdout.startswith("y|")
    finally:
        demo.end()


def test_a_command_of_another_image_is_refused_in_a_container(tool: Wrapped, tmp_path: Path) -> None:
    other = bed(tmp_path)
    other.wrap()
    try:
        done = tool.run(str(tool.root / "launch"), other.command("say"), "x", expect=4)
        assert "a command of another image cannot be started in the container of" in done.stderr
        assert other.run(other.command("say"), "x").stdout.startswith("x|")
    finally:
        other.end()


def test_without_user_namespaces_or_fuse_it_says_so(tool: Wrapped) -> None:
    none = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    done = tool.run("unshare", "-Ur", "sh", "-c", none, "sh", tool.command("say"), expect=4)
    assert "user namespaces are switched off on this machine" in done.stderr
    done = tool.run(*confined("mount --bind /dev/null /dev/fuse", tool.command("say")), expect=4)
    assert f"cannot mount {tool.root}/image.sqsh" in done.stderr
    assert "stackyard image status" in done.stderr
    wait_for(lambda: not tool.servers())  # it ends when its namespace does


def test_a_binding_that_a_node_lacks_is_named(tool: Wrapped) -> None:
    place = tool.directory / "bound"
    place.rename(tool.directory / "away")
    try:
        done = tool.run(tool.command("say"), expect=4)
        assert f"cannot bind {place} in the container of {tool.root}: No such file or directory" in done.stderr
        wait_for(lambda: not tool.servers())  # none is left behind: it ends when its mount has gone
    finally:
        (tool.directory / "away").rename(place)


def test_a_file_of_the_host_that_is_replaced_meanwhile_is_bound(tool: Wrapped, tmp_path: Path) -> None:
    """As accounts are made and addresses change: files of /etc are written beside, and renamed. strace lengthens the
    moment between the opening of one and its binding."""
    programs.need("strace")
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True, ignore_dangling_symlinks=True)
    slowly = "strace -o /dev/null -e trace=pivot_root -e inject=pivot_root:delay_enter=300000"
    script = f"""mount --bind {tmp_path}/etc /etc
        (until [ -e {tmp_path}/end ]; do cp /etc/group /etc/new; mv /etc/new /etc/group; sleep 0.02; done) &
        {slowly} {tool.root}/launch head -c4 /etc/group || echo failed; touch {tmp_path}/end; wait"""
    done = tool.run("unshare", "--mount", "--propagation", "private", "sh", "-ec", script)
    assert done.stdout == "root"


def test_a_file_system_of_the_host_that_hangs_is_not_asked(tool: Wrapped) -> None:
    """Only a command that uses it hangs."""
    programs.need("bindfs")
    set_up = f"mkdir -p {tool.directory}/below; bindfs -f -o attr_timeout=0 {tool.directory}/below /media & server=$!\n"
    set_up += "until mountpoint -q /media; do sleep 0.05; done; kill -STOP $server; trap 'kill -9 $server' EXIT\n"
    words = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-ec",
        f"{set_up}timeout 200 {tool.command('say')} x",
    ]
    assert tool.run(*words).stdout.startswith("x|")


def test_a_working_directory_that_the_image_hides_is_named(tool: Wrapped) -> None:
    for place in ("/usr/share", "/etc"):
        done = tool.run(tool.command("say"), expect=126, cwd=Path(place))
        assert f"the working directory {place} is not in the container of {tool.root}" in done.stderr
    assert tool.run(tool.command("say"), cwd=Path("/")).stdout == "|\n/\n"


def test_a_truncated_image_is_named(tool: Wrapped) -> None:
    file = tool.root / "image.sqsh"
    kept = tool.directory / "kept"
    shutil.copy2(file, kept)
    os.truncate(file, 300)
    try:
        assert "it is truncated" in tool.run(tool.command("say"), expect=4).stderr
        tool.stackyard("verify", tool.name, expect=3)
    finally:
        file.chmod(0o644)
        shutil.copyfile(kept, file)
        tool.stackyard("verify", tool.name)
