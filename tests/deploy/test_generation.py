"""A draft of a generation: invisible until it flips, removed unless it flipped, the same for deploy and rollback."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import StackyardError
from stackyard.deploy import generation
from stackyard.deploy.generation import Step
from stackyard.deploy.published.rollback import only_from, publish, step_to, target
from stackyard.expose import generation as generation_of
from stackyard.host.files import at
from stackyard.inputs.models import Site
from stackyard.inputs.sites.sitemodels import ModulePolicy
from stackyard.inputs.workspace import Workspace
from stackyard.yard.disk import DiskFull
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest, read_manifest
from stackyard.yard.revision.record import BuildRecord
from support import stackrecords
from support.failing import stale

SITE = Site(modules=ModulePolicy(formats=("tcl",)))  # without Lua no spider cache is made, which takes seconds


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


def built(yard: Yard, revision: int) -> BuildRecord:
    record = stackrecords.record(yard, "s", "1", revision)
    revisions.mark(record)
    return record


def spoil(entry: Entry) -> None:
    """Damage the record of a revision and the copy of it."""
    paths = RevisionPaths.of(entry.folder)
    paths.record.write_text("{")
    paths.spare.write_text("{")


def shown(yard: Yard) -> set[str]:
    return {path.name for path in (yard.modules / "s").iterdir() if not path.name.startswith(".")}


def test_it_is_visible_once_it_flips(yard: Yard) -> None:
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    with generation.draft(Workspace(SITE, yard)) as draft:
        draft.write([one, two])
        assert (draft.modules / "s/1-py311-2").exists() and generations.current(yard) is None
        draft.write([one])
        assert not (draft.modules / "s/1-py311-2").exists()
        manifest = draft.publish(lambda _: Step((one,), "deploy s"))
    assert generations.current(yard) == manifest
    assert (manifest.number, manifest.reason, manifest.entries) == (1, "deploy s", (one,))
    assert shown(yard) == {"1-py311-1"}


def test_it_is_removed_where_it_is_not_flipped_or_something_fails(yard: Yard) -> None:
    entry = stackrecords.entry(built(yard, 1))
    with generation.draft(Workspace(SITE, yard)) as draft:
        draft.write([entry])
    assert not draft.paths.root.exists()
    with (
        pytest.raises(StackyardError, match="cannot read the build record"),
        generation.draft(Workspace(SITE, yard)) as draft,
    ):
        draft.write([replace(entry, module="s/9-py311-1")])
    assert not draft.paths.root.exists() and generations.current(yard) is None


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, StackyardError)])
def test_an_error_of_the_file_system_has_a_hint(yard: Yard, number: int, kind: type[StackyardError]) -> None:
    with pytest.raises(kind, match="writing the modules") as caught, generation.draft(Workspace(SITE, yard)) as draft:
        raise OSError(number, "as the kernel has it", "file")
    assert caught.value.hint and "published revisions are unchanged" in caught.value.hint
    assert not draft.paths.root.exists()


def test_a_rollback_writes_through_it_too(yard: Yard) -> None:
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    for entries in ([one], [one, two]):
        with generation.draft(Workspace(SITE, yard)) as draft:
            draft.publish(lambda _, entries=tuple(entries): Step(entries, "deploy"))
    to = target(yard, None)
    manifest = publish(Workspace(SITE, yard), step_to(yard, to))
    assert (manifest.number, manifest.content) == (3, 1)
    assert {e.module: e.state for e in manifest.entries} == {"s/1-py311-1": "published", "s/1-py311-2": "withdrawn"}
    assert shown(yard) == {"1-py311-1", "1-py311-2"}, "a loaded module keeps its file"


def test_a_damaged_record_stops_nothing_about_other_revisions(yard: Yard) -> None:
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    publish(Workspace(SITE, yard), lambda _: Step((one, two), "deploy"))
    before = (yard.modules / two.module).read_text()
    spoil(two)
    three = stackrecords.entry(built(yard, 3))
    manifest = publish(Workspace(SITE, yard), lambda base: Step((*base.entries, three), "deploy"))
    assert shown(yard) == {"1-py311-1", "1-py311-2", "1-py311-3"}
    assert (yard.modules / two.module).read_text() == before, "it keeps the modulefile that it has"
    assert generation.is_as_the_site_wants(Workspace(SITE, yard), manifest)
    (yard.modules / two.module).write_text("#%Module\n")
    with pytest.raises(StackyardError, match="record"):
        publish(Workspace(SITE, yard), lambda base: Step(base.entries, "deploy"))


def test_the_copy_of_a_damaged_record_gives_the_same_modules(yard: Yard) -> None:
    site = Site(modules=ModulePolicy(formats=("tcl",), aliases={"horovod": "horovod"}))
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    manifest = publish(Workspace(site, yard), lambda _: Step((one, two), "deploy"))
    RevisionPaths.of(two.folder).record.write_text("{")
    assert publish(Workspace(site, yard), lambda base: Step(base.entries, "deploy")).files == manifest.files
    assert f'module-alias "horovod" "{two.module}"' in (yard.modules / ".modulerc").read_text()


def test_an_error_of_the_file_system_is_not_a_damaged_record(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    one = stackrecords.entry(built(yard, 1))
    manifest = publish(Workspace(SITE, yard), lambda _: Step((one,), "deploy"))
    plain = at.read_regular

    def read(path: Path) -> bytes:
        if path.name == "record.json":
            stale(path)
        return plain(path)

    monkeypatch.setattr(at, "read_regular", read)
    with pytest.raises(StackyardError, match="Stale file handle"):
        generation.is_as_the_site_wants(Workspace(SITE, yard), manifest)


def test_a_rollback_reads_no_more_generations_than_it_needs(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [stackrecords.entry(built(yard, n)) for n in (1, 2, 3, 4)]
    for n in range(1, 5):
        publish(Workspace(SITE, yard), lambda _, n=n: Step(tuple(entries[:n]), "deploy"))
    step, read = step_to(yard, generations.read(yard, 3)), []
    base = generations.base(yard)

    def counted(path: Path) -> Manifest:
        read.append(path.parent.name)
        return read_manifest(path)

    monkeypatch.setattr(generations, "read_manifest", counted)
    assert [e.state for e in step(base).entries] == ["published"] * 3 + ["withdrawn"]
    assert read == ["4"]


def test_damaged_operations_stop_nothing_about_other_revisions(yard: Yard) -> None:
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    manifest = publish(Workspace(SITE, yard), lambda _: Step((one, two), "deploy"))
    RevisionPaths.of(two.folder).module.write_text("{")
    assert generation.is_as_the_site_wants(Workspace(SITE, yard), manifest)
    assert publish(Workspace(SITE, yard), lambda base: Step(base.entries, "deploy")).files == manifest.files


def test_what_was_looked_at_is_not_rendered_again(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a yard with many revisions a deploy renders the modulefiles of all; once, for the look and for the draft."""
    entries = tuple(stackrecords.entry(built(yard, n)) for n in (1, 2, 3))
    manifest = publish(Workspace(SITE, yard), lambda _: Step(entries, "deploy"))
    rendered, plain = [], generation_of.modulefiles

    def counted(record: BuildRecord, *others: Any) -> dict[str, str]:
        rendered.append(record.revision)
        return plain(record, *others)

    monkeypatch.setattr(generation_of, "modulefiles", counted)
    texts: generation_of.Texts = {}
    assert generation.is_as_the_site_wants(Workspace(SITE, yard), manifest, texts)
    with generation.draft(Workspace(SITE, yard)) as draft:
        draft.texts = texts
        draft.write([*entries[:2], replace(entries[2], state="withdrawn"), stackrecords.entry(built(yard, 4))])
    assert sorted(rendered) == [1, 2, 3, 3, 4]


def test_looking_freezes_nothing_and_a_lost_freeze_is_a_reason_to_write_again(yard: Yard) -> None:
    one = stackrecords.entry(built(yard, 1))
    manifest = publish(Workspace(SITE, yard), lambda _: Step((one,), "deploy"))
    paths = RevisionPaths.of(one.folder)
    paths.module.unlink()
    paths.condarc.unlink()
    assert not generation.is_as_the_site_wants(Workspace(SITE, yard), manifest)
    assert not paths.module.exists() and not paths.condarc.exists()
    publish(Workspace(SITE, yard), lambda base: Step(base.entries, "deploy"))
    assert paths.module.exists() and paths.condarc.exists()


def test_what_is_published_meanwhile_is_kept(yard: Yard) -> None:
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    with generation.draft(Workspace(SITE, yard)) as draft, generation.draft(Workspace(SITE, yard)) as other:
        draft.write([one])
        calls = []

        def step(base: generations.Base) -> Step:
            if not calls:
                other.publish(lambda _: Step((two,), "another deploy"))
            calls.append(base.previous)
            return Step((*base.entries, one), "deploy")

        manifest = draft.publish(step)
    assert calls == [0, 1]
    assert (manifest.number, manifest.previous, set(manifest.entries)) == (2, 1, {one, two})
    assert shown(yard) == {"1-py311-1", "1-py311-2"}


def test_nothing_is_published_by_a_process_that_may_not_any_more(yard: Yard) -> None:
    entry = stackrecords.entry(built(yard, 1))

    def may() -> None:
        raise StackyardError("lost the lease")

    with pytest.raises(StackyardError, match="lost"), generation.draft(Workspace(SITE, yard)) as draft:
        draft.publish(lambda _: Step((entry,), "deploy"), may)
    assert generations.current(yard) is None and not draft.paths.root.exists()


def test_a_rollback_does_not_undo_what_was_published_after_it_was_asked_for(yard: Yard) -> None:
    one, two = (stackrecords.entry(built(yard, n)) for n in (1, 2))
    for entries in ((one,), (one, two)):
        publish(Workspace(SITE, yard), lambda _, entries=entries: Step(entries, "deploy"))
    to = target(yard, None)
    publish(Workspace(SITE, yard), lambda base: Step(base.entries, "another deploy"))
    with pytest.raises(StackyardError, match=r"generation 3 was published by .* meanwhile: another deploy"):
        publish(Workspace(SITE, yard), only_from(2, step_to(yard, to)))
    assert generations.current_number(yard) == 3
