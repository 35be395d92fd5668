"""What an archive holds is compared with the lock before it is linked, and nothing is written outside the prefix."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from buildbed import build, conda_packages, locked, sdist, wheel

from stackyard.core.errors import StackyardError
from stackyard.lock.lockfile.model import CondaPackage
from stackyard.make.conda import unpack
from stackyard.yard.layout import Yard
from support.channel import Link, Package, make_channel
from support.webserver import served


def _package(directory: Path) -> CondaPackage:
    channel = make_channel(directory, [Package("tool", "1.0", subdir="noarch", files={"share/tool": "x"})])
    return conda_packages(channel)[0]


def _entries(yard: Yard) -> list[str]:
    return sorted(path.name for path in yard.conda.iterdir() if not path.name.endswith((".lock", ".txt")))


@pytest.mark.parametrize("path", ["/{tmp}/outside", "share/../../../../{tmp}/outside"])
@pytest.mark.parametrize("suffix", [".tar.bz2", ".conda"])
def test_a_path_that_leads_out_of_the_prefix(tmp_path: Path, yard: Yard, path: str, suffix: str) -> None:
    files = {path.format(tmp=tmp_path): "x"}
    channel = make_channel(tmp_path / "ch", [Package("tool", "1.0", subdir="noarch", files=files, suffix=suffix)])
    with pytest.raises(StackyardError, match=r"leads out of the prefix|cannot fetch and unpack"):
        build(yard, locked(conda_packages(channel)))
    assert not (tmp_path / "outside").exists() and _entries(yard) == []


@pytest.mark.parametrize("change", [{"name": "other"}, {"version": "1.1"}, {"build": "7"}])
def test_a_conda_package_that_is_not_the_locked_one(tmp_path: Path, yard: Yard, change: dict[str, str]) -> None:
    package = replace(_package(tmp_path / "ch"), **change)  # type: ignore[arg-type]
    with pytest.raises(StackyardError, match=f"is not what is locked: its {next(iter(change))} is") as caught:
        build(yard, locked([package]))
    assert caught.value.hint and _entries(yard) == []


def test_a_wheel_that_is_not_the_locked_one(tmp_path: Path, yard: Yard) -> None:
    package = wheel(tmp_path, "tool", {"tool.py": b""})
    build(
        yard, locked(pip=[replace(package, version="1.0.0")]), directory="same"
    )  # the same version, otherwise written
    with pytest.raises(StackyardError, match=r"it is tool 1\.0, the lock says tool 1\.17"):
        build(yard, locked(pip=[replace(package, version="1.17")]))
    pyproject = '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "tool"\nversion = "1.16"\n'
    source = sdist(tmp_path, {"pyproject.toml": pyproject, "tool.py": ""}, "tool", "1.17")
    with pytest.raises(StackyardError, match=r"it is tool 1\.16, the lock says tool 1\.17"):
        build(yard, locked(pip=[source]))


def test_a_note_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(unpack.os, "replace", full)
    yard.conda.mkdir(parents=True)
    with pytest.raises(OSError, match="No space"):
        unpack.write_note(yard, _package(tmp_path / "ch"))
    assert list(yard.conda.iterdir()) == []


def test_a_download_that_fails_leaves_nothing(tmp_path: Path, yard: Yard) -> None:
    package = _package(tmp_path / "ch")
    with served(tmp_path / "ch" / "noarch") as url:
        remote = replace(package, url=f"{url}/tool-1.0-0.tar.bz2")
        build(yard, locked([remote]), directory="good")
        (tmp_path / "ch" / "noarch" / "tool-1.0-0.tar.bz2").unlink()
        build(yard, locked([remote]), directory="again")  # from the cache
        missing = replace(remote, build="1", url=f"{url}/tool-1.0-1.tar.bz2")
        with pytest.raises(StackyardError, match=r"cannot fetch and unpack http.*tool-1\.0-1"):
            build(yard, locked([missing]), directory="missing")
        (tmp_path / "ch" / "noarch" / "tool-2.0-0.tar.bz2").write_bytes(b"no archive")
        other = replace(remote, version="2.0", url=f"{url}/tool-2.0-0.tar.bz2")
        with pytest.raises(StackyardError, match="cannot fetch and unpack"):
            build(yard, locked([other]), directory="other")
    assert _entries(yard) == ["tool-1.0-0"]


def test_bytecode_is_not_written_through_a_link(tmp_path: Path, yard: Yard) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    packages = "lib/python{}.{}/site-packages".format(*sys.version_info)
    files = {f"{packages}/tool.py": "X = 1\n", f"{packages}/__pycache__": Link(str(outside))}
    channel = make_channel(tmp_path / "ch", [Package("tool", "1.0", subdir="noarch", files=files)])
    with pytest.raises(StackyardError, match=r"__pycache__ is a symbolic link that leads out of the prefix"):
        build(yard, locked(conda_packages(channel)))
    assert list(outside.iterdir()) == []
