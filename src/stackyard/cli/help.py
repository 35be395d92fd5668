"""The help of a verb: its options in sections, two examples at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import click

from stackyard.cli.commandline import SuggestingGroup

OTHER = "Options"
F = TypeVar("F", bound=Callable[..., Any])


class Decorator(Protocol):
    """The type of decorators returned by click's `option`."""

    def __call__(self, function: F, /) -> F:
        """The function with an additional option."""
        ...


class SectionOption(click.Option):
    """An option that the help shows under a heading."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class LastOption(SectionOption):
    """An option that ends the options, like python's ``-m``: all words after its value belong to the program."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let click's parser read a ``--`` after this option's value."""
        super().add_to_parser(parser, ctx)
        for name in self.opts:
            option = parser._short_opt.get(name) or parser._long_opt[name]
            option.process = partial(_ending, option.process)


def _ending(process: Callable[[Any, Any], None], value: Any, state: Any) -> None:
    process(value, state)
    state.rargs.insert(0, "--")


_TIME = r"(?:([0-9]+)-)?([0-9]*\.?[0-9]+)(?::([0-9]+)(?::([0-9]+))?)?"


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Minutes, or ``[D-]H:MM:SS`` as schedulers write it. ``1:30`` is an hour and a half, as LSF reads it."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Minutes as a number."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(_TIME, str(value))
        if match is None:
            self.fail(f"{value!r} is not a time; expected minutes (90), H:MM (1:30) or D-HH:MM:SS", param, ctx)
        days, first, second, third = (float(part or 0) for part in match.groups())
        is_alone = match[1] is None and match[3] is None
        return days * 1440 + first * (1 if is_alone else 60) + second + third / 60


def options_of(section: str) -> Callable[..., Decorator]:
    """`click.option` for the options of one section."""
    return partial(click.option, cls=SectionOption, section=section)


class Verb(click.Command):
    """A command whose help shows options by section, in the order of their first option, and then `examples`.

    Args:
        examples: what each example does, and its command line.
    """

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, section by section; those without one come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for option in sorted(options, key=lambda option: not isinstance(option, SectionOption)):
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(option, "section", OTHER), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, each a comment and a line to copy."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for does, line in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}# {does}\n")
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def verb(
    *examples: tuple[str, str], group: click.Group | None = None, cls: type[Verb] = Verb, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command whose help ends with these examples, and whose function gets the `cli.context.Context` first.

    Args:
        group: the verb that it is below, if any.
        cls: a kind of verb of its own.
        settings: further arguments of `click.command`.
    """
    make = group.command if group else click.command
    return lambda function: make(cls=cls, examples=examples, **settings)(click.pass_obj(function))


class VerbGroup(Verb, SuggestingGroup):
    """A verb with verbs below it."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, then the verbs."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
