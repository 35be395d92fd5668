"""Fixtures for all tests: no test sees the caller's yard, home or site."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from stackyard.core.errors import MissingError

XDG = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")

pytest_plugins = [
    "support.environment", "support.realness", "support.foreign", "support.slurmfixtures", "support.accounts"
]  # fmt: skip


def pytest_configure() -> None:
    """The signals of a terminal, also under nohup and with ``&``: what is ignored here would be in every program.

    And the interpreter itself first on PATH: the shim of a version manager takes a tenth of a second at each start.
    Ranks, agents and the stand-ins of schedulers are started as ``python3`` some thousand times.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    shim = shutil.which("python3")
    if shim:
        argv = [shim, "-c", "import sys; print(sys.executable)"]
        real = Path(subprocess.run(argv, check=True, text=True, stdout=subprocess.PIPE).stdout.strip())
        if real.parent != Path(shim).parent:
            os.environ["PATH"] = f"{real.parent}:{os.environ['PATH']}"


FIRST = ("test_horovod_long.py", "test_year.py", "test_example_lumi_recipes.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take the longest: no worker is left alone with one at the end, or waits for Horovod."""
    items.sort(key=lambda item: item.path.name not in FIRST)


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
