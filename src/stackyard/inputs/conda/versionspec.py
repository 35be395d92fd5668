"""The version part of a conda spec, rewritten so that py-rattler interprets it as conda does.

1.19       ==1.19          (exact)             >=1.2.*     >=1.2
=1.19      1.19.*          (fuzzy)             !=1.2.*     !=1.2.*
1.2*       1.2.*                               1.2|>=2,<3  ==1.2|>=2,<3
"""

from __future__ import annotations

import re

from stackyard.core.quoting import quoted

_OPERATOR = re.compile(r"(==|!=|<=|>=|~=|=|<|>)(?![=<>!~])(.+)", re.DOTALL)
# `>=1.2*` (also what conda makes of `=>1.2`): to conda the star sorts before every release and pre-release of 1.2.
_STARRED = {">": ">=", ">=": ">=", "<": "<", "<=": "<"}
_TOKEN = re.compile(r"[()|,]|[^()|,]+")


class SpecProblem(Exception):
    """A spec or version that conda does not accept or no solver can express; `hint` has an alternative."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def fuzzy_or_exact(version: str, has_build: bool) -> str:
    """Resolve conda's leading ``=``: ``=1.2`` is 1.2 and all below it, ``==1.2`` and ``=1.2=build`` are 1.2 itself.

    Args:
        version: without white space.
        has_build: whether a build follows, which makes a single ``=`` exact.
    """
    if not version.startswith("=") or version in ("=", "=="):
        return version
    bare = version.lstrip("=")
    if version.startswith("==") and not has_build:
        return bare
    if any(char in bare for char in "=,|"):
        return version
    return bare if has_build or bare.endswith("*") else f"{bare}*"


def canonical_version(version: str) -> str:
    """The version in a form that py-rattler parses unambiguously. Raises `SpecProblem`."""
    if version.startswith("^") or version.endswith("$"):
        raise SpecProblem("regular expressions for versions are not supported", "write a range: >=1.2,<1.4")
    pieces = [token if token in "()|," else _one(token) for token in _TOKEN.findall(version)]
    joined = "".join(pieces)
    if re.search(r"(^|[(|,])([)|,]|$)", joined):
        raise SpecProblem("missing version next to `,` or `|`", "write one version on each side: >=1.2,<2")
    return joined


def _one(version: str) -> str:
    if version[0] in "=<>!~":
        return _relation(version)
    if version == "*":
        return version
    if "*" in version:
        return _wildcard(version)
    _check(version)
    return f"=={version}"


def _relation(version: str) -> str:
    match = _OPERATOR.fullmatch(version)
    if not match:
        raise SpecProblem(f"{quoted(version)} lacks a valid operator or a version", "operators: = == != < <= > >= ~=")
    operator, bare = match.groups()
    stem = bare.removesuffix(".*")
    if operator == "~=" and stem != bare:
        raise SpecProblem("`~=` does not allow a wildcard", f"write ~={stem} or {stem}.*")
    if stem == bare and bare.endswith("*") and operator in _STARRED:
        stem, operator = bare.rstrip("*"), _STARRED[operator]
    _check(stem)
    if operator == "=" or (operator == "!=" and stem != bare):
        return f"{'!=' if operator == '!=' else ''}{stem}.*"
    return f"{operator}{stem}"


def _wildcard(version: str) -> str:
    stem = re.sub(r"(\.?\*)+$", "", version)
    if not stem:
        return "*"
    if "*" in stem:
        raise SpecProblem("a wildcard in the middle of a version is not supported", "write a range: >=1.2,<1.4")
    _check(stem)
    return f"{stem}.*"


def _check(version: str) -> None:
    if not re.fullmatch(r"(?:\d+!)?[A-Za-z0-9_.\-]+(?:\+[A-Za-z0-9_.\-]+)?", version):
        hint = (
            "join several with commas: >=1.2,<2" if re.search(r"[<>=!~]", version) else "write a version such as 1.2.3"
        )
        raise SpecProblem(f"{quoted(version)} is not a version", hint)
    if ".." in version or version.endswith(".") or version.startswith("."):
        raise SpecProblem(f"{quoted(version)} has an empty part", "write a version such as 1.2.3")
