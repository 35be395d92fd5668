"""Write the man pages in docs/man from the commands' own help texts: stackyard(1), and one for each verb.

They are data of the wheel (``share/man/man1``). ``--check`` compares only: a test runs it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from completions import whole

from stackyard.cli.help import OTHER
from stackyard.cli.main import SECTIONS, VERBS, cli

TARGET = Path(__file__).parents[1] / "docs" / "man"
STATUS = [
    ("0", "done"),
    ("1", "it failed; the message names the cause"),
    ("2", "the command line or a file is wrong; the message names file, line and what to do"),
    ("3", "a check did not pass"),
    ("4", "something needed is missing on this machine"),
]
ENVIRONMENT = [
    ("STACKYARD_HOME", "the yard to use; else the site's user_yard, else stackyard in $XDG_DATA_HOME (~/.local/share)"),
    ("STACKYARD_SITE", "the site's file; else /etc/stackyard/site.yaml, else stackyard/site.yaml in $XDG_CONFIG_HOME"),
]


def escaped(text: str) -> str:
    """Text as roff shows it: its own letters, hyphens that can be copied, no requests."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in plain.splitlines())


def words(text: str) -> str:
    """A sentence: what is in backquotes is bold."""
    lines = textwrap.fill(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)
    parts = escaped(lines).split("`")
    return "".join(part if number % 2 == 0 else f"\\fB{part}\\fR" for number, part in enumerate(parts))


def paragraphs(text: str) -> Iterator[str]:
    """A help text, paragraph by paragraph; one that begins with click's ``\\b`` keeps its lines."""
    for part in textwrap.dedent(text.expandtabs()).strip().split("\n\n"):
        yield ".PP"
        if part.lstrip().startswith("\b"):
            kept = textwrap.dedent(part.split("\b", 1)[1].strip("\n"))
            yield f".nf\n{escaped(kept)}\n.fi"
        else:
            yield words(part)


def listed(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Terms, each with its text indented below it."""
    for term, text in rows:
        yield f".TP\n\\fB{escaped(term)}\\fR\n{words(text) or '.br'}"


def options(command: click.Command, context: click.Context, level: str = ".SH") -> Iterator[str]:
    """The options under the headings that ``--help`` has."""
    sections: dict[str, list[tuple[str, str]]] = {}
    own = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    for option in sorted(own, key=lambda option: not hasattr(option, "section")):
        if record := option.get_help_record(context):
            sections.setdefault(getattr(option, "section", OTHER), []).append(record)
    for title, records in sections.items():
        yield f"{level} {title.upper() if level == '.SH' else f'{chr(34)}{title}{chr(34)}'}"
        yield from listed(records)


def usage(command: click.Command, context: click.Context) -> str:
    """The line of the synopsis."""
    return f"\\fB{escaped(context.command_path)}\\fR {escaped(' '.join(command.collect_usage_pieces(context)))}"


def examples(command: click.Command) -> Iterator[str]:
    """The examples of a help, each a line with what it does above it."""
    for does, line in getattr(command, "examples", ()):
        yield f".PP\n{words(does)}:\n.PP\n.nf\n.RS 4\n{escaped(line)}\n.RE\n.fi"


def below(group: click.Group, context: click.Context) -> Iterator[str]:
    """The commands of a verb that has some, each with its options."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield f'.SH "{escaped(inner.command_path).upper()}"\n.PP\n{usage(command, inner)}'
        yield from paragraphs(command.help or "")
        yield from options(command, inner, ".SS")
        if getattr(command, "examples", ()):
            yield from ('.SS "Examples"', *examples(command))


def page(name: str, summary: str, parts: Sequence[str], others: Sequence[str]) -> str:
    """A whole page.

    Args:
        parts: what is between NAME and SEE ALSO.
        others: the pages that SEE ALSO names.
    """
    head = [f'.\\" Made by scripts/man_pages.py; do not edit.\n.TH {name.upper()} 1 "" Stackyard "Stackyard manual"']
    also = ",\n".join(f".BR {escaped(other)} (1)" for other in others)
    named = f".SH NAME\n{escaped(name)} \\- {escaped(summary)}"
    return "\n".join([*head, named, *parts, f".SH SEE ALSO\n{also}"]) + "\n"


def of_verb(verb: str, parent: click.Context) -> str:
    """The page of a verb."""
    real = cli.get_command(parent, verb)
    assert real is not None
    command = whole(real, parent)
    context = click.Context(command, info_name=verb, parent=parent)
    parts = [f".SH SYNOPSIS\n{usage(real, click.Context(real, info_name=verb, parent=parent))}", ".SH DESCRIPTION"]
    parts += [*paragraphs(real.help or ""), *options(real, click.Context(real, info_name=verb, parent=parent))]
    if getattr(real, "examples", ()):
        parts += [".SH EXAMPLES", *examples(real)]
    if isinstance(command, click.Group):
        parts += below(command, context)
    near = next(verbs for verbs in SECTIONS.values() if verb in verbs)
    return page(f"stackyard-{verb}", VERBS[verb], parts, ["stackyard", *(f"stackyard-{v}" for v in near if v != verb)])


def of_program(context: click.Context) -> str:
    """The page stackyard(1)."""
    parts = [f".SH SYNOPSIS\n{usage(cli, context)}", ".SH DESCRIPTION", *paragraphs(cli.help or "")]
    parts.append(words("Each command has a page of its own, such as `stackyard-deploy`(1)."))
    parts += options(cli, context)
    parts.append(".SH COMMANDS")
    for title, verbs in SECTIONS.items():
        parts += [f'.SS "{escaped(title)}"', *listed(list(verbs.items()))]
    parts += [".SH EXIT STATUS", *listed(STATUS), ".SH ENVIRONMENT", *listed(ENVIRONMENT)]
    first = ("init", "deploy", "extend", "launch", "submit", "doctor")
    return page("stackyard", "software stacks that a cluster can use", parts, [f"stackyard-{v}" for v in first])


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    context = click.Context(cli, info_name="stackyard", help_option_names=["-h", "--help"])
    return {"stackyard.1": of_program(context), **{f"stackyard-{v}.1": of_verb(v, context) for v in VERBS}}


def main() -> None:
    """Write the pages and remove those of former verbs; with ``--check`` exit with status 1 if one is stale."""
    made = pages()
    have = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.1")}
    if "--check" in sys.argv:
        stale = sorted(name for name in {*made, *have} if made.get(name) != have.get(name))
        sys.exit(f"stale in {TARGET}: {', '.join(stale)}: run {sys.argv[0]}" if stale else 0)
    TARGET.mkdir(exist_ok=True)
    for name in set(have) - set(made):
        (TARGET / name).unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
