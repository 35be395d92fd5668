"""Help texts: options in sections, two examples that parse, and quick to print."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from stackyard.cli.main import VERBS, cli
from support.cli import imported, stackyard

HEAVY = ("pydantic", "ruamel.yaml", "rattler", "rich", "ssl", "socket", "stackyard.core.secrets")


def verbs(group: click.Group = cli, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every verb with its words, also those below `runs`."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from verbs(command, *before, name)


VERB = dict(verbs())
EXAMPLES = [(words, line) for words, command in VERB.items() for _, line in getattr(command, "examples", ())]


def test_every_verb_has_two_examples() -> None:
    assert {words[0] for words in VERB} == set(VERBS)
    few = [words for words, command in VERB.items() if not 2 <= len(getattr(command, "examples", ())) <= 4]
    assert not few


@pytest.mark.parametrize(("words", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_examples_are_command_lines_of_their_verb(words: tuple[str, ...], line: str) -> None:
    argv = shlex.split(line.partition(" | ")[0].partition(" > ")[0])
    command = VERB[words]
    assert argv[0] == "stackyard" and (tuple(argv[1 : 1 + len(words)]) == words or words == ("runs",))
    rest = argv[1 + len(words) :]
    if isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command, rest = VERB[(*words, rest[0])], rest[1:]
    command.make_context(line, rest, resilient_parsing=False)


@pytest.mark.parametrize("verb", ["launch", "submit", "explain"])
def test_options_of_a_job_come_in_sections(verb: str) -> None:
    text = stackyard(verb, "--help").out
    titles = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Layout", "Program", "Scheduler", "Checks", "Output", "Options", "Examples"]
    assert text.index("--ranks-per-node") < text.index("Program:") < text.index("--backend") < text.index("--account")


@pytest.mark.parametrize("words", [("--version",), ("launch", "--help"), ("list",), ("runs",)], ids=" ".join)
def test_starting_is_light(words: tuple[str, ...]) -> None:
    assert imported(*words, among=HEAVY) == []
