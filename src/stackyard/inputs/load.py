"""The entry point of the package: detects the kind of a file and reads it.

A file is recognised by its content; its name decides only if the content fits several kinds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stackyard.core.errors import InputError, Where
from stackyard.inputs import foreign
from stackyard.inputs.conda.environment import KEYS, load_environment
from stackyard.inputs.reading.yamlfile import parse_yaml, read_text

if TYPE_CHECKING:
    from stackyard.inputs.models import Site, Stack

Kind = Literal["stack", "environment", "requirements"]

_YAML_KEY = re.compile(r"^[\"']?(?:[a-z][\w-]*)[\"']?\s*:(?:\s|$)", re.MULTILINE | re.IGNORECASE)
_ENVIRONMENT_ONLY = {"dependencies", "channels", "prefix", "category", "pip-repositories", "allow-pypi-requests"}
_SITE_ONLY = {"nodes", "yard", "user_yard", "pins", "user_paths", "condarc", "stacks", "causes", "profiles"}


def load_stack(path: Path, site: Site, name: str | None = None, version: str | None = None, python: str = "") -> Stack:
    """The stack of a stack.yaml, an environment.yml or a requirements.txt, for a site.

    Args:
        path: the file.
        site: its policy and defaults apply.
        name: the stack's name; else the file's own, else its directory's.
        version: the stack's version; else the file's own, else today's date.
        python: the version of Python for all its variants; empty: as the file says.

    Raises:
        InputError: the file is invalid or of an unknown kind; `ManyErrors` for several problems.
    """
    from stackyard.inputs.stacks.stack import stack_from_environment, stack_from_file

    kind = kind_of(path)
    if kind == "stack":
        return stack_from_file(path, site, name, version, python)
    environment = load_environment(path)
    if kind == "requirements" and not environment.pip:
        raise InputError("no packages in this file", where=Where(str(path)), hint="add at least one package name")
    return stack_from_environment(environment, path, kind, site, name, version, python)


def kind_of(path: Path) -> Kind:
    """The kind of a file, from its content.

    Raises:
        InputError: it cannot be read, belongs to another tool, or is none of the three kinds.
    """
    if path.is_dir():
        raise _is_directory(path)
    text = read_text(path)
    foreign.refuse(path, text)
    if path.suffix.lower() not in (".yml", ".yaml", ".json") and not _looks_like_yaml(text):
        return "requirements"
    root = parse_yaml(text, str(path)).root
    if root is None or root.is_null:
        hint = "write at least `dependencies:` and a list of packages"
        raise InputError("the file is empty", where=Where(str(path)), hint=hint)
    if root.kind != "mapping":
        hint = "begin with `dependencies:` and indent the packages below it, or name the file requirements.txt"
        raise InputError("not a mapping with keys such as `dependencies:`", where=root.where, hint=hint)
    return _kind_of_keys({key.text for key, _ in root.entries}, path)


def _kind_of_keys(keys: set[str], path: Path) -> Kind:
    from stackyard.inputs.stacks.stackfile import StackFile

    foreign.refuse_keys(path, keys)
    if "dependencies" in keys:
        return "environment"
    stack_only = set(StackFile.model_fields) - set(KEYS)
    if keys & stack_only:
        return "stack"
    if keys & _SITE_ONLY and not keys & _ENVIRONMENT_ONLY:
        hint = "pass it with --site, and a stack.yaml or an environment.yml as FILE"
        raise InputError("this is a site.yaml", where=Where(str(path)), hint=hint)
    return "stack" if path.name in ("stack.yaml", "stack.yml") else "environment"


def _looks_like_yaml(text: str) -> bool:
    keys = {match.group().split(":")[0].strip("\"' ") for match in _YAML_KEY.finditer(text)}
    return bool(keys & {*_ENVIRONMENT_ONLY, "name", "versions", "environment", "matrix"})


def _is_directory(path: Path) -> InputError:
    names = ("stack.yaml", "environment.yml", "environment.yaml", "requirements.txt")
    inside = [name for name in names if (path / name).is_file()]
    hint = f"use {path / inside[0]}" if inside else foreign.GIVE
    return InputError(f"{path} is a directory", hint=hint)
