"""pip's configuration, read as pip reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stackyard.core.errors import InputError
from stackyard.host.tools.pipconf import read_config
from support.piphome import environ, make_home, write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


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


def test_damaged_file_is_named_with_its_line(home: Path) -> None:
    write(home / "home/.config/pip/pip.conf", "[global]\nindex-url = https://x\nnonsense\n")
    with pytest.raises(InputError) as caught:
        read_config(environ(home))
    assert caught.value.where is not None and caught.value.where.file.endswith("pip.conf")
