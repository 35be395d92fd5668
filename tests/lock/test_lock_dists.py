"""What conda packages install for pip, read from their archives: on disk, in a cache, on servers of each kind."""

from __future__ import annotations

import bz2
import io
import json
import os
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from helpers_lock import conda as conda_requirements
from helpers_lock import pip, stack, variant, wheel

from stackyard.core.errors import StackyardError
from stackyard.core.progress import SilentProgress
from stackyard.host.files.hashing import sha256_file
from stackyard.inputs.models import Environment, Site
from stackyard.inputs.sites.sitemodels import ChannelPolicy, PipPolicy
from stackyard.lock import solve
from stackyard.lock.base import distributions as dists
from stackyard.lock.base.distributions import UnreadPackage, described, require_read
from stackyard.lock.conda import archive
from stackyard.lock.lockfile import text
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.yard.cache.caches import NOTE_REVISION
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel
from support.rangeserver import served_in_parts

HERE = "linux-64"
LIB = "lib/python3.11/site-packages"
PLACES = (LIB,)
BULK = os.urandom(3 << 20)


def metadata(*directories: str) -> dict[str, str | bytes]:
    return {f"{directory}/METADATA": "Name: x\n" for directory in directories}


ANNOY = Package("python-annoy", "1.17.2", depends=("python",), files=metadata(f"{LIB}/annoy-1.17.2.dist-info"))
PACKAGES = {
    "annoy": ANNOY,
    "two": Package(
        "two", "9", subdir="noarch", noarch_python=True,
        files=metadata("site-packages/Real_Name-2.5.dist-info", "site-packages/other-1.0+cu118.dist-info"),
    ),
    "eggs": Package(
        "eggs", "7.1", depends=("python >=3.11",),
        files={
            f"{LIB}/old_egg-0.3.post1-py3.11.egg-info/PKG-INFO": "x", f"{LIB}/flat-1.0-py3.11.egg-info": "x",
            f"{LIB}/bare.egg-info/PKG-INFO": "x", f"{LIB}/.hidden-1.dist-info/METADATA": "x",
        },
    ),
    "inner": Package(
        "inner", "1", depends=("python_abi 3.11",),
        files=metadata(
            f"{LIB}/setuptools/_vendor/a-1.dist-info", "share/app/lib/python3.11/site-packages/b-1.dist-info",
            "lib/python3.9/site-packages/c-1.dist-info", "site-packages/d-1.dist-info",
        ),
    ),
    "none": Package("ray-default", "2.0", depends=("python", "ray-core"), files={"share/doc": "x"}),
    "library": Package("libx", "1", files=metadata(f"{LIB}/libx-1.dist-info")),
}  # fmt: skip
FOUND = {
    "annoy": ("pkg:pypi/annoy@1.17.2",),
    "two": ("pkg:pypi/other@1.0%2Bcu118", "pkg:pypi/real-name@2.5"),
    "eggs": ("pkg:pypi/bare@7.1", "pkg:pypi/flat@1.0", "pkg:pypi/old-egg@0.3.post1"),
    "inner": (), "none": (), "library": (),
}  # fmt: skip


def locked(channel: Path, package: Package, base: str = "") -> CondaPackage:
    path = channel / package.subdir / package.filename
    url = f"{base}/{package.subdir}/{package.filename}" if base else path.as_uri()
    return CondaPackage(
        package.name, package.version, package.build, 0, package.subdir, base or channel.as_uri(), url,
        sha256_file(path), depends=package.depends, noarch="python" if package.noarch_python else "",
    )  # fmt: skip


def suffixed(package: Package, suffix: str) -> Package:
    return Package(**{**vars(package), "suffix": suffix})


@pytest.mark.parametrize("suffix", [".conda", ".tar.bz2"])
@pytest.mark.parametrize("name", PACKAGES)
def test_names_and_versions_are_those_of_the_metadata(tmp_path: Path, name: str, suffix: str) -> None:
    package = suffixed(PACKAGES[name], suffix)
    channel = make_channel(tmp_path / "c", [package])
    (found,), unread = described([locked(channel, package)], Yard(tmp_path / "y"), PLACES)
    assert (found.purls, unread) == (FOUND[name], ())


def test_a_python_that_looks_elsewhere_and_one_that_is_not_known(tmp_path: Path) -> None:
    package = Package("x", "1", depends=("python",), files=metadata("lib/py/site-packages/x-1.dist-info"))
    channel = make_channel(tmp_path / "c", [package, ANNOY])
    python = Package("python", "3.11.1", site_packages="lib/py/site-packages")
    own = CondaPackage("python", "3.11.1", "0", 0, HERE, "c", "u", "", python_site_packages_path=python.site_packages)
    yard = Yard(tmp_path / "y")
    (found,), _ = described([locked(channel, package)], yard, dists.site_packages("3.11.1", [own]))
    assert found.purls == ("pkg:pypi/x@1",)
    both, _ = described([locked(channel, package), locked(channel, ANNOY)], yard, dists.site_packages("3.11.1"))
    assert [each.purls for each in both] == [(), FOUND["annoy"]]
    (unknown,), _ = described([locked(channel, ANNOY)], yard)
    assert unknown.purls == FOUND["annoy"]


# --------------------------------------------------------------------------- servers


def with_bulk(package: Package, suffix: str) -> Package:
    return Package(**{**vars(package), "suffix": suffix, "files": {**package.files, "share/bulk": BULK}})


@pytest.mark.parametrize("suffix", [".conda", ".tar.bz2"])
def test_only_a_part_of_an_archive_is_fetched(tmp_path: Path, suffix: str) -> None:
    package = with_bulk(ANNOY, suffix)
    channel = make_channel(tmp_path / "c", [package])
    with served_in_parts(channel, pause_s=0.002) as server:
        (found,), unread = described([locked(channel, package, server.url)], Yard(tmp_path / "y"), PLACES)
        assert (found.purls, unread) == (FOUND["annoy"], ())
        assert sum(server.bytes.values()) < 0.6 * len(BULK)  # bzip2 packs 900 kB at once
        before = len(server.requests)
        (again,), _ = described([locked(channel, package, server.url)], Yard(tmp_path / "y"), PLACES)
        assert again == found and len(server.requests) == before


def test_a_server_that_knows_no_parts(tmp_path: Path) -> None:
    package = suffixed(ANNOY, ".conda")
    channel = make_channel(tmp_path / "c", [package])
    with served_in_parts(channel, parts=False) as server:
        (found,), unread = described([locked(channel, package, server.url)], Yard(tmp_path / "y"), PLACES)
    assert (found.purls, unread) == (FOUND["annoy"], ())


def test_a_list_that_comes_last_is_found_too(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", [ANNOY])
    path = channel / HERE / ANNOY.filename
    with tarfile.open(path) as tar:
        members = [(m, tar.extractfile(m).read()) for m in tar.getmembers()]  # type: ignore[union-attr]
    with tarfile.open(path, "w:bz2") as tar:
        for member, data in reversed(members):
            tar.addfile(member, io.BytesIO(data))
    with served_in_parts(channel) as server:
        (found,), _ = described([locked(channel, ANNOY, server.url)], Yard(tmp_path / "y"), PLACES)
    assert found.purls == FOUND["annoy"]


@pytest.mark.parametrize("suffix", [".conda", ".tar.bz2"])
@pytest.mark.parametrize("status", [404, 403, 200])
def test_what_cannot_be_read_is_named(tmp_path: Path, suffix: str, status: int) -> None:
    package, other = suffixed(ANNOY, suffix), suffixed(PACKAGES["two"], suffix)
    channel = make_channel(tmp_path / "c", [package, other])
    path = f"{package.subdir}/{package.filename}"
    records = [locked(channel, package, "URL"), locked(channel, other, "URL")]
    if status == 200:
        (channel / path).write_bytes(b"not an archive" * 100)
    with served_in_parts(channel) as server:
        server.refused.update({path: status} if status != 200 else {})
        records = [CondaPackage(**{**vars(r), "url": r.url.replace("URL", server.url)}) for r in records]
        (first, second), (unread,) = described(records, Yard(tmp_path / "y"), PLACES)
    assert first.purls == () and second.purls == FOUND["two"]
    assert unread.package == first
    assert (str(status) in unread.reason) == (status != 200), unread.reason
    assert not Yard(tmp_path / "y").distributions_note(first.sha256).exists()


def test_a_server_that_does_not_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [Package(f"p{n}", "1", depends=("python",), files={"share/x": "x"}, suffix=".conda") for n in range(40)]
    channel = make_channel(tmp_path / "c", packages)
    monkeypatch.setattr(archive, "LIMIT_S", 0.5)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        base = f"http://127.0.0.1:{silent.getsockname()[1]}"
        _, unread = described([locked(channel, p, base) for p in packages], Yard(tmp_path / "y"), PLACES)
        silent.setblocking(False)
        asked = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
    assert len(unread) == 40 and {each.reason.partition(" after")[0] for each in unread} == {"127.0.0.1 timed out"}
    assert 0 < asked <= archive._AT_ONCE, "those that were under way when the first had no answer"


# --------------------------------------------------------------------------- the cache


def test_what_was_read_is_kept_and_found_in_the_parent(tmp_path: Path) -> None:
    channel = make_channel(tmp_path / "c", [ANNOY])
    package = locked(channel, ANNOY)
    site = Yard(tmp_path / "site")
    described([package], site, PLACES)
    (channel / HERE / ANNOY.filename).unlink()
    child = Yard(tmp_path / "user", site)
    (found,), unread = described([package], child, PLACES)
    assert (found.purls, unread) == (FOUND["annoy"], ())
    note = site.distributions_note(package.sha256)
    assert note.read_text().splitlines()[1:] == [f"{LIB}/annoy-1.17.2.dist-info"]


@pytest.mark.parametrize("damage", ["flipped", "empty", "no checksum", "folder", "link", "pipe"])
def test_a_damaged_note_is_read_again(tmp_path: Path, damage: str) -> None:
    channel = make_channel(tmp_path / "c", [ANNOY])
    package, yard = locked(channel, ANNOY), Yard(tmp_path / "y")
    note = yard.distributions_note(package.sha256)
    described([package], yard, PLACES)
    good = note.read_text()
    note.unlink()
    if damage == "folder":
        note.mkdir()
    elif damage == "pipe":
        os.mkfifo(note)
    elif damage == "link":
        note.symlink_to("/etc/passwd")
    else:
        bad = {"flipped": good.replace("annoy", "numpy"), "empty": "", "no checksum": f"{LIB}/numpy-1.dist-info\n"}
        note.write_text(bad[damage])
    (found,), _ = described([package], yard, PLACES)
    assert found.purls == FOUND["annoy"]
    if damage != "folder":
        assert note.read_text() == good and not note.is_symlink()


@pytest.mark.parametrize("same", [True, False])
def test_an_unpacked_package_of_that_archive_is_read(tmp_path: Path, same: bool) -> None:
    channel = make_channel(tmp_path / "c", [ANNOY])
    package, site = locked(channel, ANNOY), Yard(tmp_path / "site")
    info = site.package(package.stem) / "info"
    info.mkdir(parents=True)
    (info / "paths.json").write_text(json.dumps({"paths": [{"_path": f"{LIB}/unpacked-1.dist-info/METADATA"}]}))
    digest = package.sha256 if same else "00" * 32
    site.package_note(package.stem).write_bytes(NOTE_REVISION + bytes.fromhex(digest))
    (found,), _ = described([package], Yard(tmp_path / "user", site), PLACES)
    assert found.purls == (("pkg:pypi/unpacked@1",) if same else FOUND["annoy"])


# --------------------------------------------------------------------------- hostile archives


def archive_of(directory: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    path = directory / "x-1-0.tar.bz2"
    with tarfile.open(path, "w:bz2") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(
    "list_of_files",
    [
        b"[]", b'{"paths": 1}', b'{"paths": [1]}', b'{"paths": [{}]}', b'{"paths": [{"_path": 1}]}', b"\xff", b"",
        b"[" * 100_000, b'{"paths": null}',
    ],
)  # fmt: skip
def test_a_list_that_is_none(tmp_path: Path, list_of_files: bytes, remote: bool) -> None:
    path = archive_of(tmp_path, [("info/paths.json", list_of_files)])
    with served_in_parts(tmp_path) as server:
        url = f"{server.url}/{path.name}" if remote else path.as_uri()
        package = CondaPackage("x", "1", "0", 0, HERE, "c", url, sha256_file(path), depends=("python",))
        _, (unread,) = described([package], Yard(tmp_path / "y"), PLACES)
    assert unread.reason


@pytest.mark.parametrize("remote", [True, False])
def test_a_list_without_end(tmp_path: Path, remote: bool) -> None:
    """A small archive whose list, or what comes before it, has gigabytes."""
    header = tarfile.TarInfo("info/paths.json")
    header.size = 8 << 30
    before = tarfile.TarInfo("info/big")
    before.size = 8 << 30
    for n, start in enumerate((header, before)):
        path = tmp_path / f"x-{n}-0.tar.bz2"
        packed = bz2.BZ2Compressor()
        path.write_bytes(packed.compress(start.tobuf() + b" " * (64 << 20)) + packed.flush())
        with served_in_parts(tmp_path) as server:
            url = f"{server.url}/{path.name}" if remote else path.as_uri()
            package = CondaPackage("x", "1", "0", 0, HERE, "c", url, sha256_file(path), depends=("python",))
            began = time.process_time()
            _, (unread,) = described([package], Yard(tmp_path / "y"), PLACES)
        assert unread.reason and time.process_time() - began < 20


def test_the_old_list(tmp_path: Path) -> None:
    path = archive_of(tmp_path, [("info/index.json", b"{}"), ("info/files", f"{LIB}/a-1-py3.11.egg-info\n".encode())])
    package = CondaPackage("x", "1", "0", 0, HERE, "c", path.as_uri(), sha256_file(path), depends=("python",))
    (found,), _ = described([package], Yard(tmp_path / "y"), PLACES)
    assert found.purls == ("pkg:pypi/a@1",)


# --------------------------------------------------------------------------- what follows from it


def unread(name: str) -> UnreadPackage:
    return UnreadPackage(
        CondaPackage(name, "1", "0", 0, HERE, "c", f"https://c/{name}-1-0.conda", "00" * 32), "HTTP status 503"
    )


def test_what_is_not_known_matters_where_pip_installs_it() -> None:
    annoy = PipPackage("annoy", "1.17.3", "wheel", "https://p/annoy.whl", "")
    with pytest.raises(
        StackyardError, match=r"conda package python-annoy-1-0 .*HTTP status 503; pip .* annoy 1\.17\.3"
    ) as e:
        require_read([unread("numpy"), unread("python-annoy")], [annoy])
    assert "require annoy of one of the two" in str(e.value.hint)
    (notice,) = require_read([unread("numpy"), unread("python-lmdb")], [annoy])
    assert "numpy, python-lmdb" in notice and "HTTP status 503" in notice
    assert require_read([], [annoy]) == ()


def test_conda_satisfies_pip_whatever_its_packages_are_called(tmp_path: Path) -> None:
    """As in reports: python-annoy and a package that needs annoy, a dask that is split, a version that pip wants."""
    channel = make_channel(
        tmp_path / "c",
        [
            Package("python", "3.11.9"), ANNOY,
            Package("dask", "2023.1.0", subdir="noarch", noarch_python=True, depends=("python", "dask-core")),
            Package("dask-core", "2023.1.0", subdir="noarch", noarch_python=True, depends=("python",),
                    files=metadata("site-packages/dask-2023.1.0.dist-info")),
            Package("onnx", "1.13.1", depends=("python",), files=metadata(f"{LIB}/onnx-1.13.1.dist-info")),
        ],
    )  # fmt: skip
    links = tmp_path / "links"
    wheel(links, "needs-annoy", "1.0", ["annoy"])
    wheel(links, "needs-dask", "1.0", ["dask[complete]"])
    wheel(links, "needs-new-onnx", "1.0", ["onnx>=1.14"])
    for name, version in (("annoy", "1.17.3"), ("dask", "2024.1.0"), ("onnx", "1.14.1")):
        wheel(links, name, version)
    site = Site(channels=ChannelPolicy(default=(channel.as_uri(),)), platforms=(HERE,),
                pip=PipPolicy(read_pip_conf=False, find_links=(str(links),)))  # fmt: skip

    def lock(*lines: str) -> LockedVariant:
        environment = Environment(
            conda=conda_requirements("python", "onnx ==1.13.1", "python-annoy", "dask"), pip=pip(*lines),
            pip_options={"no_index": True},  # type: ignore[arg-type]
        )  # fmt: skip
        return solve.lock_stack(
            stack(variant(environment)), site, Yard(tmp_path / "y"), (), None, SilentProgress()
        ).variants[0]

    found = lock("needs-annoy", "needs-dask")
    assert sorted(p.name for p in found.pip) == ["needs-annoy", "needs-dask"]
    purls = {p.name: p.purls for p in found.conda}
    assert purls["python-annoy"] == FOUND["annoy"] and purls["dask-core"] == ("pkg:pypi/dask@2023.1.0",)
    assert text.parse(text.dump(solve.Lock("demo", (found,))), Path("x")).variants[0].conda == found.conda
    with pytest.raises(StackyardError) as refused:
        lock("needs-new-onnx")
    assert "conda provides onnx 1.13.1 (package onnx 1.13.1)" in str(refused.value.detail)
