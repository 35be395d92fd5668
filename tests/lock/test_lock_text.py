"""The lock as a file: round trip, small diffs, damage."""

from __future__ import annotations

import difflib
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackyard.core.errors import InputError
from stackyard.lock.lockfile import text
from stackyard.lock.lockfile.model import CondaPackage, Lock, LockedInterpreter, LockedVariant, PipPackage

FORGE = "https://conda.anaconda.org/conda-forge"


def conda_package(n: int, version: str = "1.0", **more: object) -> CondaPackage:
    values = {
        "name": f"lib{n:03}", "version": version, "build": f"h{n}_0", "build_number": 0, "subdir": "linux-64",
        "channel": FORGE, "url": f"{FORGE}/linux-64/lib{n:03}-{version}-h{n}_0.conda",
        "sha256": f"{abs(hash((n, version))):064x}"[:64], "md5": f"{n:032x}", "size": 1000 + n,
        "timestamp_ms": 1_700_000_000_000, "license": "MIT", "depends": ("libgcc >=13", f"lib{max(0, n - 1):03}"),
    }  # fmt: skip
    return CondaPackage(**{**values, **more})  # type: ignore[arg-type]


def pip_package(n: int, version: str = "1.0") -> PipPackage:
    url = f"https://files.pythonhosted.org/packages/{n}/pkg{n}-{version}-py3-none-any.whl"
    return PipPackage(f"pkg{n}", version, "wheel", url, f"{n:064x}", "https://pypi.org/simple", requires=("a>=1", "b"))


def locked(name: str = "base", conda: int = 35, pip: int = 35, version: str = "1") -> LockedVariant:
    return LockedVariant(
        "demo", version, name, "linux-64", "ab" * 32, LockedInterpreter("conda", "3.11.9"), (FORGE,),
        ("__glibc=2.28=0",), ("python 3.11.*", "pip: pkg1>=1"), ("pin numpy <2",),
        tuple(conda_package(n) for n in range(conda)), tuple(pip_package(n) for n in range(pip)),
    )  # fmt: skip


def test_round_trip() -> None:
    sdist = PipPackage(
        "horovod", "0.28.1", "sdist", "https://x/horovod-0.28.1.tar.gz", "cd" * 32, extras=("pytorch",),
        build_inputs={"variable HOROVOD_NCCL_HOME": "{prefix}", "patch 0 c++17.patch": "ef" * 32, "requires": ""},
    )  # fmt: skip
    vcs = PipPackage("tool", "1", "vcs", "git+https://x/tool.git", "", commit="a" * 40, subdirectory="python")
    lock = Lock("demo", (replace(locked(), pip=(sdist, vcs)), locked("other")))
    assert text.parse(text.dump(lock), "x.lock") == lock


@given(st.text(), st.text())
def test_any_text_survives(value: str, key: str) -> None:
    values = {f"variable {key}": value}
    package = PipPackage("a", "1", "sdist", "https://x/a.tar.gz", "00" * 32, requires=(value,), build_inputs=values)
    lock = Lock("demo", (replace(locked(conda=0, pip=0), pip=(package,), notices=(value,)),))
    assert text.parse(text.dump(lock), "x.lock") == lock


def test_same_lock_same_text_whatever_the_order_of_solving() -> None:
    variants = [locked(f"v{n}") for n in range(4)]
    shuffled = [replace(v, pip=tuple(v.pip), conda=tuple(v.conda)) for v in variants]
    assert text.dump(Lock("demo", tuple(shuffled))) == text.dump(Lock("demo", tuple(variants)))
    blocks = [line for line in text.dump(Lock("demo", tuple(variants))).splitlines() if line.startswith("ref = ")]
    assert blocks == sorted(blocks[:35]) + sorted(blocks[35:])
    assert len(blocks) == 70, "a package is written once, whatever the number of variants"


def test_one_change_is_one_small_diff() -> None:
    before = Lock("demo", tuple(locked(f"v{n}") for n in range(2)))
    bumped = tuple(conda_package(7, "1.1") if p.name == "lib007" else p for p in before.variants[0].conda)
    after = Lock("demo", tuple(replace(v, conda=bumped) for v in before.variants))
    lines = list(difflib.unified_diff(text.dump(before).splitlines(), text.dump(after).splitlines(), n=0, lineterm=""))
    changed = [line for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]
    assert len(changed) == 2 * (2 + 4), "\n".join(changed)  # a reference per variant; ref, version, url and sha256


def test_two_packages_of_one_name_and_file_are_told_apart() -> None:
    one, two = pip_package(1), replace(pip_package(1), requires=("c",))
    lock = Lock("demo", (replace(locked("a"), pip=(one,)), replace(locked("b"), pip=(two,))))
    assert text.parse(text.dump(lock), "x") == lock


def test_local_projects_are_relative_to_the_lock(tmp_path: Path) -> None:
    project = PipPackage("proj", "1", "path", (tmp_path / "sub/proj").as_uri(), "aa" * 32)
    lock = Lock("demo", (replace(locked(conda=0, pip=0), pip=(project,)),), str(tmp_path))
    written = text.dump(lock)
    assert "file://./sub/proj" in written and str(tmp_path) not in written
    assert text.parse(written, str(tmp_path / "s.lock")) == lock
    clone = text.parse(written, "/elsewhere/s.lock").variants[0].pip[0]
    assert clone.url == "file:///elsewhere/sub/proj"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('name = "lib003"', 'name = "lib003', "name = ", "damaged"),
        ('sha256 = "', 'sha255 = "', "[[conda]]", "sha255"),
        ('spec_hash = "', 'hash = "', "[[variant]]", "hash"),
        ('  "lib004 1.0 h4_0 linux-64",', '  "lib004 9.9 h4_0 linux-64",', "[[variant]]", "lib004 9.9"),
        ("format = 1", "format = 2", "#", "format 2"),
        ('stack = "demo"', "<<<<<<< HEAD", "<<<", "merge conflict"),
    ],
)
def test_damage_is_named_with_its_line(old: str, new: str, line: str, says: str) -> None:
    damaged = text.dump(Lock("demo", (locked(),))).replace(old, new, 1)
    with pytest.raises(InputError) as caught:
        text.parse(damaged, "demo.lock")
    assert says in caught.value.message and caught.value.hint
    assert caught.value.where is not None and caught.value.where.file == "demo.lock"
    assert damaged.splitlines()[caught.value.where.line - 1].startswith(line)


def test_truncated_anywhere_is_an_error_or_a_whole_lock() -> None:
    whole = text.dump(Lock("demo", (locked(conda=3, pip=3),)))
    for cut in random.Random(1).sample(range(len(whole) - 2), 40):
        try:
            found = text.parse(whole[:cut], "x")
        except InputError as error:
            assert error.where is not None
        else:
            assert len(found.variants[0].conda if found.variants else ()) in (0, 3)


def test_reading_a_hundred_variants_is_quick() -> None:
    lock = Lock("demo", tuple(locked(f"v{n}") for n in range(100)))
    written = text.dump(lock)
    best = 9.0
    for _ in range(3):
        start = time.process_time()
        assert text.parse(written, "x") == lock
        best = min(best, time.process_time() - start)
    assert best < 1.0


def test_path_and_missing_file(tmp_path: Path) -> None:
    assert text.path_for(tmp_path / "stack.yaml") == tmp_path / "stack.yaml.lock"
    with pytest.raises(InputError, match="no such lock"):
        text.read(tmp_path / "none.lock")


def test_every_lock_begins_with_the_mark_that_keeps_it_out_of_snapshots() -> None:
    from stackyard.lock.lockfile.model import LOCK_MARK

    assert text.dump(Lock("s")).startswith(LOCK_MARK)
