"""Fixtures for all tests: no test sees the caller's yard, home or site."""

from __future__ import annotations

from pathlib import Path

import pytest

from stackyard.errors import MissingError

XDG = ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")

pytest_plugins = ["support.realness", "support.slurmfixtures", "support.accounts"]


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("STACKYARD_HOME", "STACKYARD_SITE", "MODULEPATH", "SCRATCH", *XDG):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data() -> Path:
    """Inputs that belong to the tests."""
    return Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def real_channel() -> Path:
    """A conda channel with this machine's CPython and some thirty real packages; made once, kept in .cache/testbed."""
    from support import testbed

    try:
        return testbed.real_channel()
    except MissingError as error:
        pytest.skip(f"{error}; {error.hint}")
