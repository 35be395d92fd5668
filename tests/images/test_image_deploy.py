"""A revision whose files are in an image, the whole way: deployed, loaded, run, verified, damaged, killed, shared."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from image_bed import confined

from stackyard.images.squashfs import bykernel, servers
from stackyard.yard.revision.directories import RevisionPaths
from support import modules, programs, testbed
from support.accounts import Accounts
from support.channel import Package, make_channel
from support.cli import STACKYARD, Done, stackyard
from support.processes import image_servers, wait_for

pytestmark = [pytest.mark.real, pytest.mark.slow]

CODE = "import idna, sys; print(idna.encode('ö.de').decode(), sys.executable)"


@dataclass
class Bed:
    """A small stack on the host's Python, and its yard."""

    directory: Path

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def paths(self) -> RevisionPaths:
        return RevisionPaths(self.yard / "stacks/demo/1-py3-1")

    def write(self, *lines: str) -> Path:
        file = self.directory / "stack.yaml"
        wheels = testbed.wheels(testbed.HERE / "wheels.txt")
        file.write_text(
            "name: demo\nversion: '1'\nimage: squashfs\n"
            f"environment:\n  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
            f"checks: [{{name: it encodes, run: [python, -c, 'import idna']}}]\n"
            + "".join(f"{line}\n" for line in lines)
        )
        return file

    def stackyard(self, *words: str | Path, expect: int | None = 0, **variables: Any) -> Done:
        own = {
            "HOME": str(self.directory / "home"),
            "STACKYARD_IMAGE_IDLE_S": "20",
            "STACKYARD_TMP": str(self.directory),
        }
        return stackyard("--yard", self.yard, *words, expect=expect, **own, **variables)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    made = Bed(tmp_path_factory.mktemp("image"))
    (made.directory / "home").mkdir()
    made.stackyard("deploy", made.write())
    yield made
    end_servers(made.directory)


def end_servers(directory: Path) -> None:
    subprocess.run(["pkill", "-9", "-f", f"squashfuse_ll .*{directory}/"], check=False)


def test_its_files_are_in_one_file(bed: Bed) -> None:
    record = json.loads(bed.paths.record.read_text())
    form = record["form"]
    assert (form["kind"], form["file"], form["bytes"]) == ("squashfs", "image.sqsh", bed.paths.image.stat().st_size)
    assert form["order"][0].startswith("bin/python") or "site-packages" in form["order"][0]
    assert any(name.endswith(("idna/__init__.py", ".pyc")) and "idna" in name for name in form["order"])
    listed = subprocess.check_output(["sh", "-c", f"{bykernel.LISTED} {bed.paths.record}"], text=True)
    assert listed.splitlines() == form["order"], "as the script sees it by which the kernel mounts"
    on_disk = [path for path in bed.paths.prefix.rglob("*") if not path.is_symlink() and path.is_file()]
    assert [path.name for path in on_disk] == [".stub"]
    assert (bed.paths.prefix / "bin" / "python").readlink() == Path("../../launch")
    (row,) = bed.stackyard("image", "list", "--json").value
    assert (row["module"], row["sha256"]) == ("demo/1-py3-1", form["sha256"])
    size = {"form": "squashfs", "bytes": form["bytes"], "files": 1, "entries": form["entries"]}
    assert bed.stackyard("list", "--size", "--json").value[0]["size"] == size
    assert bed.stackyard("show", "demo", "--json").value["size"] == size
    assert f"in 1 file (squashfs), {form['entries']:,} entries inside" in bed.stackyard("show", "demo").out
    assert "  mounted    when it is used, by user namespace\n" in bed.stackyard("show", "demo").out
    nothing = bed.stackyard("show", "demo", "--json", PATH="/nowhere").value["mounted"]
    assert nothing.startswith("not possible here: user namespace: squashfuse_ll not found")
    assert f" 1 ({form['entries']:,} inside)" in bed.stackyard("list", "--size").out
    assert "size" not in bed.stackyard("list", "--json").value[0], "which reads no record"
    assert "image.sqsh is as it was packed" in bed.stackyard("image", "check", "demo").out
    status = bed.stackyard("image", "status", "--json").value
    assert status["images"][0]["mounted"] == ""
    assert "user namespace" in [way["name"] for way in status["ways"] if way["works"]]


def test_the_same_file_does_nothing_and_a_prefix_is_another_revision(bed: Bed) -> None:
    assert bed.stackyard("deploy", bed.write(), "--json").value["revisions"][0]["status"] == "unchanged"
    plan = bed.stackyard("deploy", bed.write(), "--image", "prefix", "--dry-run", "--json").value["revisions"]
    assert [(row["module"], row["action"]) for row in plan] == [("demo/1-py3-2", "build")]


def test_a_revision_that_was_moved_aside_is_built_again(tmp_path: Path) -> None:
    """As the launcher says of an image that is damaged."""
    own = Bed(tmp_path)
    (tmp_path / "home").mkdir()
    file = own.write()
    own.stackyard("deploy", file)
    end_servers(tmp_path)
    own.paths.root.rename(own.paths.root.with_name("aside"))
    done = own.stackyard("deploy", file)
    assert "demo/1-py3-1 is no longer published" in done.err
    assert own.stackyard("run", "demo", "--", "python", "-c", CODE).out.startswith("xn--nda.de ")
    end_servers(tmp_path)


def test_it_is_run_and_looked_at_without_a_module_system(bed: Bed) -> None:
    host, python = bed.stackyard("run", "demo", "--", "python", "-c", CODE).out.split()
    assert (host, python) == ("xn--nda.de", str(bed.paths.prefix / "bin/python"))
    assert "lib" in bed.stackyard("shell", "demo", "--", "-c", "ls $CONDA_PREFIX", SHELL="/bin/sh").out.split()
    assert "not found" in bed.stackyard("run", "demo", "--", "no-such-program", expect=4).err


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_its_module_is_loaded_and_unloaded(bed: Bed, system: str) -> None:
    if why := modules.missing(system, "bash"):
        pytest.skip(why)
    code = (
        f"{modules.initialise(system, 'bash')}\nmodule use {bed.yard}/modules; module load demo; "
        f'python -c {shlex.quote(CODE)}; echo $STACKYARD_IMAGES; module unload demo; echo "[${{STACKYARD_IMAGES-}}]"'
    )
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(bed.directory / "home"), "STACKYARD_TMP": str(bed.directory)}
    out = modules.run("bash", code, environ, bed.directory)
    assert out.split() == ["xn--nda.de", str(bed.paths.prefix / "bin/python"), str(bed.paths.root), "[]"]


def test_it_is_verified_where_it_is_mounted(bed: Bed) -> None:
    report = bed.stackyard("verify", "demo", "--deep", "--json").value["demo/1-py3-1"]
    assert report["state"] == "passed"
    kinds = {check["kind"] for check in report["checks"] if check["status"] == "passed"}
    assert {"content", "import", "library", "consistency", "own"} <= kinds, "bare stubs would pass a part only"


def test_where_it_cannot_be_mounted_nothing_passes(bed: Bed) -> None:
    end_servers(bed.directory)
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind /dev/null /dev/fuse; exec "$@"']
    for words in (["verify", "demo"], ["run", "demo", "--", "python", "-c", CODE], ["image", "status"]):
        stack = [str(word) for word in (*argv, "sh", STACKYARD, "--yard", bed.yard, *words)]
        done = subprocess.run(stack, capture_output=True, text=True, check=False,
                              env={**os.environ, "STACKYARD_TMP": str(bed.directory)})  # fmt: skip
        assert done.returncode == (3 if words[0] == "verify" else 4), done.stdout + done.stderr
        assert "cannot mount" in done.stdout + done.stderr or "/dev/fuse" in done.stdout
        assert "passed" not in done.stdout
    stack = [*argv, "sh", str(STACKYARD), "--yard", str(bed.yard), "shell", "demo"]
    done = subprocess.run(stack, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          env={**os.environ, "STACKYARD_TMP": str(bed.directory), "SHELL": "/bin/sh"})  # fmt: skip
    assert done.returncode == 4 and done.stderr.startswith("error: cannot mount "), "and not first that it is mounted"


def test_an_interactive_shell_says_what_does_not_work_in_it(bed: Bed) -> None:
    said = bed.stackyard("shell", "demo", SHELL="/bin/sh").err
    assert "note: demo/1-py3-1 is mounted in a user namespace for this shell: su, sudo, " in said
    assert "sudo" not in bed.stackyard("shell", "demo", "--", "-c", "true", SHELL="/bin/sh").err
    within = f"{shlex.quote(str(STACKYARD))} --yard {bed.yard} shell demo"
    assert "sudo" not in bed.stackyard("run", "demo", "--", "sh", "-c", within, SHELL="/bin/sh").err, (
        "where it is already"
    )


@pytest.mark.parametrize("what", ["image.sqsh", "prefix", "launch", ""])
def test_what_was_removed_is_named(bed: Bed, what: str) -> None:
    """While a namespace holds the image, which ends meanwhile."""
    bed.stackyard("run", "demo", "--", "python", "-c", CODE)
    end_servers(bed.directory)
    gone = bed.paths.root / what
    away = bed.directory / "away"
    mode = bed.paths.root.stat().st_mode
    bed.paths.root.chmod(0o755)
    gone.rename(away)
    try:
        for words in (("run", "demo", "--", "sh", "-c", "echo it runs"), ("shell", "demo", "--", "-c", "echo it runs")):
            done = bed.stackyard(*words, expect=4, SHELL="/bin/sh")
            assert f"{gone}: not found" in done.err or f"{gone} not found: " in done.err
            assert "it runs" not in done.out and "hint: restore " in done.err
        bed.stackyard("verify", "demo", expect=3)
    finally:
        away.rename(gone)
        bed.paths.root.chmod(mode)


def test_root_mounts_it_for_everybody(bed: Bed) -> None:
    """In a mount namespace of its own: then files are seen without the launcher, and it is gone again."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    end_servers(bed.directory)
    line = f"{shlex.quote(str(STACKYARD))} --yard {bed.yard} image"
    script = (
        f"{line} mount demo && {line} status --json && ls {bed.paths.prefix} && {line} mount demo; echo $?\n"
        f"{line} unmount demo && ls -A {bed.paths.prefix} && {line} unmount demo; echo $?"
    )
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script], text=True, check=True,
                          capture_output=True, env={**os.environ, "STACKYARD_TMP": str(bed.directory)})  # fmt: skip
    assert '"mounted": "squashfs"' in done.stdout
    before, _, after = done.stdout.partition("is unmounted")
    assert "pyvenv.cfg" in before.split() and before.split()[-1] != "0"
    assert {".stub", "bin"} <= set(after.split()) and "pyvenv.cfg" not in after.split()
    assert "is mounted already" in done.stderr and "is not mounted here" in done.stderr


def test_a_mount_whose_server_was_killed_is_shown_and_unmounted(bed: Bed) -> None:
    end_servers(bed.directory)
    prefix, line = bed.paths.prefix, f"{STACKYARD} --yard {bed.yard}"
    killed = (
        f"squashfuse_ll -f -o ro {bed.paths.image} {prefix} & server=$!\n"
        f"while [ -e {prefix}/.stub ]; do sleep 0.05; done; kill -9 $server; wait $server || true\n"
    )
    script = (
        f"{killed}{line} image status demo; {line} show demo | grep mounted; {line} image mount demo || echo again $?\n"
        f"{line} image unmount demo\n"
        f"{killed}{line} run demo -- echo works; {line} image unmount demo || echo unmounted already\n"
    )
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    own = {**os.environ, "STACKYARD_TMP": str(bed.directory), "STACKYARD_IMAGE_IDLE_S": "20"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=own)
    told = "fuse.squashfuse_ll, and its server has ended: stackyard image unmount demo/1-py3-1"
    assert done.stdout.count(told) == 2, done.stdout
    assert "again 1\ndemo/1-py3-1 is unmounted\nworks\nunmounted already\n" in done.stdout
    assert f"on {prefix}, and its server has ended\n  hint: stackyard image unmount demo/1-py3-1" in done.stderr


def test_a_mount_whose_server_does_not_answer_is_named_and_unmounted(bed: Bed) -> None:
    """Each command that would read a file there ends, with what to do; so does the next one after the unmount."""
    end_servers(bed.directory)
    prefix, code = bed.paths.prefix, (
        "import sys; from stackyard.host.files import automount; automount.ANSWER_S = 1.0\n"
        "from stackyard.cli.main import main; sys.exit(main())"
    )  # fmt: skip
    line = f"timeout -k 1 200 {sys.executable} -c {shlex.quote(code)} --yard {bed.yard}"
    script = (
        f"squashfuse_ll -f -o ro {bed.paths.image} {prefix} & server=$!; trap 'kill -9 $server' EXIT\n"
        f"while [ -e {prefix}/.stub ]; do sleep 0.05; done; kill -STOP $server\n"
        f"{line} image status demo; {line} show demo | grep mounted; {line} list --json > /dev/null\n"
        f"for verb in 'run demo -- true' 'shell demo -c true' 'verify demo' 'image mount demo' 'fsck demo'; do\n"
        f"  {line} $verb || echo $verb: $?\ndone\n"
        f"cd {bed.directory}\n"
        f"{line} launch --with demo -r 1 -c 1 --oversubscribe --start-timeout 9 true || echo launch: $?\n"
        f"{line} image unmount demo; {STACKYARD} --yard {bed.yard} run demo -- echo works\n"
    )
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    own = {**os.environ, "STACKYARD_TMP": str(bed.directory), "STACKYARD_IMAGE_IDLE_S": "20"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=own)
    told = "fuse.squashfuse_ll, and its server does not answer: stackyard image unmount demo/1-py3-1"
    assert done.stdout.count(told) == 2, done.stdout
    ended = {"run demo -- true": 4, "shell demo -c true": 4, "verify demo": 3, "image mount demo": 1, "fsck demo": 3}
    assert all(f"{verb}: {status}\n" in done.stdout for verb, status in ended.items()), done.stdout + done.stderr
    silent = f"{prefix} does not answer: timed out after 1 s waiting for the file system server"
    assert done.stderr.count(silent) == 2 and silent.partition("/stacks/")[2].replace(" ", ": ", 1) in done.stdout
    assert done.stdout.count(silent) == 1, "said by verify"
    assert "launch: 71\ndemo/1-py3-1 is unmounted\nworks\n" in done.stdout and "kill -CONT PID" in done.stderr
    launched = f"{prefix} does not answer: timed out after 4 s waiting for the file system server of its mount"
    assert launched in done.stderr and "or remove the mount: stackyard image unmount\n" in done.stderr


def test_status_names_a_server_of_the_users_namespace_that_does_not_answer(bed: Bed) -> None:
    end_servers(bed.directory)
    bed.stackyard("run", "demo", "--", "true")
    (server,) = servers.of_images([bed.paths.prefix])[bed.paths.prefix]
    os.kill(server, signal.SIGSTOP)
    code = (
        "import sys; from stackyard.host.files import automount; automount.ANSWER_S = 1.0\n"
        "from stackyard.cli.main import main; sys.exit(main())"
    )
    words = [sys.executable, "-c", code, "--yard", bed.yard, "image", "status", "demo"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"when it is used; a server in a namespace of yours does not answer: kill -KILL {server}\n" in said
    end_servers(bed.directory)
    assert bed.stackyard("image", "status", "demo", "--json").value["images"][0]["silent_servers"] == []


def test_fsck_names_what_differs_in_it_and_mends_its_stubs(bed: Bed) -> None:
    whole, stubs, launcher = bed.paths.image.read_bytes(), bed.paths.prefix / "bin", bed.paths.launcher.read_bytes()
    links = {path.name: path.readlink() for path in stubs.iterdir()}
    end_servers(bed.directory)
    assert bed.stackyard("fsck", "--deep").out.startswith("nothing is wrong")
    assert "missed with a chance of 9" in bed.stackyard("fsck").out, "an image is not sampled"
    for directory in (stubs, bed.paths.prefix):
        directory.chmod(0o755)
    (stubs / "python").unlink()
    (stubs / "added").symlink_to("/bin/sh")
    (stubs.parent / ".stub").unlink()
    bed.paths.launcher.unlink()
    found = bed.stackyard("fsck", expect=3).out
    for name in ("launch: is missing", "prefix/bin/python: is missing", "prefix/bin/added: is a link to /bin/sh"):
        assert f"stacks/demo/1-py3-1/{name}" in found
    assert "prefix/.stub: " in found and "0 left" in bed.stackyard("fsck", "--repair").out
    assert {path.name: path.readlink() for path in stubs.iterdir()} == links
    assert bed.paths.launcher.read_bytes() == launcher and bed.stackyard("fsck", "--deep").out.startswith("nothing")
    bed.paths.image.chmod(0o644)
    try:
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 0xFF
        written = bed.paths.image.stat()
        bed.paths.image.write_bytes(damaged)
        assert "image.sqsh: sha256 " in bed.stackyard("fsck", expect=3).out, "written after its record"
        os.utime(bed.paths.image, ns=(written.st_atime_ns, written.st_mtime_ns))
        assert bed.stackyard("fsck").code == 0, "a sample of the others"
        found = bed.stackyard("fsck", "--deep", expect=3).out
        assert "image.sqsh: sha256 " in found and "uts46data.py: in the image: " in found and "(idna 3.10)" in found
        bed.paths.image.write_bytes(whole[:-4096])
        done = bed.stackyard("fsck", "--repair", expect=3)
        assert f"`stackyard deploy {bed.directory}/stack.yaml` builds the next one" in done.err
        assert json.loads((bed.paths.root / "damaged.json").read_text()) == {"files": ["image.sqsh"]}
    finally:
        bed.paths.image.write_bytes(whole)
        bed.paths.image.chmod(0o444)
        end_servers(bed.directory)
    assert "were not restored: they are by now" in bed.stackyard("fsck", "--deep", expect=3).out
    assert bed.stackyard("fsck", "--deep", "--repair").code == 0
    assert not (bed.paths.root / "damaged.json").exists()


def test_a_changed_byte_is_found(bed: Bed, tmp_path: Path) -> None:
    whole = bed.paths.image.read_bytes()
    end_servers(bed.directory)
    bed.paths.image.chmod(0o644)
    try:
        for damaged, said in ((whole[:5000] + b"\0" + whole[5001:], "has changed"), (whole[:-4096], "is truncated")):
            bed.paths.image.write_bytes(damaged)
            assert said in bed.stackyard("image", "check", "demo", expect=1 if said == "is truncated" else 3).err
        told = bed.stackyard("verify", "demo", expect=3).out
        assert "demo/1-py3-1: failed" in told and "is truncated" in told, told
        assert "demo/1-py3-1  cannot be mounted: " in bed.stackyard("image", "status", expect=4).out
        assert "  mounted    cannot be: " in bed.stackyard("show", "demo").out
        bed.paths.image.unlink()
        told = bed.stackyard("verify", "demo", expect=3).out
        assert "demo/1-py3-1: failed" in told and "No such file" in told, told
    finally:
        bed.paths.image.write_bytes(whole)
        bed.paths.image.chmod(0o444)


def test_ranks_mount_the_copy_on_their_own_node(bed: Bed) -> None:
    """With --stage stack the shared file system is read once, by one node."""
    end_servers(bed.directory)
    code = (
        "import idna, pathlib; print(*[file.read_bytes().split(b'\\0')[4].decode() for file in"
        " pathlib.Path('/proc').glob('[0-9]*/cmdline') if file.read_bytes().startswith(b'squashfuse_ll')], sep='\\n')"
    )
    (bed.directory / "who.py").write_text(code)
    words = ("launch", "--with", "demo", "--stage", "stack", "-r", "2", "-c", "1", "--oversubscribe")
    done = bed.stackyard(*words, "--backend", "any", bed.directory / "who.py")
    used = [line for line in done.out.splitlines() if str(bed.directory) in line]
    assert len(used) == 1
    assert "/stackyard-stage-" in used[0]
    assert "image.sqsh" in bed.stackyard(*words, "--dry-run", "true").out
    done = bed.stackyard(*words[:3], "--stage", bed.paths.prefix, *words[5:], "true", expect=2)
    assert "a prefix does not work at another path" in done.err


def test_the_end_of_a_launch_takes_no_image_from_another(bed: Bed) -> None:
    """Both use it on one node, as two jobs of an account do; the first one to use it ends first."""
    end_servers(bed.directory)
    (bed.directory / "waits.py").write_text(
        "import pathlib, sys, time\n"
        "print('up', flush=True)\n"
        "while sys.argv[1:] and not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
        "import idna\n"
    )
    words = ("launch", "--with", "demo", "-r", "1", "-c", "1", "--oversubscribe", "--backend", "any")
    first, second = (bed.directory / name for name in ("first", "second"))
    with ThreadPoolExecutor() as pool:
        ended = []
        for flag in (first, second):
            argv = (*words, bed.directory / "waits.py", flag)
            ended.append(pool.submit(lambda argv=argv: bed.stackyard(*argv, cwd=bed.directory)))
            known = len(ended)
            wait_for(lambda known=known: len(image_servers(bed.paths.image)) == known, 60)
        first.touch()
        ended[0].result()
        second.touch()
        assert ended[1].result().code == 0


def test_a_rank_whose_image_is_gone_is_explained(bed: Bed) -> None:
    """Its server is killed while it works; the next command mounts the image again."""
    end_servers(bed.directory)
    (bed.directory / "dies.py").write_text(
        "import os, pathlib, signal\n"
        "def is_server(pid):\n"
        "    try: words = pathlib.Path('/proc', pid, 'cmdline').read_bytes()\n"
        "    except OSError: return False\n"
        f"    return words.startswith(b'squashfuse_ll') and {str(bed.directory).encode()!r} in words\n"
        "for pid in filter(is_server, filter(str.isdigit, os.listdir('/proc'))): os.kill(int(pid), signal.SIGKILL)\n"
        "import idna\n"
    )
    words = ("launch", "--with", "demo", "-r", "1", "-c", "1", "--oversubscribe", "--backend", "any")
    done = bed.stackyard(*words, bed.directory / "dies.py", expect=None, cwd=bed.directory)
    assert done.code not in (0, 4)
    assert "(squashfuse_ll) was killed" in done.err or "(squashfuse_ll) ended or was killed" in done.err
    assert bed.stackyard("run", "demo", "--", "python", "-c", CODE).out.startswith("xn--nda.de")


@pytest.mark.parametrize("point", ["marker-before:1", "marker-after:1"])
def test_a_deploy_that_was_killed_is_repeated(bed: Bed, tmp_path: Path, point: str) -> None:
    other = Bed(tmp_path)
    (tmp_path / "home").mkdir()
    try:
        other.stackyard("deploy", other.write(), STACKYARD_FAULT=point, expect=-signal.SIGKILL)
        other.stackyard("deploy", other.write())
        module = other.stackyard("list", "--json").value[0]["module"]
        assert module == "demo/1-py3-1"
        assert other.stackyard("run", "demo", "--", "python", "-c", CODE).out.startswith("xn--nda.de")
    finally:
        end_servers(tmp_path)


def test_a_site_limits_the_files_of_a_revision(tmp_path: Path) -> None:
    other = Bed(tmp_path)
    (tmp_path / "home").mkdir()
    file = other.write()
    file.write_text(file.read_text().replace("image: squashfs\n", ""))
    (tmp_path / "site.yaml").write_text("fs: {max_inodes: 20}\n")
    try:
        done = other.stackyard("--site", tmp_path / "site.yaml", "deploy", file)
        assert "the site's limit is 20" in done.out + done.err
        assert json.loads(other.paths.record.read_text())["form"]["kind"] == "squashfs"
        again = other.stackyard("--site", tmp_path / "site.yaml", "deploy", file, "--json").value["revisions"][0]
        assert again["status"] == "unchanged"
    finally:
        end_servers(tmp_path)


def test_an_image_that_cannot_be_packed_leaves_nothing(tmp_path: Path) -> None:
    """The post script makes a pipe."""
    other = Bed(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "post.sh").write_text("#!/bin/sh\nmkfifo $CONDA_PREFIX/bin/odd\n")
    (tmp_path / "post.sh").chmod(0o755)
    done = other.stackyard("deploy", other.write("post: post.sh"), expect=1)
    assert "special file: bin/odd" in done.err + done.out
    assert other.stackyard("list", "--json").value == []
    other.stackyard("deploy", other.write())


def test_a_user_mounts_an_image_of_the_own_yard_for_all_own_processes(accounts: Accounts) -> None:
    """By fusermount3, without a namespace; others and root do not see it."""
    programs.need("fusermount3")
    anna = accounts.user("anna")
    place = accounts.place / "own"
    place.mkdir(mode=0o755)
    own = Bed(place)
    file = own.write()
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    file.write_text(file.read_text().replace(str(wheels), str(accounts.readable(wheels))))
    subprocess.run(["chown", "-R", f"{anna.uid}:{anna.gid}", place], check=True)
    subprocess.run(["mknod", "-m", "666", accounts.place / "fuse-of-anna", "c", "10", "229"], check=True)
    line = f"stackyard --yard {own.yard}"
    steps = (
        f"{line} deploy {file} >&2", f"{line} image mount demo", f"{line} image status --json",
        f"ls {own.paths.prefix}", f"stat -c %a {own.paths.prefix}/.", f"{line} run demo -- readlink /proc/self/ns/mnt",
        "readlink /proc/self/ns/mnt", f"{line} image mount demo || echo again $?", f"{line} image unmount demo",
        f"ls -A {own.paths.prefix}", f"test ! -w {own.paths.prefix}",
    )  # fmt: skip
    as_anna = f"setpriv --reuid {anna.uid} --regid {anna.gid} --clear-groups sh -ec {shlex.quote(chr(10).join(steps))}"
    script = f"mount --bind {accounts.place}/fuse-of-anna /dev/fuse\nexec {as_anna}"
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script], text=True,
                          check=False, capture_output=True, cwd=place,
                          env=anna.environment(STACKYARD_TMP=str(place)))  # fmt: skip
    end_servers(place)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = done.stdout.split("is unmounted\n")
    assert "is mounted on" in before and "for your processes" in before
    assert '"mounted": "fuse.squashfuse_ll"' in before
    assert "pyvenv.cfg" in before.split() and "pyvenv.cfg" not in after.split() and ".stub" in after.split()
    spaces = [word for word in before.split() if word.startswith("mnt:")]
    assert len(spaces) == 2 and spaces[0] == spaces[1], "no namespace was needed"
    assert "again 1" in before and "is mounted already" in done.stderr


def test_a_user_sees_the_images_of_the_site(accounts: Accounts) -> None:
    """Not only those of the own yard, which mostly has none; and cannot take away a mount of root's."""
    anna = accounts.user("anna")
    place = accounts.place / "site"
    place.mkdir(mode=0o755)
    site = Bed(place)
    (place / "home").mkdir()
    (place / "site.yaml").write_text(f"name: here\nyard: {site.yard}\n")
    named = {"STACKYARD_SITE": str(place / "site.yaml")}
    site.stackyard("deploy", site.write(), **named)
    (row,) = json.loads(anna.stackyard("image", "list", "--json", **named).out)
    assert row["module"] == "demo/1-py3-1"
    assert "demo/1-py3-1  when it is used" in anna.stackyard("image", "status", expect=None, **named).out
    assert f"{site.paths.prefix}  -fstype=stackyard" in anna.stackyard("image", "autofs", **named).out
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in anna.environment(**named).items())
    as_anna = f"env -i {env} setpriv --reuid {anna.uid} --regid {anna.gid} --clear-groups"
    words = confined(f"mount -o loop {site.paths.image} {site.paths.prefix}",
                     *shlex.split(f"{as_anna} {anna.bin}/stackyard image unmount demo"))  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=place)
    assert done.stderr.startswith("error: cannot unmount demo/1-py3-1: root or another user has mounted it"), (
        done.stderr
    )


def test_a_home_that_root_cannot_enter(accounts: Accounts) -> None:
    """As on NFS with root_squash: here by a file system in user space that is its owner's alone."""
    programs.need("bindfs", "fusermount3")
    anna = accounts.user("anna")
    place, home = accounts.place / "home-kept", accounts.place / "home-squashed"
    for directory in (place, home):
        directory.mkdir(mode=0o700)
    own = Bed(home)
    file = Bed(place).write()
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    file.write_text(file.read_text().replace(str(wheels), str(accounts.readable(wheels))))
    subprocess.run(["chown", "-R", f"{anna.uid}:{anna.gid}", place, home], check=True)
    subprocess.run(["mknod", "-m", "666", accounts.place / "fuse-of-home", "c", "10", "229"], check=True)
    line = f"stackyard --yard {own.yard}"
    steps = (
        f"{line} deploy {home}/stack.yaml >&2", f"{line} verify demo >&2",
        f"{line} run demo -- python -c {shlex.quote(CODE)}", f"{own.paths.prefix}/bin/python -c {shlex.quote(CODE)}",
    )  # fmt: skip
    as_anna = f"setpriv --reuid {anna.uid} --regid {anna.gid} --clear-groups env HOME={home}"
    script = (
        f"mount --bind {accounts.place}/fuse-of-home /dev/fuse\n{as_anna} bindfs -n {place} {home}\n"
        f"trap '{as_anna} fusermount3 -u -z {home}' EXIT\nls {home} 2>&1 || true\n"
        f"{as_anna} sh -ec {shlex.quote(chr(10).join(steps))}\n"
    )
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script], text=True,
                          check=False, capture_output=True, env=anna.environment(STACKYARD_TMP="/tmp"))  # fmt: skip
    end_servers(home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Permission denied" in done.stdout, "it is not root's to enter"
    assert done.stdout.count(f"xn--nda.de {own.paths.prefix}/bin/python") == 2


def test_two_users_use_one_image(bed: Bed, accounts: Accounts) -> None:
    """Each in a namespace of its own, from a yard that neither of them can write."""
    anna, bert = accounts.user("anna"), accounts.user("bert")
    place = accounts.place / "images"
    place.mkdir(mode=0o755, exist_ok=True)
    subprocess.run(["cp", "-a", bed.paths.root, place / "r"], check=True)
    subprocess.run(["chmod", "-R", "a+rX", place / "r"], check=True)
    fuse = place / "fuse"
    if not fuse.exists():
        subprocess.run(["mknod", "-m", "666", fuse, "c", "10", "229"], check=True)
    script = [f"mount --bind {fuse} /dev/fuse"]
    for one in (anna, bert):
        command = f"{place}/r/launch sh -c 'id -u; ls {place}/r/prefix; readlink /proc/self/ns/mnt'"
        script += [
            f"setpriv --reuid {one.uid} --regid {one.gid} --clear-groups env -i PATH=/usr/bin:/bin {command}",
            f"setpriv --reuid {one.uid} --regid {one.gid} --clear-groups env -i PATH=/usr/bin:/bin {command}",
        ]
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    each = len(lines) // 4
    spaces = [lines[each * (number + 1) - 1] for number in range(4)]
    assert spaces[0] == spaces[1] != spaces[2] == spaces[3]
    assert [lines[each * number] for number in range(4)] == [str(anna.uid)] * 2 + [str(bert.uid)] * 2
    assert "lib" in lines
    end_servers(place)


def test_commands_of_the_host(tmp_path: Path) -> None:
    """What the stack names runs on the host, though the stack has a program of that name; nothing is mounted for it."""
    bed = Bed(tmp_path)
    for name in ("home", "site", "other"):
        (tmp_path / name).mkdir()
    for directory, said in (("site", "of the site"), ("other", "of another")):
        (tmp_path / directory / "ssh").write_text(f"#!/bin/sh\necho {said}: $#, $1\nexit 7\n")
        (tmp_path / directory / "ssh").chmod(0o755)
    (tmp_path / "post.sh").write_text(
        "#!/bin/sh\nprintf '#!/bin/sh\\necho of the stack\\n' | tee $PREFIX/bin/ssh > $PREFIX/bin/scp\n"
        "chmod +x $PREFIX/bin/ssh $PREFIX/bin/scp\n"
    )
    (tmp_path / "post.sh").chmod(0o755)
    file = bed.write("post: post.sh", "on_host: [ssh, no-such-command]")
    bed.stackyard("deploy", file)
    end_servers(tmp_path)
    own = bed.paths.prefix / "bin"

    def run(path: str, *words: str) -> tuple[int, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False,
                              env={"PATH": path, "STACKYARD_TMP": str(tmp_path)})  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    for path in (f"{own}:{tmp_path}/site:{tmp_path}/other:/usr/bin:/bin", f"{tmp_path}/site:/usr/bin:/bin"):
        assert run(path, str(own / "ssh"), "a b", "c") == (7, "of the site: 2, a b\n")
    before = f"{tmp_path}/other:{own}:{tmp_path}/site:/usr/bin:/bin"
    assert run(before, str(own / "ssh")) == (7, "of the site: 0,\n"), "behind the stack"
    assert not image_servers(tmp_path), "nothing was mounted"
    code, said = run(before, str(own / "no-such-command"))
    assert code == 127 and f"no-such-command not found on PATH behind {own}" in said and "on_host" in said
    assert run(before, str(own / "scp")) == (0, "of the stack\n")
    within = bed.stackyard(
        "run", "demo", "--", "sh", "-c", "ssh x", expect=7, PATH=f"{tmp_path}/site:{os.environ['PATH']}"
    )
    assert within.out == "of the site: 1, x\n", "also where the image is mounted"
    again = bed.stackyard("deploy", file, "--dry-run", "--json").value["revisions"]
    assert [row["action"] for row in again if row["action"] == "build"] == []
    other = bed.write("post: post.sh", "on_host: ssh")
    (row,) = bed.stackyard("deploy", other, "--dry-run", "--json").value["revisions"]
    assert row["action"] == "build", "it is an input"
    bad = bed.write("on_host: [bin/ssh]")
    assert "on_host" in bed.stackyard("deploy", bad, expect=2).err
    end_servers(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Bed]:
    """A yard on a disk of 60 MB, which a post script fills as far as the file `full` says."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for name in ("mksquashfs", "squashfuse", "mount"):
        programs.need(name)
    made = Bed(tmp_path)
    for directory in (made.yard, tmp_path / "home"):
        directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", made.yard], check=True)
    full = tmp_path / "full"
    (tmp_path / "post.sh").write_text(
        "#!/bin/sh\nset -e\nmkdir -p $CONDA_PREFIX/share\ncd $CONDA_PREFIX/share\n"
        f"head -c 3000000 /dev/urandom > big\n[ -e {full} ] || exit 0\n"
        f"dd if=/dev/zero of=zeros bs=64k 2>/dev/null || truncate -s -$(cat {full}) zeros\n"
    )
    (tmp_path / "post.sh").chmod(0o755)
    try:
        yield made
    finally:
        end_servers(tmp_path)
        subprocess.run(["umount", "-l", made.yard], check=True)


@pytest.mark.parametrize("free", ["2M", "3600K"])
def test_a_disk_that_is_full_while_it_is_packed(small_disk: Bed, free: str) -> None:
    """Nothing half done is left, nor the room that it took; with more room the next deploy goes through."""
    bed = small_disk
    file = bed.write("post: post.sh")
    (bed.directory / "full").write_text(free)
    done = bed.stackyard("deploy", file, expect=1)
    said = done.out + done.err
    assert "no space left" in said, said
    packing = r"cannot write \S+/image.sqsh: no space left: about [\d.]+ MiB are needed, [\d.]+ MiB are free in "
    assert re.search(rf"error: ({packing}|no space left while building demo/1-py3-1 \()", said), said
    assert "hint: free some space" in said, said
    assert "published revisions are unchanged, finished work is in the cache" in said
    left = {path.name for path in bed.paths.root.iterdir()}
    assert not left & {"image.sqsh", "record.json", "prefix", "launch", ".work"}, left
    assert bed.stackyard("list", "--json").value == []
    (bed.directory / "full").unlink()
    bed.stackyard("deploy", file)
    assert bed.stackyard("run", "demo", "--", "python", "-c", CODE).out.startswith("xn--nda.de")
    assert [path.name for path in (bed.yard / "stacks/demo").iterdir()] == ["1-py3-1"]
    assert not {".work", "building"} & {path.name for path in bed.paths.root.iterdir()}


def test_a_disk_that_is_too_small_is_named_before_the_build(small_disk: Bed) -> None:
    """An image takes as much as the archives of its packages."""
    bed = small_disk
    noise = Package("noise", "1.0", files={"share/noise": os.urandom(20 << 20)})
    channel = make_channel(bed.directory / "channel", [noise])
    (bed.yard / "filler").write_bytes(b"\0" * (45 << 20))
    file = bed.directory / "noise.yaml"
    lines = f"environment:\n  channels: [{channel.as_uri()}]\n  dependencies: [noise]\n"
    file.write_text(f"name: noise\nversion: '1'\nimage: squashfs\n{lines}")
    for words in ((), ("--dry-run",)):
        said = bed.stackyard("deploy", file, *words, expect=1).err
        found = r"error: cannot deploy noise/1-default-1 as an image: no space left: about 2\d MiB are needed, "
        assert re.search(found, said), said
    assert not (bed.yard / "stacks/noise/1-default-1/prefix").exists() and not list(bed.yard.rglob("share/noise"))


def test_a_disk_that_is_full_before_anything_is_packed(small_disk: Bed) -> None:
    """The step is named that had no room, and not that of an image."""
    bed = small_disk
    (bed.directory / "full").write_text("8K")
    done = bed.stackyard("deploy", bed.write("post: post.sh"), expect=1)
    assert "error: no space left while " in done.err and "image.sqsh" not in done.err, done.err
