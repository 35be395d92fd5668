"""The program behind the commands of an image is the recorded one, or every check says so and a repair mends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stackyard.host.files.hashing import sha256_file
from stackyard.images.squashfs import launcher
from stackyard.images.squashfs.launcher import compare
from stackyard.yard.revision import signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import read_record
from stackyard.yard.write import atomic
from support import programs, sshkeys, testbed
from support.cli import Done, stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]
MODULE = "demo/1-py3-1"
UNRECORDED = f"{MODULE}: launcher not recorded: "


@dataclass
class Bed:
    """A yard of an image; each test has a copy of the revision's small files."""

    directory: Path

    @property
    def yard(self) -> Path:
        return self.directory / "yard"

    @property
    def paths(self) -> RevisionPaths:
        return RevisionPaths(self.yard / "stacks" / MODULE)

    @property
    def recorded(self) -> str:
        return read_record(self.paths.record).form.launcher

    def stackyard(self, *words: str | Path, expect: int | None = 0, **variables: str) -> Done:
        own = {
            "HOME": str(self.directory / "home"),
            "STACKYARD_IMAGE_IDLE_S": "3",
            "STACKYARD_TMP": str(self.directory),
        }
        return stackyard("--yard", self.yard, *words, expect=expect, **own, **variables)

    def replace_launcher(self, program: Path = Path("/bin/true")) -> None:
        self.paths.launcher.unlink()
        shutil.copyfile(program, self.paths.launcher)
        self.paths.launcher.chmod(0o555)

    def write_as_before(self) -> None:
        """The record as the version wrote it that did not record the launcher."""
        value = json.loads(self.paths.record.read_text())
        value["form"].pop("launcher")
        value.pop("checksum")
        for path in (self.paths.record, self.paths.spare):
            atomic.write_json(path, {**value, "format": 7}, checked=True)

    def sign(self, name: str) -> str:
        key = self.directory / "keys" / name
        return str(key if key.exists() else sshkeys.key(self.directory / "keys", name))

    def signed_by(self) -> list[str]:
        """The keys with a valid signature of what the revision is, and "" for each that is of something else."""
        broken = {path for path, _ in signatures.broken(self.paths)}
        return ["" if path in broken else path.stem for path in signatures.files(self.paths)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    for name in ("mksquashfs", "squashfuse", "unshare"):
        programs.need(name)
    bed = Bed(tmp_path_factory.mktemp("launcher"))
    (bed.directory / "home").mkdir()
    wheels = testbed.wheels(testbed.HERE / "wheels.txt")
    file = bed.directory / "stack.yaml"
    file.write_text(
        "name: demo\nversion: '1'\nimage: squashfs\n"
        f"environment:\n  dependencies:\n    - pip: [--no-index, '--find-links={wheels}', idna]\n"
    )
    bed.stackyard("deploy", file)
    return bed


@pytest.fixture
def bed(made: Bed) -> Iterator[Bed]:
    small = (made.paths.record, made.paths.spare, made.paths.launcher)
    kept = [(path, path.read_bytes(), path.stat().st_mode) for path in small]
    yield made
    for path, data, mode in kept:
        atomic.write_bytes(path, data, mode=mode & 0o777)
    shutil.rmtree(made.paths.signatures, ignore_errors=True)


def test_another_program_in_its_place_is_found_and_nothing_is_run_by_it(bed: Bed) -> None:
    assert bed.recorded == sha256_file(bed.paths.launcher)
    assert bed.stackyard("fsck").out.startswith("nothing is wrong")
    checks = bed.stackyard("verify", "demo", "--json").value[MODULE]["checks"]
    assert [each["status"] for each in checks if each["name"] == "launcher"] == ["passed"]
    bed.replace_launcher()
    assert bed.stackyard("run", "demo", "--", "false").code == 0, "so every command is done well"
    said, other = bed.stackyard("fsck", expect=3).out, sha256_file(Path("/bin/true"))
    assert f"stacks/{MODULE}/launch: sha256 {other[:16]} instead of {bed.recorded[:16]}" in said
    (check,) = bed.stackyard("verify", "demo", "--json", expect=3).value[MODULE]["checks"]
    assert (check["name"], check["status"]) == ("launcher", "failed") and "nothing else was checked" in check["detail"]
    assert f"fsck --repair {MODULE}" in check["remedy"]
    for words in (("push", "demo", f"oci:{bed.directory}/layout:x"), ("sign", "demo", "--key", bed.sign("anna"))):
        assert "error: cannot " in bed.stackyard(*words, expect=1).err
    before = bed.paths.record.read_bytes()
    assert "1 fault found, 0 left" in bed.stackyard("fsck", "--repair").out
    assert bed.paths.record.read_bytes() == before and bed.stackyard("fsck").code == 0
    assert bed.stackyard("verify", "demo").code == 0


def test_a_link_a_pipe_and_a_mode_that_lets_others_write(bed: Bed) -> None:
    record, path = read_record(bed.paths.record), bed.paths.launcher
    for mode, text in ((0o777, "mode 0777"), (0o4555, "mode 4555"), (0o444, "mode 0444")):
        path.chmod(mode)
        assert text in str(compare.problem(record))
    path.unlink()
    assert "is missing" in str(compare.problem(record))
    path.symlink_to("/bin/true")
    assert "is a link to /bin/true" in str(compare.problem(record))
    path.unlink()
    os.mkfifo(path)
    assert "is not a regular file" in str(compare.problem(record))
    path.unlink()


def test_one_that_an_earlier_version_made_is_told_and_made_again(bed: Bed) -> None:
    bed.write_as_before()
    assert bed.recorded == ""
    found = bed.stackyard("fsck")
    assert UNRECORDED in found.err and found.out.startswith("nothing is wrong")
    assert bed.stackyard("fsck", "--json").value["unrecorded_launchers"] == [MODULE]
    checks = bed.stackyard("verify", "demo", "--json").value[MODULE]["checks"]
    assert [each["status"] for each in checks if each["name"] == "launcher"] == ["skipped"]
    bed.replace_launcher()
    assert f"verifying {MODULE} exited with status 0" in bed.stackyard("verify", "demo", expect=3).out
    done = bed.stackyard("fsck", "--repair")
    assert f"{MODULE}: restored launch, record.json" in done.err and UNRECORDED not in done.err
    assert bed.recorded == sha256_file(bed.paths.launcher) != sha256_file(Path("/bin/true"))
    assert bed.paths.record.read_bytes() == bed.paths.spare.read_bytes()
    assert bed.stackyard("run", "demo", "--", "false", expect=1).code == 1
    assert "launcher" not in bed.stackyard("fsck").err and bed.stackyard("verify", "demo").code == 0


def test_a_signed_one_is_recorded_by_the_key_that_signed_it_and_by_no_other(bed: Bed) -> None:
    anna, other = bed.sign("anna"), bed.sign("other")
    bed.write_as_before()
    for key in (anna, other):
        bed.stackyard("sign", "demo", "--key", key)
    before = bed.paths.record.read_bytes()
    said = bed.stackyard("fsck", "--repair").err
    assert f"cannot record the launcher of {MODULE}: its record is signed, and no key is named" in said
    said = bed.stackyard("fsck", "--repair", STACKYARD_SIGN_KEY=bed.sign("third")).err
    assert "its record is signed, and not by " in said and UNRECORDED in said
    assert bed.paths.record.read_bytes() == before and all(bed.signed_by())
    done = bed.stackyard("fsck", "--repair", STACKYARD_SIGN_KEY=anna).err
    assert "signed again by SHA256:" in done and "without 1 signature of other keys" in done
    assert bed.recorded and len(bed.signed_by()) == 1 and all(bed.signed_by())
    assert bed.stackyard("fsck").code == 0


def test_who_changed_what_was_signed_does_not_get_it_signed_again(bed: Bed) -> None:
    anna = bed.sign("anna")
    bed.write_as_before()
    bed.stackyard("sign", "demo", "--key", anna)
    record = read_record(bed.paths.record)
    atomic.write_json(bed.paths.record, replace(record, summary="another").to_json(), checked=True)
    said = bed.stackyard("fsck", "--repair", expect=3, STACKYARD_SIGN_KEY=anna).err
    assert "its record is signed, and not by " in said
    assert bed.signed_by() == [""] and bed.recorded == ""


@pytest.mark.parametrize("point", ["launcher-made", "write:1", "write:2", "write:3", "marker-before", "marker-after"])
def test_a_repair_that_is_killed_leaves_a_valid_signature(bed: Bed, point: str) -> None:
    anna = bed.sign("anna")
    bed.write_as_before()
    bed.stackyard("sign", "demo", "--key", anna)
    fault = point if ":" in point else f"{point}:1"
    words = ("fsck", "--repair", MODULE)
    killed = bed.stackyard(*words, expect=None, STACKYARD_SIGN_KEY=anna, STACKYARD_FAULT=fault)
    assert killed.code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert any(bed.signed_by()), "it can be used where signatures are demanded"
    bed.stackyard("fsck", "--repair", STACKYARD_SIGN_KEY=anna)
    assert bed.recorded == sha256_file(bed.paths.launcher) and len(bed.signed_by()) == 1 and all(bed.signed_by())


def test_another_version_makes_another_program_whose_hash_is_recorded(bed: Bed, tmp_path: Path) -> None:
    record = read_record(bed.paths.record)
    text = launcher.script().encode() + b"# of another version\n"
    atomic.write_bytes(tmp_path / "launch", text, mode=0o555)
    old = replace(record, form=replace(record.form, launcher=sha256_file(tmp_path / "launch")))
    for path in (bed.paths.record, bed.paths.spare):
        atomic.write_json(path, old.to_json(), checked=True)
    bed.stackyard("fsck", expect=3)
    assert "restored launch, record.json" in bed.stackyard("fsck", "--repair").err
    assert bed.recorded == record.form.launcher == sha256_file(bed.paths.launcher)
