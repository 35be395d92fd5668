"""The package cache has what conda asks a package cache for, and what conda reads of a package is what is locked.

That conda itself finds the packages there is tested in tests/deploy/test_users_conda.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from buildbed import build, conda_packages, locked

from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.conda.forconda import write_record
from stackyard.yard.cache.audit import audit
from stackyard.yard.cache.caches import CONDA
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel
from support.webserver import served


def _package(directory: Path) -> CondaPackage:
    channel = make_channel(directory, [Package("tool", "1.0", subdir="noarch", files={"share/tool": "x"})])
    return conda_packages(channel)[0]


def _record(yard: Yard) -> Path:
    return yard.package("tool-1.0-0") / "info" / "repodata_record.json"


def test_a_package_has_the_record_of_its_channel(tmp_path: Path, yard: Yard) -> None:
    package = replace(_package(tmp_path / "ch"), depends=("six >=1.16",), license="MIT")
    build(yard, locked([package]))
    record = json.loads(_record(yard).read_text())
    same = ("name", "version", "build", "build_number", "subdir", "channel", "url", "sha256", "md5", "size", "license")
    assert {key: record[key] for key in same} == {key: getattr(package, key) for key in same}
    assert record["fn"] == Path(package.url).name and record["depends"] == ["six >=1.16"]
    index = _record(yard).with_name("index.json")
    assert record["timestamp"] == json.loads(index.read_text())["timestamp"]
    assert _record(yard).stat().st_mtime_ns == index.stat().st_mtime_ns, "as if a link script had written it"
    assert not _record(yard).stat().st_mode & 0o222
    assert audit(yard) == []


def test_the_marker_is_read_only_and_not_a_package(tmp_path: Path, yard: Yard) -> None:
    build(yard, locked([_package(tmp_path / "ch")]))
    assert yard.conda_marker.read_bytes() == b"" and not yard.conda_marker.stat().st_mode & 0o222
    assert [entry.name for entry in CONDA.complete(yard)] == ["tool-1.0-0"]


def test_a_package_of_a_mirror_has_the_url_of_its_channel(tmp_path: Path, yard: Yard) -> None:
    """conda looks for what its channels offer, whatever place the yard got it from."""
    package = _package(tmp_path / "ch")
    with served(tmp_path / "ch") as url:
        told = replace(package, channel="https://conda.example.org/site", url=f"{url}/noarch/{Path(package.url).name}")
        build(yard, locked([told]))
    record = json.loads(_record(yard).read_text())
    assert (record["channel"], record["url"]) == (told.channel, told.url)


@pytest.mark.parametrize("name", ["repodata_record.json", "index.json"])
def test_a_link_in_the_archive_is_not_written_through(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text('{"timestamp": 7}')
    directory = tmp_path / "unpacked"
    (directory / "info").mkdir(parents=True)
    (directory / "info" / "index.json").write_text("{}")
    (directory / "info" / name).unlink(missing_ok=True)
    (directory / "info" / name).symlink_to(outside)
    write_record(directory, _package(tmp_path / "ch"))
    assert outside.read_text() == '{"timestamp": 7}'
    place = directory / "info" / "repodata_record.json"
    assert not place.is_symlink() and json.loads(place.read_text())["name"] == "tool"


def test_a_directory_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "index.json").write_text("{}")
    directory = tmp_path / "unpacked"
    directory.mkdir()
    (directory / "info").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="info"):
        write_record(directory, _package(tmp_path / "ch"))
    assert os.listdir(tmp_path / "elsewhere") == ["index.json"]
