"""What an account may not read in a parent's cache counts as absent: its builds fetch and compile it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from buildbed import PROJECT, build, conda_packages, locked, sdist, wheel

from stackyard.yard.layout import Yard
from support.accounts import Accounts, common_directory
from support.channel import Package, make_channel

BUILD = """
import sys
from pathlib import Path
tests, parent, own, channel, *archives = sys.argv[1:]
sys.path.insert(0, tests)
from buildbed import PROJECT, build, conda_packages, locked, sha256, wheel_package
from stackyard.lock.lockfile.model import PipPackage
from stackyard.core.progress import SilentProgress
from stackyard.yard.layout import Yard
plain, source = map(Path, archives)
pip = [wheel_package(plain), PipPackage("cext", "1.0", "sdist", source.as_uri(), sha256(source))]
progress = SilentProgress()
record = build(Yard(Path(own), Yard(Path(parent))), locked(conda_packages(Path(channel)), pip), progress=progress)
print(record.prefix, *progress.notices, sep="\\n")
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A site with one revision, and what it was built from."""
    with common_directory() as directory:
        channel = make_channel(directory / "channel", [Package("tool", "1.0", files={"share/tool.txt": "one\n"})])
        pip = [wheel(directory, "plain", {"plain.py": b"value = 1\n"}), sdist(directory, PROJECT)]
        (directory / "site").mkdir()  # whose mode says that all may read what is in it
        build(Yard(directory / "site"), locked(conda_packages(channel), pip))
        yield directory


@pytest.mark.parametrize(
    ("private", "told"),
    [
        (("uv/archive-v*", "bytecode", "sources", "wheels"), 0),
        (("conda/*/share", "uv/archive-v*/*/*.dist-info", "bytecode/*/*/*/lib", "sources/*", "wheels/*"), 4),
    ],
)
def test_private_directories_of_a_parents_cache_are_absent(
    place: Path, accounts: Accounts, private: tuple[str, ...], told: int
) -> None:
    cache, anna = Yard(place / "site").cache, accounts.user("anna")
    closed = [directory for pattern in private for directory in cache.glob(pattern)]
    assert len(closed) >= len(private)
    for directory in closed:
        directory.chmod(0o700)
    words = (accounts.readable(Path(__file__).parent), cache.parent, anna.home / "own", place / "channel")
    done = anna.python(BUILD, *words, *place.glob("*.whl"), *place.glob("*.tar.gz"))
    for directory in closed:
        directory.chmod(0o755)
    prefix, *notices = done.out.splitlines()
    assert len(notices) == told and all("not readable by this account" in notice for notice in notices)
    assert Path(prefix, "share/tool.txt").read_text() == "one\n"
    assert Path(prefix).is_relative_to(anna.home)
