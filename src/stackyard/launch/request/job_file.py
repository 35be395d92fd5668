"""A job file: an `Intent` as YAML, which `stackyard submit --job` reads and `stackyard lint --fix` writes.

format: 1
program: [train.py, --epochs, "3"]
nodes: 2
batch:
  time_min: 60
  account: PROJ
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stackyard.inputs.reading.latemodel import LateModel
from stackyard.launch.request.intent import Intent

FORMAT = 1
UNWRAPPED = 1 << 20
"""Columns; a wrapped word of the program would be hard to read, and could end in a blank."""


def load_job(path: Path) -> Intent:
    """Read a job file.

    Raises:
        InputError: the file cannot be read, is not YAML, or has unknown keys or wrong values: all problems at once,
            each with line and column, and for an unknown key the nearest known one.
    """
    from stackyard.inputs.reading.versioned import load_versioned

    return load_versioned(path, Intent, FORMAT, "a job file", "write `key: value` lines")


def job_text(intent: Intent, comments: Sequence[str] = ()) -> str:
    """The job file of an intent: the fields that differ from their defaults, in the order of the model.

    Args:
        comments: lines for the top of the file, without ``#``.
    """
    lines = [f"# {line}".rstrip() + "\n" for comment in comments for line in comment.splitlines()]
    values = _differences(intent.recorded())
    if intent.roles:  # they have the nodes
        values.pop("nodes", None)
    unanswered = "".join(f"  - {json.dumps(line, ensure_ascii=False)}\n" for line in values.pop("unanswered", ()))
    head = f"unanswered:  # submit takes this file once these lines are gone\n{unanswered}" if unanswered else ""
    return "".join(lines) + head + _yaml({"format": FORMAT, **values})


def model_text(model: LateModel, version: int) -> str:
    """A model as YAML, with its format number: the fields that differ from their defaults."""
    return _yaml({"format": version, **_differences(model)})


def _yaml(values: dict[str, Any]) -> str:
    """A mapping in block style; lists in flow style, one line each."""
    from ruamel.yaml import YAML

    writer, stream = YAML(), io.StringIO()
    writer.width = UNWRAPPED
    writer.default_flow_style = False
    writer.dump(_styled(values), stream)
    return stream.getvalue()


def _styled(value: Any) -> Any:
    """A value as ruamel.yaml writes it readably: lists on one line, whole numbers without a fraction."""
    from ruamel.yaml.comments import CommentedSeq

    if isinstance(value, dict):
        return {key: _styled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = CommentedSeq(map(_styled, value))
        items.fa.set_flow_style()
        return items
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _differences(model: LateModel) -> dict[str, Any]:
    """The fields of a model that differ from their defaults; models inside it likewise."""
    values: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value == field.get_default(call_default_factory=True):
            continue
        values[name] = _plain(value)
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return _differences(value) if isinstance(value, LateModel) else value
