"""Explains why a source package does not build, with a remedy. The rules are in sourcefailures.yaml.

Computing the metadata for a lock and compiling the package fail in the same ways, so both use these rules.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from stackyard.core.late import dataclass
from stackyard.core.names import canonical, pip_name
from stackyard.inputs.models import BuildSpec
from stackyard.inputs.stacks.buildinputs import package_build

_LAST_LINES = 25
"""Of the output, in which the exception that ended a build stands."""
_FILLED = re.compile(r"\{(\w+)\}")
_ABSENT = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)'?")
_DISTRIBUTIONS = {
    "pkg_resources": "setuptools<81", "skbuild": "scikit-build", "yaml": "pyyaml", "sklearn": "scikit-learn",
    "PIL": "pillow", "cv2": "opencv-python", "git": "gitpython", "attr": "attrs", "distutils": "setuptools",
    "google": "protobuf", "mesonpy": "meson-python", "dateutil": "python-dateutil", "bs4": "beautifulsoup4",
    "setuptools.command.test": "setuptools<72", "numpy.distutils": "numpy<1.26",
}  # fmt: skip
"""Modules that builds import, and the requirement that brings each; all others are called as their distribution."""
_IN_STACK = frozenset(("torch", "tensorflow", "jax", "jaxlib", "cupy", "mpi4py", "mxnet", "paddle", "petsc4py"))
"""What extensions are compiled against, so that it has to be that of the stack."""
_REMOVED = {"imp": "3.12", "asynchat": "3.12", "smtpd": "3.12", "lib2to3": "3.13", "cgi": "3.13", "pipes": "3.13"}
"""Modules of Python that it no longer has, since a version."""


@dataclass(frozen=True)
class SourceFailure:
    """A cause, as a phrase that follows a colon, and a remedy in the imperative."""

    cause: str
    remedy: str


@dataclass(frozen=True)
class Rule:
    """One row of sourcefailures.yaml; the head of that file describes the fields.

    `in_stack`: the package is compiled in the stack, not in an isolated environment.
    """

    name: str
    cause: str
    patterns: tuple[str, ...] = ()
    remedy: str = ""
    requires: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    in_stack: bool = False


@functools.cache
def rules() -> tuple[Rule, ...]:
    """The rules, in the order in which they are tried."""
    from stackyard.inputs.reading.yamlfile import packaged

    return tuple(_rule(row) for row in packaged(__package__, "sourcefailures.yaml"))


def _rule(row: Mapping[str, Any]) -> Rule:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Rule(**fields)


def explained(output: str, name: str, build: BuildSpec, file: str = "") -> SourceFailure | None:
    """The cause of a failed build and its remedy; None if no rule matches.

    Args:
        output: what the build printed.
        name: the package's name, as in its requirement or archive.
        build: the stack's present build settings, which the remedy extends.
        file: the file with the requirement; build settings can only be in a stack.yaml.
    """
    cause = _absent_module(output, name)
    if cause is None:
        hits = ((rule, re.search(pattern, output)) for rule in rules() for pattern in rule.patterns)
        cause = next(((rule, hit.groupdict()) for rule, hit in hits if hit), None)
    if cause is None:
        return None
    rule, groups = cause
    return _filled(rule, {"name": name, **groups}, build, file)


def _absent_module(output: str, name: str) -> tuple[Rule, dict[str, str]] | None:
    """The rule for a module that the build imports without declaring it, if that was the cause."""
    end = "\n".join([line for line in output.splitlines() if line.strip()][-_LAST_LINES:])
    matches = list(_ABSENT.finditer(end))
    if not matches:
        return None
    module = matches[-1]["module"]
    top = module.partition(".")[0]
    groups = {"module": module, "top": top, "since": _REMOVED.get(top, "")}
    newer = "request a newer version of {name}, or an older Python"
    if top in _REMOVED:
        return Rule(
            "removed", "it imports {top}, which Python no longer has since version {since}", remedy=newer
        ), groups
    if canonical(top) == canonical(name):
        return Rule(
            "itself", "it imports {module} before that is built", remedy="request another version of {name}"
        ), groups
    cause = "it imports {module} while it is built, and does not declare that"
    if top == "pkg_resources":
        cause = "it imports pkg_resources while it is built, which setuptools no longer has since version 82"
    project = _DISTRIBUTIONS.get(module) or _DISTRIBUTIONS.get(top) or canonical(top)
    together = ("setuptools", "wheel") if top in _IN_STACK else ()
    return Rule("undeclared", cause, requires=(*together, project), in_stack=bool(together)), groups


def _filled(rule: Rule, known: Mapping[str, str], build: BuildSpec, file: str) -> SourceFailure:
    def fill(text: str) -> str:
        return _FILLED.sub(lambda match: known.get(match[1]) or match[0], text)

    known = {"top": canonical(known.get("module", "").partition(".")[0]), **known}
    remedies = [fill(rule.remedy)] if rule.remedy else []
    if rule.requires or rule.variables:
        remedies.append(f"{_place(file)} {_typed(rule, known['name'], [*map(fill, rule.requires)], build)}")
    return SourceFailure(fill(rule.cause), ", or ".join(remedies))


def _place(file: str) -> str:
    """The file in which the build settings belong."""
    name = Path(file).name
    if not name or "stack" in name:
        return "write into the stack's file:"
    return f"write a stack.yaml with `environment: {name}` and"


def _typed(rule: Rule, name: str, requires: Sequence[str], build: BuildSpec) -> str:
    """The build settings of a package as YAML, including the existing ones."""
    own = package_build(build, name)
    parts = ["isolation: true"] if (own.isolation if own else not rule.in_stack) else []
    if requirements := _merged(own.requires if own else (), requires):
        parts.append(f"requires: [{', '.join(map(_word, requirements))}]")
    if rule.variables:
        parts.append(f"variables: {{{', '.join(f'{key}: {_word(value)}' for key, value in rule.variables.items())}}}")
    return f"`build: {{packages: {{{name}: {{{', '.join(parts)}}}}}}}`"


def _merged(old: Iterable[str], new: Iterable[str]) -> list[str]:
    added = {pip_name(text): text for text in new}
    return [*(text for text in old if pip_name(text) not in added), *added.values()]


def _word(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z][\w.-]*|-j\d", text) else f'"{text}"'
