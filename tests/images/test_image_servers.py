"""The file system servers of a user's own namespaces, asked from outside."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from image_bed import make

from stackyard.host.files import automount
from stackyard.images.squashfs import servers
from support import programs
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
