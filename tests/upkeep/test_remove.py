"""remove: nobody loses what they use, and what was removed comes back as it was; other accounts and kills included."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.core.errors import StackyardError
from stackyard.upkeep.gc.inuse import standing
from stackyard.yard import formats
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.others import uses
from stackyard.yard.write import atomic, trash
from support import modules, smallyard
from support.accounts import Accounts
from support.cli import STACKYARD, inside

OLD = "tool/1.0-py311-1"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", "1.0", "2.0")


def states(yard: Yard) -> dict[str, str]:
    return {e.version: e.state for e in generations.entries(yard)}


def check_whole(yard: Yard) -> None:
    """What users see has its files, and a removed revision has them in the trash."""
    removed = trash.removed(yard)
    for entry in generations.entries(yard):
        place = Path(entry.folder) if entry.is_visible else removed[place_of(entry.folder)].root
        assert (place / "prefix/bin/hello").exists(), entry


@pytest.fixture
def running(yard: Yard) -> Iterator[subprocess.Popen[str]]:
    """`stackyard run` of the older revision; it has replaced itself by the program."""
    with subprocess.Popen([STACKYARD, "run", OLD, "--", "hello", "60"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "hello tool 1.0\n"
        yield process
        process.kill()


def test_it_is_brought_back_by_the_short_name_that_removed_it(yard: Yard) -> None:
    smallyard.publish(yard, [smallyard.build(yard, "tool", "1.0", 2)])
    inside("remove", OLD)
    inside("remove", "tool/1.0")
    said = inside("remove", "tool/1.0", "--undo", expect=2).err
    assert f"several removed revisions\n  hint: name one: {OLD}, tool/1.0-py311-2" in said
    inside("remove", OLD, "--undo")
    inside("remove", "tool/1.0", "--undo")
    assert all(entry.is_visible for entry in generations.entries(yard))
    assert "hint: it holds no revision" in inside("remove", "tool/1.0", "--undo", expect=2).err


def test_what_was_deleted_is_not_listed_as_what_can_be_brought_back(yard: Yard, tmp_path: Path) -> None:
    def listed() -> str:
        (row,) = (row for row in inside("list", "--all", "--json").value if row["module"] == OLD)
        return str(row["state"])

    inside("remove", OLD)
    assert listed() == "removed" and "can be brought back" in inside("list", "--all").out
    (tmp_path / "now").mkdir()
    inside("gc", STACKYARD_SITE=str(smallyard.give_site(tmp_path / "now", text="removal: {grace_days: 0}")))
    assert listed() == "missing" and "can be brought back" not in inside("list", "--all").out


def test_a_collection_of_a_yard_that_does_not_exist_makes_none(tmp_path: Path) -> None:
    for words in ((), ("--dry-run",), ("--undo",)):
        said = inside("--yard", tmp_path / "typo", "gc", *words, expect=2).err
        assert f"no such yard: {tmp_path}/typo" in said and "hint: " in said
    assert not (tmp_path / "typo").exists()


def test_removed_and_brought_back_as_it_was(yard: Yard) -> None:
    directory = smallyard.revision(yard, "1.0").root
    before = smallyard.files(directory)
    told = inside("remove", OLD, "--dry-run").out
    assert f"{OLD}  16.0 KiB in 4 files\n" in told and "kept" not in told
    assert before == smallyard.files(directory)
    said = inside("remove", OLD).out
    assert f"removed {OLD}" in said and f"remove {OLD} --undo" in said.splitlines()[-1]
    by_version = inside("show", "tool/1.0", expect=2).err
    assert "tool/1.0 was removed" in by_version and f"remove {OLD} --undo" in by_version
    assert not directory.exists() and states(yard) == {"1.0": "removed", "2.0": "published"}
    refused = inside("run", OLD, "--", "hello", expect=4)
    assert "was removed" in refused.err and f"stackyard remove {OLD} --undo" in refused.err
    assert "is removed already" in inside("remove", OLD, expect=2).err
    inside("remove", OLD, "--undo")
    assert smallyard.files(directory) == before and states(yard) == {"1.0": "published", "2.0": "published"}
    assert trash.items(yard) == [] and not os.listdir(yard.trash)


def test_what_was_removed_before_the_yard_was_moved_is_not_brought_back(yard: Yard) -> None:
    """Its files name the former path."""
    inside("remove", OLD)
    place = Yard(yard.root.with_name("moved"))
    smallyard.make(place.root, "1.0", "2.0")
    inside("--yard", place.root, "remove", OLD)
    shutil.rmtree(place.trash)
    yard.root.rename(yard.root.with_name("before"))
    yard.root.with_name("before").joinpath("trash").rename(place.trash)
    for words in (("remove", OLD, "--undo"), ("gc", "--undo")):
        refused = inside("--yard", place.root, *words, expect=1)
        assert f"cannot bring back {OLD}: its files name {yard.root}/stacks/{OLD}" in refused.err
        assert "deploy its file again" in refused.err
        assert states(place)["1.0"] == "removed" and len(trash.items(place)) == 1
    yard.root.symlink_to(place.root)  # the former path leads there: they work
    inside("--yard", place.root, "remove", OLD, "--undo")
    assert states(place)["1.0"] == "published"


def test_the_default_passes_on(yard: Yard) -> None:
    assert "loads" not in inside("remove", "tool").out
    assert [e.version for e in generations.entries(yard) if e.default] == ["1.0"]


def test_a_process_of_this_host_keeps_it(yard: Yard, running: subprocess.Popen[str]) -> None:
    for note in yard.uses.iterdir():
        note.unlink()  # the process alone
    refused = inside("remove", OLD, expect=1)
    assert f"process {running.pid} of" in refused.out and states(yard)["1.0"] == "published"
    running.kill()
    running.wait()
    inside("remove", OLD)


def test_a_note_keeps_it_while_its_process_lives(yard: Yard, running: subprocess.Popen[str]) -> None:
    (note,) = yard.uses.iterdir()
    assert note.name.startswith("tool~1.0-py311-1@") and f".{running.pid}." in note.name
    (use,) = uses.found(yard.uses)
    assert standing(use, lambda *_: None, 30) == f"run of {use.owner.user} on {use.owner.host}, process {running.pid}"
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert standing(use, lambda *_: None, 30) == ""
    inside("remove", OLD)
    assert list(yard.uses.iterdir()) == [], "the note of a dead process goes with it"


def test_notes_of_ended_processes_do_not_pile_up(yard: Yard, running: subprocess.Popen[str]) -> None:
    for _ in range(3):
        subprocess.run([STACKYARD, "run", OLD, "--", "hello"], check=True, stdout=subprocess.DEVNULL)
    names = [note.name for note in yard.uses.iterdir()]
    assert len(names) == 2 and any(f".{running.pid}." in name for name in names), "the running one and the last one"


def test_what_cannot_be_asked_holds_for_days_and_a_job_until_its_end(yard: Yard) -> None:
    directory = smallyard.revision(yard, "1.0").root
    note = uses.hold(directory, None, "job")
    assert note is not None
    uses.belongs_to(note, scheduler="slurm", job="77")
    value = json.loads(note.read_text())
    note.write_text(json.dumps({**value, "place": "elsewhere", "host": "n7"}))
    (use,) = uses.found(yard.uses)
    over: dict[str, bool | None] = {"running": False, "done": True, "not known": None}
    said = {word: standing(use, lambda *_, now=now: now, 30) for word, now in over.items()}  # type: ignore[misc]
    assert said["running"] == f"job 77 of {use.owner.user}" and said["done"] == ""
    assert said["not known"].endswith("which cannot be asked from here (noted 0 days ago)")
    os.utime(note, (0, 0))
    (use,) = uses.found(yard.uses)
    assert standing(use, lambda *_: None, 30) == "" and standing(use, lambda *_: False, 30)


def test_a_note_of_before_a_restart_of_its_host_keeps_nothing(yard: Yard) -> None:
    note = uses.hold(smallyard.revision(yard, "1.0").root, None, "run")
    assert note is not None
    value = json.loads(note.read_text())
    note.write_text(json.dumps({**value, "place": f"of-before {value['place']}"}))
    (use,) = uses.found(yard.uses)
    assert use.owner.fate == "unknown" and standing(use, lambda *_: False, 30) == ""
    inside("remove", OLD)
    assert list(yard.uses.iterdir()) == []


def test_a_job_that_starts_in_that_second_gets_its_files_back(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its note comes after the first look, and before the second."""
    directory = smallyard.revision(yard, "1.0").root
    move = trash.move
    noted: list[Path | None] = []

    def late(item: trash.Item) -> None:
        noted.append(uses.hold(directory, None, "launch"))
        move(item)

    monkeypatch.setattr(trash, "move", late)
    refused = inside("remove", OLD, expect=1)
    assert f"kept {OLD}: launch of" in refused.out
    assert noted and states(yard) == {"1.0": "published", "2.0": "published"}
    check_whole(yard)
    uses.require_files(directory)


def test_who_starts_while_it_is_moved_waits_for_it(yard: Yard) -> None:
    """The files are away, the removal is not over; then they come back, or it is over."""
    paths = smallyard.revision(yard, "1.0")
    item = trash.put(yard, paths.root, trash.note_of("revision", yard, paths.root, "b", module=OLD))
    child = subprocess.Popen([STACKYARD, "run", OLD, "--", "hello"], stdout=subprocess.PIPE, text=True)
    child.wait()
    assert child.returncode == 4, "its record is read before the note"
    child = os.fork()
    if not child:
        uses.require_files(paths.root)
        os._exit(0)
    time.sleep(0.2)
    trash.bring_back(item)
    assert os.waitpid(child, 0)[1] == 0
    item = trash.put(yard, paths.root, trash.note_of("revision", yard, paths.root, "b", module=OLD))
    trash.settle(item)
    with pytest.raises(StackyardError, match="the revision was removed"):
        uses.require_files(paths.root)


POINTS = ("trash-noted:1", "trash-moved:1", "remove-published:1", "write:1", "flip:1", "before-flip:1", "after-flip:1",
          "trash-back:1")  # fmt: skip


@pytest.mark.parametrize(
    "point", [*POINTS[1:3], *(pytest.param(p, marks=pytest.mark.long) for p in POINTS[3:]), POINTS[0]]
)
def test_killed_anywhere_it_is_whole_and_the_next_command_ends_it(yard: Yard, point: str) -> None:
    undo = ["--undo"] if point.startswith("trash-back") else []
    if undo:
        inside("remove", OLD)
    child = os.fork()
    if not child:
        inside("remove", OLD, *undo, STACKYARD_FAULT=point)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert next(e for e in generations.entries(yard) if e.version == "2.0").default
    in_place, away = smallyard.revision(yard, "1.0").root.exists(), len(trash.items(yard))
    assert in_place + away == 1
    if undo or in_place:
        inside("remove", OLD, *undo)
    assert states(yard) == {"1.0": "published" if undo else "removed", "2.0": "published"}
    check_whole(yard)
    inside("remove", OLD, *(() if undo else ("--undo",)))
    assert states(yard) == {"1.0": "removed" if undo else "published", "2.0": "published"}
    check_whole(yard)
    assert len(trash.interrupted(yard)) == 0


def test_what_is_behind_a_link_is_not_touched(yard: Yard, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (yard.stacks / "tool").rename(elsewhere)
    (yard.stacks / "tool").symlink_to(elsewhere)
    refused = inside("remove", OLD, expect=1)
    assert "is a symbolic link" in refused.out
    assert (elsewhere / "1.0-py311-1/prefix/bin/hello").exists() and states(yard)["1.0"] == "published"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "stacks/../../x", "cache/x", "stacks"])
def test_a_note_in_the_trash_never_leads_out(yard: Yard, path: str) -> None:
    what = {"sort": "revision", "path": path, "when": "2026-01-01T00:00:00+00:00", "who": "x", "batch": "b"}
    with pytest.raises(StackyardError, match="not in this yard"):
        formats.read({"format": 1, **what}, "what.json", trash.KIND)


@pytest.mark.real
@pytest.mark.parametrize("system", modules.SYSTEMS)
def test_a_shell_that_loaded_it_unloads_it_and_none_loads_it_again(system: str, yard: Yard, tmp_path: Path) -> None:
    if reason := modules.missing(system, "bash"):
        pytest.skip(reason)
    with_lua = tmp_path / "lua.yaml"
    with_lua.write_text("modules: {formats: [lua, tcl]}\n")
    inside("withdraw", OLD, STACKYARD_SITE=str(with_lua))
    lines = (
        modules.initialise(system, "bash"), f"module use {yard.modules}", "path=$PATH", f"module load {OLD}", "hello",
        f"env -i HOME=$HOME PATH=/usr/bin:/bin STACKYARD_SITE={with_lua} {STACKYARD} --yard {yard.root} remove {OLD}",
        f"module unload {OLD}", 'echo "home=<$HELLO_HOME>"; [ "$PATH" = "$path" ] && echo same',
        f"module load {OLD} && echo rc=$?", 'echo "again=<$HELLO_HOME>"',
    )  # fmt: skip
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    said = modules.run("bash", "\n".join(lines) + "\n", environ, tmp_path)
    assert f"removed {OLD}" in said and "home=<>\nsame\n" in said, said
    assert "was removed: use tool;" in said and "again=<>" in said, said
    undo = f"stackyard remove {OLD} --undo"
    assert undo in " ".join(said.split())
    inside(*undo.split()[1:], STACKYARD_SITE=str(with_lua))


def test_another_account_keeps_a_revision_and_can_do_no_more(accounts: Accounts, common: Path) -> None:
    """A user's run of the site's revision. The directory of notes lets a user add one, not list or remove others."""
    user, other = accounts.user("bert"), accounts.user("carl")
    yard = smallyard.make(common / "yard", "1.0", "2.0")
    site = smallyard.give_site(common, yard.root)
    words = ("--site", site, "--yard", yard.root)
    inside(*words, "default", "tool/2.0")
    assert yard.uses.stat().st_mode & 0o7777 == 0o1733
    run = user.popen(user.bin / "stackyard", "--site", site, "run", OLD, "--", "hello", "60", stdout=subprocess.PIPE)
    assert run.stdout and run.stdout.readline() == "hello tool 1.0\n"
    (note,) = yard.uses.iterdir()
    assert note.stat().st_uid == user.uid
    for command in (f"ls {yard.uses}", f"rm -f {note}", f"mv {note} {note}.x", f"echo x > {note}"):
        assert other.run("sh", "-c", command, expect=None).code, command
    assert "cannot write to the yard" in user.stackyard(*words, "remove", OLD, expect=1).err
    refused = inside(*words, "remove", OLD, expect=1)
    assert f"run of {user.name} on" in refused.out and f"process {run.pid} of {user.name}" in refused.out
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    odd = f"ln -s /etc/shadow {yard.uses}/x.json; echo '[' > {yard.uses}/y.json; mkfifo {yard.uses}/z.json"
    other.run("sh", "-c", odd)
    inside(*words, "remove", OLD)
    assert not smallyard.revision(yard, "1.0").root.exists()


def test_a_forged_note_names_its_writer_and_becomes_no_option(accounts: Accounts, common: Path) -> None:
    user = accounts.user("bert")
    yard = smallyard.make(common / "yard", "1.0", "2.0")
    site = smallyard.give_site(common, yard.root)
    inside("--site", site, "--yard", yard.root, "default", "tool/2.0")
    note = uses.hold(smallyard.revision(yard, "1.0").root, None, "job", scheduler="slurm", job="7")
    assert note is not None
    value = {**json.loads(note.read_text()), "user": "anna\x1b[2J"}
    note.unlink()
    bad: list[dict[str, object]] = [
        {"job": "--help"}, {"job": "7 --help"}, {"job": "7\x1b[2J"}, {"host": "n1\n"}, {"what": "x\x1b"},
    ]  # fmt: skip
    for number, change in enumerate([*bad, {}, {"job": "\u0192G7Wx"}]):
        command = f"cat > {yard.uses}/{number}.json <<'E'\n{json.dumps({**value, **change})}\nE"
        user.run("sh", "-c", command)
    found = [str(use) for use in uses.found(yard.uses)]
    assert found == [f"job 7 of {user.name}", f"job \u0192G7Wx of {user.name}"]


def test_a_user_who_cannot_write_to_the_sites_yard_notes_it_at_home(accounts: Accounts, common: Path) -> None:
    """A yard without a directory for notes: the note is in the user's yard, and is found by the site's template."""
    user = accounts.user("bert")
    yard = smallyard.make(common / "yard", "1.0", "2.0")
    site = smallyard.give_site(common, yard.root, f"user_yard: {common}/users/$USER/yard")
    own = common / "users" / user.name / "yard"
    (own / "uses").mkdir(parents=True)
    for directory in (own, own / "uses", own / "stacks", own / "generations"):
        directory.mkdir(exist_ok=True)
        os.chown(directory, user.uid, user.gid)
    with user.popen(user.bin / "stackyard", "--site", site, "run", OLD, "--", "hello", "60", stdout=-1) as run:
        assert run.stdout and run.stdout.readline() == "hello tool 1.0\n"
        assert len(list((own / "uses").iterdir())) == 1
        told = inside("--site", site, "--yard", yard.root, "remove", "--dry-run", "--json", OLD, USER="root").value
        used = told["revisions"][0]["used_by"]
        assert sum(text.startswith(f"run of {user.name}") for text in used) == 1, told
        os.killpg(run.pid, signal.SIGKILL)


def test_a_run_that_starts_in_that_second_and_notes_it_at_home_keeps_it(
    accounts: Accounts, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look goes where the first one did: to the yards of users too."""
    user = accounts.user("bert")
    yard = smallyard.make(common / "yard", "1.0", "2.0")
    site = smallyard.give_site(common, yard.root, f"user_yard: {common}/users/$USER/yard")
    own = Yard(common / "users" / user.name / "yard")
    for directory in (own.root, own.uses, own.stacks, own.generations):
        directory.mkdir(parents=True, exist_ok=True)
        os.chown(directory, user.uid, user.gid)
    inside("--site", site, "--yard", yard.root, "default", "tool/2.0", USER="root")
    directory, move = smallyard.revision(yard, "1.0").root, trash.move
    code = (
        "import sys, pathlib\nfrom stackyard.yard import layout; from stackyard.yard.others import uses\n"
        "uses.hold(sys.argv[1], layout.Yard(pathlib.Path(sys.argv[2])), 'job', scheduler='slurm', job='7')"
    )

    def late(item: trash.Item) -> None:
        yard.uses.chmod(0o700)  # as on a read-only mount
        user.python(code, directory, own.root)
        move(item)

    monkeypatch.setattr(trash, "move", late)
    refused = inside("--site", site, "--yard", yard.root, "remove", OLD, expect=1, USER="root")
    assert len(list(own.uses.iterdir())) == 1 and f"kept {OLD}: " in refused.out, refused
    assert states(yard)["1.0"] == "published" and directory.exists()


@pytest.mark.parametrize("published", ["by its path", "through a link", "both ways"])
def test_a_yard_that_is_named_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: str) -> None:
    """What one command publishes through a link another one finds without it, and the other way round."""
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    (tmp_path / "disk").mkdir()
    (tmp_path / "sw").symlink_to(tmp_path / "disk")
    plain, linked = tmp_path / "disk" / "yard", tmp_path / "sw" / "yard"
    spelled = {"by its path": (plain, plain), "through a link": (linked, linked), "both ways": (linked, plain)}
    for root, version in zip(spelled[published], ("1.0", "2.0"), strict=True):
        smallyard.make(root, version)
    yard = Yard(plain)
    used, other = (linked, plain) if published == "by its path" else (plain, linked)
    note = uses.hold(smallyard.revision(Yard(used), "1.0").root, None, "run")
    assert note is not None
    inside("--yard", other, "withdraw", OLD)
    (tmp_path / "now").mkdir()
    now = {"STACKYARD_SITE": str(smallyard.give_site(tmp_path / "now", text="removal: {grace_days: 0, keep: 0}"))}
    assert f"kept {OLD}: run of" in inside("--yard", other, "gc", **now).out
    note.unlink()
    with subprocess.Popen([STACKYARD, "--yard", used, "run", OLD, "--", "hello", "60"], stdout=-1, text=True) as run:
        assert run.stdout and run.stdout.readline()
        for left in yard.uses.iterdir():
            left.unlink()
        assert f"process {run.pid}" in inside("--yard", other, "remove", OLD, expect=1).out
        run.kill()
    assert f"removed {OLD}" in inside("--yard", other, "remove", OLD).out
    assert "was removed" in (yard.modules / OLD).read_text()
    inside("--yard", used, "remove", OLD, "--undo")
    assert states(yard) == {"1.0": "withdrawn", "2.0": "published"}
    assert f"removed {OLD}" in inside("--yard", other, "gc", **now).out


def test_what_to_do_on_a_full_disk_and_about_a_trash_that_is_none(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    root = smallyard.revision(yard, "1.0").root
    atomic._hits.clear()
    with monkeypatch.context() as full, pytest.raises(StackyardError, match="no space left while removing") as found:
        full.setenv("STACKYARD_FAULT", "write:1:enospc")
        trash.begin(yard, root, trash.note_of("revision", yard, root, "b", module=OLD))
    assert "`stackyard gc --now`" in str(found.value.hint)
    shutil.rmtree(yard.trash)
    yard.trash.write_text("")
    told = inside("remove", OLD, expect=1)
    assert f"cannot read the trash {yard.trash}: Not a directory" in told.err and "hint: " in told.err


def test_what_your_own_shell_has_loaded_is_unloaded_first(yard: Yard) -> None:
    environ = {**os.environ, "HELLO_HOME": str(smallyard.revision(yard, "1.0").prefix)}
    words = [STACKYARD, "remove", OLD]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"kept {OLD}: this shell" in done.stdout
    assert "hint: module unload tool; then try again" in done.stderr
