"""What a script says of the containers of its launches, on their lines, in its head, or by variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from stackyard.launch.request.options import Option, Table, read_options
from stackyard.lint.directives import split_directive
from stackyard.lint.launches import Launch
from stackyard.lint.script import Script
from stackyard.lint.shell.words import command_name
from stackyard.lint.systems import FLAGS, OF_SRUN, SHIFTER, VALUED, WORDS, of_program
from stackyard.lint.systems.base import Bind, Fault, System
from stackyard.lint.tables import SBATCH

if TYPE_CHECKING:
    from stackyard.lint.rules.base import Case  # the rules import this module

_HEAD = Table({**SBATCH.valued, **VALUED}, {**SBATCH.flags, **FLAGS}, SBATCH.optional)


_VARIABLES = {variable: name for system in OF_SRUN for variable, name in system.environment.items()}


@dataclass(frozen=True)
class Given:
    """One option of a system, and where it is: on the launch line, in the head, or in a variable."""

    name: str
    value: str
    line: int
    place: Literal["line", "head", "variable"] = "line"


@dataclass(frozen=True)
class ContainerUse:
    """The container of a launch; `launch` is None for a batch script that is inside itself and starts no ranks."""

    system: System
    line: int
    given: tuple[Given, ...]
    launch: Launch | None = None

    def of(self, meaning: str) -> list[Given]:
        """The options with a meaning, each name once: the line's before the head's before the variables'."""
        return [each for each in self.given if self.system.meanings.get(each.name, "kept") == meaning]

    @property
    def image(self) -> str:
        """The image, as written; empty without one."""
        return next((each.value for each in self.of("image")), "")

    @property
    def workdir(self) -> str:
        """The directory in the image where the program starts; empty: the system's own choice."""
        return next((each.value for each in self.of("workdir")), "")

    @cached_property
    def binds(self) -> tuple[list[tuple[Bind, int]], list[tuple[Fault, int]]]:
        """The host's directories in the image, and what is wrong with them, with their lines."""
        binds, faults = list[tuple[Bind, int]](), list[tuple[Fault, int]]()
        for each in self.of("binds"):
            good, bad = self.system.binds(each.value)
            binds += [(bind, each.line) for bind in good]
            faults += [(fault, each.line) for fault in bad]
        return binds, faults

    @property
    def encloses(self) -> bool:
        """Whether the batch script itself runs in the image."""
        return self.system.encloses and any(each.place == "head" for each in self.given)


def uses(case: Case) -> list[ContainerUse]:
    """The containers of a script's launches, in their order."""
    head = list(_head(case.script))
    found = [use for launch in case.launches if (use := _of_launch(launch, head))]
    if head and not any(each.place == "head" for use in found for each in use.given):
        system = _meant(each.name for each in head) or SHIFTER
        found.append(ContainerUse(system, head[0].line, _own(system, head)))
    return found


def use_of(case: Case, chain: Iterable[Launch]) -> ContainerUse | None:
    """The container around the innermost of nested launches, or the last one without any; None without one."""
    around = {id(launch) for launch in chain}
    return next((use for use in reversed(uses(case)) if not (use.launch and around) or id(use.launch) in around), None)


def _head(script: Script) -> Iterator[Given]:
    for directive in script.directives:
        if directive.state == "read" and script.scheduler == "slurm":
            options = read_options(_HEAD, split_directive(directive.text, "slurm"), all_words=True).options
            yield from (Given(each.name, each.value, directive.line, "head") for each in options if each.name in WORDS)


def _of_launch(launch: Launch, head: list[Given]) -> ContainerUse | None:
    if launch.kind == "container":
        system = of_program(command_name(launch.word))
        outer = launch.ranks_of
        around = _options(outer.reading.options, outer.line) if outer else []
        line = [*_options(launch.reading.options, launch.line), *around]
        if system and system.positional and len(launch.words) > len(launch.program) + 1:
            line.append(Given("image", launch.words[len(launch.words) - len(launch.program) - 1], launch.line))
    elif launch.kind == "srun":
        line = _options(launch.reading.options, launch.line)
        own = [(name, launch.environment[each]) for each, name in _VARIABLES.items() if each in launch.environment]
        variables = [Given(name, one.text, one.line, "variable") for name, one in own if one.exported and one.line]
        head = [*head, *variables]
        system = _meant(each.name for each in (*line, *head))
    else:
        return None
    return ContainerUse(system, launch.line, _own(system, [*line, *head]), launch) if system else None


def _options(options: Iterable[Option], line: int) -> list[Given]:
    return [Given(option.name, option.value, line) for option in options]


def _own(system: System, given: list[Given]) -> tuple[Given, ...]:
    """The options of a system; one on the line hides the same in the head, and that one a variable."""
    places: dict[str, str] = {}
    own = [each for each in given if each.name in system.words]
    return tuple(dict.fromkeys(each for each in own if places.setdefault(each.name, each.place) == each.place))


def _meant(names: Iterable[str]) -> System | None:
    """The system of srun's whose own options these are."""
    every, last = set(names), OF_SRUN[-1]
    other = (system for system in OF_SRUN[:-1] if every & (system.words - last.words))
    return next(other, last if every & last.words else None)
