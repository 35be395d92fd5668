"""One stack.yaml with its imports, resolved for one point of the matrix.

Paths in a file are relative to the directory of that file, also in an imported file and in the site's file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError, Where
from stackyard.core.late import dataclass
from stackyard.inputs.conda.environment import KEYS, load_environment, parse_environment
from stackyard.inputs.models import Environment
from stackyard.inputs.reading.paths import require_file, with_home
from stackyard.inputs.reading.validate import among, plain, unknown_key, validate
from stackyard.inputs.reading.yamlfile import Document, Node, raise_problems, read_yaml
from stackyard.inputs.stacks import expand, matrix
from stackyard.inputs.stacks import join as joining
from stackyard.inputs.stacks.join import Piece
from stackyard.inputs.stacks.stackfile import Import, StackFile

# The values that name a file, by path; `*` is any one step.
_FILES = (
    ("post",),
    ("wrap", "before"),
    ("checks", "*", "script"),
    ("licences", "*", "text"),
    ("build", "packages", "*", "patches", "*"),
)
# Keys that are not read anew for every point: those of the whole stack, and the environment, which is read apart.
_APART = frozenset({"name", "version", "versions", "matrix", "variant", "default", "environment"})


@dataclass(frozen=True, eq=False)
class Source:
    """A stack.yaml, read and checked. `given` is an additional environment."""

    file: Path
    root: Node
    shape: StackFile
    given: tuple[Environment, ...] = ()

    @property
    def document(self) -> Document:
        """The tree as a document, for the places in it."""
        return Document(str(self.file), "", self.root)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that the file names, oldest first; empty: none."""
        return self.shape.versions or ((self.shape.version,) if self.shape.version else ())

    def points(self, versions: Sequence[str], problems: list[InputError]) -> list[matrix.Point]:
        """The points of its matrix for some versions."""
        return matrix.points(self.root.get("matrix"), versions, self.root.where, problems, self.versions)


def read_source(file: Path) -> Source:
    """Read a stack.yaml and check its structure: all keys and values, in all branches of all conditions.

    Raises:
        InputError: it does not exist or is invalid; all problems at once, each with its place.
    """
    document = read_yaml(file)
    if document.root is None or document.root.kind != "mapping":
        where = document.root.where if document.root else document.where()
        hint = "write `name:`, `version:` and `environment:`; `stackyard schema stack` has all keys"
        raise InputError("a stack must be a mapping", where=where, hint=hint)
    return source_of(file, document.root)


def source_of(file: Path, root: Node, environments: tuple[Environment, ...] = ()) -> Source:
    """A stack from its tree. Raises as `read_source`."""
    whole = expand.everything(root)
    problems: list[InputError] = []
    shape = validate(StackFile, plain(whole), Document(str(file), "", whole), problems, unfilled=True)
    raise_problems(problems)
    assert shape is not None
    return Source(file, root, shape, environments)


@dataclass
class Reader:
    """Creates pieces; reads every file once."""

    problems: list[InputError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = lru_cache(maxsize=None)(read_source)

    def piece(self, source: Source, words: Mapping[str, str], above: tuple[Path, ...] = ()) -> Piece | None:
        """A stack at one point, with all its imports; None if there were problems.

        Args:
            words: the axes, ``version`` and ``name``.
            above: the files that import this one, outermost first.
        """
        before = len(self.problems)
        root = self._resolved(source, words)
        chain = (*above, source.file.resolve())
        data = {key: value for key, value in (plain(root) or {}).items() if key not in _APART}
        stack = validate(StackFile, data, Document(str(source.file), "", root), self.problems)
        environment = self._environment(source, root, words)
        imported = [
            self._import(entry, root, index, words, chain) for index, entry in enumerate(stack.imports if stack else ())
        ]
        if stack is None or len(self.problems) > before:
            return None
        files = tuple(dict.fromkeys((str(source.file), *environment.files, *_named(root))))
        chosen = root.get("collisions")
        places = {key.text: key.where for key, _ in chosen.entries} if chosen else {}
        own = Piece(stack, environment, files, collision_places=places)
        return joining.joined(own, [piece for piece in imported if piece])

    def _resolved(self, source: Source, words: Mapping[str, str]) -> Node:
        """The file's tree with conditions and names resolved and the paths in it absolute."""
        known = {key: value for key, value in words.items() if key != "name"}
        entries: list[tuple[Node, Node]] = []
        for key, value in source.root.entries:
            if key.text in _APART - {"environment"}:
                continue
            try:
                branches = expand.conditions(value, known, key.text, platforms=key.text == "environment")
            except InputError as error:
                self.problems.append(error)
                continue
            present = {name: word for name, word in words.items() if word or name == "name"}
            before = len(self.problems)
            filled = expand.names(branches, present, self.problems, (key.text,))
            if key.text == "environment" and len(self.problems) > before:
                continue  # a spec with an unknown name in it would be reported twice
            entries.append((key, self._absolute(filled, (key.text,))))
        return replace(source.root, entries=tuple(entries))

    def _absolute(self, node: Node, path: tuple[str | int, ...]) -> Node:
        if node.kind == "sequence":
            return replace(node, items=tuple(self._absolute(n, (*path, i)) for i, n in enumerate(node.items)))
        if node.kind == "mapping":
            entries = tuple((key, self._absolute(value, (*path, key.text))) for key, value in node.entries)
            return replace(node, entries=entries)
        if not node.text or not any(expand.under_path(path, pattern, exact=True) for pattern in _FILES):
            return node
        file = _beside(node)
        try:
            require_file(file, "paths are relative to the directory of the file that contains them", node.where)
        except InputError as problem:
            self.problems.append(problem)
        return replace(node, text=str(file), value=str(file))

    def _environment(self, source: Source, root: Node, words: Mapping[str, str]) -> Environment:
        """All environments of a stack, joined, with the conditions on axes resolved."""
        node = root.get("environment")
        items = () if node is None or node.is_null else node.items if node.kind == "sequence" else (node,)
        axes = {key: value for key, value in words.items() if key != "name"}
        environments = list(source.given)
        for item in items:
            try:
                environments.append(self._one_environment(item, axes))
            except StackyardError as error:
                self.problems += joining.problems_of(error)
        selected = [joining.selected(environment, axes) for environment in environments]
        return joining.environments(selected, self.problems)

    def _one_environment(self, item: Node, axes: Mapping[str, str]) -> Environment:
        if item.kind == "mapping":
            raise_problems(
                [unknown_key(("environment", k.text), KEYS, k.where) for k, _ in item.entries if k.text not in KEYS]
            )
            return parse_environment(item, Path(item.where.file).parent, axes=axes)
        if item.kind == "scalar" and item.text:
            file = _beside(item)
            require_file(file, "name an environment.yml or a requirements.txt next to this file", item.where)
            return load_environment(file, axes=axes)
        hint = "write the keys of an environment.yml, or the path of a file"
        raise InputError("environment: expected a mapping or a path", where=item.where, hint=hint)

    def _import(
        self, item: Import, root: Node, index: int, words: Mapping[str, str], chain: tuple[Path, ...]
    ) -> Piece | None:
        node = root.get("imports")
        place = (node.child(index) or node).where if node else root.where
        try:
            file = Path(os.path.realpath(Path(place.file).parent / item.file))
            if file in chain:
                shown = " imports ".join(path.name for path in (*chain[chain.index(file) :], file))
                raise InputError(f"imports: {shown}", where=place, hint="remove one import of the cycle")
            require_file(file, "name a stack.yaml, relative to the directory of this file", place)
            source = self.source(file)
            return self.piece(source, self._words_for(source, item, words, place), chain)
        except StackyardError as error:
            self.problems += joining.problems_of(error)
            return None

    def _words_for(self, source: Source, item: Import, words: Mapping[str, str], place: Where) -> dict[str, str]:
        """The point for an imported stack: the importer's axes, and its own version."""
        version = _imported_version(source, item, words["version"], place)
        points = source.points([version], self.problems)
        own = {
            axis: list(dict.fromkeys(point.axes.get(axis, "") for point in points))
            for axis in joining.unique(*(point.axes for point in points))
        }
        known = {key: value for key, value in words.items() if key not in ("version", "name")}
        for axis, values in own.items():
            if axis not in known and len(values) == 1:
                known[axis] = values[0]
            elif known.get(axis) not in values:
                message = f"{source.file.name} has {axis} {', '.join(values)}, not {known.get(axis, 'without a value')}"
                hint = f"name the axis {axis} in this stack's matrix with these values"
                raise InputError(message, where=place, hint=hint)
        return {**known, "version": version, "name": source.shape.name or source.file.parent.name}


def _imported_version(source: Source, item: Import, version: str, place: Where) -> str:
    versions = source.versions
    if item.version and versions and item.version not in versions:
        message = f"no such version of {source.file.name}: {item.version}"
        raise InputError(message, where=place, hint=among(item.version, versions))
    if item.version or len(versions) < 2:
        return item.version or (versions[0] if versions else version)
    if version in versions:
        return version
    hint = f"write `- {{file: {item.file}, version: {versions[-1]}}}`"
    message = f"{source.file.name} has the versions {', '.join(versions)}: choose one"
    raise InputError(message, where=place, hint=hint)


def _beside(node: Node) -> Path:
    """The file that a value names, relative to the directory of the value's file."""
    return (Path(node.where.file).parent / with_home(node.text)).absolute()


def _named(node: Node, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """All files named in a resolved tree."""
    for key, value in node.entries:
        yield from _named(value, (*path, key.text))
    for index, item in enumerate(node.items):
        yield from _named(item, (*path, index))
    if node.kind == "scalar" and node.text and any(expand.under_path(path, pattern, exact=True) for pattern in _FILES):
        yield node.text
