"""pip's configuration as pip reads it, and pip's words for binaries. Compared with pip itself where it says them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stackyard.errors import InputError
from stackyard.lock.pipconf import PYPI, PipSettings, compiling, read_config, settings
from stackyard.spec.models import PipOptions, PipPolicy


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "etc/pip").mkdir(parents=True)
    (tmp_path / "home/.config/pip").mkdir(parents=True)
    (tmp_path / "venv").mkdir()
    return tmp_path


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home / "home"), "XDG_CONFIG_DIRS": str(home / "etc"), "VIRTUAL_ENV": str(home / "venv"), **more}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_precedence_is_pips(home: Path) -> None:
    write(home / "etc/pip/pip.conf", "[global]\nindex-url = https://global\ntimeout = 11\nproxy = http://g\n")
    write(home / "home/.pip/pip.conf", "[global]\nindex-url = https://legacy\n")
    write(
        home / "home/.config/pip/pip.conf",
        "[global]\nindex_url = https://user\nextra-index-url =\n  https://a\n  https://b\n",
    )
    assert read_config(environ(home))["index-url"] == "https://user"
    write(home / "venv/pip.conf", "[global]\nindex-url = https://site\n[install]\nno-binary = :all:\n")
    assert read_config(environ(home))["index-url"] == "https://site"
    write(home / "named.conf", "[global]\nindex-url = https://named\n")
    named = environ(home, PIP_CONFIG_FILE=str(home / "named.conf"))
    assert read_config(named)["index-url"] == "https://named"
    variables = named | {"PIP_INDEX_URL": "https://variable", "PIP_DEFAULT_TIMEOUT": "20", "PIP_PROXY": ""}
    found = read_config(variables)
    assert (found["index-url"], found["timeout"], found["proxy"]) == ("https://variable", "20", "http://g")
    assert found["no-binary"] == ":all:"
    assert "extra-index-url" not in found, "the user's file is not read where PIP_CONFIG_FILE names one"
    assert read_config(environ(home))["extra-index-url"].split() == ["https://a", "https://b"]
    assert "index-url" not in read_config(environ(home, PIP_CONFIG_FILE=os.devnull))


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


def test_damaged_file_is_named_with_its_line(home: Path) -> None:
    write(home / "home/.config/pip/pip.conf", "[global]\nindex-url = https://x\nnonsense\n")
    with pytest.raises(InputError) as caught:
        read_config(environ(home))
    assert caught.value.where is not None and caught.value.where.file.endswith("pip.conf")


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
