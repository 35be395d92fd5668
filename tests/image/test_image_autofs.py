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

from stackyard.errors import MissingError
from stackyard.host import automount
from stackyard.image import mounts
from stackyard.yard.payload import Image
from support import programs

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
        until = time.monotonic() + 20
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
        "import sys; from pathlib import Path; from stackyard.host import automount; automount.ANSWER_S = 1.0\n"
        "try: automount.require_answer(Path(sys.argv[1]))\nexcept Exception as error: print(error)"
    )
    words = shlex.join([sys.executable, "-c", code, str(unanswered.paths.prefix)])
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", words], timeout=60,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert "does not answer" in done.stdout


def test_without_an_automounter_nothing_is_waited_for(tmp_path: Path) -> None:
    automount.require_answer(tmp_path / "not there")
