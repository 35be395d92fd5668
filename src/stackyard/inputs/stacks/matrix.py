"""The matrix of a stack: its versions times its axes, minus exclusions, plus inclusions.

versions: ["1.6.1", "1.7.0"]            # oldest first
matrix:
  python: ["2.7", "3.6"]                # an axis; a condition after a value may test the version
  accelerator: {"1.7.0": [cuda, none], "*": [cuda]}      # the same, as a table by version
  exclude: [{version: "1.7.0", python: "2.7"}]           # drops every point that matches; a list means any of
  include: [{version: "1.6.1", python: "3.7", variant: py37-test}]      # adds one point
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut, quoted
from stackyard.inputs.reading.validate import among
from stackyard.inputs.reading.yamlfile import Node
from stackyard.inputs.stacks import expand

RESERVED = frozenset(
    {"version", "variant", "name", "revision", "prefix", "ncores", "env", "axis", "if", "then", "else"}
)
_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_POINTS = 1000
"""The most variants of one version: each is solved, built and verified."""
MOST_IN_ALL = 10_000
"""The most variants of all versions of a file."""


@dataclass(frozen=True)
class Point:
    """One version with one value per axis. `variant` is an explicit name, None if derived from the axes."""

    version: str
    axes: Mapping[str, str] = field(default_factory=dict)
    variant: str | None = None
    place: Where = field(default_factory=Where)

    def words(self) -> dict[str, str]:
        """The names for conditions and strings: the axes and the version."""
        return {**self.axes, "version": self.version}


def points(
    matrix: Node | None, versions: Sequence[str], place: Where, problems: list[InputError], known: Sequence[str] = ()
) -> list[Point]:
    """Every point of the matrix, by version as listed, then by axes as written; included points after those of their
    version. Problems are added to the list.

    Args:
        matrix: the ``matrix:`` mapping, or None.
        versions: the versions of the points.
        place: the beginning of the stack, for a stack without a matrix.
        known: further versions that the file has, and that `include` and `exclude` may name.
    """
    if matrix is None or matrix.is_null:
        return [Point(version, {}, None, place) for version in versions]
    if matrix.kind != "mapping":
        problems.append(InputError("matrix: expected a mapping", where=matrix.where, hint="`python: [3.11]`"))
        return []
    axes = {key.text: value for key, value in matrix.entries if key.text not in ("include", "exclude")}
    _check_axes(matrix, axes, problems)
    every = tuple(dict.fromkeys((*versions, *known)))
    slips: list[InputError] = []
    excluded = _rules(matrix.get("exclude"), [*axes, "version"], every, slips)
    rules = _rules(matrix.get("include"), [*axes, "version", "variant"], every, problems)
    included = [point for rule in rules for point in _included(rule, axes, every, problems)]
    products = _products(versions, known, axes, matrix.where, problems)
    problems += slips or _without_effect(excluded, [point for row in products.values() for point in row])
    result: list[Point] = []
    for version in versions:
        result += [point for point in products[version] if not any(_matches(rule, point) for rule in excluded)]
        result += [point for point in included if point.version == version]
    return _unique(result, problems)


def _check_axes(matrix: Node, axes: Mapping[str, Node], problems: list[InputError]) -> None:
    for name in axes:
        key = matrix.key(name)
        if key and (name in RESERVED or not _AXIS.fullmatch(name)):
            hint = "an axis name has letters, digits and _ only, and is none of " + ", ".join(sorted(RESERVED))
            problems.append(InputError(f"matrix: {quoted(name)} cannot be an axis", where=key.where, hint=hint))


def _products(
    versions: Sequence[str], known: Sequence[str], axes: Mapping[str, Node], place: Where, problems: list[InputError]
) -> dict[str, list[Point]]:
    """The points of every version; problems are those of `versions`. Empty if there are too many."""
    products: dict[str, list[Point]] = {}
    count = 0
    for version in (*versions, *known):
        products[version] = _product(version, axes, place, problems if version in versions else [])
        count += len(products[version])
        most = f"{MOST_IN_ALL} variants" if count > MOST_IN_ALL else ""
        most = f"{MOST_POINTS} variants of a version" if len(products[version]) > MOST_POINTS else most
        if most:
            hint = "give fewer values, or list single variants with `include`"
            problems.append(InputError(f"matrix: more than {most}", where=place, hint=hint))
            return {version: [] for version in (*versions, *known)}
    return products


def _product(version: str, axes: Mapping[str, Node], place: Where, problems: list[InputError]) -> list[Point]:
    """The points of one version, truncated if too many; an axis depends on the version and earlier axes."""
    rows: list[dict[str, str]] = [{}] if axes else []
    for name, node in axes.items():
        known = [*axes, "version"]
        longer = (
            {**row, name: value}
            for row in rows
            for value in values(name, node, {**dict.fromkeys(known, ""), **row, "version": version}, problems)
        )
        rows = list(itertools.islice(longer, MOST_POINTS + 1))
        if len(rows) > MOST_POINTS:
            break
    return [Point(version, row, None, place) for row in rows]


def values(axis: str, node: Node, words: Mapping[str, str], problems: list[InputError]) -> list[str]:
    """The values of an axis for the present words (the version, and earlier axes), as written."""
    if node.kind == "mapping":
        chosen = node.get(words["version"]) or node.get("*")
        return values(axis, chosen, words, problems) if chosen and chosen.kind != "mapping" else []
    try:
        branches = expand.conditions(node, words, f"matrix.{axis}")
    except InputError as error:
        problems.append(error)
        return []
    items = branches.items if branches.kind == "sequence" else () if branches.is_null else (branches,)
    for item in items:
        if item.kind != "scalar":
            problems.append(
                InputError(f"matrix.{axis}: a value must be one word", where=item.where, hint="write [a, b]")
            )
    return [item.text for item in items if item.kind == "scalar"]


def _rules(node: Node | None, keys: Sequence[str], versions: Sequence[str], problems: list[InputError]) -> list[Node]:
    """The mappings of ``include`` or ``exclude``, their keys and versions checked."""
    rules = [] if node is None or node.is_null else list(node.items) if node.kind == "sequence" else [node]
    good: list[Node] = []
    for rule in rules:
        if rule.kind != "mapping":
            hint = "write `- {version: ..., python: ...}`"
            problems.append(InputError("matrix: expected a mapping", where=rule.where, hint=hint))
            continue
        good.append(rule)
        for key, value in rule.entries:
            if key.text not in keys:
                hint = among(key.text, keys)
                problems.append(InputError(f"matrix: {quoted(key.text)} is not an axis", where=key.where, hint=hint))
            for wrong in _texts(value) if key.text == "version" else ():
                if wrong not in versions:
                    hint = among(wrong, versions)
                    problems.append(InputError(f"matrix: no such version: {wrong}", where=value.where, hint=hint))
    return good


def _without_effect(rules: Sequence[Node], product: Sequence[Point]) -> list[InputError]:
    """A problem for every ``exclude`` without an effect, which is usually a mistake."""
    hint = "compare its values with those of the axes, or remove it; `exclude` does not affect points of `include`"
    return [
        InputError("matrix: this exclude matches no point", where=rule.where, hint=hint)
        for rule in rules
        if not any(_matches(rule, point) for point in product)
    ]


def _included(rule: Node, axes: Mapping[str, Node], every: Sequence[str], problems: list[InputError]) -> list[Point]:
    """The points that one ``include`` adds: one for each of its versions; `every` has those of the file."""
    version = rule.get("version")
    if version is None and len(every) > 1:
        hint = "add `version:`, one version or a list"
        problems.append(InputError("matrix: an included point must have a version", where=rule.where, hint=hint))
        return []
    for key, value in rule.entries:
        if key.text != "version" and value.kind != "scalar":
            hint = "write one `- {...}` for each of them"
            problems.append(InputError(f"matrix: {cut(key.text)}: expected one value", where=value.where, hint=hint))
    plain = {key.text: value.text for key, value in rule.entries}
    ordered = {axis: plain[axis] for axis in axes if axis in plain}
    return [
        Point(value, ordered, plain.get("variant"), rule.where) for value in (_texts(version) if version else every)
    ]


def _matches(rule: Node, point: Point) -> bool:
    words = point.words()
    return all(words.get(key.text) in _texts(value) for key, value in rule.entries)


def _texts(node: Node) -> list[str]:
    return [item.text for item in node.items] if node.kind == "sequence" else [node.text]


def _unique(candidates: list[Point], problems: list[InputError]) -> list[Point]:
    seen: dict[tuple[str, ...], Point] = {}
    for point in candidates:
        key = (point.version, *(f"{axis}={value}" for axis, value in sorted(point.axes.items())))
        if seen.setdefault(key, point) is not point:
            where = point.place
            problems.append(InputError(f"matrix: the point {', '.join(key)} exists twice", where=where))
    return list(seen.values())
