"""The channel that other rooms' tests stand on: py-rattler solves and installs it, and what it holds runs."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import rattler
from packaging.specifiers import SpecifierSet

from support.archive import BLOCK_BYTES, stored_zstd
from support.channel import PLACEHOLDER, Link, Package, make_channel, script_text, set_record
from support.pythonpkg import FULL_VERSION, VERSION
from support.testbed import kept
from support.wheelpkg import conda_specs, entry_points, host_subdir


def solve(channel: Path, specs: Sequence[str], platform: str = "linux-64", **options: Any) -> list[Any]:
    return asyncio.run(
        rattler.solve(
            [channel.as_uri()], list(specs), platforms=[platform, "noarch"],
            gateway=rattler.Gateway(cache_dir=channel.parent / "repodata", show_progress=False), **options,
        )
    )  # fmt: skip


def install(records: list[Any], prefix: Path, **options: Any) -> Path:
    cache = prefix.parent / "pkgs"
    asyncio.run(rattler.install(records, prefix, cache_dir=cache, show_progress=False, **options))
    return prefix


def output(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=240).stdout.strip()


@pytest.fixture(params=[".tar.bz2", ".conda"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_stored_zstd_is_read_back_by_the_real_decoder(size: int, tmp_path: Path) -> None:
    content = os.urandom(size)
    channel = make_channel(tmp_path / "ch", [Package("blob", "1", files={"share/blob": content}, suffix=".conda")])
    prefix = install(solve(channel, ["blob"]), tmp_path / "prefix")
    assert (prefix / "share/blob").read_bytes() == content
    assert stored_zstd(content)[:4] == b"\x28\xb5\x2f\xfd"


def test_files_links_modes_and_prefixes(tmp_path: Path, suffix: str) -> None:
    files = {
        "bin/hello": (f"#!/bin/sh\necho {PLACEHOLDER}/share\n", 0o755),
        "share/binary": b"\x00" + PLACEHOLDER.encode() + b"/x\x00tail",
        "share/link": Link("binary"),
        "etc/conda/activate.d/hello.sh": "export HELLO=1\n",
    }
    channel = make_channel(tmp_path / "ch", [Package("hello", "1", files=files, suffix=suffix)])
    prefix = install(solve(channel, ["hello"]), tmp_path / "prefix")
    assert output(prefix / "bin/hello") == f"{prefix}/share"
    binary = (prefix / "share/binary").read_bytes()
    assert len(binary) == len(files["share/binary"])
    assert binary.startswith(b"\0" + os.fsencode(prefix) + b"/x\0")
    assert (prefix / "share/link").readlink() == Path("binary")
    assert (prefix / "etc/conda/activate.d/hello.sh").read_text() == "export HELLO=1\n"


def test_the_repodata_names_the_true_digests(tmp_path: Path, suffix: str) -> None:
    channel = make_channel(tmp_path / "ch", [Package("a", "1", suffix=suffix, depends=("b >=2",), subdir="noarch")])
    repodata = json.loads((channel / "noarch/repodata.json").read_text())
    record = (repodata["packages"] | repodata["packages.conda"])[f"a-1-0{suffix}"]
    data = (channel / "noarch" / f"a-1-0{suffix}").read_bytes()
    assert record["sha256"] == hashlib.sha256(data).hexdigest()
    assert record["size"] == len(data)
    assert record["depends"] == ["b >=2"]


def test_packages_are_added_to_a_channel_and_made_alike_each_time(tmp_path: Path, suffix: str) -> None:
    first = make_channel(tmp_path / "ch", [Package("a", "1", suffix=suffix)])
    make_channel(tmp_path / "ch", [Package("b", "1", depends=("a",), suffix=suffix)])
    assert {record.name.normalized for record in solve(first, ["b"])} == {"a", "b"}
    again = make_channel(tmp_path / "other", [Package("a", "1", suffix=suffix)])
    name = f"linux-64/a-1-0{suffix}"
    assert (first / name).read_bytes() == (again / name).read_bytes()


def test_a_package_is_as_old_as_it_says(tmp_path: Path) -> None:
    old, new = (
        Package("a", version, timestamp_ms=ms) for version, ms in (("1", 1_577_836_800_000), ("2", 1_672_531_200_000))
    )
    channel = make_channel(tmp_path / "ch", [old, new])
    before = datetime.datetime(2022, 1, 1, tzinfo=datetime.timezone.utc)
    assert [str(r.version) for r in solve(channel, ["a"])] == ["2"]
    assert [str(r.version) for r in solve(channel, ["a"], exclude_newer=before)] == ["1"]


def test_a_changed_record_is_what_the_solver_sees(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "ch", [Package("a", "1")])
    set_record(channel, "linux-64", "a-1-0.tar.bz2", sha256="0" * 64)
    assert [record.sha256.hex() for record in solve(channel, ["a"])] == ["0" * 64]


def test_link_scripts_run_when_they_are_allowed(tmp_path: Path) -> None:
    script = ("#!/bin/sh\necho linked > $PREFIX/linked\n", 0o755)
    channel = make_channel(tmp_path / "ch", [Package("a", "1", files={"bin/.a-post-link.sh": script})])
    prefix = install(solve(channel, ["a"]), tmp_path / "prefix", execute_link_scripts=True)
    assert (prefix / "linked").read_text() == "linked\n"


@pytest.mark.parametrize("specifiers,expected", [
    ("~=1.4.5", "1.4.*,>=1.4.5"),
    ("~=2.0", "2.*,>=2.0"),
    (">=1,<3,!=2.1.*", "!=2.1.*,<3,>=1"),
    ("", ""),
])  # fmt: skip
def test_pip_ranges_become_conda_ranges(specifiers: str, expected: str) -> None:
    assert conda_specs(SpecifierSet(specifiers)) == expected


def test_entry_points_are_read_and_written() -> None:
    text = "[console_scripts]\nMixed.Case = pkg.mod:main.run [extra]\n[other]\nx = y:z\n"
    assert entry_points(text) == ("Mixed.Case = pkg.mod:main.run",)
    assert "from pkg.mod import main" in script_text(entry_points(text)[0])
    assert "sys.exit(main.run())" in script_text(entry_points(text)[0])


def test_what_is_kept_is_made_once_and_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACKYARD_TESTBED", str(tmp_path / "cache"))
    made: list[Path] = []

    def make(directory: Path) -> None:
        made.append(directory)
        (directory / "done").write_text("yes")
        if len(made) == 1:
            raise RuntimeError("killed in the midst")

    with pytest.raises(RuntimeError):
        kept("thing", [], make)
    directories = {kept("thing", [], make) for _ in range(3)}
    assert len(made) == 2
    assert {(directory / "done").read_text() for directory in directories} == {"yes"}
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith(".")] == []


@pytest.fixture(scope="session")
def real_prefix(real_channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("real")
    specs = ["python", "numpy", "rich", "pip", "setuptools", "pytest", "requests"]
    records = asyncio.run(
        rattler.solve(
            [real_channel.as_uri()], specs, platforms=[host_subdir(), "noarch"],
            gateway=rattler.Gateway(cache_dir=directory / "repodata", show_progress=False),
        )
    )  # fmt: skip
    return install(records, directory / "prefix")


@pytest.mark.parametrize("code,expected", [
    ("import sys; print(sys.prefix)", "{prefix}"),
    ("import platform; print(platform.python_version())", FULL_VERSION),
    ("import sysconfig; print(sysconfig.get_path('purelib'))", f"{{prefix}}/lib/python{VERSION}/site-packages"),
    ("import ssl, sqlite3, ctypes, zlib; print('linked')", "linked"),
    ("import numpy; print(int(numpy.ones((4, 4)).dot(numpy.ones(4)).sum()))", "16"),
    ("import importlib.metadata as m; print(m.version('rich'))", "14.0.0"),
])  # fmt: skip
def test_the_real_python_runs_from_where_it_is_installed(real_prefix: Path, code: str, expected: str) -> None:
    assert output(real_prefix / "bin/python", "-I", "-c", code) == expected.format(prefix=real_prefix)


@pytest.mark.parametrize("argv,expected", [
    (("pip", "check"), "No broken requirements found."),
    (("f2py", "-v"), "2.2.6"),
    (("pytest", "--version"), "pytest 8.3.5"),
])  # fmt: skip
def test_programs_of_converted_wheels_run(real_prefix: Path, argv: tuple[str, ...], expected: str) -> None:
    assert output(real_prefix / "bin" / argv[0], *argv[1:]) == expected


def test_nothing_in_the_prefix_points_back_to_where_python_came_from(real_prefix: Path) -> None:
    import sys

    if sys.base_prefix == "/usr":
        pytest.skip("the system's Python lies in /usr, which every program names")
    origin = os.fsencode(sys.base_prefix + "/")
    guilty = [
        p for p in (real_prefix / "lib").rglob("*") if p.is_file() and p.suffix != ".so" and origin in p.read_bytes()
    ]
    assert guilty == []
