"""The file system servers of a user's own namespaces, asked from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from image_bed import make

from stackyard.host.files import automount
from stackyard.images.squashfs import servers
from support import programs, testbed
from support.cli import stackyard
from support.processes import wait_for

pytestmark = pytest.mark.real


def state(pid: int) -> str:
    """The letter of proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_server_that_waits_for_its_image_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a shared file system hangs: it is not stopped, and answers nobody once a read has to wait."""
    programs.need("mksquashfs", "squashfuse", "unshare", "bindfs")
    monkeypatch.setattr(automount, "ANSWER_S", 2.0)
    demo, stage, behind = make(tmp_path, data=os.urandom(3_000_000).hex()), tmp_path / "stage", tmp_path / "behind"
    stage.mkdir()
    behind.mkdir()
    (behind / "image.sqsh").write_bytes(demo.paths.image.read_bytes())
    below = subprocess.Popen(["bindfs", "-f", behind, stage])
    try:
        wait_for(lambda: os.path.ismount(stage))
        staged = {"STACKYARD_STAGE": str(stage), "STACKYARD_STAGED_IMAGE": str(demo.paths.root)}
        env = demo.env(**staged, STACKYARD_IMAGE_IDLE_S="60")
        subprocess.run([demo.command("say")], env=env, check=True, capture_output=True)
        (server,) = servers.of_images([demo.paths.prefix])[demo.paths.prefix]
        assert servers.silent([demo.paths.prefix])[demo.paths.prefix] == []
        below.send_signal(signal.SIGSTOP)
        reader = subprocess.Popen([demo.command("pick")], env=env, stdout=subprocess.DEVNULL)
        wait_for(lambda: state(server) == "D")
        assert servers.silent([demo.paths.prefix])[demo.paths.prefix] == [server]
        below.send_signal(signal.SIGCONT)
        assert reader.wait(30) == 0 and servers.silent([demo.paths.prefix])[demo.paths.prefix] == []
    finally:
        below.send_signal(signal.SIGCONT)
        for pid in servers.of_images([demo.paths.prefix])[demo.paths.prefix]:
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["umount", "--lazy", stage], check=True)
        below.wait(30)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a stack in an image."""
    programs.need("mksquashfs", "squashfuse")
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    (tmp_path / "stack.yaml").write_text(
        "name: demo\nversion: '1'\nimage: squashfs\n"
        f"environment:\n  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
    )
    stackyard("--yard", tmp_path / "yard", "deploy", tmp_path / "stack.yaml", HOME=str(tmp_path))
    (python,) = (tmp_path / "yard/stacks/demo").glob("*/prefix/bin/python")
    return python


def test_an_idle_server_keeps_no_revision(python: Path, tmp_path: Path) -> None:
    """It has the image open for minutes after the last command; a command that runs does keep it."""
    words = ("--yard", tmp_path / "yard")
    with subprocess.Popen([python, "-c", "import idna; print(flush=True); input()"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as running:  # fmt: skip
        assert running.stdout is not None and running.stdout.readline()
        said = stackyard(*words, "remove", "demo/1-py3-1", expect=None, HOME=str(tmp_path))
        assert said.code and f"process {running.pid} of " in said.out + said.err
        running.communicate(b"\n")
    assert servers.of_images([python.parents[1]])[python.parents[1]], "the server has ended"
    assert "removed demo/1-py3-1" in stackyard(*words, "remove", "demo/1-py3-1", HOME=str(tmp_path)).out


def test_a_damaged_image_is_named(python: Path, tmp_path: Path) -> None:
    """Its size is the same, and its first block whole: only what runs in it fails, in many ways."""
    image = python.parents[2] / "image.sqsh"
    for pid in servers.of_images([python.parents[1]])[python.parents[1]]:
        os.kill(pid, signal.SIGKILL)
    data = bytearray(image.read_bytes())
    for at in range(4096, len(data) - 20_000, 997):
        data[at] ^= 0xFF
    image.chmod(0o644)
    image.write_bytes(data)
    os.utime(image, (time.time() + 60, time.time() + 60))
    words = ("--yard", tmp_path / "yard")
    said = stackyard(*words, "verify", "demo/1-py3-1", expect=3, HOME=str(tmp_path)).out
    assert "image.sqsh has changed: its hash is not the one in the record" in said and "fsck --deep --repair" in said
    said = stackyard(*words, "fsck", "demo/1-py3-1", expect=None, HOME=str(tmp_path)).out
    assert "image.sqsh: sha256" in said
