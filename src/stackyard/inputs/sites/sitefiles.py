"""Additional files named in a site.yaml: checks of every stack, and causes of failures.

Each is a list, read only when needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from stackyard.core.errors import InputError
from stackyard.inputs.models import Check
from stackyard.inputs.reading.base import Model
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.reading.validate import plain, unknown_key, validate
from stackyard.inputs.reading.words import Text
from stackyard.inputs.reading.yamlfile import Document, Node, raise_problems, read_yaml
from stackyard.inputs.stacks.stackfile import CheckItem, named_check


class CheckFile(Model):
    """A file of checks: the list under its one key."""

    checks: tuple[CheckItem, ...] = ()


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class CauseRow(Model):
    """A known cause of failures, in the format of this program's table (`launch/run/causes/rules`)."""

    name: Text
    patterns: tuple[Pattern, ...] = Field((), description="One of them must be found in a line")
    codes: tuple[int, ...] = Field((), description="The exit status must be one of these")
    when: dict[str, Any] = Field({}, description="Facts about the step that must hold: a value, or `>= n`")
    cause: Text
    remedy: Text
    source: Text = ""

    @model_validator(mode="after")
    def checked(self) -> CauseRow:
        """Raise ValueError if nothing identifies the cause."""
        if not (self.patterns or self.codes or self.when):
            raise ValueError("a cause must have one of patterns, codes and when")
        return self


class CauseFile(Model):
    """A file of causes: the list under its one key."""

    causes: tuple[CauseRow, ...] = ()


def load_checks(file: Path) -> tuple[Check, ...]:
    """The checks of a file, in its order, with the absolute paths of their scripts.

    Raises:
        InputError: the file or a script cannot be read, or a check is invalid: all problems at once, each with its
            place.
    """
    document, problems = _listed(file, "checks"), list[InputError]()
    content = validate(CheckFile, plain(document.root), document, problems)
    checks = [named_check(check) for check in content.checks] if content else []
    for index, check in enumerate(checks):
        if not check.script:
            continue
        script = (file.parent / with_home(check.script)).absolute()
        if not os.access(script, os.R_OK):
            where = document.where("checks", index, "script")
            hint = "write a path relative to this file; every account that deploys must be able to read it"
            problems.append(InputError(f"cannot read {script}", where=where, hint=hint))
        checks[index] = check.model_copy(update={"script": str(script)})
    raise_problems(problems)
    return tuple(checks)


def load_causes(file: Path, facts: Collection[str]) -> tuple[CauseRow, ...]:
    """The causes of a file, in its order.

    Args:
        facts: the names that `when` can have.

    Raises:
        InputError: the file cannot be read, or a cause is invalid: all problems at once, each with its place.
    """
    document, problems = _listed(file, "causes"), list[InputError]()
    listed = document.at("causes")
    typed = [("causes", n, "when") for n in range(len(listed.items) if listed else 0)]  # numbers stay numbers, as facts
    content = validate(CauseFile, plain(document.root, typed), document, problems)
    rows = content.causes if content else ()
    for path in [("causes", index, "when", name) for index, row in enumerate(rows) for name in row.when]:
        if path[-1] not in facts:
            problems.append(unknown_key(path, facts, document.key_where(*path)))
    raise_problems(problems)
    return rows


def _listed(file: Path, key: str) -> Document:
    """The document of a file whose root is a list, as the value of one key, which models and places refer to."""
    document = read_yaml(file)
    root = document.root
    if root is None or root.is_null:
        return Document(document.file, document.text, None)
    if root.kind != "sequence":
        hint = f"begin each of the {key} with `- `"
        raise InputError(f"a file of {key} must be a list", where=root.where, hint=hint)
    name = Node("scalar", key, root.where, text=key)
    above = Node("mapping", {key: root.value}, root.where, entries=((name, root),))
    return Document(document.file, document.text, above)
