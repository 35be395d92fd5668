"""Begins a stack.yaml with the file of another tool in a directory: its name, its version, and what it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stackyard.core import toml
from stackyard.core.errors import InputError
from stackyard.init.text import COLUMN, Quoted, as_comment, line, unknown
from stackyard.inputs.reading.yamlfile import read_yaml
from stackyard.yard import disk
from stackyard.yard.write import atomic

STARTS = ("environment.yml", "environment.yaml", "requirements.txt", "pyproject.toml")
"""In the order in which one is chosen where several lie."""
_MOST_BYTES = 1 << 20
_HEAD = """\
# Stack file of Stackyard, as `stackyard init --stack` began it with {name}. Edit it: docs/reference/stack.md and
# `stackyard schema stack` have all keys, `stackyard show --parsed` shows how it is read, `stackyard deploy` builds it.
"""


def found(directory: Path) -> str:
    """The name of the file with which a stack.yaml can begin there; empty: there is none."""
    return next((name for name in STARTS if (directory / name).is_file() and _is_one(directory / name)), "")


def begun(directory: Path) -> str:
    """The text of a stack.yaml that begins with that file.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    name = found(directory)
    if not name:
        raise InputError(
            f"nothing in {directory} to begin a stack.yaml with",
            hint=f"it begins with {', '.join(STARTS[:-1])} or {STARTS[-1]}; change to their directory",
        )
    lines = _of_project(directory, name) if name == STARTS[-1] else _of_list(directory, name)
    return "\n".join((_HEAD.format(name=name), *lines)) + "\n"


def keep(file: Path, text: str) -> None:
    """Write it.

    Raises:
        InputError: there is a file of that name already.
    """
    if os.path.lexists(file):
        raise InputError(f"{file} is there already", hint="edit it, or write another: stackyard init --stack -o FILE")
    atomic.write_text(file, text)


def _is_one(path: Path) -> bool:
    """Whether a pyproject.toml describes a project: many have the settings of tools only. Other files always do."""
    return path.name != STARTS[-1] or bool({"project", "build-system"}.intersection(_read(path)))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return toml.loads(disk.of_anybody(path, _MOST_BYTES)[0].decode("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint="correct it, or move it away") from error


def _of_list(directory: Path, name: str) -> Iterator[str]:
    """An environment.yml or a requirements.txt, which the stack names as it is."""
    own = read_yaml(directory / name).at("name") if name.startswith("environment") else None
    yield from _names(directory, own.value if own else "", "", name)
    yield line(0, "environment", name, "read at each deploy")
    yield _checks("")


def _of_project(directory: Path, name: str) -> Iterator[str]:
    """A Python project: it is built, and installed with what it requires."""
    project = _table(_read(directory / name), "project")
    yield from _names(directory, project.get("name"), project.get("version"), name)
    told = f"told by {name}: {project['requires-python']}" if "requires-python" in project else "of one's choice"
    yield unknown(0, "matrix", '{python: ["3.11", "3.12"]}', told)
    yield "environment:\n  dependencies:\n    - pip:"
    yield f"{'        - .'.ljust(COLUMN)}# this project, with what it requires"
    for extra, needs in _table(project, "optional-dependencies").items():
        if re.fullmatch(r"[\w.-]+", extra):
            what = ", ".join(map(str, needs)) if isinstance(needs, list) else ""
            yield f"{f'        # - .[{extra}]'.ljust(COLUMN - 1)} # in its place, with this extra: {as_comment(what)}"
    yield _checks(str(project.get("name", "")))


def _names(directory: Path, name: Any, version: Any, file: str) -> Iterator[str]:
    if own := _word(name):
        yield line(0, "name", own, f"told by {file}")
    else:
        yield line(0, "name", _word(directory.resolve().name) or "mine", "assumed: the name of this directory")
    if number := _word(version):
        yield line(0, "version", Quoted(number), f"told by {file}")
    else:
        yield unknown(0, "version", '"1.0"', "not told: the day of the deploy")


def _checks(name: str) -> str:
    module = re.sub(r"\W", "_", name) or "NAME"
    check = f"[{{name: it is imported, run: python -c 'import {module}'}}]"
    return unknown(0, "checks", check, "what must succeed before it is published")


def _word(value: Any) -> str:
    """A name or a version as a module can have it; empty where there is none."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", value).strip("-.+") if isinstance(value, str) else ""


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The table of a key, or an empty one."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}
