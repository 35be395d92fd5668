"""Reads pip's own configuration as pip does, because uv does not: pip.conf files and ``PIP_*`` variables.

pip need not be installed. Order of precedence, lowest first: global files, the user's files (skipped if
``$PIP_CONFIG_FILE`` names one), the environment's file, ``$PIP_CONFIG_FILE``, variables. In a file the section
``[install]`` wins over ``[global]``. A later value replaces an earlier one, also for lists, as in pip.
(pip documentation, "Configuration".)
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from stackyard.core import secrets
from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.host.files import home

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class PipSettings:
    """The sources of pip packages and the network settings, combined from all configuration.

    `indexes` are in pip's order, the main one first; `find_links` are directories, files or pages. Both are always
    addresses (`core.secrets`), whatever they are made from. `timeout_s` is in seconds, 0 for uv's default. `cert` is a
    CA bundle, `client_cert` a PEM file with certificate and key.
    """

    indexes: tuple[str, ...] = (PYPI,)
    find_links: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    no_index: bool = False
    cert: str = ""
    client_cert: str = ""
    trusted_hosts: tuple[str, ...] = ()
    proxy: str = ""
    timeout_s: int = 0
    pre: bool = False
    prefer_binary: bool = False
    require_hashes: bool = False
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    all_releases: tuple[str, ...] = ()
    only_final: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("indexes", "find_links"):
            places = tuple(secrets.address(place, base=True) for place in getattr(self, name))
            object.__setattr__(self, name, places)

    def compiled(self, name: str) -> bool:
        """Whether `no_binary` forbids wheels of a package."""
        target = canonical(name)
        if target in self.no_binary:
            return True
        return ":all:" in self.no_binary and target not in self.only_binary


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that pip would read, lowest precedence first; ``PIP_CONFIG_FILE=/dev/null`` means none."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    own = Path(environ["HOME"]) if environ.get("HOME") else home.find()
    shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    files = [Path(directory) / "pip" / "pip.conf" for directory in shared.split(":") if directory]
    files.append(Path("/etc/pip.conf"))
    if not (named and Path(named).exists()):
        directories = [own / ".pip"] if own else []
        config = environ.get("XDG_CONFIG_HOME") or (own / ".config" if own else "")
        files += [directory / "pip.conf" for directory in (*directories, *([Path(config) / "pip"] if config else []))]
    prefix = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX") or sys.prefix
    files.append(Path(prefix) / "pip.conf")
    return [*files, *([Path(named)] if named else [])]


def read_config(environ: Mapping[str, str]) -> dict[str, str]:
    """Every option of pip's configuration that is set, by its long name (``extra-index-url``), as text.

    Raises:
        InputError: a file is not in pip's format, with file and line.
    """
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in config_files(environ):
        for section, key, value in _options(path):
            if section in sections and value:
                sections[section][_key(key)] = value
    options = {**sections["global"], **sections["install"]}
    for name, value in environ.items():
        if name.startswith("PIP_") and value:
            options[_key(name[4:])] = value
    return options


def _options(path: Path) -> Iterator[tuple[str, str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"), str(path))
    except OSError:
        return
    except (configparser.Error, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise InputError(
            f"cannot read pip's configuration: {str(error).splitlines()[0]}",
            where=Where(str(path), line),
            hint="`pip config debug` shows the files that pip reads",
        ) from error
    for section in parser.sections():
        for key, value in parser.items(section):
            yield section, key, value


def _key(name: str) -> str:
    key = name.lower().replace("_", "-")
    return {"default-timeout": "timeout", "pypi-url": "index-url"}.get(key, key)
