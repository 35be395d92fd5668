"""The launcher of an image, compiled and as a script, where its caller or the machine is unusual."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from image_bed import Revision, confined, make

from stackyard.yard.revision.directories import RevisionPaths
from support import programs
from support.accounts import Accounts

pytestmark = pytest.mark.real
TOOLS = ("cat", "cksum", "flock", "id", "mkdir", "nsenter", "readlink", "sed", "setsid", "squashfuse_ll", "stat", "tr")
"""Programs that the launcher calls, and that a stack may have too."""
UNUSUAL = ("a:b", "a b", "a,b", "a'b", 'a"b', "a%sb", "a$HOME", "-a", "a\nb")
"""Directories' names. A deploy refuses most of them; a yard may be reached by a link, or be moved."""


def twice(demo: Revision, *words: str, expect: int = 0, cwd: Path | None = None, **more: str) -> list[str]:
    """What a command prints that mounts the image, and what the next one prints, which joins it."""
    demo.end()
    return [demo.run(*words, expect=expect, cwd=cwd, **more).stdout for _ in range(2)]


@pytest.mark.parametrize("script", [False, True])
def test_any_name_of_a_directory(tmp_path: Path, script: bool) -> None:
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    plain = make(tmp_path, script=script)
    for name in UNUSUAL:
        place = tmp_path / name
        (place / "node").mkdir(parents=True)
        shutil.copytree(plain.paths.root, place / "demo", symlinks=True)
        demo = Revision(RevisionPaths(place / "demo"), place / "node")
        try:
            assert twice(demo, demo.command("pick")) == ["data\n", "data\n"], name
        finally:
            demo.end()


@pytest.mark.parametrize("path", ["", ".", "/no/such/directory", "PREFIX/bin"])
def test_the_path_list_of_the_caller_does_not_matter(demo: Revision, path: str) -> None:
    found = path.replace("PREFIX", str(demo.paths.prefix))
    for said in twice(demo, str(demo.paths.launcher), "/bin/sh", "-c", 'echo "$PATH"', PATH=found):
        assert said == f"{found}\n"


def test_other_programs_of_the_same_names_are_not_called(demo: Revision, tmp_path: Path) -> None:
    """Those of a stack would start the launcher again, which would wait for itself."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in TOOLS:
        (demo.paths.prefix / "bin" / name).symlink_to("../../launch")
        (foreign / name).write_text("#!/bin/sh\nexit 9\n")
        (foreign / name).chmod(0o755)
    (foreign / "squashfuse_ll").unlink()  # a user may bring that
    for directory in (foreign, demo.paths.prefix / "bin"):
        path = f"{directory}:{os.environ['PATH']}"
        twice(demo, "/usr/bin/timeout", "60", demo.command("code"), "7", expect=7, PATH=path)


def test_a_command_by_a_relative_path(demo: Revision) -> None:
    """The working directory is that of the image too, and not the one of the stubs below it."""
    prefix, launcher = demo.paths.prefix, str(demo.paths.launcher)
    for word, directory in (("./say", prefix / "bin"), ("bin/say", prefix), ("../prefix/bin/say", prefix)):
        assert twice(demo, word, "x", cwd=directory) == [f"x|\n{directory}\n"] * 2
        assert twice(demo, launcher, "cat", "share/data", cwd=prefix) == ["data\n"] * 2


@pytest.mark.parametrize("name", ["/no/such/name", "-NAME", ""])
def test_another_name_in_the_place_of_the_path(demo: Revision, name: str) -> None:
    """As a login shell has it (``-``), or a program that chooses one."""
    command = demo.command("pick")
    done = subprocess.run([name.replace("NAME", command)], executable=command, env=demo.env(), capture_output=True,
                          text=True, timeout=120, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "data\n"), done.stderr


def test_a_working_directory_that_was_removed(demo: Revision, tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "gone").mkdir()
        leave = f'cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec "$@"'
        assert demo.run("sh", "-c", leave, "sh", demo.command("code"), "7", expect=7).returncode == 7


@pytest.mark.parametrize("script", [False, True])
def test_a_working_directory_that_this_user_may_not_enter(accounts: Accounts, common: Path, script: bool) -> None:
    """As after `su` in a home of mode 0700: what needs no file of it works, with and without an image."""
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    anna, demo = accounts.user("anna"), make(common, script=script)
    demo.tmp.chmod(0o1777)
    (common / "private").mkdir(mode=0o700)
    fuse = common / "fuse"
    subprocess.run(["mknod", "-m", "666", str(fuse), "c", "10", "229"], check=True)
    words = ["setpriv", f"--reuid={anna.uid}", f"--regid={anna.gid}", "--clear-groups", demo.command("code"), "7"]
    both = f'cd {common}/private; for i in 1 2; do "$@" || echo $?; done'
    try:
        done = demo.run(*confined(f"mount --bind {fuse} /dev/fuse", "sh", "-c", both, "sh", *words))
        assert done.stdout == "7\n7\n", done.stderr
    finally:
        demo.end()


def test_a_caller_that_ignores_its_children(demo: Revision) -> None:
    """The image was mounted where all processes of root see it, and a server that ends was waited for a minute."""
    launcher = str(demo.paths.launcher)
    for words in ([demo.command("space")], [launcher, "grep", "SigIgn", "/proc/self/status"]) * 2:
        done = subprocess.run(words, env=demo.env(), capture_output=True, text=True, timeout=120, check=True,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))  # fmt: skip
        if len(words) == 1:
            assert done.stdout.strip() != str(Path("/proc/self/ns/mnt").readlink())
        elif not demo.is_script:  # a shell takes care of its children itself
            assert int(done.stdout.split()[1], 16) & 1 << signal.SIGCHLD - 1, "as the caller has it"
    assert f" {demo.paths.prefix} " not in Path("/proc/self/mountinfo").read_text()


def test_closed_standard_streams(demo: Revision) -> None:
    ways = ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-")
    for close in ways:
        demo.run("sh", "-c", f'"$@" {close}', "sh", demo.command("code"), "7", expect=7)
    demo.end()
    os.truncate(demo.paths.image, 300)
    for close in ways:
        demo.run("sh", "-c", f'"$@" {close}', "sh", demo.command("code"), "7", expect=4)
    notes = [path for path in demo.tmp.glob(".stackyard-images-*/*") if path.suffix != ".log"]
    assert notes and not any("stackyard: " in path.read_text() for path in notes), "no error in the place of a note"


def test_limits_of_the_caller(demo: Revision) -> None:
    """Few open files: the compiled launcher needs seven, a shell script more than ten."""
    launcher = str(demo.paths.launcher)
    for _ in range(2):
        demo.run("bash", "-c", f'ulimit -n {20 if demo.is_script else 10}; exec "$@"', "sh", launcher, "/bin/true")
        demo.run("bash", "-c", 'ulimit -v 100000; exec "$@"', "sh", launcher, "/bin/true")
    if not demo.is_script:
        said = demo.run("bash", "-c", 'ulimit -n 4; exec "$@"', "sh", launcher, "/bin/true", expect=4).stderr
        assert said.endswith("Too many open files\n  hint: raise the limit of open files: ulimit -n\n")
    demo.end()
    said = demo.run("bash", "-c", 'ulimit -f 0; exec "$@"', "sh", launcher, "/bin/true", expect=4).stderr
    assert said.startswith("stackyard: cannot write the note that lets other commands share this mount: ")


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"STACKYARD_IMAGE_IDLE_S": "soon"}, "invalid STACKYARD_IMAGE_IDLE_S: soon"),
        ({"STACKYARD_IMAGE_IDLE_S": "5,allow_other"}, "invalid STACKYARD_IMAGE_IDLE_S: 5,allow_other"),
        ({"STACKYARD_TMP": "/etc/passwd"}, "cannot create a private directory in /etc/passwd: Not a directory"),
        ({"STACKYARD_TMP": "/no/such"}, "cannot create a private directory in /no/such: No such file or directory"),
    ],
)
def test_a_setting_that_is_wrong_is_named(demo: Revision, variables: dict[str, str], says: str) -> None:
    said = demo.run(demo.command("pick"), expect=4, **variables).stderr
    first, hint = said.splitlines()
    assert first == f"stackyard: {says}" and hint.startswith("  hint: ")


def test_without_proc_it_says_so(demo: Revision) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    said = demo.run(*confined("mount -t tmpfs none /proc", demo.command("pick")), expect=4).stderr
    assert said.startswith("stackyard: cannot read /proc/self/") and "hint: mount " in said


def test_in_another_user_namespace_and_in_a_chroot(demo: Revision, tmp_path: Path) -> None:
    for words in (["unshare", "--user", "--map-root-user"], ["unshare", "--user", "--map-root-user", "--mount"]):
        assert twice(demo, *words, demo.command("pick")) == ["data\n", "data\n"]
    if os.geteuid() == 0:
        (tmp_path / "root").mkdir()
        inner = f'mount --rbind / {tmp_path}/root; exec chroot {tmp_path}/root setpriv --reuid=65534 "$@"'
        shutil.chown(demo.tmp, "nobody")
        words = ["unshare", "--mount", "--propagation", "slave", "sh", "-ec", inner, "sh"]
        for directory in (tmp_path, *tmp_path.parents[:3]):
            directory.chmod(directory.stat().st_mode | 0o011)
        said = demo.run(*words, demo.command("pick"), expect=4).stderr
        assert f"stackyard: cannot mount {demo.paths.image}: " in said and "`stackyard image status`" in said
