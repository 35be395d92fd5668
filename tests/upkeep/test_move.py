"""A yard moves: the same modules from another path, killed anywhere, and known when it was only renamed or copied."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from movebed import Bed
from movebed import bed as new_bed

from stackyard.core.errors import StackyardError
from stackyard.upkeep.transfer import move as moving
from stackyard.yard.layout import Yard
from stackyard.yard.others import same
from stackyard.yard.others.moved import Note
from stackyard.yard.write import atomic, lease
from support import modules, programs, smallyard
from support.accounts import Accounts
from support.bindfs import bindfs
from support.cli import inside, stackyard

pytestmark = [pytest.mark.real, pytest.mark.slow]
DERIVED = (".pyc", "/RECORD", "/direct_url.json")
CODE = {
    "sci": "import six, idna, os; print(open(os.environ['SCI_HOME'] + '/where').read(), six.__file__)",
    "plain": "import idna; print(idna.__file__)",
    "packed": "import idna; print(idna.__file__)",
    "mine": "import six, iniconfig; print(six.__file__, iniconfig.__file__)",
    "tools": "import sys; print(sys.prefix)",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Bed:
    """A yard with everything, which nobody moves."""
    programs.need("lmod")
    made = new_bed(tmp_path_factory.mktemp("move"), real_channel)
    made.publish()
    return made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Bed:
    """A yard with a revision and an extension of it, which each test gets fresh from `first`."""
    made = new_bed(tmp_path_factory.mktemp("small"), real_channel)
    made.run("deploy", made.directory / "plain" / "stack.yaml")
    made.run("extend", "--name", "mine", "--base", "plain", "--pip", "iniconfig")
    subprocess.run(["cp", "-a", made.yard, made.directory / "first"], check=True)
    return made


@pytest.fixture
def fresh(small: Bed) -> Iterator[Bed]:
    """The small yard as it was built; whatever a test made is removed."""
    yield small
    for left in small.directory.iterdir():
        if left.name not in ("first", "home", "site.yaml", "sci", "plain", "packed"):
            subprocess.run(["chmod", "-R", "u+w", left], check=False)
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    subprocess.run(["cp", "-a", small.directory / "first", small.yard], check=True)


def _state(yard: Path) -> dict[str, Any]:
    """Everything in a yard: what each file holds; a move takes a lease in the old one, and `run` notes its use."""
    found = (p for p in yard.rglob("*") if p.relative_to(yard).parts[0] not in ("leases", "uses"))
    return {str(p): (p.lstat().st_mode, p.lstat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in found}


def _entries(yard: Path) -> dict[str, dict[str, Any]]:
    manifest = json.loads((yard / "modules" / "../manifest.json").read_text())
    return {entry["module"]: entry for entry in manifest["entries"]}


def _loaded(bed: Bed, yard: Path, module: str, *lines: str, system: str = "lmod") -> tuple[int, str]:
    load = (modules.initialise(system, "bash"), f"module use {yard}/modules", f"module load {module} || exit 9")
    script = "\n".join((*load, *lines))
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", script], capture_output=True, text=True, check=False, timeout=240,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **bed.environ()},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def _require_same_files(old_yard: Path, new_yard: Path, module: str) -> None:
    """Every file of a prefix is the same, but for the path of the yard in it and what is derived from that."""
    old, new = (yard / "stacks" / module / "prefix" for yard in (old_yard, new_yard))
    names = {p.relative_to(old) for p in old.rglob("*")}
    assert names == {p.relative_to(new) for p in new.rglob("*")}
    for name in names:
        one, other = old / name, new / name
        if (
            one.is_file()
            and not one.is_symlink()
            and not str(name).endswith(DERIVED)
            and "conda-meta" not in name.parts
        ):
            assert one.read_bytes() == other.read_bytes().replace(os.fsencode(new_yard), os.fsencode(old_yard)), name


@pytest.mark.long
def test_all_that_is_published_is_there_under_its_name(built: Bed) -> None:
    """Conda, pip, an image, an extension, an adopted prefix; then the old yard and all files of the stacks are gone."""
    old, new = built.yard, built.directory / "new"
    built.run("withdraw", "packed/2-py3-1")
    built.run("retire", "plain/2-py3-1", "--on", "2099-01-01", "--use", "sci/1.0-py311-1")
    built.run("default", "sci/1.0-py311-1")
    before, entries = _state(old), _entries(old)
    planned = built.run("move", new, "--dry-run", "--json").value
    assert [row["module"] for row in planned["revisions"]][:2] == ["sci/1.0-py311-1", "mine/1.0-py311-1"]  # base first
    assert not new.exists()
    done = built.run("move", new)
    assert "5 revisions, generation 9" in done.out and f"module use {new}/modules" in done.out
    assert _state(old) == before
    shown = ("aliases", "default", "state", "pinned", "retired", "successor", "rank", "created", "version", "variant")
    assert {m: [e[key] for key in shown] for m, e in _entries(new).items()} == {
        module: [entry[key] for key in shown] for module, entry in entries.items()
    }
    for module in entries:
        one, other = (json.loads((yard / "stacks" / module / "record.json").read_text()) for yard in (old, new))
        same = one["input_hash"] == other["input_hash"]
        assert same is (one["base"] is None), module  # that of an extension has the path of its base
        if not one["adopted"] and one["form"]["kind"] == "prefix":
            _require_same_files(old, new, module)
        assert (new / "stacks" / module / "recipe").is_dir()
    subprocess.run(["chmod", "-R", "u+w", old], check=True)
    for gone in (old, *(built.directory / name for name in ("sci", "plain", "packed"))):
        shutil.rmtree(gone)
    for name, code in CODE.items():
        status, out = _loaded(built, new, "packed/2-py3-1" if name == "packed" else name, f'python -c "{code}"')
        prefix = built.directory if name == "tools" else new / "stacks"
        assert status == 0 and str(prefix) in out and str(old) + "/" not in out, out
    assert built.run("verify", "--all", "--deep", yard=new, expect=None).code in (0, 2)
    again = built.run("update", "mine", yard=new)
    assert "already published, nothing to do" in again.out and "solve" not in again.err
    third = built.directory / "third"  # nothing but its copies says what was built
    built.run("move", third, yard=new)
    assert _loaded(built, third, "sci", f'python -c "{CODE["sci"]}"')[0] == 0


KILLED = [
    ("move-noted:1", "marker-after:2", "after-flip:1"),
    ("carry:1", "write:6", "marker-before:1", "move-verified:1", "before-flip:1"),
]


def _runs(bed: Bed, yard: Path) -> bool:
    done = bed.run("run", "mine", "--", "python", "-c", "import idna, iniconfig; print(iniconfig.__file__)", yard=yard)
    return str(yard) in done.out


@pytest.mark.long
@pytest.mark.parametrize("chain", KILLED, ids=" ".join)
def test_killed_at_any_point_it_continues(fresh: Bed, chain: tuple[str, ...]) -> None:
    new = fresh.directory / "new"
    before = _state(fresh.yard)
    for point in chain:
        assert fresh.run("move", new, expect=None, STACKYARD_FAULT=point).code == -9, f"{point} is not passed"
        refused = fresh.run("run", "mine", "--", "true", yard=new, expect=1)
        assert "was not finished" in refused.err and "hint: continue it: stackyard --yard" in refused.err
        assert _runs(fresh, fresh.yard)
    fresh.run("move", new)
    assert _state(fresh.yard) == before
    assert _runs(fresh, new) and not (new / "move.json").exists()
    assert {m: e["aliases"] for m, e in _entries(new).items()} == {
        m: e["aliases"] for m, e in _entries(fresh.yard).items()
    }
    again = fresh.run("move", new, expect=2)
    assert f"{fresh.yard} was moved to {new} already: its move from {fresh.yard} on " in again.err


@pytest.mark.long
def test_built_again_where_it_lies_killed_at_any_point(fresh: Bed) -> None:
    place = fresh.directory / "renamed"
    fresh.yard.rename(place)
    for point in ("move-noted:1", "put-aside:1", "put-aside:1", "marker-after:1", "move-verified:1"):
        done = fresh.run("move", "--here", yard=place, expect=None, STACKYARD_FAULT=point)
        assert done.code == -9, f"{point} is not passed: {done.err}"
        refused = fresh.run("list", yard=place, expect=None)
        assert "move --here" in refused.err and "not finished" in refused.err
    fresh.run("move", "--here", yard=place)
    assert _runs(fresh, place) and not (place / "former").exists()
    assert fresh.run("gc", "--dry-run", yard=place).code == 0
    assert "nothing to do" in fresh.run("move", "--here", yard=place, expect=2).err


@pytest.mark.parametrize("point", ["trash-noted:1", "trash-moved:1", "trash-moved:2"])
def test_killed_while_the_former_files_are_thrown_away_it_ends(fresh: Bed, point: str) -> None:
    place = fresh.directory / "renamed"
    fresh.yard.rename(place)
    assert fresh.run("move", "--here", yard=place, expect=None, STACKYARD_FAULT=point).code == -9
    assert (place / "modules").exists() and (place / "former").exists()
    assert "2 revisions" in fresh.run("move", "--here", yard=place).out
    assert _runs(fresh, place) and not (place / "former").exists() and not (place / "move.json").exists()


def test_what_the_old_yard_publishes_meanwhile_is_carried_over_or_told(
    fresh: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the verification, and in the moment after the new yard is published."""
    new, verbs = fresh.directory / "new", {"move-verified": "withdraw", "after-flip": "default"}

    def meanwhile(point: str) -> None:
        if verb := verbs.pop(point, None):
            fresh.run(verb, "plain/2-py3-1")

    monkeypatch.setattr(atomic, "fault_point", meanwhile)
    done = inside("--site", fresh.site, "--yard", fresh.yard, "move", new, **fresh.environ())
    assert not verbs and _entries(new)["plain/2-py3-1"]["state"] == "withdrawn"
    number = (fresh.yard / "modules").readlink().parent.name
    assert f"{fresh.yard} published generation {number} meanwhile, which is not in {new}: do the same" in done.err


def test_a_second_move_at_the_same_time_is_refused(fresh: Bed) -> None:
    new = fresh.directory / "new"
    with lease.lease(Yard(new).lease("move"), "the move"):
        done = fresh.run("move", new, expect=1)
    assert "does so now" in done.err and "hint: wait for it" in done.err
    assert not (new / "move.json").exists()


@pytest.mark.parametrize("end", ["is killed", "publishes"])
def test_a_move_that_ends_before_another_one_is_alone_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    yard, new = smallyard.make(tmp_path / "yard", "1.0"), tmp_path / "new"

    def other(root: Path, like: Path) -> None:
        if end == "is killed":
            Note(str(tmp_path / "other"), str(tmp_path / "other")).write(Yard(root))
        else:
            smallyard.make(root, "2.0")

    monkeypatch.setattr(moving, "_create", other)
    site = smallyard.give_site(tmp_path)
    done = inside("--site", site, "--yard", yard.root, "move", new, expect=2)
    assert ("other to it was not finished" if end == "is killed" else "it holds envs, generations") in done.err
    assert "hint: choose " in done.err


def test_a_full_disk_leaves_the_old_yard_and_the_next_try_ends_it(fresh: Bed) -> None:
    new = fresh.directory / "new"
    new.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", new], capture_output=True, check=False)
    if mount.returncode != 0:
        pytest.skip(f"a file system of its own cannot be mounted here: {mount.stderr.decode().strip()}")
    try:
        before = _state(fresh.yard)
        done = fresh.run("move", new, expect=1)
        assert "no space left" in done.err and "Traceback" not in done.err
        assert _state(fresh.yard) == before
        subprocess.run(["mount", "-o", "remount,size=100m", new], check=True)
        fresh.run("move", new)
        assert _runs(fresh, new)
    finally:
        subprocess.run(["umount", "-l", new], check=True)


def test_what_cannot_be_built_is_named_and_nothing_is_published_unless_it_is_left_out(fresh: Bed) -> None:
    new, wheel = fresh.directory / "new", "iniconfig"
    subprocess.run(["chmod", "-R", "u+w", fresh.yard / "cache"], check=True)
    shutil.rmtree(fresh.yard / "cache")
    empty = {"PIP_FIND_LINKS": str(fresh.directory / "home")}
    lock = fresh.yard / "stacks/mine/2-py3-1/lock/stack.lock"
    assert wheel in lock.read_text()
    for file in (lock, fresh.yard / "stacks/plain/2-py3-1/lock/stack.lock"):
        file.chmod(0o644)
        file.write_text(file.read_text().replace(fresh.wheels.as_uri() if file == lock else "\0", "file:///nowhere"))
    done = fresh.run("move", new, expect=1, **empty)
    assert "nothing was published" in done.err and "--without mine/2-py3-1" in done.err and "| plain/2" not in done.err
    assert not (new / "modules").exists()
    fresh.run("move", new, "--without", "mine/2-py3-1")
    assert [row["module"] for row in fresh.run("list", "--json", yard=new).value] == ["plain/2-py3-1"]
    assert _entries(new)["mine/2-py3-1"]["state"] == "missing"  # its name is not given to another one


REFUSED = (
    ("run", "mine", "--", "true"),
    ("shell", "mine"),
    ("launch", "--with", "mine", "--", "true"),
    ("extend", "--base", "plain", "--name", "more", "--pip", "idna"),
    ("deploy", "plain/stack.yaml"),
    ("verify", "mine"),
    ("gc",),
    ("rollback",),
    ("remove", "mine/2-py3-1"),
)
READ = (("list",), ("show", "mine"), ("history",), ("why", "mine", "idna"), ("usage",))


@pytest.mark.parametrize("how", ["renamed", "copied"])
def test_every_verb_knows_a_yard_that_was_renamed_or_copied(fresh: Bed, how: str) -> None:
    place = fresh.directory / how
    if how == "renamed":
        fresh.yard.rename(place)
    else:
        subprocess.run(["cp", "-a", fresh.yard, place], check=True)
    says = f"is a copy of the yard {fresh.yard}" if how == "copied" else f"was moved from {fresh.yard}"
    line = f"stackyard --yard {place} move --here"
    elsewhere = fresh.directory.parent  # paths are not shortened
    for words in REFUSED:
        done = fresh.run(*words, yard=place, expect=1, cwd=elsewhere)
        assert says in done.err and f"hint: build them again where it is: {line}; or " in done.err, words
    for words in READ:
        done = fresh.run(*words, yard=place, cwd=elsewhere)
        assert says in done.err and line in done.err and done.out, words
    rows = fresh.rows(place)
    assert {row["state"] for row in rows.values()} == {"published"}
    assert all(row["path"].startswith(f"{place}/") for row in rows.values())
    if how == "copied":
        assert _runs(fresh, fresh.yard)  # the original is as it was


@pytest.mark.parametrize("system", ["lmod", "em"])
def test_the_modules_of_a_renamed_yard_say_so(fresh: Bed, system: str) -> None:
    programs.need("lmod" if system == "lmod" else "tclsh8.6")
    place = fresh.directory / "renamed"
    fresh.yard.rename(place)
    status, out = _loaded(fresh, place, "mine", "echo loaded", system=system)
    assert (status, "loaded" in out) == (9, False) if system == "lmod" else "loaded" not in out, out
    words = " ".join(out.split())
    assert f"{fresh.yard}/stacks/mine/2-py3-1 not found: its files were moved or removed" in words


def test_another_path_to_the_same_yard_is_no_move(fresh: Bed) -> None:
    """A link to it; the former path as a link to where it is now; the same directory mounted a second time."""
    link = fresh.directory / "link"
    link.symlink_to(fresh.yard)
    assert not fresh.run("list", yard=link).err
    place = fresh.directory / "renamed"
    fresh.yard.rename(place)
    fresh.yard.symlink_to(place)
    assert not fresh.run("list", yard=place).err and _runs(fresh, fresh.yard)
    bound = fresh.directory / "bound"
    bound.mkdir()
    if subprocess.run(["mount", "--bind", place, bound], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a directory a second time here")
    try:
        assert not fresh.run("list", yard=bound).err
        assert fresh.run("run", "mine", "--", "true", yard=bound).code == 0
    finally:
        subprocess.run(["umount", "-l", bound], check=True)


def test_a_second_mount_with_a_device_number_of_its_own_is_the_same_yard(
    fresh: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network file system has where it is mounted twice. What says so by mistake does not empty the yard."""
    programs.need("bindfs")
    place = fresh.directory / "mounted"
    with bindfs(fresh.yard, place):
        assert place.stat().st_dev != fresh.yard.stat().st_dev
        assert not fresh.run("list", yard=place).err
        assert fresh.run("run", "mine", "--", "true", yard=place).code == 0
        assert "is where it was built: nothing to do" in fresh.run("move", "--here", yard=place, expect=2).err
        before = _state(fresh.yard)
        with pytest.raises(StackyardError, match=f"{place} is the yard {fresh.yard}, mounted a second time"):
            same.require_other(place, fresh.yard)
        assert _state(fresh.yard) == before
    copy = fresh.directory / "copied"
    subprocess.run(["cp", "-a", fresh.yard, copy], check=True)
    same.require_other(copy, fresh.yard)
    assert not same.is_same(copy, fresh.yard)
    with bindfs(copy, place):
        assert "is a copy of the yard" in fresh.run("list", yard=place).err


def test_of_two_files_of_one_name_in_a_tree_its_own_is_read(tmp_path: Path, real_channel: Path) -> None:
    """One stack's file has the path ``stack.yaml`` in its git tree, with which the path of the other one ends."""
    bed = Bed(tmp_path, real_channel, tmp_path)
    (tmp_path / "home").mkdir()
    bed.site.write_text("modules: {formats: [lua]}\n")
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / ".git").mkdir()
    for place, name in ((tree, "top"), (tree / "a", "inner")):
        (place / "stack.yaml").write_text(f"name: {name}\nversion: '1'\nmodules: {{variables: {{X: {name}}}}}\n")
    bed.run("deploy", tree / "a" / "stack.yaml", tree / "stack.yaml")
    shutil.rmtree(tree)  # so that the copies are read
    bed.run("move", tmp_path / "new")
    for name in ("top", "inner"):
        assert bed.run("run", name, "--", "sh", "-c", "echo $X", yard=tmp_path / "new").out.split() == [name]


def test_extensions_in_other_yards_find_their_base_where_it_is_now(fresh: Bed) -> None:
    own, moved_own, new = (fresh.directory / name for name in ("own", "moved-own", "new"))
    site = fresh.directory / "below.yaml"
    site.write_text(f"{fresh.site.read_text()}yard: {fresh.yard}\n")

    def run(*words: str | Path, yard: Path, expect: int = 0) -> str:
        done = stackyard("--site", site, "--yard", yard, *words, expect=expect, cwd=fresh.directory, **fresh.environ())
        return done.out + done.err

    run("extend", "--name", "more", "--base", "plain", "--pip", "iniconfig", yard=own)
    run("move", moved_own, yard=own)  # its base stays where it is
    used = ("run", "more", "--", "python", "-c", "import idna; print(idna.__file__)")
    assert str(fresh.yard) in run(*used, yard=moved_own)
    fresh.run("move", new)
    site.write_text(f"{fresh.site.read_text()}yard: {new}\n")
    moved = f"its base plain/2-py3-1 is in {new} now, not in {fresh.yard}; `stackyard rebase more`"
    assert moved in run("list", yard=moved_own)  # while the former yard is still there, too
    assert str(fresh.yard) in run(*used, yard=moved_own)
    shutil.rmtree(own)
    subprocess.run(["chmod", "-R", "u+w", fresh.yard], check=True)
    shutil.rmtree(fresh.yard)
    assert moved in run("list", yard=moved_own)
    assert "type `stackyard rebase NAME`" in run(*used, yard=moved_own, expect=4)
    assert "`stackyard rebase more` puts it on plain/2-py3-1" in run("status", "more", yard=moved_own)
    run("rebase", "more", yard=moved_own)
    assert f"{new}/stacks/plain/" in run(*used, yard=moved_own)


def test_back_under_its_former_name_nothing_has_to_be_built(fresh: Bed) -> None:
    place = fresh.directory / "renamed"
    fresh.yard.rename(place)
    done = fresh.run("move", fresh.yard, yard=place, expect=2, cwd=fresh.directory.parent)
    assert "nothing has to be built" in done.err and f"hint: type mv {place} {fresh.yard}" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "NEWROOT or --here is required"), (("{yard}/inner",), "one is in the other"), (("{home}",), "it holds"),
     (("{new}", "--without", "none/1"), "no such revision: none/1"), (("--here",), "is where it was built")],
)  # fmt: skip
def test_a_place_that_cannot_be_used_is_refused(fresh: Bed, words: tuple[str, ...], says: str) -> None:
    (fresh.directory / "home" / "file").touch()
    places = {"yard": fresh.yard, "home": fresh.directory / "home", "new": fresh.directory / "new"}
    done = fresh.run("move", *(word.format(**places) for word in words), expect=2)
    assert says in done.err and "hint: " in done.err
    assert not (fresh.directory / "new").exists()


def test_who_may_not_write_there_is_told_whom_to_ask(fresh: Bed, accounts: Accounts) -> None:
    place = fresh.directory / "renamed"
    fresh.yard.rename(place)
    carl = accounts.user("carl")
    for directory in (fresh.directory, *fresh.directory.parents):
        directory.chmod(directory.stat().st_mode | 0o055)
    subprocess.run(["chmod", "-R", "o+rX", place], check=True)
    done = carl.run(accounts.bin / "stackyard", "--yard", place, "run", "mine", "--", "true", expect=1)
    assert "was moved from" in done.err and "hint: ask its owner to build them again where it is" in done.err
