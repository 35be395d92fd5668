"""Reads a YAML file of one model with a format number: a job file, a bindings file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from stackyard.core.errors import InputError
from stackyard.inputs.reading.validate import plain, validate
from stackyard.inputs.reading.yamlfile import raise_problems, read_yaml

ModelType = TypeVar("ModelType", bound=BaseModel)


def load_versioned(
    path: Path,
    model: type[ModelType],
    version: int,
    what: str,
    hint: str,
    fill: Callable[[Any], Any] = lambda data: data,
) -> ModelType:
    """The model of a file whose `format` is `version`.

    Args:
        what: the file in messages, e.g. ``a job file``.
        hint: the hint if it is not a mapping.
        fill: converts the written values, e.g. replaces variables.

    Raises:
        InputError: it cannot be read, is not YAML, or has another format, unknown keys or wrong values: all problems
            at once, each with its place, and for an unknown key the nearest known one.
    """
    document = read_yaml(path)
    if document.root is not None and document.root.kind != "mapping":
        raise InputError(f"{what} must be a mapping", where=document.root.where, hint=hint)
    data = dict(fill(plain(document.root) or {}))
    problems: list[InputError] = []
    number = data.pop("format", None)
    if str(number) != str(version):
        message = "missing key 'format'" if number is None else f"unknown format {number!r}"
        where = document.where("format") if number is not None else document.where()
        problems.append(InputError(message, where=where, hint=f"write format: {version}"))
    parsed = validate(model, data, document, problems)
    raise_problems(problems)
    assert parsed is not None
    return parsed
