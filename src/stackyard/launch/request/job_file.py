"""A job file: an `Intent` as YAML, which `stackyard submit --job` takes and `stackyard lint --fix` writes.

format: 1
program: [train.py, --epochs, "3"]
nodes: 2
batch:
  time_min: 60
  account: PROJ
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from stackyard.errors import InputError
from stackyard.launch.request.intent import Intent

FORMAT = 1
_PLAIN = re.compile(r"^[A-Za-z_./][\w./@%+=-]*(?: [\w./@%+=(),-]+)*$")
_RESERVED = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "~"}


def load_job(path: Path) -> Intent:
    """Reads a job file.

    Raises:
        InputError: the file is not there, is no YAML, or has keys or values that a job does not have; all problems at
            once, each with line and column, and the nearest key for one that is misspelt.
    """
    from stackyard.spec.validate import plain, validate
    from stackyard.spec.yamlfile import raise_problems, read_yaml

    document = read_yaml(path)
    if document.root is not None and document.root.kind != "mapping":
        raise InputError("a job is a mapping", where=document.root.where, hint="write `key: value` lines")
    data = dict(plain(document.root) or {})
    problems: list[InputError] = []
    version = data.pop("format", None)
    if str(version) != str(FORMAT):
        said = "the key 'format' is missing" if version is None else f"format {version!r} is not known"
        where = document.where("format") if version is not None else document.where()
        problems.append(InputError(said, where=where, hint=f"write format: {FORMAT}"))
    intent = validate(Intent, data, document, problems)
    raise_problems(problems)
    assert intent is not None
    return intent


def job_text(intent: Intent, comments: Sequence[str] = ()) -> str:
    """The job file of an intent: only what differs from the default, in the order of the model.

    Args:
        comments: lines for the top of the file, without ``#``.
    """
    lines = [f"# {line}".rstrip() for comment in comments for line in comment.splitlines()]
    lines.append(f"format: {FORMAT}")
    lines += _mapping(_differences(intent), "")
    return "\n".join(lines) + "\n"


def _differences(model: BaseModel) -> dict[str, Any]:
    """The fields of a model that are not as by default; models inside it likewise."""
    found: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value == field.get_default(call_default_factory=True):
            continue
        found[name] = _differences(value) if isinstance(value, BaseModel) else value
    return found


def _mapping(values: dict[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{_scalar(key)}:")
            lines += _mapping(value, indent + "  ")
        elif isinstance(value, list | tuple):
            lines.append(f"{indent}{key}: [{', '.join(_scalar(item, flow=True) for item in value)}]")
        else:
            lines.append(f"{indent}{_scalar(key)}: {_scalar(value)}")
    return lines


def _scalar(value: Any, *, flow: bool = False) -> str:
    """A scalar as YAML reads it back: numbers and plain words bare, all else as a JSON string, which is YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    text = str(value)
    bare = _PLAIN.match(text) and text.lower() not in _RESERVED and not (flow and re.search(r"[,\[\]{}]", text))
    return text if (bare and not text.startswith(".")) or (text.startswith("./") and bare) else json.dumps(text)
