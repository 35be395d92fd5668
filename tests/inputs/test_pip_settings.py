"""pip's settings from all sources together, compared with pip itself where it prints them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.host.tools.pipconf import PYPI, PipSettings, read_config
from stackyard.inputs.models import PipOptions
from stackyard.inputs.pip.settings import compiling, settings
from stackyard.inputs.sites.sitemodels import PipPolicy
from support.piphome import environ, make_home, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


@pytest.mark.parametrize("named", [True, False])
def test_the_same_as_pip_itself(home: Path, named: bool) -> None:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed here")
    write(home / "home/.config/pip/pip.conf", "[global]\nindex-url = https://user\nfind-links = /x /y\n")
    write(home / "named.conf", "[install]\nindex-url = https://install\n[global]\nindex-url = https://named\n")
    values = environ(home, PIP_EXTRA_INDEX_URL="https://e", PATH=os.environ["PATH"])
    if named:
        values["PIP_CONFIG_FILE"] = str(home / "named.conf")
    code = (
        "from pip._internal.commands import create_command as c;"
        "o, _ = c('install').parse_args(['x']);"
        "print(o.index_url, *o.extra_index_urls, *o.find_links)"
    )
    clean = {k: v for k, v in values.items() if k != "VIRTUAL_ENV"}
    said = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    made, _ = settings(PipPolicy(), PipOptions(), clean)
    config = read_config(clean)
    assert said.stdout.split() == [*made.indexes, *config.get("find-links", "").split()]


def test_sources_are_joined(home: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    env = environ(
        home,
        PIP_EXTRA_INDEX_URL=f"https://e file://{home}/none/simple",
        PIP_FIND_LINKS=str(links),
        PIP_TRUSTED_HOST="h",
    )
    made, notices = settings(
        PipPolicy(index_url="https://site/simple/"), PipOptions(extra_index_urls=("https://f",)), env
    )
    assert made.indexes == ("https://site/simple", "https://e", "https://f")
    assert made.find_links == (str(links),) and made.trusted_hosts == ("h",)
    assert len(notices) == 1 and "none/simple" in notices[0]


def test_an_index_in_the_file_replaces_all_others(home: Path) -> None:
    env = environ(home, PIP_EXTRA_INDEX_URL="https://e")
    made, _ = settings(PipPolicy(), PipOptions(index_url="https://own", extra_index_urls=("https://f",)), env)
    assert made.indexes == ("https://own", "https://f")


def test_no_index_and_no_conf(home: Path) -> None:
    env = environ(home, PIP_NO_INDEX="yes", PIP_INDEX_URL="https://x")
    made, _ = settings(PipPolicy(), PipOptions(), env)
    assert made.no_index and made.indexes == ()
    made, _ = settings(PipPolicy(read_pip_conf=False), PipOptions(), env)
    assert made.indexes == (PYPI,) and not made.no_index


@pytest.mark.parametrize(
    ("options", "compiled", "not_compiled"),
    [
        (PipOptions(no_binary=(":all:",), only_binary=("numpy",)), ("scipy",), ("numpy",)),
        (PipOptions(no_binary=("a,b", ":none:", "C_d")), ("c-d",), ("a", "b")),
        (PipOptions(no_binary=("numpy",), only_binary=(":all:",)), ("numpy",), ("scipy",)),
        (PipOptions(), (), ("a",)),
    ],
)
def test_binaries(home: Path, options: PipOptions, compiled: tuple[str, ...], not_compiled: tuple[str, ...]) -> None:
    made, _ = settings(PipPolicy(), options, environ(home))
    assert all(made.compiled(name) for name in compiled)
    assert not any(made.compiled(name) for name in not_compiled)


def test_a_stack_may_ask_for_more_compiling() -> None:
    made = compiling(PipSettings(only_binary=("horovod",), no_binary=("x",)), ("Horovod",))
    assert made.no_binary == ("horovod", "x") and made.only_binary == ()
