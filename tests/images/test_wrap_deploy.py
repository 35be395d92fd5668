"""`stackyard wrap`: the revision that it makes, what is refused, and how it looks from outside."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.basebed import docker_archive, layer, oci, of_directory
from images.image_bed import confined
from images.registry_bed import registry
from images.wrap_bed import Wrapped, bed, image
from support import images, programs
from support.accounts import Accounts
from support.cli import STACKYARD

pytestmark = pytest.mark.real
FILE = "# Written by `stackyard wrap`"


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Wrapped]:
    for name in ("mksquashfs", "squashfuse", "unshare", "gcc"):
        programs.need(name)
    made = bed(tmp_path)
    yield made
    made.end()


def test_it_is_a_revision_like_others_and_needs_its_source_no_more(tool: Wrapped) -> None:
    tool.wrap("--version", "1.0")
    shutil.rmtree(tool.directory / "layout")
    record = tool.record
    manifest = record["container"]["digest"]
    assert record["container"]["labels"] == {"org.opencontainers.image.title": "a tool"}
    assert record["container"]["source"].startswith(f"oci:{tool.directory}/layout")
    assert record["container"]["commands"]["say"] == "/opt/tool/bin/say"
    assert record["form"]["kind"] == "container"
    assert (record["interpreter"], record["packages"]) == ({}, [])
    assert tool.stackyard("list").out.count("tool/1.0-1") == 1
    shown = tool.stackyard("show", "tool").out
    assert all(text in shown for text in ("(container)", manifest, "oci:", "host", "say"))
    assert json.loads(tool.stackyard("show", "tool", "--json").out)["container"]["digest"] == manifest
    assert "8 passed" in tool.stackyard("verify", "tool").out
    assert "every byte" in tool.stackyard("verify", "--deep", "tool", "--json").out
    assert "is as it was packed" in tool.stackyard("image", "check", "tool").out
    assert "nothing is wrong" in tool.stackyard("fsck", "--deep").out


def test_it_moves_with_its_yard_and_needs_its_source_no_more(tool: Wrapped) -> None:
    tool.wrap("--version", "1.0")
    shutil.rmtree(tool.directory / "layout")
    new = tool.directory / "new"
    tool.stackyard("move", new)
    shutil.move(tool.yard, tool.directory / "gone")
    assert "moved" in tool.run(str(new / "stacks/tool/1.0-1/prefix/bin/say"), "moved").stdout
    assert str(tool.yard) + "/" not in (new / "stacks/tool/1.0-1/record.json").read_text()
    assert "8 passed" in tool.stackyard("--yard", new, "verify", "tool").out


def test_loading_only_changes_path(tool: Wrapped) -> None:
    tool.wrap("--version", "1.0")
    operations = json.loads((tool.root / "module.json").read_text())
    said = json.dumps(operations)
    assert said.count('"prepend"') == 1 and f"{tool.root}/prefix/bin" in said, said
    changed = tool.stackyard("run", "--dry-run", "tool").out.splitlines()
    assert [line.partition("=")[0] for line in changed] == ["PATH"]


def test_the_same_twice_publishes_nothing_and_another_image_a_revision(tool: Wrapped) -> None:
    tool.wrap()
    before = tool.root
    assert "already published" in tool.wrap().out
    assert "already published" in tool.stackyard("deploy", "tool.yaml").out
    (tool.directory / "layout").rename(tool.directory / "moved")
    assert "already published" in tool.wrap(image="oci:moved").out, "wherever the image lies"
    assert tool.roots == [before]
    oci(
        tool.directory / "layout",
        [of_directory(tool.directory / "system"), layer([("opt/more", "1")])],
        Env=["PATH=/bin"],
    )
    tool.wrap()
    assert len(tool.roots) == 2
    assert tool.roots[0] == before
    assert tool.run(str(tool.roots[0] / "prefix/bin/say"), "x").stdout.startswith("x|"), "the first one stays"
    tool.wrap("--mode", "isolated")
    assert len(tool.roots) == 3, "another mode is another container"
    tool.stackyard("rollback")
    assert tool.stackyard("list").out.count("published") == 2


def test_a_dry_run_writes_nothing(tool: Wrapped) -> None:
    before = sorted(tool.directory.iterdir())
    said = tool.wrap("--dry-run", "--version", "2").out
    assert f"would build tool/2-1 in {tool.yard}/stacks/tool/2-1" in said
    assert sorted(each for each in tool.directory.iterdir() if each.name != "node") == before


def test_the_file_that_it_writes_is_a_stack_and_others_are_left_alone(tool: Wrapped) -> None:
    tool.wrap("--commands", "say", "--bind", "/srv:/srv2:ro")
    text = (tool.directory / "tool.yaml").read_text()
    assert text.startswith(FILE)
    assert '  commands: ["say"]\n' in text
    (tool.directory / "tool.yaml").write_text("name: tool\n")
    done = tool.wrap(expect=2)
    assert "tool.yaml exists, and `stackyard wrap` did not write it" in done.err
    assert (tool.directory / "tool.yaml").read_text() == "name: tool\n"


def test_a_command_is_in_the_image_under_the_name_that_you_give(tool: Wrapped) -> None:
    tool.wrap("--commands", "say,/bin/l*", "--commands", "speak=say")
    assert tool.record["container"]["commands"] == {
        "ls": "/bin/ls", "say": "/opt/tool/bin/say", "speak": "/opt/tool/bin/say",
    }  # fmt: skip
    assert tool.run(tool.command("speak"), "x").stdout.startswith("x|")
    done = tool.wrap("--commands", "saay", expect=2)
    assert "no command saay in the image" in done.err
    assert "did you mean say?" in done.err


def test_a_script_before_each_command(tool: Wrapped, tmp_path: Path) -> None:
    script = tool.directory / "before.sh"
    script.write_text('echo noise; export MADE="$TOOL_MODE" PATH=/opt/own:$PATH\n[ ! -e stop ] || exit 9\nfalse\n')
    tool.wrap(
        "--commands", "say,code,copy,sh,env", "--version", "1", "--env", "TOOL_MODE=fast", "--before", "before.sh"
    )
    first, commands = tool.root, tool.root / "prefix/bin"
    done = tool.run(str(commands / "say"), "a b", "", "*")
    assert done.stdout == f"a b||*|\n{tool.directory}\n", "what it prints is not the command's output"
    assert done.stderr == "noise\n"
    done = tool.run(str(commands / "env"))
    assert "MADE=fast" in done.stdout.splitlines() and "PATH=/opt/own:" in done.stdout
    assert tool.run(str(commands / "sh"), "-c", "say x; echo $MADE").stderr == "noise\n", "once, not inside again"
    assert tool.sh("echo $MADE") == "fast\n"
    assert tool.run(str(commands / "copy"), stdin="one\n").stdout == "one\n"
    tool.run(str(commands / "code"), "7", expect=7)
    (tool.directory / "stop").touch()
    assert not tool.run(str(commands / "say"), expect=9).stdout
    (tool.directory / "stop").unlink()
    assert (first / "recipe/before.sh").read_text() == script.read_text()
    assert "already published" in tool.stackyard("deploy", "tool.yaml").out
    script.write_text("export MADE=new\n")
    tool.stackyard("wrap", "tool", "--add", "ls")
    assert tool.run(str(tool.roots[1] / "launch"), "sh", "-c", "echo $MADE").stdout == "fast\n", "as it was"
    tool.wrap("--commands", "say,sh", "--version", "1", "--before", "before.sh")
    assert tool.run(str(tool.roots[2] / "launch"), "sh", "-c", "echo $MADE").stdout == "new\n"
    assert "8 passed" in tool.stackyard("verify", "tool").out
    script.write_bytes(b"\xff\0")
    assert "before.sh" in tool.wrap("--commands", "say", "--version", "2", "--before", "before.sh", expect=2).err


def test_commands_are_added_later_and_the_image_is_shared(tool: Wrapped) -> None:
    bound = tool.directory / "bound"
    bound.mkdir()
    tool.wrap("--commands", "say", "--version", "1", "--bind", f"{bound}:/in:ro", "--env", "A=b")
    (first,) = tool.roots
    (tool.directory / "layout").rename(tool.directory / "away")
    tool.stackyard("wrap", "tool", "--add", "code", "--add", "/bin/ls")
    assert tool.roots == [first, first.with_name("1-2")]
    second = json.loads((tool.roots[1] / "record.json").read_text())
    assert list(second["container"]["commands"]) == ["code", "ls", "say"]
    assert (first / "image.sqsh").stat().st_ino == (tool.roots[1] / "image.sqsh").stat().st_ino
    assert second["disk"]["inodes_shared"] == 1
    script = "echo $A $CUDA_HOME $LD_LIBRARY_PATH; pwd; ls -d /in"
    for root in tool.roots:
        done = tool.run(str(root / "launch"), "sh", "-c", script)
        assert done.stdout == f"b /usr/local/cuda /opt/tool/lib\n{tool.directory}\n/in\n"
    assert not (first / "prefix/bin/ls").exists(), "what is published stays as it is"
    assert "already published" in tool.stackyard("wrap", "tool", "--add", "code").out
    assert "already published" in tool.stackyard("deploy", "tool.yaml").out
    assert "no command none in the image" in tool.stackyard("wrap", "tool", "--add", "none", expect=2).err
    assert "8 passed" in tool.stackyard("verify", "tool").out
    assert "nothing is wrong" in tool.stackyard("fsck", "--deep").out


def test_a_damaged_image_is_not_shared(tool: Wrapped) -> None:
    tool.wrap("--commands", "say", "--version", "1")
    image_file = tool.root / "image.sqsh"
    data = bytearray(image_file.read_bytes())
    data[len(data) // 2] ^= 1
    image_file.chmod(0o644)
    image_file.write_bytes(data)
    tool.stackyard("wrap", "tool", "--add", "code")
    assert image_file.stat().st_ino != (tool.roots[1] / "image.sqsh").stat().st_ino
    assert tool.run(str(tool.roots[1] / "prefix/bin/code"), "3", expect=3).returncode == 3


def test_what_is_not_added(tool: Wrapped) -> None:
    tool.wrap("--commands", "say", "--version", "1")
    for words, message in (
        (("--add", "code", "--mode", "isolated"), "--add and --mode"),
        (("--add", "code", "--name", "other"), "--add and --name"),
        (("--add", "code", "--commands", "ls"), "--add and --commands"),
        ((), "missing option --commands"),
    ):
        assert message in tool.stackyard("wrap", "tool", *words, expect=2).err
    (tool.directory / "own.yaml").write_text("name: own\nversion: '1'\nwrap: {image: 'oci:layout', commands: [say]}\n")
    tool.stackyard("deploy", "own.yaml")
    assert "`stackyard wrap` did not write" in tool.stackyard("wrap", "own", "--add", "code", expect=2).err
    assert "no such revision" in tool.stackyard("wrap", "none", "--add", "code", expect=2).err


def test_an_image_of_a_registry(tool: Wrapped) -> None:
    """It is looked up, and not fetched again while the registry has the same."""
    programs.need("skopeo")
    with registry(tool.directory / "registry") as found:
        place = f"docker://{found.place}/ibm/tool:1"
        words = [
            "skopeo",
            "copy",
            "-q",
            "--insecure-policy",
            "--dest-tls-verify=false",
            f"oci:{tool.directory}/layout:1",
        ]
        subprocess.run([*words, place], check=True)
        containers = tool.directory / "home/.config/containers"
        containers.mkdir(parents=True)
        (containers / "registries.conf").write_text(f'[[registry]]\nlocation = "{found.place}"\ninsecure = true\n')
        (containers / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        home = {"HOME": str(tool.directory / "home")}
        asked = ("--commands", "say", "-o", "x.yaml")
        tool.stackyard("wrap", place, *asked, **home)
        index = json.loads((tool.directory / "layout/index.json").read_text())
        assert tool.record["container"]["digest"] == index["manifests"][0]["digest"]
        assert tool.run(tool.command("say"), "x").stdout.startswith("x|")
        assert "already published" in tool.stackyard("wrap", place, *asked, **home).out
        done = tool.stackyard("wrap", f"docker://{found.place}/none:1", *asked, "-o", "n.yaml", expect=1, **home)
        assert f"cannot look up docker://{found.place}/none:1: {found.place} does not have it" in done.err
    tool.stackyard("wrap", "tool", "--add", "code", "-o", "x.yaml", **home)
    assert len(tool.roots) == 2, "the image is in the yard"
    done = tool.stackyard("wrap", place, *asked, expect=1, **home)
    assert "cannot be reached" in done.err


def test_a_command_that_the_container_hides(tool: Wrapped) -> None:
    system = tool.directory / "system"
    (system / "srv").mkdir()
    for place in ("srv", "tmp"):
        (system / place / "own").write_text("#!/bin/sh\necho own\n")
        (system / place / "own").chmod(0o755)
    (system / "srv/out").symlink_to("../bin/ls")
    (system / "bin/linked").symlink_to("/srv/own")
    (system / "bin/through").symlink_to("/srv/out")
    docker_archive(tool.directory / "t.tar", [of_directory(system)])
    for path in ("/srv/own", "/bin/linked", "/bin/through"):
        done = tool.wrap("--commands", path, image="docker-archive:t.tar", expect=2)
        assert f"{path}: the container has the host's /srv there" in done.err
    for mode, what in (("host", "the host's"), ("isolated", "an empty")):
        done = tool.wrap("--commands", "/tmp/own", "--mode", mode, image="docker-archive:t.tar", expect=2)
        assert f"/tmp/own: the container has {what} /tmp there" in done.err
    tool.wrap("--commands", "/srv/own,/bin/linked", "--mode", "isolated", image="docker-archive:t.tar")
    assert tool.run(tool.command("own")).stdout == tool.run(tool.command("linked")).stdout == "own\n"


def test_what_the_site_gives_images(tool: Wrapped) -> None:
    lib = tool.directory / "lib"
    lib.mkdir()
    (lib / "libown.so.1.2").write_text("the host's\n")
    (lib / "libown.so.1").symlink_to("libown.so.1.2")
    (tool.directory / "site.yaml").write_text(
        f"launch: {{container: {{binds: ['{lib}:/from/site:ro'], bindings: bindings.yaml,"
        " variables: {FROM_SITE: yes}}}\n"
    )
    (tool.directory / "bindings.yaml").write_text(
        f"format: 1\nlibraries: [{{path: '{lib}/libown.so*'}}]\nlibrary_path: [{{path: /from/site}}]\n"
        "variables: [{name: FI_PROVIDER, value: cxi}]\n"
    )
    site = {"STACKYARD_SITE": str(tool.directory / "site.yaml")}
    tool.stackyard("wrap", "oci:layout", "--name", "tool", "--commands", "say", "--host-bindings", **site)
    script = "echo $LD_LIBRARY_PATH $FROM_SITE $FI_PROVIDER; cat /.stackyard/libs/libown.so.1 /from/site/libown.so.1"
    lines = tool.sh(script).splitlines()
    assert lines[:3] == ["/from/site:/.stackyard/libs:/opt/tool/lib yes cxi", "the host's", "the host's"]
    (lib / "libown.so.1").unlink()
    tool.end()
    assert tool.sh("ls /.stackyard/libs") == "libown.so.1.2\n", "as it is on this node"


def test_shell_and_run_are_in_the_container(tool: Wrapped) -> None:
    tool.wrap("--version", "1")
    own = tool.env(STACKYARD_HOME=str(tool.yard))
    words = [STACKYARD, "shell", "tool", "--", "-c", "cat /etc/os-release; say x"]
    out = subprocess.run(words, env=own, cwd=tool.directory, capture_output=True, text=True, check=True).stdout
    assert out == f"ID=small\nx|\n{tool.directory}\n"
    words = [STACKYARD, "run", "tool", "--", "busybox", "cat", "/etc/os-release"]
    assert subprocess.run(words, env=own, capture_output=True, text=True, check=True).stdout == "ID=small\n"


def test_isolated_shows_nothing_of_the_host_but_what_is_named(tool: Wrapped) -> None:
    data = tool.directory / "data"
    data.mkdir()
    (data / "x").write_text("x\n")
    tool.wrap("--mode", "isolated", "--bind", f"{data}:/in:ro")
    script = f"pwd; cat /in/x; ls /work {tool.directory}/system 2>&1; ls /home; touch /tmp/mine ~/mine && echo wrote"
    out = tool.sh(script + "; ls /tmp").splitlines()
    assert out[:2] == ["/data", "x"], "the working directory is the image's"
    assert [line.endswith("No such file or directory") for line in out[2:4]] == [True, True]
    assert "wrote" in out
    assert not Path("/tmp/mine").exists()
    assert not (tool.directory / "mine").exists()


def test_an_image_of_another_architecture_or_a_harmful_one_is_refused(tool: Wrapped) -> None:
    busybox = tool.directory / "system/bin/busybox"
    data = bytearray(busybox.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    busybox.write_bytes(data)
    docker_archive(tool.directory / "arm.tar", [of_directory(tool.directory / "system")])
    done = tool.wrap("--commands", "sh", image="docker-archive:arm.tar", expect=2)
    assert "its programs are for linux-aarch64" in done.err
    docker_archive(tool.directory / "bad.tar", [layer([("../../etc/x", "1"), ("bin/sh", "1")])])
    tool.wrap("--commands", "sh", image="docker-archive:bad.tar", expect=None)
    assert not (tool.yard / "modules").exists()
    assert not list(tool.directory.rglob("etc/x"))


def test_links_of_an_image_do_not_lead_to_the_host(tool: Wrapped) -> None:
    """Where a place to mount is to be made: nothing is written there."""
    victim = tool.directory / "victim"
    victim.mkdir()
    evil = layer([("one", f"-> /.stackyard-host{victim}")])
    docker_archive(tool.directory / "evil.tar", [of_directory(tool.directory / "system"), evil])
    done = tool.wrap("--commands", "ls", "--bind", "/etc:/one/new", image="docker-archive:evil.tar", expect=3)
    assert "cannot make the container" in done.out
    assert not list(victim.iterdir())


def test_an_image_without_a_shell(tool: Wrapped) -> None:
    (tool.directory / "system/bin/sh").unlink()
    for each in (tool.directory / "system/opt/tool/bin").iterdir():
        each.unlink()
    docker_archive(tool.directory / "bare.tar", [of_directory(tool.directory / "system")])
    tool.wrap("--commands", "ls", image="docker-archive:bare.tar")
    assert "data" in tool.run(tool.command("ls"), "/").stdout.split()
    assert "the image of tool/" in tool.stackyard("shell", "tool", expect=4).err


def test_a_base_and_a_pinned_image(tool: Wrapped) -> None:
    tool.stackyard("image", "from", "oci:layout", "--name", "base")
    tool.wrap("--commands", "say", image="base")
    assert tool.run(tool.command("say"), "x").stdout.startswith("x|")
    wrong = tool.wrap("--commands", "say", "--digest", "sha256:" + "0" * 64, "--version", "9", expect=None)
    assert "wrong digest" in wrong.err
    assert ": no such base in " in tool.wrap("--commands", "say", "-o", "x.yaml", image="nothing", expect=2).err


def test_without_a_compiler_it_says_what_is_missing(tool: Wrapped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stackyard.images.squashfs.launcher._COMPILERS", ())
    assert "cannot make the launcher of a wrapped image" in tool.wrap(expect=4).err
    monkeypatch.undo()
    tool.wrap()


def test_a_stack_with_packages_wraps_nothing(tool: Wrapped) -> None:
    text = "name: x\nversion: '1'\nenvironment: {dependencies: [numpy]}\nwrap: {image: base, commands: [say]}\n"
    (tool.directory / "x.yaml").write_text(text)
    assert "a stack with `wrap` cannot have" in tool.stackyard("deploy", "x.yaml", expect=2).err
    for wrong in ("bind: ['/a:/b:rx']", "commands: []", "bind: [a]", "mode: none"):
        (tool.directory / "x.yaml").write_text(f"name: x\nwrap: {{image: base, commands: [say], {wrong}}}\n")
        assert "x.yaml:" in tool.stackyard("deploy", "x.yaml", expect=2).err


def test_it_is_not_put_into_an_image_of_ours(tool: Wrapped) -> None:
    tool.wrap()
    done = tool.stackyard("image", "build", "tool", "--format", "oci", "--base", "scratch", "-o", "o", expect=2)
    assert "is a wrapped image itself" in done.err
    assert "is a wrapped image" in tool.stackyard("image", "mount", "tool", expect=2).err
    assert "/prefix" not in tool.stackyard("image", "autofs").out


PYTHON = "import sys, os; print(sys.prefix, sys.executable, os.getcwd())"


def test_two_users_share_a_python_of_a_sif_and_have_environments_on_top(
    accounts: Accounts, common: Path, tmp_path: Path
) -> None:
    """Each has a container and files of their own."""
    programs.need("gcc")
    python = Path(sys.base_prefix).resolve() / "bin/python3"
    tool, fuse = Wrapped(common, "py"), tmp_path / "fuse"
    os.mknod(fuse, 0o666 | stat.S_IFCHR, os.makedev(10, 229))
    fuse.chmod(0o666)
    tool.wrap("--commands", f"{python},ls", image=f"sif:{images.image_sif()}")
    subprocess.run(["chmod", "-R", "a+rX", common], check=True)
    command = tool.command("python3")
    executable = tool.run(command, "-c", "import sys; print(sys.executable)").stdout.strip()
    assert Path(executable).parent in (Path(command).parent, tool.root / "prefix/.base/0/bin"), "valid outside too"
    tool.end()
    script = (
        f"set -e\n{command} -c '{PYTHON}'\n{command} -m venv --without-pip v\n"
        f"printf '#!%s\\n%s\\n' $HOME/v/bin/python '{PYTHON}' > s; chmod 755 s; ./s\n"
        f"{command} -c 'import getpass; print(getpass.getuser())'; {tool.command('ls')} $HOME\n"
    )
    try:
        for name in ("ada", "bob"):
            user = accounts.user(name)
            (tmp_path / name).write_text(script)
            inner = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "sh", "-c", script]
            words = confined(f"mount --bind {fuse} /dev/fuse", *inner)
            own = user.environment(STACKYARD_TMP=str(user.home), STACKYARD_IMAGE_IDLE_S="5")
            done = subprocess.run(words, env=own, cwd=user.home, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines() == [
                f"{python.parents[1]} {executable} {user.home}",
                f"{user.home}/v {user.home}/v/bin/python {user.home}", user.name, "s", "v",
            ]  # fmt: skip
    finally:
        tool.end()


def test_what_a_sif_sets_in_its_scripts_is_set(tool: Wrapped) -> None:
    root = image(tool.directory / "other")
    (root / ".singularity.d/env").mkdir(parents=True)
    script = 'export PATH="/opt/tool/bin:$PATH"\nexport TOOL="it\'s $((40 + 2))"\necho noise\n'
    (root / ".singularity.d/env/90-environment.sh").write_text(script)
    tool.stackyard("image", "from-folder", "other", "--name", "other")
    tool.stackyard("image", "build", "--base", "other", "--format", "sif", "-o", "other.sif")
    tool.wrap("--commands", "say", image="other.sif")
    assert tool.sh('echo "$TOOL"; echo $PATH').startswith(f"it's 42\n{tool.root}/prefix/bin:/opt/tool/bin:/usr/local")
    assert tool.record["container"]["source"] == f"sif:{tool.directory}/other.sif"
