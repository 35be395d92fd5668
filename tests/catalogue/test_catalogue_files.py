"""A catalogue's directory: written whole or not at all, only what changed, only its own files, by one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from catalogue import yards
from stackyard.catalogue.publish import Written, write_catalogue
from stackyard.core.errors import InputError, StackyardError
from stackyard.inputs.workspace import Workspace
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic
from stackyard.yard.write.lease import lease


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """A yard that no test changes."""
    return yards.demo(tmp_path_factory.mktemp("yard") / "yard", "pytorch", "jax")


def write(yard: Yard, directory: Path, form: str = "site", said: list[str] | None = None) -> Written:
    return write_catalogue(Workspace(yards.SITE, yard), directory, form, ([] if said is None else said).append)


def pages(directory: Path) -> dict[str, bytes]:
    """What readers of a catalogue get."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(p.relative_to(directory)): p.read_bytes() for p in files if ".stackyard-catalogue" not in p.parts}


def inodes(directory: Path) -> dict[str, int]:
    return {name: (directory / name).stat().st_ino for name in pages(directory)}


@pytest.mark.parametrize("form", ["site", "markdown", "json"])
def test_only_files_that_changed_are_written(tmp_path: Path, form: str) -> None:
    yard, out = yards.demo(tmp_path / "yard", "pytorch", "tensorflow", "jax"), tmp_path / "out"
    assert write(yard, out, form).written
    before = inodes(out)
    again = write(yard, out, form)
    assert (again.written, again.removed) == ((), ()) and inodes(out) == before
    record = yards.revision(yard, "jax", "0.5.0", [yards.package("jax", "0.5.0")], variant="py312")
    yards.publish(yard, [yards.entry(record)])
    changed = set(write(yard, out, form).written)
    kept = {name for name, inode in inodes(out).items() if before.get(name) == inode}
    assert not changed & kept and changed | kept == set(pages(out))
    suffix = {"site": ".html", "markdown": ".md"}.get(form)
    if suffix:
        assert {f"jax/0.5.0-py312-1{suffix}", f"jax/index{suffix}", f"index{suffix}"} <= changed
        assert not any(name.startswith(("pytorch/", "tensorflow/")) for name in changed)
    fresh = tmp_path / "fresh"
    write(yard, fresh, form)
    assert pages(fresh) == pages(out)


def test_a_directory_that_holds_something_else_is_refused(tmp_path: Path, shared: Yard) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match=r"holds something else: thesis\.tex"):
        write(shared, home)
    assert [path.name for path in home.iterdir()] == ["thesis.tex"]
    write(shared, tmp_path / "out")
    with pytest.raises(InputError, match=r"as site, not of .* as markdown"):
        write(shared, tmp_path / "out", "markdown")
    other = yards.demo(tmp_path / "other", "jax")
    with pytest.raises(InputError, match="has the catalogue of"):
        write(other, tmp_path / "out")


def test_only_its_own_files_are_removed_or_replaced(tmp_path: Path) -> None:
    yard, out = yards.demo(tmp_path / "yard", "pytorch", "jax"), tmp_path / "out"
    write(yard, out)
    for name in ("README", "jax/notes.html"):
        (out / name).write_text("ours")
    entries = [replace(e, hidden=True) for e in generations.entries(yard) if e.stack in ("jax", "pytorch")]
    yards.publish(yard, [e for e in entries if e.stack == "jax" or e.version == "2.4.1"])
    assert set(write(yard, out).removed) == {
        "jax/0.4.35-py312-1.html", "jax/index.html", "pytorch/2.4.1-py312-1.html"
    }  # fmt: skip
    assert [path.name for path in (out / "jax").iterdir()] == ["notes.html"]
    assert (out / "README").read_text() == "ours"
    (out / "jax" / "0.4.35-py312-1.html").write_text("ours too")
    yards.publish(yard, [replace(e, hidden=False) for e in entries if e.stack == "jax"])
    with pytest.raises(InputError, match="not a file of the catalogue"):
        write(yard, out)
    assert (out / "jax" / "0.4.35-py312-1.html").read_text() == "ours too"
    assert "jax" not in (out / "index.html").read_text()


def test_a_page_that_was_deleted_or_changed_comes_back(tmp_path: Path, shared: Yard) -> None:
    out = tmp_path / "out"
    write(shared, out)
    good = pages(out)
    (out / "jax" / "0.4.35-py312-1.html").unlink()
    (out / "index.html").write_text("changed")
    (out / "pytorch" / "2.5.1-py312-1.html").write_text("")  # as a crash of the machine may leave it
    write(shared, out)
    assert pages(out) == good
    (out / "index.html").unlink()
    (out / ".stackyard-catalogue" / "read.json").write_text('{"format": 1, "facts": {"x": [')
    write(shared, out)
    assert pages(out) == good


def test_links_are_not_followed_out_of_the_directory(tmp_path: Path, shared: Yard) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    write(shared, out)
    elsewhere.mkdir()
    (out / "pytorch").rename(tmp_path / "moved")
    (out / "pytorch").symlink_to(elsewhere)
    (out / ".stackyard-catalogue" / "read.json").unlink()
    with pytest.raises(StackyardError):
        write(shared, out)
    assert list(elsewhere.iterdir()) == []


def test_a_full_disk_leaves_the_old_site_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard, out = yards.demo(tmp_path / "yard", "pytorch", "jax"), tmp_path / "out"
    write(yard, out)
    before = pages(out)
    record = yards.revision(yard, "jax", "0.5.0", [yards.package("jax", "0.5.0")], variant="py312")
    yards.publish(yard, [yards.entry(record)])
    write(yard, tmp_path / "fresh")
    after, found = pages(tmp_path / "fresh"), []
    for count in range(1, 9):
        atomic._hits.clear()
        monkeypatch.setenv("STACKYARD_FAULT", f"write:{count}:enospc")
        with suppress(StackyardError):
            write(yard, out)
        found.append(pages(out))
        assert not list((out / ".stackyard-catalogue").glob("new-*"))
    assert found[0] == before and found[-1] == after, "the last of them has room for all"
    assert all(each in (before, after) for each in found), "never a part of it"


def command(yard: Yard, out: Path, stderr: int = subprocess.DEVNULL, **environ: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "stackyard", "--yard", str(yard.root), "catalogue", "-o", str(out)]
    return subprocess.Popen(words, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, stderr=stderr)


def test_a_killed_run_is_completed_by_the_next(tmp_path: Path, shared: Yard) -> None:
    out = tmp_path / "out"
    for count in ("1", "5"):
        assert command(shared, out, STACKYARD_FAULT=f"catalogue-rename:{count}").wait(60) == -9
    assert len(pages(out)) == 4  # the fifth was not renamed
    (tmp_path / "site.yaml").write_text("name: renamed\n")  # which changes every page
    words = {"STACKYARD_SITE": str(tmp_path / "site.yaml")}
    assert command(shared, out, **words).wait(60) == 0
    assert command(shared, tmp_path / "fresh", **words).wait(60) == 0
    assert pages(out) == pages(tmp_path / "fresh")
    assert not list((out / ".stackyard-catalogue").glob("new-*"))


def test_two_writers_wait_for_each_other(tmp_path: Path, shared: Yard) -> None:
    out = tmp_path / "out"
    write(shared, out)
    good = pages(out)
    (out / "index.html").unlink()
    with lease(out / ".stackyard-catalogue" / "writer", "the catalogue"):
        second = command(shared, out, stderr=subprocess.PIPE)
        assert second.stderr is not None and b"waiting for the catalogue in" in second.stderr.readline()
        assert second.poll() is None and not (out / "index.html").exists()
    assert second.wait(60) == 0 and pages(out).keys() == good.keys()


def test_writers_at_once_leave_one_whole_catalogue(tmp_path: Path, shared: Yard) -> None:
    both = [command(shared, tmp_path / "out"), command(shared, tmp_path / "out")]
    assert [each.wait(60) for each in both] == [0, 0]
    assert command(shared, tmp_path / "fresh").wait(60) == 0
    assert pages(tmp_path / "out") == pages(tmp_path / "fresh")


def test_damaged_records_are_named_and_the_rest_is_written(tmp_path: Path) -> None:
    yard, said = yards.demo(tmp_path / "yard", "pytorch", "jax"), list[str]()
    paths = yard.revision("pytorch", "2.5.1-py312-1")
    for path in (paths.record, paths.spare):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:400])
    report = yard.revision("jax", "0.4.35-py312-1").report
    report.write_text("{}")
    done = write(yard, tmp_path / "out", said=said)
    assert done.revisions == 3
    assert [sentence.partition(":")[0] for sentence in said] == [
        "jax/0.4.35-py312-1 is shown without its checks",
        "pytorch/2.5.1-py312-1 is left out",
    ]
    assert "Its record cannot be read" in (tmp_path / "out/pytorch/2.5.1-py312-1.html").read_text()
    assert "2.5.1" not in (tmp_path / "out/index.html").read_text()
    assert "2.5.1" not in (tmp_path / "out/@catalogue/packages.js").read_text()


def test_a_dry_run_writes_nothing(tmp_path: Path, shared: Yard) -> None:
    out = tmp_path / "out"
    done = write_catalogue(Workspace(yards.SITE, shared), out, "site", [].append, dry_run=True)
    assert "index.html" in done.written and not out.exists()
    assert write(shared, out).written == done.written
