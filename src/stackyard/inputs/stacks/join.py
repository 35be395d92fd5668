"""Joins parts of stacks and environments: pure functions. Where only one value is possible, the first wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from stackyard.core.errors import InputError, ManyErrors, StackyardError, Where
from stackyard.core.late import dataclass
from stackyard.inputs.models import CondaRequirement, Environment, PipOptions, PipRequirement
from stackyard.inputs.stacks import expand
from stackyard.inputs.stacks.stackfile import BuildBlock, RunBlock, StackFile

T = TypeVar("T")
R = TypeVar("R", CondaRequirement, PipRequirement)


@dataclass(frozen=True)
class Piece:
    """A stack and its imports at one point. `files` are all files that were read, absolute; `collision_places` the
    places of the lines of ``collisions:``."""

    stack: StackFile
    environment: Environment
    files: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    collision_places: Mapping[str, Where] = field(default_factory=dict)


def unique(*parts: Iterable[T]) -> tuple[T, ...]:
    """All parts in order, each value once."""
    return tuple(dict.fromkeys(value for part in parts for value in part))


def problems_of(error: StackyardError) -> list[InputError]:
    """One error, or those in a `ManyErrors`, as a list."""
    errors = error.problems if isinstance(error, ManyErrors) else (error,)
    return [
        problem
        if isinstance(problem, InputError)
        else InputError(problem.message, where=problem.where, hint=problem.hint)
        for problem in errors
    ]


# --------------------------------------------------------------------------- stacks


def joined(own: Piece, imported: Sequence[Piece]) -> Piece:
    """A stack with its imports: environment, variables, build, checks, exceptions, licences and needed modules.

    The stack's own values win over its imports, and an earlier import over a later one. A post script is not
    imported, since it was written for another prefix; a notice reports it.
    """
    if not imported:
        return own
    problems: list[InputError] = []
    pieces = [own, *imported]
    environment = environments([piece.environment for piece in pieces], problems)
    if problems:
        raise problems[0]
    posts = [piece.stack.post for piece in imported if piece.stack.post]
    notices = tuple(f"{post} of an imported stack is not run" for post in posts)
    return Piece(
        stack=_stacks([piece.stack for piece in pieces]),
        environment=environment,
        files=unique(*(piece.files for piece in pieces)),
        notices=unique(*(piece.notices for piece in pieces), notices),
        collision_places=_first(piece.collision_places for piece in pieces),
    )


def _stacks(stacks: Sequence[StackFile]) -> StackFile:
    own = stacks[0]
    modules = [stack.modules for stack in stacks]
    exceptions = [stack.exceptions for stack in stacks]
    return own.model_copy(
        update={
            "variables": _first(variables(stack) for stack in stacks),
            "run": RunBlock(),
            "pip": own.pip.model_copy(
                update={
                    "indexes": _first(stack.pip.indexes for stack in stacks),
                    "torch_backend": next((s.pip.torch_backend for s in stacks if s.pip.torch_backend), ""),
                }
            ),
            "python": next((stack.python for stack in stacks if stack.python), ""),
            "build": _builds([stack.build for stack in stacks]),
            "checks": tuple(check for stack in reversed(stacks) for check in stack.checks),
            "collisions": _first(stack.collisions for stack in stacks),
            "on_host": unique(*(stack.on_host for stack in stacks)),
            "licences": tuple(
                {licence.name: licence for stack in reversed(stacks) for licence in stack.licences}.values()
            ),
            "max_nodes": min((s.max_nodes for s in stacks if s.max_nodes), key=lambda most: most.count, default=None),
            "exceptions": _united(exceptions[0], exceptions, ("imports", "commands", "libraries", "distributions")),
            "modules": _united(modules[0], modules, ("conflict", "depends_on")).model_copy(
                update={"variables": _first(module.variables for module in modules)}
            ),
        }
    )


def variables(stack: StackFile) -> dict[str, str]:
    """The variables that a stack sets: ``variables:`` and ``run: variables:``."""
    return {**stack.variables, **stack.run.variables}


def _builds(builds: Sequence[BuildBlock]) -> BuildBlock:
    tools = {tool.name: tool for build in reversed(builds) for tool in build.tools}
    return builds[0].model_copy(
        update={
            "variables": _first(build.variables for build in builds),
            "tools": tuple(tools.values()),
            "modules": unique(*(build.modules for build in reversed(builds))),
            "packages": _first(build.packages for build in builds),
            "keep": unique(*(build.keep for build in builds)),
        }
    )


def _first(mappings: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Mappings merged; the first one with a key wins."""
    result: dict[str, T] = {}
    for mapping in mappings:
        result = {**mapping, **result}
    return result


def _united(own: Any, models: Sequence[Any], names: Iterable[str]) -> Any:
    return own.model_copy(update={name: unique(*(getattr(model, name) for model in models)) for name in names})


# --------------------------------------------------------------------------- environments


def selected(environment: Environment, axes: Mapping[str, str]) -> Environment:
    """An environment with the conditions on axes resolved; those on the platform are kept for the lock.

    Raises:
        InputError: a condition contains an unknown name.
    """
    return environment.model_copy(
        update={
            "conda": _chosen(environment.conda, axes),
            "pip": _chosen(environment.pip, axes),
            "constraints": _chosen(environment.constraints, axes),
            **_chosen_names(environment, axes),
        }
    )


def _chosen_names(environment: Environment, axes: Mapping[str, str]) -> dict[str, Any]:
    """Channels and variables that apply at a point, and the remaining conditions on the platform."""
    channels = {name: expand.verdict_for(text, axes) for name, text in environment.channel_selectors.items()}
    names = {name: expand.verdict_for(text, axes) for name, text in environment.variable_selectors.items()}
    return {
        "channels": tuple(name for name in environment.channels if channels.get(name) is not False),
        "channel_selectors": {name: text for name, text in channels.items() if isinstance(text, str)},
        "variables": {name: value for name, value in environment.variables.items() if names.get(name) is not False},
        "variable_selectors": {name: text for name, text in names.items() if isinstance(text, str)},
    }


def _chosen(requirements: Iterable[R], axes: Mapping[str, str]) -> tuple[R, ...]:
    rows: list[R] = []
    for requirement in requirements:
        place = requirement.place
        verdict: bool | str = True
        if requirement.selector:
            verdict = expand.verdict_for(requirement.selector, axes, place)
        if verdict is not False:
            condition = verdict if isinstance(verdict, str) else ""
            rows.append(requirement.model_copy(update={"selector": condition}))
    return tuple(rows)


def environments(parts: Sequence[Environment], problems: list[InputError]) -> Environment:
    """Environments merged: all channels and requirements in order, the first value of each variable."""
    if len(parts) == 1:
        return parts[0]
    conditional = [part.channel_selectors for part in parts]
    always = {name for part in parts for name in part.channels if name not in part.channel_selectors}
    return Environment(
        name=next((part.name for part in parts if part.name), None),
        prefix=next((part.prefix for part in parts if part.prefix), None),
        channels=unique(*(part.channels for part in parts)),
        nodefaults=any(part.nodefaults for part in parts),
        conda=_requirements(part.conda for part in parts),
        pip=_requirements(part.pip for part in parts),
        constraints=_requirements(part.constraints for part in parts),
        pip_options=_options([part.pip_options for part in parts], problems),
        variables=_first(part.variables for part in parts),
        channel_selectors={name: text for name, text in _first(conditional).items() if name not in always},
        variable_selectors=_variable_selectors(parts),
        platforms=_platforms([part.platforms for part in parts], problems),
        notices=unique(*(part.notices for part in parts)),
        files=unique(*(part.files for part in parts)),
        channel_places=_first(part.channel_places for part in parts),
        option_places=_first(part.option_places for part in parts),
    )


def _variable_selectors(parts: Sequence[Environment]) -> dict[str, str]:
    """The conditions of the variables, each from the part with its value."""
    owners = {name: part for part in reversed(parts) for name in part.variables}
    return {name: part.variable_selectors[name] for name, part in owners.items() if name in part.variable_selectors}


def _requirements(parts: Iterable[Sequence[R]]) -> tuple[R, ...]:
    """All requirements in order; identical ones from two parts once."""
    seen: dict[tuple[str, str], R] = {}
    for part in parts:
        for requirement in part:
            seen.setdefault(
                (
                    requirement.spec if isinstance(requirement, CondaRequirement) else requirement.line,
                    requirement.selector,
                ),
                requirement,
            )
    return tuple(seen.values())


def _platforms(parts: Sequence[tuple[str, ...]], problems: list[InputError]) -> tuple[str, ...]:
    """The platforms that every part allows; a part without any allows all."""
    named = [part for part in parts if part]
    platforms = tuple(platform for platform in named[0] if all(platform in part for part in named)) if named else ()
    if named and not platforms:
        shown = " and ".join(", ".join(part) for part in named)
        hint = "name a platform in `platforms:` that all parts have"
        problems.append(InputError(f"parts of this stack are for different platforms: {shown}", hint=hint))
    return platforms


def _options(options: Sequence[PipOptions], problems: list[InputError]) -> PipOptions:
    urls = unique(option.index_url for option in options if option.index_url)
    if len(urls) > 1:
        problems.append(
            InputError(
                f"two parts of this stack name different pip indexes: {' and '.join(urls)}",
                hint="name one with --index-url and the others with --extra-index-url",
            )
        )
    flags = ("no_index", "pre", "prefer_binary", "require_hashes")
    lists = ("extra_index_urls", "find_links", "no_binary", "only_binary", "trusted_hosts", "use_features",
             "all_releases", "only_final")  # fmt: skip
    return PipOptions(
        index_url=urls[0] if urls else None,
        **{name: any(getattr(option, name) for option in options) for name in flags},
        **{name: unique(*(getattr(option, name) for option in options)) for name in lists},
    )
