"""What no other yard could make is not pushed; what to know of an old revision before it goes elsewhere is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.host.files.hashing import sha256_text
from stackyard.images.oci import artefact
from stackyard.images.oci.layout import Reference
from stackyard.make.seal import PARTS
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents, revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record
from support import smallyard
from support.cli import Done, inside

OLD = "tool/1.0-py311-1"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    made = smallyard.make(tmp_path / "yard", "1.0", "2.0")
    for version in ("1.0", "2.0"):
        paths = smallyard.revision(made, version)
        paths.lock.parent.mkdir()
        paths.lock.write_text("format = 1\n")
        note(paths)
    return made


def note(paths: RevisionPaths) -> None:
    text = contents.note(paths.root, contents.scan(paths.root, PARTS)).to_text()
    paths.files.write_text(text)
    revisions.mark(replace(read_record(paths.record), files_sha256=sha256_text(text)))


def push(yard: Yard, *words: str, expect: int = 0) -> Done:
    return inside("push", *words, OLD, f"oci:{yard.root.with_name('layout')}:x", expect=expect)


def as_of_format_2(record: BuildRecord) -> BuildRecord:
    return replace(record, files_sha256="")


def wrapped(record: BuildRecord) -> BuildRecord:
    container = {"source": "s", "digest": "d", "labels": {}, "mode": "host", "commands": {}, "shell": ""}
    return replace(record, form=Form("container", "image.sqsh"), container=container)


def adopted(record: BuildRecord) -> BuildRecord:
    return replace(record, adopted=AdoptedPrefix("venv", "/sw/venvs/tools", "7" * 64))


@pytest.mark.parametrize(
    ("change", "says", "hint"),
    [
        (as_of_format_2, "an earlier version built it, which did not note what its files hold", "--rebuild FILE"),
        (wrapped, "it is a wrapped image", "`stackyard wrap`"),
        (adopted, "it was adopted, and its files are in ", "`stackyard adopt`"),
    ],
)
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_what_no_yard_could_make_of_it(
    yard: Yard, change: Callable[[BuildRecord], BuildRecord], says: str, hint: str, words: tuple[str, ...]
) -> None:
    revisions.mark(change(read_record(smallyard.revision(yard, "1.0").record)))
    said = push(yard, *words, expect=2).err
    assert f"error: cannot push {OLD}: {says}" in said and hint in said
    assert not disk.is_there(yard.root.with_name("layout"))


def a_byte(paths: RevisionPaths) -> None:
    file = paths.prefix / "share/data"
    time = file.stat().st_mtime_ns
    file.chmod(0o644)
    file.write_text(file.read_text().replace("tool", "tolo", 1))
    file.chmod(0o444)
    os.utime(file, ns=(time, time))


def a_lost_file(paths: RevisionPaths) -> None:
    (paths.prefix / "share").chmod(0o755)
    (paths.prefix / "share/data").unlink()
    (paths.prefix / "share").chmod(0o555)


def the_list(paths: RevisionPaths) -> None:
    paths.files.write_text(paths.files.read_text() + " ")


HARMS = {
    a_byte: "prefix/share/data has changed",
    a_lost_file: "prefix/share/data is missing",
    the_list: "files.json is not ",
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_not_as_it_was_built(yard: Yard, harm: Callable[[RevisionPaths], None]) -> None:
    """Else the yard that pulls it finds that out, and would send you back here."""
    harm(smallyard.revision(yard, "1.0"))
    for words in ((), ("--dry-run",)):
        said = push(yard, *words, expect=1).err
        assert f"cannot push {OLD}: it does not hold what was built: " in said and HARMS[harm] in said
        assert f"hint: `stackyard fsck --deep --repair {OLD}`" in said


def test_bytecode_that_was_added_stays_here(yard: Yard) -> None:
    directory = smallyard.revision(yard, "1.0").prefix / "share"
    directory.chmod(0o755)
    (directory / "__pycache__").mkdir()
    (directory / "__pycache__/a.cpython-311.pyc").touch()
    push(yard)
    (yard.root.with_name("arrived")).mkdir()
    artefact.unpack(artefact.read(Reference(yard.root.with_name("layout"), "x")), yard.root.with_name("arrived"))
    names = {path.name for path in yard.root.with_name("arrived").rglob("*")}
    assert "hello" in names and not names & {"__pycache__", "a.cpython-311.pyc"}


def test_what_to_know_of_it_is_said(yard: Yard) -> None:
    assert push(yard).err.splitlines()[1:] == [], "the line of its progress alone"
    inside("withdraw", OLD)
    assert f"{OLD} was withdrawn here; a pull verifies and publishes it" in push(yard).err
    inside("withdraw", OLD, "--undo")
    inside("retire", OLD, "--on", "2020-01-01", "--use", "tool/2.0-py311-1")
    assert f"{OLD} is retired from 2020-01-01 in favour of tool/2.0-py311-1; it is so where" in push(yard).err
    inside("remove", OLD)
    said = push(yard, expect=4).err
    assert f"{OLD} was removed" in said and f"stackyard remove {OLD} --undo" in said


def test_who_pulls_what_was_withdrawn_is_told(yard: Yard) -> None:
    inside("withdraw", OLD)
    push(yard)
    yard.root.rename(yard.root.with_name("aside"))
    done = inside("pull", f"oci:{yard.root.with_name('layout')}:x")
    assert f"{OLD} was withdrawn where it comes from; to hide it here: `stackyard withdraw {OLD}`" in done.err
    assert [entry.state for entry in generations.entries(yard)] == ["published"]
