"""Files of a revision are restored as they were, or the reason is said; nothing else of the revision is touched."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.deploy.generation import Step
from stackyard.deploy.published.rollback import publish
from stackyard.expose.published import change_of, follow_policy
from stackyard.host.files import at
from stackyard.inputs.models import Site
from stackyard.inputs.sites.sitemodels import ModulePolicy, UserPaths
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health import repair
from stackyard.upkeep.health import restore_record as beside
from stackyard.verify.checks.content import look, own_files
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import UsedFile, origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents, revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Manifest
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic
from support import stackrecords

SITE = Site(modules=ModulePolicy(formats=("tcl",)))


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


@pytest.fixture
def record(yard: Yard) -> Iterator[BuildRecord]:
    """A revision with a few files, noted and sealed as a build does it."""
    made = stackrecords.record(yard, "s", "1")
    paths = RevisionPaths.of(made.path)
    (paths.prefix / "lib" / "inner").mkdir(parents=True)
    (paths.prefix / "lib" / "a.txt").write_text("a")
    paths.recipe.mkdir()
    (paths.recipe / "stack.yaml").write_text("name: s\n")
    noted = contents.note(paths.root, look(made)).to_text()
    paths.files.write_text(noted)
    contents.seal(paths.root, look(made), directories=True)
    made = replace(made, files_sha256=hashlib.sha256(noted.encode()).hexdigest())
    revisions.mark(made)
    yield made
    for directory, _, _ in os.walk(paths.root):
        Path(directory).chmod(0o755)


@pytest.fixture
def published(yard: Yard, record: BuildRecord) -> BuildRecord:
    publish(Workspace(SITE, yard), lambda _: Step((stackrecords.entry(record),), "deploy"))
    return record


def repaired(record: BuildRecord, yard: Yard, *given: UsedFile) -> repair.Outcome:
    return repair.repair(record, Workspace(SITE, yard), SilentProgress(), given)


def test_an_added_directory_is_removed_with_its_files(yard: Yard, record: BuildRecord) -> None:
    lib = Path(record.prefix) / "lib"
    lib.chmod(0o755)
    (lib / "added" / "deeper").mkdir(parents=True)
    (lib / "added" / "deeper" / os.fsdecode(b"\xff")).write_text("x")
    (lib / "inner").rmdir()
    (lib / "inner").write_text("a file has the place of a directory")
    lib.chmod(0o555)
    outcome = repaired(record, yard)
    assert outcome.lost == () and r"prefix/lib/added/deeper/\xff" in outcome.restored
    assert sorted(os.listdir(lib)) == ["a.txt", "inner"] and (lib / "inner").is_dir()


UP = "/".join([".."] * 4)


@pytest.mark.parametrize(
    ("directory", "file"),
    [
        ("{outside}", "victim"), (UP, "victim"), (UP.replace(".", r"\x2e"), "victim"), ("", f"{UP}/victim"),
        ("prefix/lib", f"../../{UP}/victim"), ("", r"..\x2f..\x2f..\x2f..\x2fvictim"),
    ],
)  # fmt: skip
def test_names_in_the_note_that_lead_out_are_refused(
    yard: Yard, record: BuildRecord, tmp_path: Path, directory: str, file: str
) -> None:
    """A repair wrote a set-user-ID program there: its bytes come from a file that the history names."""
    given = tmp_path / "given"
    given.write_text("#!/bin/sh\n")
    digest = hashlib.sha256(given.read_bytes()).hexdigest()
    paths = RevisionPaths.of(record.path)
    value = json.loads(paths.files.read_text())
    row = {file: [0o4755, given.stat().st_size, 1, digest]}
    value["files"][directory.format(outside=tmp_path)] = {**value["files"].get(directory, {}), **row}
    paths.files.write_text(json.dumps(value))
    record = replace(record, files_sha256=hashlib.sha256(paths.files.read_bytes()).hexdigest())
    revisions.mark(record)
    with pytest.raises(StackyardError, match=r"not a (path below|file name)"):
        repaired(record, yard, UsedFile(str(given), digest))
    assert not (tmp_path / "victim").exists()


def test_a_record_that_names_another_directory_is_not_repaired_there(
    yard: Yard, record: BuildRecord, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "stacks" / "s" / "1-py311-1"
    (other / "prefix").mkdir(parents=True)
    (other / "prefix" / "mine").write_text("kept")
    with pytest.raises(StackyardError, match="not in this yard"):
        repaired(replace(record, path=str(other), prefix=str(other / "prefix")), yard)
    assert (other / "prefix" / "mine").read_text() == "kept"
    for path in ("/yard/stacks/../../etc", "etc/passwd", "/yard//stacks/s/1"):
        with pytest.raises(StackyardError, match="not a"):
            BuildRecord.from_json({**record.to_json(), "path": path})
        manifest = Manifest(1, "now", "deploy", (replace(stackrecords.entry(record), folder=path),))
        with pytest.raises(StackyardError, match="not a"):
            Manifest.from_json(manifest.to_json())
    with pytest.raises(StackyardError, match="not a path below"):
        Manifest.from_json(Manifest(1, "now", "deploy", files={"../../x": "0" * 64}).to_json())


def test_a_directory_that_is_exchanged_with_a_link_leads_no_repair_elsewhere(
    yard: Yard, record: BuildRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, outside = Path(record.prefix) / "lib", tmp_path / "outside"
    outside.mkdir(mode=0o700)
    recipe = Path(record.path) / "recipe"
    (recipe / "stack.yaml").unlink()
    given = tmp_path / "given.yaml"
    given.write_text("name: s\n")

    def exchanged(name: str) -> None:
        if name == "mend":
            recipe.rename(tmp_path / "away")
            recipe.symlink_to(outside)

    monkeypatch.setattr(atomic, "fault_point", exchanged)
    used = UsedFile(str(given), hashlib.sha256(given.read_bytes()).hexdigest())
    repaired(record, yard, used)
    assert os.listdir(outside) == []
    assert outside.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "away" / "stack.yaml").read_text() == "name: s\n"
    assert lib.is_dir()


def test_a_link_in_the_place_of_a_directory_is_removed_and_not_followed(
    yard: Yard, record: BuildRecord, tmp_path: Path
) -> None:
    lib = Path(record.prefix) / "lib"
    lib.chmod(0o755)
    (lib / "inner").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (lib / "inner").symlink_to(tmp_path / "elsewhere")
    assert repaired(record, yard).lost == ()
    assert not (lib / "inner").is_symlink() and (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700


def test_an_error_of_the_file_system_is_one_of_this_revision(
    yard: Yard, record: BuildRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = Path(record.prefix) / "lib"
    lib.chmod(0o755)
    (lib / "added").write_text("x")

    def refuse(_: int, name: str) -> None:
        raise PermissionError(1, "Operation not permitted", name)

    with monkeypatch.context() as patched, pytest.raises(StackyardError, match="cannot repair s/1-py311-1: ") as caught:
        patched.setattr(at, "remove_tree", refuse)
        repaired(record, yard)
    assert caught.value.hint == "run it as the account that owns the files"


def test_a_recipe_is_restored_from_the_file_that_was_deployed(yard: Yard, record: BuildRecord, tmp_path: Path) -> None:
    """In a git work tree the entry has a relative path; the manifest has the absolute one."""
    file = tmp_path / "work" / "stacks" / "stack.yaml"
    file.parent.mkdir(parents=True)
    (tmp_path / "work" / ".git").mkdir()
    file.write_text("name: s\n")
    entry = replace(stackrecords.entry(record), file="stacks/stack.yaml")
    publish(Workspace(SITE, yard), lambda _: Step((entry,), "deploy"), origin((), [file, tmp_path / "unreadable"]))
    copy = RevisionPaths.of(record.path).recipe / "stack.yaml"
    os.utime(file, ns=(copy.stat().st_mtime_ns, copy.stat().st_mtime_ns))
    copy.chmod(0o644)
    copy.write_text("name: t\n")
    assert repair.file_of(entry, yard) == str(file)
    assert repaired(record, yard, *repair.files_read(yard)).restored == ("recipe/stack.yaml",)
    assert copy.read_text() == "name: s\n" and file.stat().st_nlink == 1, "the user's own file is never linked"


def test_a_record_and_its_copy_restore_each_other(record: BuildRecord) -> None:
    paths = RevisionPaths.of(record.path)
    for path in (paths.record, paths.spare):
        path.write_text("{")
        assert beside.restore_record(paths) == [path.name]
        assert read_record(path) == record and beside.restore_record(paths) == []
    paths.record.write_text("{")
    paths.spare.write_text("{")
    with pytest.raises(StackyardError, match=r"record\.json"):
        beside.restore_record(paths)
    paths.record.unlink()
    with pytest.raises(StackyardError, match=r"record\.json"):
        beside.restore_record(paths)


def test_operations_are_restored_if_they_are_those_of_the_modulefile(yard: Yard, published: BuildRecord) -> None:
    module = RevisionPaths.of(published.path).module
    before, frozen = module.read_bytes(), change_of(published, SITE)
    assert beside.restore_operations(published, Workspace(SITE, yard)) == []
    module.write_text("{")
    moved = SITE.model_copy(update={"user_paths": UserPaths(suffix="elsewhere")})
    with pytest.raises(StackyardError, match="present site"):
        beside.restore_operations(published, Workspace(moved, yard))
    assert beside.restore_operations(published, Workspace(SITE, yard)) == ["module.json"]
    assert module.read_bytes() == before and change_of(published, SITE) == frozen


def test_a_lost_condarc_is_found_and_restored(published: BuildRecord) -> None:
    condarc = RevisionPaths.of(published.path).condarc
    before = condarc.read_bytes()
    assert own_files(published) == [] and beside.restore_rest(published, SITE) == []
    condarc.unlink()
    (lost,) = own_files(published)
    assert (lost.status, lost.detail) == ("failed", f"{condarc}: No such file or directory")
    beside.restore_rest(published, SITE)
    assert condarc.read_bytes() == before and own_files(published) == []


def test_a_policy_that_cannot_be_written_is_told_for_each_revision(
    yard: Yard, published: BuildRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = RevisionPaths.of(published.path)
    before = paths.condarc.read_text()

    def refuse(path: Path, text: str, **_: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("stackyard.expose.published.atomic.write_text", refuse)
        assert follow_policy([published.path], before) == []
        (problem,) = follow_policy([published.path, str(paths.prefix)], "other")
    assert problem.startswith(f"cannot write {paths.condarc}: Permission denied")
    paths.condarc.unlink()
    assert follow_policy([published.path], before) == [] and paths.condarc.read_text() == before


def test_files_that_deploys_read_are_known_by_their_content(yard: Yard, record: BuildRecord, tmp_path: Path) -> None:
    entry = stackrecords.entry(record)
    publish(Workspace(SITE, yard), lambda _: Step((entry,), "deploy"), origin((), [tmp_path / "lost"]))
    manifest = generations.current(yard)
    assert isinstance(manifest, Manifest) and list(repair.files_read(yard)) == [UsedFile(str(tmp_path / "lost"))]
    assert repair.file_of(replace(entry, file="/other.yaml"), yard) == "/other.yaml"
