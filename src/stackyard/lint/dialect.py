"""The head of a plug-in's scheduler: its directives and options, which the plug-in supplies as plain data.

`launch.plan.schedulers.directives.DirectiveScheduler` describes the data. Only the one that site.yaml names is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stackyard.core import plugins
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.request.options import Option, Table
from stackyard.lint.tables import HEADS

COUNTS = ("nodes", "tasks", "tasks_per_node", "cpus_per_task", "gpus_per_node", "gpus_per_task")
TEXTS = ("account", "queue", "name")
_MEANINGS = {*COUNTS, *TEXTS, "time", "memory", "array", "output", "value"}
_MINUTES = {"days": 1440, "hours": 60, "minutes": 1, "seconds": 1 / 60}


@dataclass(frozen=True)
class Dialect:
    """The head of one scheduler.

    Attributes:
        kind: the scheduler's name in site.yaml.
        prefix: the beginning of a directive.
        program: the program that reads the directives.
        written: the spelling of each option, by its canonical name: ``l.h_rt`` for ``-l h_rt``.
        meanings: the meaning of each word of its value, by canonical name. Empty: the head is not judged.
        excluding, needing: as for the other schedulers, in `rules.together`.
        time_pattern: a wall time, with the groups days, hours, minutes and seconds.
        index: the placeholder for the array index in the name of an output file.
    """

    kind: str
    prefix: str
    program: str
    written: Mapping[str, str]
    meanings: Mapping[str, tuple[str, ...]]
    excluding: tuple[frozenset[str], ...]
    needing: Mapping[str, frozenset[str]]
    time_pattern: str
    index: str

    @property
    def table(self) -> Table:
        """The options in lint's format."""
        names = {name: words for name, words in self.meanings.items() if "." not in name}
        valued, flags = ({name: name for name, words in names.items() if bool(words) is has} for has in (True, False))
        return Table(valued, flags, style="single", pairs=frozenset(n for n, words in names.items() if len(words) > 1))

    def named(self, meaning: str) -> tuple[str, ...]:
        """The options whose value has this meaning."""
        return tuple(name for name, words in self.meanings.items() if meaning in words)

    def resources(self, option: Option) -> Iterator[Option]:
        """An option; in place of a list, ``-l h_rt=3600,gpu=1``, its known resources and one option with the others."""
        others = list[str]()
        for item in re.split(r"[,/](?=[\w.]+=)", option.value.lstrip("/")):
            name, _, value = item.partition("=")
            if f"{option.name}.{name}" in self.meanings:
                yield Option(f"{option.name}.{name}", option.written, value)
            else:
                others.append(item)
        if others:
            yield Option(option.name, option.written, ",".join(others))

    def lacks(self, option: Option) -> bool:
        """Whether an option has too few words for its value."""
        return bool(option.name) and len(option.value.split()) < len(self.meanings[option.name])

    def minutes(self, text: str) -> float | None:
        """A wall time in minutes; None if the scheduler would reject it."""
        match = re.fullmatch(self.time_pattern, text)
        return sum(int(amount or 0) * _MINUTES[unit] for unit, amount in match.groupdict().items()) if match else None

    def time_option(self, meant: int) -> str:
        """The option for a wall time in minutes, in a form that the scheduler accepts."""
        clock = f"{meant // 60}:{meant % 60:02}"
        forms = (form for form in (f"{clock}:00", clock, f"{meant}", f"{meant * 60}") if self.minutes(form) == meant)
        return self.text(self.named("time")[0], next(forms, "TIME"))

    def text(self, name: str, value: str) -> str:
        """An option and its value, as in a directive."""
        option = self.written[name]
        return f"{option}{'=' if ' ' in option else ' '}{value}" if value else option


def dialect_of(site: Site | None) -> Dialect | None:
    """The head of the scheduler that the site names, if a plug-in has a description of it.

    Raises StackyardError: the plug-in cannot be used, or its description is wrong.
    """
    kind = site.scheduler.kind if site else ""
    plugin = plugins.load("stackyard.schedulers", kind) if kind not in ("", "none", *HEADS) else None
    if plugin is None or not hasattr(plugin.object, "head_options"):
        return None
    with plugins.calling(plugin, "the description of its head"):
        return checked(kind, plugin.object)


def checked(kind: str, scheduler: Any) -> Dialect:
    """The head as the attributes of a scheduler describe it. Raises ValueError: they contradict each other."""
    meanings = {_canonical(text): tuple(words.split()) for text, words in scheduler.head_options.items()}
    excluding = tuple(frozenset(map(_canonical, group)) for group in scheduler.head_excludes)
    needing = {_canonical(one): frozenset(map(_canonical, others)) for one, others in scheduler.head_needs.items()}
    if unknown := {word for words in meanings.values() for word in words} - _MEANINGS:
        raise ValueError(f"head_options has unknown meanings: {', '.join(sorted(unknown))}")
    if lost := frozenset(needing).union(*excluding, *needing.values()) - meanings.keys():
        raise ValueError(f"not in head_options: {', '.join(sorted(lost))}")
    return Dialect(
        kind, scheduler.prefix, scheduler.submit_program, {_canonical(text): text for text in scheduler.head_options},
        meanings, excluding, needing, re.compile(scheduler.time_pattern).pattern, scheduler.index_in_output,
    )  # fmt: skip


def _canonical(option: str) -> str:
    return option.lstrip("-").replace(" ", ".")
