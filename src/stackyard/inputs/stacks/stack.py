"""Creates a `Stack` from a file: all variants of its matrix, complete, with all problems reported at once.

An environment.yml or a requirements.txt is handled like a stack.yaml: it is a stack with one variant and nothing but
an environment, so the site's values for every stack apply to it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from stackyard.core import grammar
from stackyard.core.errors import InputError, Where
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.core.quoting import quoted
from stackyard.host.machine.platforms import BUILT_FOR
from stackyard.host.run import clock
from stackyard.inputs.models import (
    BuildSpec,
    CheckExceptions,
    Environment,
    Interpreter,
    PipRequirement,
    Site,
    Stack,
    Variant,
    Wrap,
)
from stackyard.inputs.reading.validate import among
from stackyard.inputs.reading.yamlfile import Node, raise_problems
from stackyard.inputs.sites.site import merged
from stackyard.inputs.stacks import join as joining
from stackyard.inputs.stacks import naming, pieces, pythons
from stackyard.inputs.stacks.join import Piece
from stackyard.inputs.stacks.matrix import Point
from stackyard.inputs.stacks.pieces import Reader, Source
from stackyard.inputs.stacks.stackfile import StackFile, named_check
from stackyard.yard.kinds.table import refusal


def stack_from_file(
    path: Path, site: Site, name: str | None = None, version: str | None = None, python: str = ""
) -> Stack:
    """The stack of a stack.yaml, for a site.

    Args:
        python: the version of Python for all its variants; empty: as the file says.
        name: replaces the file's ``name:``; without both it is the name of the file's directory.
        version: one of the file's ``versions:``, or the version where the file names one or none; without both it is
            the date of today, ``YYYY.MM.DD``.

    Raises:
        InputError: the file or a file that it refers to is invalid; all problems at once, each with its place.
    """
    file = path.absolute()
    source = pieces.read_source(file)
    source = pieces.source_of(file, merged(source.root, site))
    return _Maker(source, site, name, version, "stack", python).stack()


def stack_from_environment(
    environment: Environment,
    path: Path,
    kind: Literal["environment", "requirements"],
    site: Site,
    name: str | None = None,
    version: str | None = None,
    python: str = "",
) -> Stack:
    """The stack of an environment.yml or a requirements.txt: one variant, named after the requested Python.

    Args:
        environment: the parsed file.
        name: the stack's name; else the file's ``name:``, else the name of its directory.
        version: the version; else the date of today, ``YYYY.MM.DD``.
        python: the version of Python; empty: as the file says.

    Raises:
        InputError: it cannot be deployed, e.g. Python 2 with a pip part.
    """
    file = path.absolute()
    root = merged(Node("mapping", {}, Where(file=str(file), line=1, column=1)), site)
    source = pieces.source_of(file, root, (environment,))
    return _Maker(source, site, name or environment.name, version, kind, python).stack()


@dataclass
class _Maker:
    """Creates the stack of one source; collects problems."""

    source: Source
    site: Site
    asked_name: str | None
    asked_version: str | None
    kind: Literal["stack", "environment", "requirements"]
    asked_python: str = ""
    reader: Reader = field(default_factory=Reader)

    @property
    def problems(self) -> list[InputError]:
        return self.reader.problems

    def stack(self) -> Stack:
        shape = self.source.shape
        wished = self.asked_name or shape.name or self.source.file.resolve().parent.name or "environment"
        name = naming.safe(wished)
        notices = () if name == wished else (f"the name {quoted(wished)} becomes {quoted(name)}, a valid module name",)
        if not name:
            raise InputError(
                f"{quoted(wished)} is not a valid module name", hint=f"pass one with --name: {grammar.LABEL.hint}"
            )
        versions, dated = self._versions()
        points = self.source.points(versions, self.problems)
        raise_problems(self.problems)
        if not points:
            raise InputError(
                "the matrix is empty: all points are excluded",
                where=self.source.root.where,
                hint="check its `exclude:`",
            )
        pairs = [self._variant(name, point, notices) for point in points]
        self._check_indexes([variant for variant, _ in pairs if variant], [piece for _, piece in pairs if piece])
        raise_problems(_distinct(self.problems))
        variants = tuple(variant for variant, _ in pairs if variant)
        naming.check_claims(name, self.site, variants)
        self._check_default(shape, variants)
        return Stack(
            name=name,
            summary=variants[-1].summary,
            variants=variants,
            default=shape.default,
            kind=self.kind,
            file=str(self.source.file),
            dated=dated,
        )

    def _versions(self) -> tuple[tuple[str, ...], bool]:
        """The versions to create, and whether the only one is the date."""
        named = self.source.versions
        requested = self.asked_version
        if requested and len(named) > 1 and requested not in named:
            at = self.source.document.where("versions")
            raise InputError(f"no such version: {requested}", where=at, hint=among(requested, named))
        versions = (requested,) if requested else named
        for version in versions:
            if naming.safe(version) != version:
                key = "versions" if self.source.shape.versions else "version"
                written = None if requested else self.source.document.where(key)
                hint = "use letters, digits, and . _ + - in a version"
                raise InputError(f"{quoted(version)} is not a valid module version", where=written, hint=hint)
        return (versions, False) if versions else ((clock.today().strftime("%Y.%m.%d"),), True)

    def _variant(self, stack: str, point: Point, notices: tuple[str, ...]) -> tuple[Variant | None, Piece | None]:
        words = {**self._no_axes(), **point.words(), "name": stack}
        piece = self.reader.piece(self.source, words)
        if piece is None:
            return None, None
        try:
            return self._made(stack, point, piece, notices), piece
        except InputError as error:
            self.problems.append(error)
            return None, None

    def _made(self, stack: str, point: Point, piece: Piece, notices: tuple[str, ...]) -> Variant:
        file, of_file, notes = piece.stack, piece.environment, piece.notices
        if self.asked_python:
            file, of_file, note = pythons.asked(file, of_file, self.asked_python)
            notes = (*notes, note)
        place = point.place if point.place.file else self.source.root.where
        interpreter, environment, added = self._interpreter(file, of_file, point, place)
        # a name from what differs among the variants, and nothing empty is published
        name = self._name(point, environment, file, interpreter.version)
        nothing = not (environment.conda or environment.pip or file.modules.variables or file.base or file.wrap)
        if self.kind == "stack" and nothing:
            hint = "name packages in `environment:`, or stacks in `imports:`; or `modules: variables:`, for these alone"
            raise InputError(f"the variant {name or point.version} has no packages", where=place, hint=hint)
        pythons.check(name, environment, interpreter, point.axes, place)
        platforms, dropped = _platforms(file.platforms or environment.platforms, place)
        return Variant(
            stack=stack,
            version=point.version,
            name=name,
            on=file.base,
            axes=dict(point.axes),
            summary=file.summary,
            environment=_indexed(environment, file.pip.indexes),
            interpreter=interpreter,
            torch_backend=file.pip.torch_backend,
            run_variables=joining.variables(file),
            build=BuildSpec(**{key: getattr(file.build, key) for key in BuildSpec.model_fields}),
            post=file.post,
            image=file.image,
            wrap=Wrap(**{key: getattr(file.wrap, key) for key in Wrap.model_fields}) if file.wrap else None,
            on_host=file.on_host,
            checks=tuple(named_check(check) for check in file.checks),
            exceptions=self._exceptions(file),
            licences=file.licences,
            max_nodes=file.max_nodes,
            modules=file.modules,
            collisions=file.collisions,
            collision_places=dict(piece.collision_places),
            platforms=platforms,
            notices=joining.unique(notices, environment.notices, notes, added, dropped),
            files=piece.files,
            place=place,
        )

    def _interpreter(
        self, file: StackFile, of_file: Environment, point: Point, place: Where
    ) -> tuple[Interpreter, Environment, tuple[str, ...]]:
        """The base's own interpreter, none for wrapped commands, else as the file and the site say; and notes."""
        if file.base:
            if file.wrap and (why := refusal("container", "wrapped", on_base=True)):
                raise InputError(why, where=place, hint="make two stacks of it")
            _check_layer(file, of_file, place)
            return file.interpreter, of_file, ()
        if file.wrap:  # no Python of ours: without packages conda's is none
            _check_wrap(file, of_file, place)
            return Interpreter(source="conda"), of_file, ()
        return pythons.settle(file, of_file, point.axes, self.site)

    def _name(self, point: Point, environment: Environment, file: StackFile, python: str) -> str:
        """The variant's name: from the matrix, or without one from the Python."""
        if point.variant is not None:
            return naming.safe(point.variant)
        template = self.source.shape.variant
        if file.base and not point.axes and not template:
            return ""  # that of the base
        if point.axes or template:
            try:
                return naming.variant_name({**self._no_axes(), **point.axes}, template)
            except InputError as error:
                at = self.source.document.where("variant")
                raise InputError(error.message, where=at, hint=error.hint) from error
        return "" if file.wrap else pythons.short_name(environment, python)

    def _exceptions(self, file: StackFile) -> CheckExceptions:
        """The exceptions of the file. Other tools' files do not tell which commands matter, so none is required."""
        if file.exceptions.broken_commands:
            return file.exceptions
        usual = "fail" if self.kind == "stack" else "warn"
        return file.exceptions.model_copy(update={"broken_commands": usual})

    def _no_axes(self) -> dict[str, str]:
        """Every axis of the matrix without a value, for points that lack some."""
        matrix = self.source.root.get("matrix")
        return {key.text: "" for key, _ in matrix.entries if key.text not in ("include", "exclude")} if matrix else {}

    def _check_indexes(self, variants: Iterable[Variant], checked: Iterable[Piece]) -> None:
        """Check that packages tied to an index are requirements of the stack."""
        tied = dict.fromkeys(package for piece in checked for package in piece.stack.pip.indexes)
        named = {canonical(requirement.name) for variant in variants for requirement in variant.environment.pip}
        if self.problems:
            return
        for package in tied:
            if canonical(package) not in named:
                at = self.source.document.key_where("pip", "indexes", package)
                hint = among(package, named) if named else "add it to the pip packages of the environment"
                message = f"pip.indexes: {package} is not a pip requirement of this stack"
                self.problems.append(InputError(message, where=at, hint=hint))

    def _check_default(self, shape: StackFile, variants: Sequence[Variant]) -> None:
        names = {variant.name for variant in variants}
        if shape.default and shape.default not in names:
            at = self.source.document.where("default")
            raise InputError(f"no such variant: {shape.default}", where=at, hint=among(shape.default, names))


def _check_layer(file: StackFile, environment: Environment, place: Where) -> None:
    """Raise InputError for settings that a layer cannot have: its own Python, an image form."""
    if file.python or file.interpreter != Interpreter() or pythons.requirement(environment) is not None:
        hint = "remove it; or choose a base with that Python"
        raise InputError("a stack with a `base:` has the Python of its base", where=place, hint=hint)
    if why := refusal(file.image, "built", on_base=True):
        raise InputError(why, where=place, hint="remove `image:`; its base may be an image")


def _check_wrap(file: StackFile, environment: Environment, place: Where) -> None:
    """Raise InputError for settings that a wrapped image cannot have: its own packages or files."""
    if environment.conda or environment.pip or file.post or file.on_host or file.image != "prefix":
        hint = "make two stacks of it: what is wrapped has only the image's files"
        text = "a stack with `wrap` cannot have `environment`, `post`, `on_host` or `image`"
        raise InputError(text, where=place, hint=hint)


def _indexed(environment: Environment, indexes: Mapping[str, str]) -> Environment:
    """The environment with the index of each tied package on its requirement."""
    if not indexes:
        return environment
    tied = {canonical(package): url for package, url in indexes.items()}

    def with_index(requirement: PipRequirement) -> PipRequirement:
        return requirement.model_copy(update={"index": tied.get(canonical(requirement.name), requirement.index)})

    return environment.model_copy(update={"pip": tuple(with_index(requirement) for requirement in environment.pip)})


def _platforms(named: tuple[str, ...], place: Where) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The supported platforms, and a notice about the others."""
    platforms = tuple(platform for platform in named if platform in BUILT_FOR)
    other = ", ".join(platform for platform in named if platform not in BUILT_FOR and platform != "noarch")
    if named and not platforms:
        hint = f"stacks can be built for {', '.join(BUILT_FOR)}"
        raise InputError(f"unsupported platform: only for {other or 'noarch'}", where=place, hint=hint)
    return platforms, ((f"not built for {other}",) if other else ())


def _distinct(problems: Sequence[InputError]) -> list[InputError]:
    """The problems without duplicates: the variants of a stack share most of their file."""
    return list({(problem.where, problem.message): problem for problem in problems}.values())
