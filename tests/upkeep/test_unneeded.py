"""gc: kept solutions and uv's interpreters go when no revision of any yard needs them, and come back."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.lock.interpreter import install_again
from stackyard.lock.lockfile.model import LockedInterpreter
from stackyard.upkeep.gc import collect
from stackyard.upkeep.gc.inuse import Watch
from stackyard.yard.generation.origin import origin
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.others import children
from stackyard.yard.revision import revisions
from stackyard.yard.write import lease
from support import smallyard
from support.cli import inside

LONG_AGO = time.time() - 40 * 86400
NOW = "removal: {grace_days: 0, keep: 0}\ncache: {max_age_days: 0}"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("STACKYARD_SITE", str(smallyard.give_site(tmp_path)))
    monkeypatch.setenv("STACKYARD_HOME", str(tmp_path / "yard"))
    return smallyard.make(tmp_path / "yard", "1.0")


def site(directory: Path, text: str) -> dict[str, str]:
    directory.mkdir(exist_ok=True)
    return {"STACKYARD_SITE": str(smallyard.give_site(directory, text=text))}


def planned(words: dict[str, str]) -> dict[str, dict[str, object]]:
    return {Path(g["path"]).name: g for g in inside("gc", "--dry-run", "--json", **words).value["garbage"]}


def solution(yard: Yard, name: str) -> Path:
    path = yard.kept_lock(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'format = 1\n\n[[variant]]\nspec_hash = "{name}"\n')
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def test_a_kept_solution_goes_when_no_revision_has_it(yard: Yard, tmp_path: Path) -> None:
    solution(yard, "aaaa")
    young, old = solution(yard, "bbbb"), solution(yard, "cccc")
    os.utime(young)
    below = smallyard.make(tmp_path / "below", "1.0", stack="mine")
    assert children.register(yard, below)
    for each, name in ((smallyard.revision(yard, "1.0"), "aaaa"), (smallyard.revision(below, "1.0", "mine"), "dddd")):
        each.lock.parent.mkdir()
        each.lock.write_text(f'[[variant]]\nspec_hash = "{solution(yard, name).stem}"\n')
    assert set(planned({})) & {"aaaa.lock", "bbbb.lock", "cccc.lock", "dddd.lock"} == {old.name}
    inside("gc")
    assert sorted(path.stem for path in yard.locks.glob("*.lock")) == ["aaaa", "bbbb", "dddd"]
    inside("gc", "--undo")
    assert old.exists()


def lock_of_file(yard: Yard, file: str, *names: str) -> Path:
    """The lock of a file in a read-only directory, with these solutions."""
    path = yard.lock_of(Path(file))
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("format = 1\n" + "".join(f'\n[[variant]]\nspec_hash = "{name}"\n' for name in names))
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def built_from(yard: Yard, name: str) -> None:
    lock = smallyard.revision(yard, "1.0").lock
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(f'[[variant]]\nspec_hash = "{name}"\n')


def test_the_lock_of_a_file_goes_when_no_revision_has_anything_of_it(yard: Yard, tmp_path: Path) -> None:
    """Not one of which a variant is built, of a revision in the trash, a young one, or what is not known as a lock."""
    built_from(yard, "aaaa")
    used, young = lock_of_file(yard, "/ro/used", "x", "aaaa"), lock_of_file(yard, "/ro/young", "b")
    os.utime(young)
    unknown = lock_of_file(yard, "/ro/unknown")
    unused = lock_of_file(yard, "/ro/unused", "c", "d")
    found = planned({})
    assert set(found) & {path.name for path in yard.file_locks.iterdir()} == {unused.name}
    assert found[unused.name]["why"] == "a kept lock of a file in a read-only directory that no revision was built from"
    text = unused.read_bytes()
    inside("remove", "tool/1.0-py311-1")
    inside("gc")
    assert used.exists() and young.exists() and unknown.exists() and not unused.exists()
    inside("gc", "--undo")
    assert unused.read_bytes() == text


def test_no_lock_goes_while_a_deploy_is_at_work(yard: Yard) -> None:
    paths = lock_of_file(yard, "/ro/unused", "c"), solution(yard, "dddd")
    with lease.lease(yard.lease("stack other"), "the stack other"):
        assert not set(planned({})) & {path.name for path in paths}
        assert "kept locks: another process is building" in " ".join(inside("gc", "--json").value["unseen"])
        assert all(path.exists() for path in paths)
    inside("gc")
    assert not any(path.exists() for path in paths)


@pytest.mark.parametrize("is_over", [True, False], ids=["built since", "being built"])
def test_a_lock_that_a_deploy_uses_after_the_plan_was_made_stays(yard: Yard, *, is_over: bool) -> None:
    path = lock_of_file(yard, "/ro/used", "c")
    watch = Watch(smallyard.TCL, yard)
    wanted = collect.plan(watch, collect.Rules(5))
    assert path in [each.path for each in wanted.garbage]
    if is_over:
        built_from(yard, "c")
        outcome = collect.collect(watch, wanted, origin())
    else:
        with lease.lease(yard.lease("stack other"), "the stack other"):
            outcome = collect.collect(watch, wanted, origin())
        assert outcome.kept == {path.relative_to(yard.root).as_posix(): ("a build has begun",)}
    assert path.exists() and path.name not in {Path(item.what.path).name for item in outcome.items}


def interpreter(yard: Yard, version: str) -> Path:
    """Laid out as uv does it: a directory, and a link by the minor version; the path that a lock names."""
    home = yard.interpreter(f"cpython-{version}-linux-x86_64-gnu")
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").write_bytes(b"x" * 100_000)
    link = yard.interpreter(f"cpython-{version.rpartition('.')[0]}-linux-x86_64-gnu")
    link.symlink_to(home.name)
    for name in (".lock", ".gitignore"):
        (yard.pythons / name).touch()
    (yard.pythons / ".temp").mkdir(exist_ok=True)
    return link / "bin" / "python3"


def uses(yard: Yard, python: Path, stack: str, base: str = "") -> None:
    record = smallyard.build(yard, stack, "1.0")
    smallyard.revision(yard, "1.0", stack).record.unlink()
    record = replace(record, interpreter={"source": "uv", "version": "3", "path": str(python)})
    revisions.mark(replace(record, base=BaseRevision(base, "tool/1.0-py311-1", "0", "/p")) if base else record)
    smallyard.publish(yard, [record])


def test_an_interpreter_goes_when_no_revision_uses_it(yard: Yard, tmp_path: Path) -> None:
    mine, theirs, none = (interpreter(yard, version) for version in ("3.11.7", "3.12.4", "3.13.1"))
    below = Yard(tmp_path / "below")
    uses(yard, mine, "own")
    uses(below, theirs, "mine", str(yard.root))
    assert children.register(yard, below)
    words = site(tmp_path / "now", NOW)
    home = none.parents[1].resolve()
    found = planned(words)[home.name]
    assert set(planned(words)) & {path.name for path in yard.pythons.iterdir()} == {home.name}
    assert found["sort"] == "cache" and found["bytes"] >= 100_000 and "interpreter" in found["why"]
    assert f"remove cache/python/{home.name}" in inside("gc", "--dry-run", **words).out
    inside("gc", **words)
    left = {path.name for path in yard.pythons.iterdir()}
    assert mine.exists() and theirs.exists() and not home.exists() and none.parents[1].name not in left
    assert {".lock", ".gitignore", ".temp"} < left


def test_an_interpreter_stays_while_a_revision_can_be_brought_back(yard: Yard, tmp_path: Path) -> None:
    python = interpreter(yard, "3.12.4")
    uses(yard, python, "own")
    inside("remove", "own/1.0-py311-1")
    words = site(tmp_path / "week", "cache: {max_age_days: 0}")
    inside("gc", **words)
    assert python.exists()
    words = site(tmp_path / "now", NOW)
    inside("gc", **words)  # deletes the revision
    inside("gc", **words)
    assert not python.exists()


def test_no_interpreter_goes_while_a_record_cannot_be_read(yard: Yard, tmp_path: Path) -> None:
    python = interpreter(yard, "3.12.4")
    uses(yard, python, "own")
    paths = smallyard.revision(yard, "1.0", "own")
    for path in (paths.record, paths.spare):
        path.parent.chmod(0o755)
        path.unlink(missing_ok=True)
        path.write_text("damaged")
    inside("gc", **site(tmp_path / "now", NOW))
    assert python.exists()


def test_a_lock_that_names_one_that_went_asks_uv_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot be downloaded, the error says so; one that exists, or is not of this yard, is left alone."""
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", (tmp_path / "nowhere").as_uri())
    gone = tmp_path / "python" / "cpython-3.12.4-linux-x86_64-gnu" / "bin" / "python3.12"
    with pytest.raises(MissingError, match=r"uv's Python 3\.12\.4 is not installed and cannot be downloaded"):
        install_again(LockedInterpreter("uv", "3.12.4", str(gone)), tmp_path / "python")
    install_again(LockedInterpreter("uv", "3.12.4", str(gone)), tmp_path / "other")
    install_again(LockedInterpreter("host", "3.12.4", str(gone)), tmp_path / "python")
    gone.parent.mkdir(parents=True)
    gone.touch()
    install_again(LockedInterpreter("uv", "3.12.4", str(gone)), tmp_path / "python")
