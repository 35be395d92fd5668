"""What the tests of this room share: the real channel, wheels from the index, and a yard of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.core.errors import MissingError
from stackyard.lock.lockfile.model import LockedVariant, PipPackage
from stackyard.yard.layout import Yard
from support.channel import Package, make_channel
from support.testbed import HERE, real_channel, wheels


@pytest.fixture(scope="session")
def channel() -> Path:
    try:
        return real_channel()
    except MissingError as error:
        pytest.skip(f"{error}: {error.detail}")


@pytest.fixture(scope="session")
def wheelhouse() -> dict[str, PipPackage]:
    """Wheels of the test bed by name, as a lock holds them."""
    from buildbed import wheel_package

    try:
        directory = wheels(HERE / "wheels.txt")
    except MissingError as error:
        pytest.skip(f"{error}: {error.detail}")
    found = [wheel_package(path) for path in sorted(directory.glob("*.whl"))]
    return {package.name.lower().replace("_", "-"): package for package in found}


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> LockedVariant:
    """A lock with one conda package and one wheel."""
    from buildbed import conda_packages, locked, wheel

    directory = tmp_path_factory.mktemp("sources")
    channel = make_channel(directory / "channel", [Package("tool", "1.0", files={"share/tool.txt": "one\n"})])
    return locked(conda_packages(channel), [wheel(directory, "plain", {"plain.py": b"value = 1\n"})])


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, small: LockedVariant) -> Yard:
    """A yard with one revision of it: to be copied, or a parent; it never changes."""
    from buildbed import build

    yard = Yard(tmp_path_factory.mktemp("built") / "yard")
    build(yard, small)
    return yard


@pytest.fixture(scope="session")
def site_yard(tmp_path_factory: pytest.TempPathFactory, wheelhouse: dict[str, PipPackage]) -> Yard:
    """A parent whose caches hold setuptools, so that the tests need not compile its bytecode each time."""
    from buildbed import build, locked

    yard = Yard(tmp_path_factory.mktemp("site"))
    build(yard, locked(pip=[wheelhouse[name] for name in ("setuptools", "wheel", "packaging", "idna")]))
    return yard
