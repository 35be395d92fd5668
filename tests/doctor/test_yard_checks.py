"""`stackyard doctor`, the yard: its rights and its room, and what killed processes have left in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from stackyard.host.run import clock
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.record import PackageRecord
from stackyard.yard.write import trash
from support import shells, smallyard
from support.accounts import Accounts, give

HOLD = """
import os, sys
from pathlib import Path
from stackyard.yard.write.lease import lease
with lease(Path(sys.argv[1]), "the stack tool"):
    os._exit(0)
"""


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return smallyard.make(tmp_path / "yard", "1", "2")


def about(yard: Yard, **environ: str) -> dict[str, str]:
    findings = shells.found(environ, yard.root, about="yard")
    return {rule: f"{one.message} {one.remedy}" for rule, one in findings.items()}


def test_healthy_yard(yard: Yard, tmp_path: Path) -> None:
    assert about(yard) == {}
    assert about(Yard(tmp_path / "none")) == {}


def test_rights(yard: Yard) -> None:
    yard.stacks.chmod(0o777)
    assert f"{yard.stacks} mode 0777: everybody may write to it" in about(yard)["yard-rights"]


def test_closed_yard(accounts: Accounts, common: Path) -> None:
    """A yard that its owner has made read-only, and one of another account, which is not the reader's business."""
    anna, bert = accounts.user("anna"), accounts.user("bert")
    yard = smallyard.make(common / "yard", "1")
    (yard.trash / "unknown").mkdir(parents=True)
    shells.write(yard.trash / "unknown/content/file")
    give(yard.root, anna)
    yard.root.chmod(0o555)
    asked = {who.name: who.run(who.bin / "python", "-c", shells.PROGRAM, yard.root, "/").out for who in (anna, bert)}
    assert f"chmod u+rwx {yard.root}" in asked[anna.name] and "trash-unreadable" in asked[anna.name]
    assert "yard" not in asked[bert.name].replace(str(yard.root), "")
    yard.root.chmod(0o700)
    done = bert.run(bert.bin / "python", "-c", shells.PROGRAM, yard.root, "/")
    assert "yard-unusable" in done.out and "ermission denied" in done.out


def test_room(yard: Yard) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts in a namespace need root")
    script = f'mount -t tmpfs -o size=64m tmpfs {yard.root}; exec "$@"'
    words = ["unshare", "--mount", "sh", "-ec", script, "sh", sys.executable, "-c", shells.PROGRAM, yard.root, "/"]
    done = subprocess.run(words, text=True, capture_output=True, check=True)
    assert f"room\t{yard.root}: 64 MiB are free" in done.stdout
    script = f'mount --bind {yard.root} {yard.root}; mount -o remount,bind,ro {yard.root}; exec "$@"'
    done = subprocess.run([*words[:4], script, *words[5:]], text=True, capture_output=True, check=True)
    assert "yard-read-only" in done.stdout


def test_lease_of_a_killed_process(yard: Yard) -> None:
    place = yard.lease("stack tool")
    subprocess.run([sys.executable, "-c", HOLD, place], check=True)
    assert "which has ended" in about(yard)["lease-dead"]
    owner = next(place.glob("*/owner.json"))
    owner.write_text("{")
    assert "lease-damaged" in about(yard)


def test_interrupted_operations(yard: Yard) -> None:
    building = yard.revision("tool", "3-py311-1").building
    shells.write(building / "1/beat")
    shells.write(yard.revision("tool", "3-py311-1").prefix / "bin/half")
    assert "1 leftover of builds that ended early" in about(yard)["left-behind"]
    assert "stackyard gc" in about(yard)["left-behind"]


def test_trash(yard: Yard) -> None:
    paths = smallyard.revision(yard, "1")
    note = trash.note_of("revision", yard, paths.root, "batch", module="tool/1")
    trash.put(yard, paths.root, note)
    assert about(yard) == {}  # within its grace time
    trash.begin(yard, yard.stacks / "tool", replace(note, path="stacks/tool"))
    assert "1 interrupted removal" in about(yard)["left-behind"]
    year = (clock.now() - timedelta(days=365)).isoformat(timespec="seconds")
    other = smallyard.revision(yard, "2").root
    trash.put(yard, other, replace(trash.note_of("revision", yard, other, "batch"), when=year))
    assert "1 thing in the trash for longer" in about(yard)["trash-due"]


def test_file_of_the_future(yard: Yard) -> None:
    later = time.time() + 7200
    os.utime(yard.modules, (later, later), follow_symlinks=False)
    assert "was written 7," in about(yard)["clock-behind"]


def test_damaged_link(yard: Yard) -> None:
    yard.modules.unlink()
    assert "missing link" in about(yard)["yard-unusable"]


def test_stack_that_needs_a_newer_driver(yard: Yard, tmp_path: Path) -> None:
    root = shells.machine(tmp_path / "root")
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 16:14:05 UTC 2021"
    shells.write(root / "proc/driver/nvidia/version", version)
    record = smallyard.build(yard, "torch", "2")
    record = replace(record, packages=(PackageRecord("cuda-version", "12.4", "conda"),))
    revisions.mark(record)
    smallyard.publish(yard, [record])
    findings = shells.found({}, yard.root, root, "machine")
    assert "torch/2-py311-1 needs a driver for CUDA 12.4" in findings["driver-too-old"].message
    shells.write(root / "proc/driver/nvidia/version", version.replace("470.57.02", "525.60.13"))
    assert "driver-too-old" not in shells.found({}, yard.root, root, "machine")  # one driver runs all of CUDA 12
