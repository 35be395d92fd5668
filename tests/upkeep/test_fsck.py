"""fsck finds and names every changed file, restores it without touching what others have of it, or says what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fsckbed import OWN, SHARED, Bed, flip, in_open_directory, without_channel

from stackyard.core.errors import StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.inputs.models import Site
from stackyard.inputs.sites.sitemodels import ModulePolicy
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health import repair
from stackyard.upkeep.health.fsck import check
from stackyard.upkeep.health.fsck.image import launcher_fault
from stackyard.upkeep.health.fsck.owners import Owners
from stackyard.upkeep.health.fsck.reading import Reader
from stackyard.upkeep.health.originals import first_difference
from stackyard.yard.kinds.payload import Form
from stackyard.yard.layout import Yard
from stackyard.yard.revision.contents import Item, holds
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import trash
from support import smallyard, stackrecords
from support.accounts import Accounts
from support.cli import STACKYARD

LIB = "cache/conda/lib-1.5-0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    bed = Bed(tmp_path_factory.mktemp("fsck"))
    bed.run("deploy", *bed.write())
    subprocess.run(["cp", "-a", bed.directory, kept(bed)], check=True)
    return bed


def kept(bed: Bed) -> Path:
    return bed.directory.with_name(f"{bed.directory.name}-kept")


@pytest.fixture
def bed(made: Bed) -> Iterator[Bed]:
    """The yard as it was deployed, at its path."""
    smallyard.allow_removal(made.directory)
    shutil.rmtree(made.directory)
    subprocess.run(["cp", "-a", kept(made), made.directory], check=True)
    yield made
    smallyard.allow_removal(made.directory)


def lines(text: str) -> list[str]:
    """What was found, without the last line."""
    return text.splitlines()[:-1]


def test_nothing_is_wrong_in_a_yard_as_it_was_deployed(bed: Bed) -> None:
    before = smallyard.files(bed.yard.root)
    quick, deep = bed.fsck(), bed.fsck("--deep")
    assert quick.out.startswith("nothing is wrong in 2 revisions: ") and "sampled" in quick.out
    assert deep.out.startswith("nothing is wrong in 2 revisions: ") and "sampled" not in deep.out
    assert quick.err == deep.err == "" and smallyard.files(bed.yard.root) == before


def test_a_byte_in_a_shared_file_is_named_with_all_who_have_it_and_no_link_is_trusted(bed: Bed) -> None:
    one, two, cached = bed.file("one", SHARED), bed.file("two", SHARED), bed.yard.root / LIB / SHARED
    assert one.stat().st_ino == two.stat().st_ino == cached.stat().st_ino
    good = two.read_bytes()
    flip(one)
    with one.open("rb") as running:
        (line,) = lines(bed.fsck("--deep", expect=3).out)
        assert line.startswith(f"stacks/one/1-default-1/prefix/{SHARED}: sha256 ")
        assert line.endswith(f"(lib 1.5; also in {LIB}, two/1-default-1)")
        (alone,) = lines(bed.fsck("--deep", "two", expect=3).out)
        assert alone.endswith(f"(lib 1.5; also in {LIB}, one/1-default-1)")
        done = bed.fsck("--deep", "--repair")
        assert "1 fault found, 0 left" in done.out and "discarded: " in done.err
        assert running.read() != good, "a program that has the file open keeps what it has"
    assert one.read_bytes() == two.read_bytes() == cached.read_bytes() == good
    assert bed.fsck("--deep").out.startswith("nothing is wrong")


def test_one_revision_is_repaired_and_the_others_keep_their_link(bed: Bed) -> None:
    one, two = bed.file("one", SHARED), bed.file("two", SHARED)
    good, inode = one.read_bytes(), two.stat().st_ino
    flip(one)
    assert "0 left in 1 revision" in bed.fsck("one", "--deep", "--repair").out
    assert one.read_bytes() == good and one.stat().st_ino != inode == two.stat().st_ino and two.read_bytes() != good
    assert [fault["revision"] for fault in bed.fsck("--deep", "--json", expect=3).value["faults"]] == [
        "two/1-default-1"
    ]


def test_lost_and_changed_files_come_back_from_the_cache_without_a_channel(bed: Bed) -> None:
    without_channel(bed)
    lost, other = bed.file("one", SHARED), bed.file("one", "bin/lib")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) for path in (lost, other)}
    in_open_directory(lost, Path.unlink)
    in_open_directory(other, lambda path: (path.unlink(), path.write_text("#!/bin/sh\nexho lib\n"), path.chmod(0o555)))
    found = bed.fsck(expect=3).out
    assert f"prefix/{SHARED}: is missing (lib 1.5)" in found and ", from byte 11 on (lib 1.5)" in found
    bed.fsck("--repair")
    for path, (data, time, mode) in before.items():
        assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) == (data, time, mode)
    assert lost.stat().st_ino == (bed.yard.root / LIB / SHARED).stat().st_ino


def test_what_cannot_be_had_is_said_with_what_to_type(bed: Bed) -> None:
    without_channel(bed)
    flip(bed.file("two", SHARED))
    done = bed.fsck("--deep", "--repair", expect=3)
    assert f"prefix/{SHARED}: sha256 " in done.out.partition("not repaired:")[2] and "channel" in done.err
    assert bed.file("two", SHARED).exists(), "a file is restored as it was, or left"


def test_a_file_with_its_prefix_in_it_is_restored_as_it_was(bed: Bed) -> None:
    path = bed.file("one", OWN)
    good = path.read_bytes()
    assert os.fsencode(bed.paths("one").prefix) in good
    flip(path)
    assert f"prefix/{OWN}: sha256 " in bed.fsck("--deep", expect=3).out
    bed.fsck("--deep", "--repair")
    assert path.read_bytes() == good


def test_a_sample_says_what_it_may_miss(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_LEAST_BYTES", 0)
    monkeypatch.setattr(check, "_MOST_BYTES", 0)
    flip(bed.file("one", SHARED))
    quick = bed.fsck("--json").value
    assert quick["faults"] == [] and 0 < quick["sampled"] < quick["files"]
    assert quick["missed"] == round(1 - quick["sampled"] / quick["files"], 4)
    with bed.file("one", "share/tool/text").open("ab") as stream:
        stream.write(b"x")
    assert "501 bytes instead of 500" in bed.fsck(expect=3).out, "another size is found without reading"


def test_modes_links_and_added_files(bed: Bed) -> None:
    prefix = bed.paths("one").prefix
    bed.file("one", "share/tool/text").chmod(0o666)
    in_open_directory(prefix / "bin/added", lambda path: path.write_text("x"))
    in_open_directory(prefix / "share/tool/__pycache__", lambda path: (path.mkdir(), (path / "a.pyc").touch()))
    (bed.yard.root / "locks").chmod(0o777)
    found = lines(bed.fsck(expect=3).out)
    assert found == [
        "stacks/one/1-default-1/prefix/share/tool/text: mode 0666: everybody may write to it "
        "(tool 2.0; also in cache/conda/tool-2.0-0)",
        "stacks/one/1-default-1/prefix/bin/added: was added",
        "locks: mode 0777: everybody may write to it",
    ]
    bed.fsck("--repair")
    assert not (prefix / "bin/added").exists() and bed.file("one", "share/tool/text").stat().st_mode & 0o222 == 0
    assert bed.fsck().out.startswith("nothing is wrong")


def test_a_lost_record_comes_back_from_its_copy_and_without_one_it_stays_a_fault(bed: Bed) -> None:
    paths = bed.paths("one")
    before = paths.record.read_bytes()
    paths.record.unlink()
    assert "stacks/one/1-default-1/record.json: is missing" in bed.fsck(expect=3).out
    bed.fsck("--repair")
    assert paths.record.read_bytes() == before
    paths.record.unlink()
    paths.spare.write_text("{")
    done = bed.fsck("--repair", expect=3)
    assert "record.json: is missing" in done.out and "record.json" in done.err


def test_modulefiles_manifests_and_locks(bed: Bed) -> None:
    module = bed.yard.modules / "one" / "1-default-1"
    good = module.read_bytes()
    flip(module)
    assert "generations/1/modules/one/1-default-1: has changed" in bed.fsck(expect=3).out
    done = bed.fsck("--repair")
    assert (bed.yard.modules / "one" / "1-default-1").read_bytes() == good and "of the present generation" in done.err
    assert [item.what.path for item in trash.items(bed.yard)] == ["generations/1/modules"]
    kept = next(bed.yard.locks.glob("*.lock"))
    kept.write_text("not a lock")
    bed.yard.generation(1).manifest.write_text("{")
    told = bed.fsck(expect=3)
    assert "generations/1/manifest.json: " in told.out and f"locks/{kept.name}: " in told.out
    assert f"`rm {kept}`" in told.err
    bed.yard.licences.write_text("{")
    assert "licences.json: " in bed.fsck(expect=3).out


def test_damaged_entries_and_archives_of_the_caches_are_discarded(bed: Bed) -> None:
    source = bed.yard.source("a" * 64, "demo-1.0.tar.gz")
    source.parent.mkdir(parents=True)
    source.write_bytes(b"truncated")
    in_cache = bed.yard.root / LIB / "info" / "index.json"
    flip(in_cache)
    assert bed.fsck().out.startswith("nothing is wrong"), "archives are read by --deep"
    found = bed.fsck("--deep", expect=3).out
    assert f"{source.relative_to(bed.yard.root)}: has changed" in found and f"{LIB}/info/index.json: sha256 " in found
    assert "2 faults found, 0 left" in bed.fsck("--deep", "--repair").out
    assert not source.exists() and not (bed.yard.root / LIB).exists()
    (bed.yard.conda / "gone-1.0-0").symlink_to("/nowhere")
    (bed.yard.conda / "out-1.0-0").symlink_to("/etc")
    found = bed.fsck(expect=3).out
    assert "which does not exist" in found and "is a link to /etc, out of this yard" in found
    bed.fsck("--repair")
    assert not os.path.lexists(bed.yard.conda / "out-1.0-0") and Path("/etc").is_dir()


def test_a_revision_without_a_list_of_files_is_told(bed: Bed) -> None:
    """That of an early version: its files were not sealed either."""
    smallyard.publish(bed.yard, [smallyard.build(bed.yard, "old", "1.0")])
    told = bed.fsck("--deep")
    assert "old/1.0-py311-1: not compared: an earlier version built it" in told.err and "nothing is wrong" in told.out


def test_what_is_not_there(bed: Bed, tmp_path: Path) -> None:
    assert "no such yard" in bed.run("--yard", tmp_path / "none", "fsck", expect=2).err
    assert "no such revision" in bed.fsck("three", expect=2).err


def test_leftovers_and_the_trash_are_told_and_no_fault(bed: Bed) -> None:
    (bed.yard.conda / ".half").mkdir()
    bed.run("remove", "two")
    told = bed.fsck()
    assert "1 leftover of builds that ended early" in told.err and "1 thing in the trash" in told.err
    assert "1 revision" in told.out and "`stackyard gc`" in told.err


def test_a_stack_that_is_a_link_leads_out_of_the_yard(bed: Bed) -> None:
    moved = bed.directory / "elsewhere"
    (bed.yard.stacks / "two").rename(moved)
    (bed.yard.stacks / "two").symlink_to(moved)
    assert f"stacks/two: is a link to {moved}" in bed.fsck(expect=3).out


@pytest.mark.parametrize("part", ["", "prefix", ".."])
def test_a_repair_writes_and_removes_nothing_behind_a_link(bed: Bed, part: str) -> None:
    """A revision, its prefix, or the directory of its stack is elsewhere, with a file of somebody else."""
    place = Path(os.path.normpath(bed.paths("one").root / part))
    moved = bed.directory / "elsewhere"
    flip(bed.file("one", OWN))
    place.rename(moved)
    place.symlink_to(moved)
    (moved / "mine").write_text("not of the yard\n")
    before = smallyard.files(moved)
    done = bed.fsck("--deep", "--repair", expect=3)
    assert f"leads to {moved}" in done.err and "put the directory itself in its place" in done.err
    assert f"{place.relative_to(bed.yard.root)}: is a link to {moved}" in done.out
    assert smallyard.files(moved) == before


def test_a_lost_manifest_does_not_stop_the_repair_of_files(bed: Bed) -> None:
    flip(bed.file("one", OWN))
    good = bed.file("two", SHARED).read_bytes()
    flip(bed.file("two", SHARED))
    for manifest in bed.yard.generations.glob("*/manifest.json"):
        manifest.write_text("{")
    done = bed.fsck("--deep", "--repair", expect=3)
    assert "one/1-default-1: restored" in done.err and "Traceback" not in done.err
    assert bed.file("two", SHARED).read_bytes() == good
    assert "manifest.json" in done.out


def test_what_was_damaged_is_read_again_whatever_the_sample(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(modules=ModulePolicy(formats=("tcl",)))
    monkeypatch.setattr(check, "_LEAST_BYTES", 0)
    monkeypatch.setattr(check, "_MOST_BYTES", 0)
    for path in (bed.file("one", OWN), bed.yard.root / LIB / SHARED):
        flip(path)
        found = check.check(Workspace(site, bed.yard), [], SilentProgress(), deep=True, whole=True)
        left = check.check(Workspace(site, bed.yard), [], SilentProgress(), deep=False, whole=True, again=found)
        assert {fault.path for fault in found.faults} == {fault.path for fault in left.faults} >= {path}
    assert check.check(Workspace(site, bed.yard), [], SilentProgress(), deep=False, whole=True).faults == []
    bed.paths("one").damaged.write_text('{"files": ["prefix/bin/tool"]}')
    faults = check.check(Workspace(site, bed.yard), [], SilentProgress(), deep=False, whole=True).faults
    assert bed.file("one", OWN) in {fault.path for fault in faults}


def test_nothing_is_put_in_place_that_is_not_what_was_noted(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("damaged")
    with pytest.raises(StackyardError, match="changed while it was read"):
        repair._put(tmp_path, tmp_path / "there", Item(0o444, 3, 0, "0" * 64), b"new")
    assert (tmp_path / "there").read_text() == "damaged" and len(list(tmp_path.iterdir())) == 1


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    record = stackrecords.record(Yard(tmp_path), "demo", "1")
    launcher = RevisionPaths.of(record.path).launcher
    os.mkfifo(launcher, 0o555)
    fault = launcher_fault(replace(record, form=Form("squashfs")))
    assert fault is not None and fault.text == "is not a regular file"
    assert not holds(launcher, Item(sha256="0" * 64))


@pytest.mark.parametrize("point", ["mend:1", "mended:1"])
def test_killed_in_the_middle_the_next_repair_finishes(bed: Bed, point: str) -> None:
    for name in (SHARED, "bin/lib"):
        flip(bed.file("one", name))
    environ = {**os.environ, **bed.environ(), "STACKYARD_FAULT": point}
    words = [STACKYARD, "fsck", "one", "--deep", "--repair"]
    killed = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=240)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert bed.fsck("one", "--deep", expect=3).out
    bed.fsck("--deep", "--repair")
    assert bed.fsck("--deep").out.startswith("nothing is wrong")
    assert not list(bed.paths("one").prefix.rglob(".*.*"))


def test_a_full_disk_leaves_what_is_there(bed: Bed) -> None:
    kept = bed.directory / "kept-yard"
    bed.yard.root.rename(kept)
    bed.yard.root.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=40m,mode=0755", "tmpfs", bed.yard.root]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a file system of its own cannot be mounted here: {mounted.stderr.strip()}")
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", bed.yard.root], check=True)
        path = bed.file("one", OWN)
        flip(path)
        damaged, ballast = path.read_bytes(), bed.yard.root / "ballast"
        with ballast.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(bed.yard.root).free)
        done = bed.fsck("one", "--deep", "--repair", expect=None)
        assert done.code in (1, 3) and "no space left" in (done.out + done.err).lower(), done
        assert "Traceback" not in done.err and path.read_bytes() == damaged
        ballast.unlink()
        bed.fsck("one", "--deep", "--repair")
        assert bed.fsck("--deep").out.startswith("nothing is wrong")
    finally:
        subprocess.run(["umount", "-l", bed.yard.root], check=True)


@pytest.mark.real
def test_another_account_finds_and_may_not_repair(accounts: Accounts, common: Path) -> None:
    bed = Bed(common / "bed")
    bed.directory.mkdir()
    bed.yard.root.mkdir(mode=0o755)
    anna, bert = accounts.user("anna"), accounts.user("bert")
    os.chown(bed.yard.root, anna.uid, anna.gid)
    words = ("--yard", bed.yard.root, "--site", smallyard.give_site(bed.directory))
    anna.stackyard(*words, "deploy", *bed.write())
    path = bed.file("one", SHARED)
    flip(path)
    in_open_directory(bed.file("one", "bin/lib"), lambda each: os.chown(each, bert.uid, bert.gid))
    bed.file("two", OWN.replace("tool", "lib")).chmod(0o000)
    found = bert.stackyard(*words, "fsck", "--deep", expect=3).out
    assert f"prefix/{SHARED}: sha256 " in found and f"prefix/bin/lib: belongs to {bert.name}" in found
    refused = bert.stackyard(*words, "fsck", "--deep", "--repair", expect=1)
    assert f"it belongs to {anna.name}, and you may not write to it" in refused.err and refused.out == ""
    told = anna.stackyard(*words, "fsck", "--deep", expect=3)
    assert "prefix/bin/lib: cannot be read: Permission denied" in told.out and "chown" in told.err
    anna.stackyard(*words, "fsck", "--deep", "--repair")
    assert path.read_bytes() == b"d" * 5000 and bed.file("two", "bin/lib").stat().st_uid == anna.uid
    assert anna.stackyard(*words, "fsck", "--deep").out.startswith("nothing is wrong")


def test_packages_are_known_where_their_lists_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/numpy-base-1.26-py311_0.json").write_text("{")
    info = tmp_path / "lib/python3.11/site-packages/demo-2.1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("demo/__init__.py,sha256=x,1\n../../../bin/demo,,\n")
    owners = Owners(tmp_path)
    assert owners.of("prefix/conda-meta/numpy-base-1.26-py311_0.json") == "numpy-base 1.26"
    assert owners.of("prefix/lib/python3.11/site-packages/demo/__pycache__/__init__.cpython-311.pyc") == "demo 2.1"
    assert owners.of("prefix/bin/demo") == "demo 2.1" and owners.of("lock/stack.lock") == ""
    (info / "RECORD").unlink()
    assert Owners(tmp_path).of("prefix/lib/python3.11/site-packages/demo-2.1.dist-info/METADATA") == "demo 2.1"


def test_a_file_with_several_names_is_read_once_and_forgotten_after_the_last(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    for name in ("b", "c"):
        os.link(tmp_path / "a", tmp_path / name)
    reader = Reader()
    digests = {reader.digest(tmp_path / name) for name in ("a", "b", "c")}
    assert len(digests) == 1 and (reader.files, reader.bytes) == (1, 10) and not reader._kept
    assert reader.digest(tmp_path / "lost") == ""


def test_the_first_difference(tmp_path: Path) -> None:
    for name, data in (("a", b"x" * 9), ("b", b"x" * 8 + b"y"), ("c", b"x" * 5)):
        (tmp_path / name).write_bytes(data)
    assert first_difference(tmp_path / "a", tmp_path / "b", block=4) == 8
    assert first_difference(tmp_path / "a", tmp_path / "c", block=4) == 5
    assert first_difference(tmp_path / "a", tmp_path / "a", block=4) == 9
