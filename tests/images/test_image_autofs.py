"""The kernel's automounter with an image: one that does not answer where the command runs."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_bed import Revision, make
from test_image_deploy import Bed, end_servers

from stackyard.core.errors import MissingError
from stackyard.host.files import automount
from stackyard.images.squashfs import mounts
from stackyard.yard.kinds.payload import Image
from support import programs
from support.cli import STACKYARD

pytestmark = pytest.mark.real

SILENT = """\
import ctypes, os, sys, time
read, write = os.pipe()
options = f"fd={write},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"none", os.fsencode(sys.argv[1]), b"autofs", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
time.sleep(600)
"""
"""An automounter as it is seen from a private mount namespace: what is asked of it is not mounted here."""


@pytest.fixture
def unanswered(tmp_path: Path) -> Iterator[Revision]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    if "\tautofs\n" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no autofs")
    for name in ("mksquashfs", "unshare"):
        programs.need(name)
    made = make(tmp_path)
    daemon = subprocess.Popen([sys.executable, "-c", SILENT, made.paths.prefix], start_new_session=True)
    try:
        until = time.monotonic() + 60
        while not any(one.kind == "autofs" and one.where == made.paths.prefix for one in mounts.mounts()):
            assert daemon.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        yield made
    finally:
        subprocess.run(["umount", "-l", made.paths.prefix], check=True)
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
        made.end()


def test_an_automounter_that_does_not_answer_is_named(unanswered: Revision, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automount, "ANSWER_S", 1.0)
    prefix = unanswered.paths.prefix
    with pytest.raises(MissingError, match=f"{prefix} does not answer: timed out after 1 s .* automounter") as caught:
        Image(prefix).command(["true"], {})
    assert "--propagation slave" in str(caught.value.hint)


def test_it_is_named_in_a_private_namespace_too(unanswered: Revision) -> None:
    """By a process that would hang there until it is killed."""
    code = (
        "import sys; from pathlib import Path; from stackyard.host.files import automount; automount.ANSWER_S = 1.0\n"
        "try: automount.require_answer(Path(sys.argv[1]))\nexcept Exception as error: print(error)"
    )
    words = shlex.join([sys.executable, "-c", code, str(unanswered.paths.prefix)])
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", words], timeout=240,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert "does not answer" in done.stdout


def test_without_an_automounter_nothing_is_waited_for(tmp_path: Path) -> None:
    automount.require_answer(tmp_path / "not there")


def test_what_root_cannot_read_is_left_out_of_its_maps(tmp_path: Path) -> None:
    """As on NFS with root_squash: here by a file system in user space that is another user's alone."""
    if os.geteuid() != 0:
        pytest.skip("acting as root and as another user needs root")
    programs.need("bindfs", "unshare")
    bed = Bed(tmp_path)
    (tmp_path / "home").mkdir()
    bed.stackyard("deploy", bed.write())
    everything = bed.stackyard("image", "autofs", "--json").value["/etc/auto.stackyard"]
    assert str(bed.paths.prefix) in everything
    caps = "+dac_override,+dac_read_search,+sys_admin"
    nobody = f"setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps {caps} --ambient-caps {caps}"
    line = f"{shlex.quote(str(STACKYARD))} --yard {bed.yard} image"
    script = (
        f"{nobody} bindfs -n {bed.paths.root} {bed.paths.root}\n"
        f"{line} autofs; echo status $?\n{line} mount demo; echo status $?\nfusermount3 -u {bed.paths.root}"
    )
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script], timeout=240,
                          capture_output=True, text=True, check=True)  # fmt: skip
    end_servers(tmp_path)
    why = f"root cannot read {bed.paths.record}: Permission denied, so it cannot be mounted for all users"
    assert why in done.stderr and "root_squash" in done.stderr, done.stderr
    assert str(bed.paths.prefix) not in done.stdout
    assert done.stdout.split("status ")[1].startswith("3")
    assert not done.stdout.split("status ")[2].startswith("0"), "it is not mounted either"
