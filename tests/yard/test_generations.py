"""Generations become visible in one step, and interrupted ones never do."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.core.errors import InputError, StackyardError
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import GenerationPaths
from stackyard.yard.revision.manifest import Entry, Manifest
from stackyard.yard.write import atomic
from support.failing import stale


def entry(module: str) -> Entry:
    return Entry("s", "1", "", 1, module, "/nowhere", "2026-01-01T00:00:00+00:00")


def publish(yard: Yard, module: str) -> None:
    made = generations.begin(yard)
    made.modules.mkdir()
    (made.modules / "file").write_text(module)
    assert commit(yard, made, generations.base(yard), module) is not None


def commit(yard: Yard, made: GenerationPaths, base: generations.Base, module: str) -> Manifest | None:
    """Publish a draft with the entries of `base` and one more."""
    entries = (*base.entries, entry(module))
    return generations.commit(yard, made, Manifest(base.number, "now", module, entries, previous=base.previous))


def test_the_first_and_the_next(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    assert generations.current(yard) is None
    publish(yard, "a")
    publish(yard, "b")
    manifest = generations.current(yard)
    assert manifest is not None and (manifest.number, manifest.entries[-1].module) == (2, "b")
    assert (yard.modules / "file").read_text() == "b"
    assert list(generations.numbers(yard)) == [2, 1]


def drafts(yard: Yard) -> list[str]:
    return [path.name for path in yard.generations.iterdir() if path.name.startswith(".")]


def test_what_was_not_flipped_is_removed(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    publish(yard, "a")
    code = "from pathlib import Path\nfrom stackyard.yard import layout\n"
    code += "from stackyard.yard.generation import generations\n"
    code += "print(generations.begin(layout.Yard(Path.cwd())).root)"
    left = Path(subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True).strip())
    (left / "half").write_text("")
    assert generations.current_number(yard) == 1
    mine = generations.begin(yard).root
    assert not left.exists()
    assert generations.begin(yard).root != mine and mine.exists(), "its process is alive"


def test_a_draft_that_another_process_removed_is_not_published(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    made = generations.begin(yard)
    with pytest.raises(StackyardError, match="was removed by another process"):
        commit(yard, made, generations.base(yard), "a")
    assert generations.current(yard) is None


@pytest.mark.parametrize("point", ["write", "before-flip", "flip"])
@pytest.mark.parametrize("before", [0, 1])
def test_killed_before_the_flip_nothing_has_changed(tmp_path: Path, point: str, before: int) -> None:
    yard = Yard(tmp_path)
    if before:
        publish(yard, "a")
    code = f"""
from pathlib import Path
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Manifest
yard = Yard(Path({str(tmp_path)!r}))
made = generations.begin(yard)
made.modules.mkdir()
base = generations.base(yard)
generations.commit(yard, made, Manifest(base.number, "now", "b", base.entries, previous=base.previous))
"""
    killed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "STACKYARD_FAULT": f"{point}:1"}, check=False
    )
    assert killed.returncode == -9
    assert generations.current_number(yard) == before
    assert not before or (yard.modules / "file").read_text() == "a"
    publish(yard, "c")
    now = generations.current(yard)
    finished = point == "flip"  # it had its number: the next process gives it the link first
    assert now is not None and (now.previous, now.entries[-1].module) == (before + finished, "c")
    assert not drafts(yard)


def three(directory: Path) -> Yard:
    """A yard with three generations."""
    yard = Yard(directory)
    for module in "abc":
        publish(yard, module)
    return yard


def everything(yard: Yard) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in yard.generations.rglob("*") if p.is_file()}


def test_a_link_that_cannot_be_read_is_an_error_and_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = three(tmp_path)
    before = everything(yard)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "readlink", stale)
        for call in (generations.current_number, generations.current, generations.begin):
            with pytest.raises(StackyardError, match=r"cannot read the link .*: Stale file handle"):
                call(yard)
    assert everything(yard) == before and generations.current_number(yard) == 3


def test_what_to_do_about_a_link_that_cannot_be_read_depends_on_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackyardError, match="Not a directory") as caught:
        generations.current(Yard(tmp_path / "file"))
    assert "choose another yard" in str(caught.value.hint)

    def refused(_: Path) -> Path:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "readlink", refused)
    with pytest.raises(StackyardError, match="Permission denied") as caught:
        generations.current(Yard(tmp_path))
    assert "chmod go+x" in str(caught.value.hint)


def test_a_removed_link_is_not_an_empty_history(tmp_path: Path) -> None:
    yard = three(tmp_path)
    before = everything(yard)
    yard.modules.unlink()
    for call in (generations.current, generations.begin):
        with pytest.raises(StackyardError, match="missing link") as caught:
            call(yard)
        assert "generation 3 is the newest complete one: c, now" in str(caught.value.detail)
    assert everything(yard) == before and not drafts(yard)
    assert caught.value.hint is not None
    subprocess.run(["sh", "-c", caught.value.hint.partition("`")[2].rstrip("`")], check=True)
    assert (yard.modules / "file").read_text() == "c"
    publish(yard, "d")
    assert list(generations.numbers(yard)) == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("rm modules && mkdir modules", "is a directory, not a link"),
        ("rm modules && touch modules", "is a file, not a link"),
        ("rm modules && ln -s generations/9/modules modules", "points to generation 9, which does not exist"),
        ("rm modules && ln -s /tmp modules", "which is not a generation of this yard"),
        ("rm modules && ln -s ../other/generations/3/modules modules", "which is not a generation of this yard"),
    ],
)
def test_what_is_not_a_link_to_a_generation_is_named_with_what_to_do(tmp_path: Path, damage: str, says: str) -> None:
    yard = three(tmp_path)
    before = everything(yard)
    subprocess.run(["sh", "-c", damage], cwd=tmp_path, check=True)
    for call in (generations.current, generations.begin):
        with pytest.raises(StackyardError, match=says) as caught:
            call(yard)
        assert f"ln -sfn generations/3/modules {yard.modules}" in str(caught.value.hint)
    assert everything(yard) == before


def test_a_directory_instead_of_the_first_link(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    with pytest.raises(StackyardError, match="is a directory, not a link") as caught:
        generations.begin(Yard(tmp_path))
    assert caught.value.hint == f"move {tmp_path}/modules away and deploy again"


def test_numbers_are_above_all_that_exist_wherever_the_link_points(tmp_path: Path) -> None:
    yard = three(tmp_path)
    (yard.generations / "7").mkdir()  # a former version began it and was killed
    (yard.generations / "8").write_text("")
    yard.modules.unlink()
    yard.modules.symlink_to("generations/1/modules")
    before = everything(yard)
    publish(yard, "d")
    now = generations.current(yard)
    assert now is not None and (now.number, now.previous) == (9, 1)
    assert everything(yard).items() >= before.items()
    assert list(generations.numbers(yard)) == [9, 3, 2, 1]


def modules_of(manifest: Manifest | None) -> list[str]:
    return [e.module for e in manifest.entries] if manifest else []


def test_who_comes_second_starts_again_from_what_the_first_published(tmp_path: Path) -> None:
    yard = three(tmp_path)
    before = everything(yard)
    base, made = generations.base(yard), generations.begin(yard)
    made.modules.mkdir()
    publish(yard, "d")
    assert commit(yard, made, base, "e") is None
    assert modules_of(generations.current(yard)) == ["a", "b", "c", "d"] and everything(yard).items() >= before.items()
    assert commit(yard, made, generations.base(yard), "e") is not None
    assert modules_of(generations.current(yard)) == ["a", "b", "c", "d", "e"]


def test_nothing_is_lost_if_a_process_sleeps_before_it_moves_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = three(tmp_path)
    move = atomic.replace_symlink

    def late(link: Path, target: str, **_: Path) -> None:
        monkeypatch.undo()
        publish(yard, "e")  # by another process, meanwhile
        assert modules_of(generations.current(yard)) == ["a", "b", "c", "d", "e"]
        move(link, target)
        assert generations.current_number(yard) == 4, "it has set the link back"

    monkeypatch.setattr(atomic, "replace_symlink", late)
    publish(yard, "d")
    assert generations.current_number(yard) == 5
    assert modules_of(generations.current(yard)) == ["a", "b", "c", "d", "e"]


def test_nothing_is_lost_if_another_process_finishes_while_the_link_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = three(tmp_path)
    publish(yard, "d")
    yard.generation(4).owner.write_text("{}")  # it has its number, and not yet the link
    atomic.replace_symlink(yard.modules, "generations/3/modules")
    newest = generations._newest

    def finished(yard: Yard) -> int:
        atomic.replace_symlink(yard.modules, "generations/4/modules")
        yard.generation(4).owner.unlink(missing_ok=True)
        return newest(yard)

    monkeypatch.setattr(generations, "_newest", finished)
    base = generations.base(yard)
    assert (base.number, base.previous, modules_of(base.current)) == (5, 4, ["a", "b", "c", "d"])


def test_nothing_is_lost_if_it_is_killed_just_after_that(tmp_path: Path) -> None:
    yard = three(tmp_path)
    publish(yard, "d")
    yard.generation(3).owner.write_text("{}")  # it has not finished
    atomic.replace_symlink(yard.modules, "generations/3/modules")
    assert generations.current_number(yard) == 3
    publish(yard, "e")
    assert modules_of(generations.current(yard)) == ["a", "b", "c", "d", "e"]


def test_nothing_is_lost_if_a_process_moves_the_link_late_to_a_generation_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    publish(yard, "a")
    publish(yard, "b")
    yard.generation(2).owner.write_text("{}")  # it has its number, and not yet the link
    atomic.replace_symlink(yard.modules, "generations/1/modules")
    move = atomic.replace_symlink

    def late(link: Path, target: str, **_: Path) -> None:
        monkeypatch.undo()
        yard.generation(2).owner.unlink()  # the others finish, and one of them publishes
        move(link, target)
        publish(yard, "c")
        move(link, target)
        now = generations.base(yard)  # of yet another process, before this one has looked again
        assert (now.previous, modules_of(now.current)) == (3, ["a", "b", "c"])
        move(link, target)

    monkeypatch.setattr(atomic, "replace_symlink", late)
    base = generations.base(yard)
    assert base.number == 3, "it is taken: the commit fails"
    for each in (base, generations.base(yard)):
        assert (each.previous, modules_of(each.current)) == (3, ["a", "b", "c"])
    assert not list(yard.generations.glob("*/owner*"))


def test_a_link_that_is_set_back_stays_even_if_a_process_was_killed(tmp_path: Path) -> None:
    yard = three(tmp_path)
    code = (
        "import json; from stackyard.host.run.identity import this_process; print(json.dumps(this_process().to_json()))"
    )
    dead = subprocess.check_output([sys.executable, "-c", code], text=True)
    yard.generation(3).owner.write_text(dead)
    generations.base(yard)
    assert not yard.generation(3).owner.exists()
    atomic.replace_symlink(yard.modules, "generations/2/modules")
    assert generations.base(yard).previous == generations.current_number(yard) == 2


def test_the_first_link_replaces_none_that_was_made_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(tmp_path)
    publish(yard, "a")
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    generations._link_of_a_new_yard(yard)
    assert generations.current_number(yard) == 1


def test_a_link_that_is_made_while_it_is_looked_for_was_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process publishes the first generation after this one found no link."""
    yard, plain = Yard(tmp_path), Path.readlink

    def late(path: Path) -> Path:
        monkeypatch.setattr(Path, "readlink", plain)
        publish(yard, "a")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr(Path, "readlink", late)
    assert generations.current_number(yard) == 1


def test_a_file_system_that_does_not_answer_is_not_an_empty_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = three(tmp_path)
    monkeypatch.setattr(Path, "stat", stale)
    for call in (generations.current, generations.base, lambda yard: list(generations.readable(yard))):
        with pytest.raises(OSError, match="Stale file handle"):
            call(yard)


def test_many_processes_publish_at_once_and_every_update_stays(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.manifest import Entry, Manifest
yard = Yard(Path.cwd())
for number in range(5):
    made = generations.begin(yard)
    made.modules.mkdir()
    while True:
        base = generations.base(yard)
        new = Entry("s", "1", "", 1, f"{sys.argv[1]}{number}", "/nowhere", "2026-01-01T00:00:00+00:00")
        entries = (*base.entries, new)
        if generations.commit(yard, made, Manifest(base.number, "now", "r", entries, previous=base.previous)):
            break
"""
    running = [subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path) for name in "abcd"]
    assert [process.wait(60) for process in running] == [0] * 4
    now = generations.current(Yard(tmp_path))
    assert sorted(modules_of(now)) == sorted(f"{name}{n}" for name in "abcd" for n in range(5))
    assert now is not None and now.number == 20 and not drafts(Yard(tmp_path))


def test_a_damaged_manifest_is_left_out_of_those_that_can_be_read(tmp_path: Path) -> None:
    yard = three(tmp_path)
    yard.generation(2).manifest.write_text("{")
    assert [m.number for m in generations.readable(yard)] == [3, 1]
    with pytest.raises(StackyardError, match=r"manifest\.json"):
        generations.read(yard, 2)
    with pytest.raises(InputError, match="no such generation: 9") as caught:
        generations.read(yard, 9)
    assert "1-3" in str(caught.value.hint)
