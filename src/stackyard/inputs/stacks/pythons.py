"""The Python of a variant: its source, its version, and the consequences for names and pip.

A ``python`` axis, or ``python:`` in the stack, is the version of the interpreter. Where the stack has a conda part that
does not name Python itself, the requirement is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from stackyard.core.errors import InputError, Where
from stackyard.inputs.conda.matchspec import parse_matchspec
from stackyard.inputs.models import Environment, Interpreter, Site
from stackyard.inputs.stacks.stackfile import StackFile

_PINNED = re.compile(r"(?:==?|~=)?\s*(?P<major>\d+)(?:\.(?P<minor>\d+))?(?![\d.]*[,|])")
_BELOW_3 = re.compile(r"<\s*3(\.0+)?\s*$|<=\s*2")


def settle(
    file: StackFile, environment: Environment, axes: Mapping[str, str], site: Site
) -> tuple[Interpreter, Environment, tuple[str, ...]]:
    """The interpreter of one point, its environment with Python added if missing, and notices."""
    wished = axes.get("python") or file.python
    interpreter = file.interpreter.completed(site.interpreter, wished)
    from_conda = interpreter.source == "conda" or (interpreter.source == "auto" and bool(environment.conda))
    if not from_conda or requirement(environment) or not (wished or interpreter.source == "conda"):
        return interpreter, environment, ()
    text = f"python={wished}" if wished else "python"
    added = parse_matchspec(text, Where(), base_dir=Path())
    notice = f"{text} is added to the conda part" if wished else "python is added to the conda part"
    return interpreter, environment.model_copy(update={"conda": (added, *environment.conda)}), (notice,)


def asked(file: StackFile, environment: Environment, version: str) -> tuple[StackFile, Environment, str]:
    """A stack and its environment with the Python that a command names, and a notice about it.

    Raises:
        InputError: the stack has no Python of its own.
    """
    if file.wrap:
        raise InputError("--python: a stack with `wrap` has no Python of its own", hint="leave out --python")
    texts = (package.text.strip() for package in environment.conda if package.name == "python")
    named = next(texts, "") or file.interpreter.version or file.python
    interpreter = file.interpreter.model_copy(update={"version": "", "path": ""})
    changed = file.model_copy(update={"python": version, "interpreter": interpreter})
    conda = tuple(package for package in environment.conda if package.name != "python")
    because = f"in place of {named} in the file" if named else "which the file leaves open"
    return changed, environment.model_copy(update={"conda": conda}), f"--python: Python {version}, {because}"


def requirement(environment: Environment) -> str | None:
    """The Python version that a conda part requires, empty for any; None if it does not name Python."""
    versions = [package.version for package in environment.conda if package.name == "python"]
    return next((version for version in versions if version), versions[0] if versions else None)


def pinned(version: str) -> tuple[str, str]:
    """Major and minor version, if a requirement fixes both; else empty.

    >>> pinned("3.11.*"), pinned("=3.11"), pinned("==3.11.7"), pinned(">=3.9"), pinned("3")
    (('3', '11'), ('3', '11'), ('3', '11'), ('', ''), ('3', ''))
    """
    first = version.split(",", maxsplit=1)[0].strip() if "|" not in version else ""
    match = _PINNED.match(first)
    if match:
        return match["major"], match["minor"] or ""
    return ("2", "") if _BELOW_3.search(version) else ("", "")


def short_name(environment: Environment, interpreter: str) -> str:
    """The name of a variant without axes: ``py311`` where the minor version of Python is pinned, ``py3`` where
    Python is in it and not pinned, ``default`` where it is not. It depends on nothing but the files and the site."""
    version = requirement(environment)
    major, minor = pinned(version or interpreter)
    if version is None and environment.conda and not environment.pip and not interpreter:
        return "default"
    return f"py{major or '3'}{minor}"


def check(
    variant: str, environment: Environment, interpreter: Interpreter, axes: Mapping[str, str], place: Where
) -> None:
    """Raise InputError for an impossible Python: Python 2 with pip packages, or another version than the axis."""
    pin = pinned(requirement(environment) or "")
    wished = pinned(axes.get("python", ""))
    if pin[0] and wished[0] and any(a and w and a != w for a, w in zip(pin, wished, strict=True)):
        message = f"the variant {variant} is for Python {'.'.join(filter(None, wished))}, but its environment requires"
        hint = "write `python={python}` in the environment, or leave it out: it is added"
        raise InputError(f"{message} {'.'.join(filter(None, pin))}", where=place, hint=hint)
    major = pin[0] or pinned(interpreter.version)[0]
    if major == "2" and environment.pip:
        first = environment.pip[0]
        message = (
            f"the variant {variant or 'without a name'} is for Python 2 and has pip packages ({first.text.strip()}"
        )
        message += " ...)" if len(environment.pip) > 1 else ")"
        hint = (
            "uv, which resolves and installs pip packages, does not work with Python 2: take them from a conda channel,"
            " put `# [python != '2.7']` after them, or drop Python 2 with `matrix: exclude:`"
        )
        raise InputError(message, where=first.place if first.place.file else place, hint=hint)
