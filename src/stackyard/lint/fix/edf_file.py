"""Reads the environment definition file (EDF) that a script names: its keys as options of Pyxis on the launch line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.core import toml
from stackyard.core.errors import InputError
from stackyard.inputs.reading.yamlfile import read_text
from stackyard.lint.shell.words import unknown
from stackyard.lint.systems import EDF
from stackyard.lint.systems.base import is_path, meant
from stackyard.lint.systems.pyxis import PYXIS
from stackyard.lint.systems.uses import ContainerUse, Given

_OPENED = replace(
    PYXIS, name=EDF.name, runtime=EDF.runtime,
    meanings={
        **PYXIS.meanings,
        **meant(variables="env", ours="no-container-mount-home no-container-remap-root no-container-entrypoint"),
        "container-writable": "ours",
        **dict.fromkeys(("container-mount-home", "container-remap-root", "container-readonly", "container-env",
                         "container-entrypoint"),
                        "an option of Pyxis that a job with an EDF of its own does not have"),
    },
)  # fmt: skip
_VALUES = {"entrypoint": False, "writable": True}
"""What a job's own EDF has for these keys."""


def opened(use: ContainerUse) -> tuple[ContainerUse, list[str]]:
    """The container with what its EDF says, and why no job can have that."""
    places = [""] if is_path(use.image) else os.environ.get("EDF_PATH", str(Path.home() / ".edf")).split(":")
    files = [Path(place, use.image if not place else f"{use.image}.toml") for place in places]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return use, [f"the EDF {use.image} was not found: lint --fix needs it, for the image and the mounts in it"]
    try:
        values = toml.loads(read_text(file))
        given = [Given(name, _text(value), use.line) for name, value in _options(values)]
    except (InputError, ValueError, RecursionError, TypeError, AttributeError) as error:
        return use, [f"cannot read the EDF {file}: {error}"]
    known = {"image", "workdir", "mounts", "env", "annotations", *_VALUES}
    wrong = [f"{name} in the EDF {file}" for name, value in values.items()
             if name not in known or value != _VALUES.get(name, value)]  # fmt: skip
    own = [each for each in use.given if each.name != "environment"]
    return replace(use, system=_OPENED, given=(*own, *given)), wrong


def _options(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "container-image", values.get("image", "")
    for mount in values.get("mounts", ()):
        yield "container-mounts", mount
    if values.get("workdir"):
        yield "container-workdir", values["workdir"]
    for name, value in values.get("env", {}).items():
        yield "env", f"{name}={value}"
    for name, value in _flat(values.get("annotations", {}), ()):
        yield "annotation", f"{name}={value}"


def _flat(values: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, (*names, name))
        else:
            yield ".".join((*names, name)), value


def _text(value: str) -> str:
    """A string of an EDF: ``${NAME}`` is known at run time, and ``$$`` is a $."""
    return re.sub(r"\$\$|\$\{[^}]*\}", lambda match: "$" if match[0] == "$$" else unknown(match[0]), value)
