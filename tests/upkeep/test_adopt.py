"""Prefixes that others made become revisions where they are: a real conda prefix, a venv, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from adoptbed import ACTIVATE, Bed, conda_prefix, tree_of

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.lock.lockfile import text
from stackyard.upkeep.transfer import adopt as adopting
from stackyard.yard.layout import Yard
from support import programs
from support.accounts import Accounts
from support.cli import stackyard
from support.pythonpkg import FULL_VERSION

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, real_channel: Path) -> Iterator[Bed]:
    programs.need("lmod")
    directory = tmp_path_factory.mktemp("adopt")
    made = Bed(directory, conda_prefix(directory / "envs" / "climate", real_channel, "python", "six"))
    (made.prefix / "etc/conda/activate.d").mkdir(parents=True)
    (made.prefix / "etc/conda/activate.d/climate.sh").write_text(ACTIVATE)
    info = made.prefix / f"lib/python{FULL_VERSION.rpartition('.')[0]}/site-packages/own-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.5\nRequires-Dist: six>=1\n")
    (info / "RECORD").write_text("own-1.5.dist-info/METADATA,,\nown-1.5.dist-info/RECORD,,\n")
    before = tree_of(made.prefix)
    made.run("adopt", made.prefix, "--version", "1.0", "--except", "distributions=own")  # which has no file WHEEL
    assert {name: at for name, at in tree_of(made.prefix).items() if not name.endswith(".pyc")} == before
    yield made


def test_its_record_and_lock_name_the_prefix_and_every_package(bed: Bed) -> None:
    record = bed.record()
    assert record.prefix == str(bed.prefix) and record.adopted is not None and record.adopted.kind == "conda"
    (locked,) = text.read(Path(record.path) / "lock/stack.lock").variants
    assert [p.name for p in locked.conda if p.name in ("python", "six")] == ["python", "six"]
    assert all(len(p.sha256) == 64 and p.url.startswith("file://") for p in locked.conda)
    (own,) = locked.pip
    assert (own.name, own.version, own.sha256, own.requires) == ("own", "1.5", "", ("six>=1",))
    assert locked.notices == ("1 package without a known sha256 of its archive: own",)
    assert not (Path(record.path) / "prefix").exists() and record.disk.bytes_new == 0


@pytest.mark.parametrize("system", ["lmod", "em"])
def test_its_module_activates_it(bed: Bed, system: str) -> None:
    if system == "em":
        programs.need("tclsh8.6")
    shown = bed.loaded(
        "module load climate", "echo $CLIMATE_DATA; python -c 'import sys, six; print(sys.prefix, six.__file__)'",
        "module unload climate; echo left=[$CLIMATE_DATA$CONDA_PREFIX]", system=system,
    )  # fmt: skip
    assert f"{bed.prefix}/share/climate\n{bed.prefix} {bed.prefix}/lib/" in shown and "left=[]" in shown


def test_the_verbs_say_that_it_is_adopted(bed: Bed) -> None:
    assert f"published, adopted: {bed.prefix}" in bed.run("list").out
    assert f"prefix     {bed.prefix}  (adopted, conda)" in bed.run("show", "climate").out
    assert "six 1.17.0 <- own 1.5" in bed.run("why", "climate", "six").out
    code = "import six; print(six.__file__)"
    words = ("--yard", bed.yard, "run", "climate", "--", "python", "-c", code)
    assert str(bed.prefix) in stackyard(*words, HOME=str(bed.directory)).out
    refused = bed.run(
        "image", "build", "climate", "--format", "sif", "--base", "x", "-o", bed.directory / "x", expect=2
    )
    assert "was adopted" in refused.err


def test_the_same_prefix_again_publishes_nothing(bed: Bed) -> None:
    again = json.loads(bed.run("adopt", bed.prefix, "--json").out)
    assert (again["generation"], [r["status"] for r in again["revisions"]]) == (0, ["unchanged"])


def _verify_finds_what_changed_and_adopting_again_records_it(bed: Bed) -> None:
    meta = next(bed.prefix.glob("lib/python*/site-packages/own-1.5.dist-info/METADATA"))
    meta.write_text(meta.read_text().replace("Version: 1.5", "Version: 1.6"))
    (bed.prefix / "added").write_text("x")
    shown = bed.run("verify", "climate", expect=3).out
    assert "changed since it was adopted: ~ own 1.5 -> 1.6 (pip)" in shown and "METADATA has changed" in shown
    assert "added was added" in shown and f"stackyard adopt {bed.prefix} --name climate" in shown
    before = tree_of(bed.prefix)
    told = bed.run("fsck", "--deep", "--repair", expect=3)
    assert "changed since it was adopted: ~ own 1.5 -> 1.6 (pip)" in told.out and "stackyard adopt" in told.err
    assert tree_of(bed.prefix) == before, "it is never repaired"
    dry = bed.run("adopt", bed.prefix, "--dry-run").out
    assert "as climate/1.0-py311-2: " in dry.replace(f"py{sys.version_info[0]}{sys.version_info[1]}", "py311")
    bed.run("adopt", bed.prefix)
    assert "~ own 1.5 -> 1.6 (pip)" in bed.run("diff", bed.record(1).module, "climate").out
    assert bed.record(2).module in bed.run("list").out


def test_a_prefix_that_vanished(bed: Bed) -> None:
    bed.prefix.rename(bed.directory / "away")
    try:
        gone = f"{bed.prefix} not found"
        assert gone in bed.run("run", "climate", "--", "python", expect=4).err
        assert gone in bed.run("launch", "--with", "climate", "-N", "1", "true", expect=4).err
        assert gone in bed.run("verify", "climate", expect=3).out
        for system in ("lmod", "em"):
            shown = bed.loaded("module load climate; echo [$CONDA_PREFIX]", system=system)
            assert gone in shown and "[]" in shown
    finally:
        (bed.directory / "away").rename(bed.prefix)


def _rollback_and_removal_leave_its_files(bed: Bed) -> None:
    before = tree_of(bed.prefix)
    bed.run("rollback")
    bed.run("remove", bed.record(1).module)
    assert tree_of(bed.prefix) == before and not list(bed.yard.glob("stacks/climate/*-1"))


def test_a_prefix_that_others_change_and_what_stays_of_it(bed: Bed) -> None:
    _verify_finds_what_changed_and_adopting_again_records_it(bed)
    _rollback_and_removal_leave_its_files(bed)


# --------------------------------------------------------------------------- refused


def _file(place: Path) -> Path:
    place.write_text("x")
    return place


def _plain(place: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    return place


def _in_yard(place: Path) -> Path:
    for name in ("stacks", "generations", "stacks/a/1-1/prefix/conda-meta"):
        (place / name).mkdir(parents=True)
    return place / "stacks/a/1-1/prefix"


def _damaged(place: Path) -> Path:
    (place / "conda-meta").mkdir(parents=True)
    (place / "conda-meta/six-1-0.json").write_text('{"name": "si')
    return place


def _pipe(place: Path) -> Path:
    (place / "conda-meta").mkdir(parents=True)
    os.mkfifo(place / "conda-meta/six-1-0.json")
    return place


def _venv(place: Path, version: str = "3.11.7", more: str = "") -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text(f"home = /gone/bin\nversion = {version}\n{more}")
    (place / "bin/python").symlink_to("/gone/bin/python3.11")
    return place


def _old(place: Path) -> Path:
    made = _venv(place, "3.4.10")
    (made / "bin/python").unlink()
    (made / "bin/python").symlink_to(sys.executable)
    return made


def _pypy(place: Path) -> Path:
    made = _venv(place, "3.10.14", "implementation = PyPy\n")
    (made / "bin/python").unlink()
    (made / "bin/python").symlink_to(sys.executable)
    return made


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (_file, InputError, "no such directory"),
        (lambda place: place, InputError, "no such directory"),
        (_plain, InputError, "neither a conda prefix"),
        (_in_yard, InputError, "it is in the yard"),
        (_damaged, StackyardError, r"cannot read .*six-1-0.json"),
        (_pipe, StackyardError, "not a plain file"),
        (_venv, MissingError, "the Python that it was made from no longer exists: /gone/bin"),
        (_old, InputError, "Python 3.4.10 is not supported"),
        (_pypy, InputError, "Python 3.10.14 is not supported"),
        (lambda place: _plain(place.with_name("with blank")), InputError, "is not a path"),
    ],
    ids=["file", "missing", "plain", "yard", "damaged", "pipe", "no-base", "3.4", "pypy", "blank"],
)
def test_what_is_refused(tmp_path: Path, make: Callable[[Path], Path], error: type[StackyardError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        adopting.look(make(tmp_path / "p"), Yard(tmp_path / "yard"))
    assert type(caught.value) is error and caught.value.hint


def test_a_prefix_whose_lock_another_process_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p/conda-meta").mkdir(parents=True)
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True)"
    words = [sys.executable, "-c", f"{code}; time.sleep(600)", str(tmp_path / "p/conda-meta/mamba.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            with pytest.raises(StackyardError, match=rf"process {holder.pid} .* holds its lock mamba.lock"):
                adopting.look(tmp_path / "p", Yard(tmp_path / "yard"))
        finally:
            holder.kill()
    assert adopting.look(tmp_path / "p", Yard(tmp_path / "yard")).adopted.kind == "conda"  # a lock that was left


def test_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _venv(tmp_path / "v", FULL_VERSION, "include-system-site-packages = true\n")
    (made / "bin/python").unlink()
    (made / "bin/python").symlink_to(sys.executable)
    inner = f"lib/python{FULL_VERSION.rpartition('.')[0]}/site-packages"
    for name, url in (("mine", {"url": "file:///home/anna/mine", "dir_info": {"editable": True}}), ("b", None)):
        info = made / inner / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        if url:
            (info / "direct_url.json").write_text(json.dumps(url))
    (tmp_path / ".local" / inner / "six-1.17.0.dist-info").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    made.chmod(0o777)
    shown = "\n".join(adopting.look(made, Yard(tmp_path / "yard")).warnings)
    for said in ("without a known sha256 of its archive: b, mine", "others may change its files: everybody",
                 "editable projects", "mine from /home/anna/mine", "include-system-site-packages",
                 ".local/lib/python"):  # fmt: skip
        assert said in shown


# --------------------------------------------------------------------------- another account


def test_a_user_adopts_what_root_owns_into_the_own_yard(accounts: Accounts, common: Path) -> None:
    anna = accounts.user("anna")
    subprocess.run([anna.bin / "python", "-m", "venv", "--without-pip", common / "env"], check=True)
    before = tree_of(common / "env")
    shown = anna.stackyard("--yard", anna.home / "yard", "adopt", common / "env").out
    assert "published" in shown and "nothing copied" not in shown
    said = anna.stackyard(
        "--yard", anna.home / "yard", "run", "env", "--", "python", "-c", "import sys; print(sys.prefix)"
    )
    assert said.out.strip() == str(common / "env") and tree_of(common / "env") == before
    (common / "env/lib").chmod(0o700)
    refused = anna.stackyard("--yard", anna.home / "yard", "adopt", common / "env", expect=1)
    assert f"permission denied: {common}/env/lib" in refused.err
