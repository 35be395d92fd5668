"""The final comparison of `lint --fix`: the script with the job file; a note for each part in neither of them.

The other parts decide about each command. This one checks their result: it compares the commands, the words of the
launch and the environment at the launch, and adds a note for each remainder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.fix.prologue import OWN_VARIABLES, text_of
from stackyard.lint.launches import REMOTE, Launch, unwrapped
from stackyard.lint.shell.command import Command
from stackyard.lint.shell.commands import parse_shell
from stackyard.lint.shell.scope import ResolvedCommand, Value, resolve
from stackyard.lint.shell.words import Word, command_name, is_known, shown

_LINES = re.compile(r"\blines? (\d+(?:, \d+)*)(?:: to line (\d+))?")
_PATTERN = re.compile(r"[*?]|\[[^],]*\]|\{[^{}$]*(?:,|\.\.)[^{}]*\}")
"""What the shell replaces by the names of files, or by several words."""
_MPMD = ("srun", "mpirun", "jsrun", "aprun", "ibrun")


def close(
    making: IntentDraft, started: ResolvedCommand | None, main: Launch | None, chain: list[Launch], place: int
) -> None:
    """Note all parts of a script that its job file lacks, unless there is a note already."""
    if started:
        _patterns(making, started)
        _words(making, started, chain)
        _environment(making, started)
    _commands(making, started, place)


def _noted(notes: Iterable[str]) -> set[int]:
    """The lines that the notes name."""
    lines: set[int] = set()
    for numbers, last in (match.groups() for note in notes for match in _LINES.finditer(note)):
        lines.update(int(text) for text in numbers.split(", "))
        lines.update(range(int(numbers.split(", ")[0]), int(last) + 1) if last else ())
    return lines


def _commands(making: IntentDraft, started: ResolvedCommand | None, place: int) -> None:
    """Commands that are neither lines of the job nor in a note; those that only set variables are compared by value."""
    noted = _noted(making.notes)
    lines = [_raw(command) for command in parse_shell("\n".join(making.values.get("prologue") or ()))]
    for resolved in making.script.commands:
        if resolved is started or resolved.line in noted or not resolved.command.words:
            continue
        if started and resolved.line == started.line and resolved.argv[:1] == ("eval",):
            continue
        words = _raw(resolved.command)
        if words[0] not in ("cd", "export", "declare") and not any(set(words) <= set(line) for line in lines):
            making.note(resolved.line, f"left out: {text_of(resolved)}")


def _raw(command: Command) -> list[str]:
    """The words of a command as written, with continued lines joined."""
    return [word.raw.replace("\\\n", "") for word in command.words]


def _patterns(making: IntentDraft, started: ResolvedCommand) -> None:
    """Note words of the launch that the shell expands to file names or several words: a job file does not."""
    program = making.values.get("program") or ()
    for word in started.command.words:
        texts = [_unquoted(started, part.kind, part.text) for part in word.parts if not part.quoted]
        is_there = any(_PATTERN.search(text) and any(text in part for part in program) for text in texts)
        if (is_there or _is_split(word)) and word.raw.strip():
            making.ask(started.line, f"the shell expands {word.raw}: a job file has it as it is")


def _is_split(word: Word) -> bool:
    """Whether braces make several words of one, ``{1..3}`` or ``{a,$B}``."""
    plain = "".join(part.text if part.kind == "literal" and not part.quoted else "x" for part in word.parts)
    return bool(re.search(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", plain))


def _unquoted(started: ResolvedCommand, kind: str, text: str) -> str:
    if kind == "variable" and (value := started.environment.get(text)):
        return "" if len(value.text.split()) > 1 and '"' in value.source else value.text
    return text if kind == "literal" else ""


def _words(making: IntentDraft, started: ResolvedCommand, chain: list[Launch]) -> None:
    """Note words of the innermost program missing in the job file; programs after a colon; doubtful beginnings."""
    program = tuple(making.values.get("program") or ())
    if chain and command_name(started.argv[0]).rsplit("/", 1)[-1] in REMOTE:
        making.ask(started.line, f"the launch is started by another program: {text_of(started)}")
    for launch in chain:
        if launch.kind in _MPMD and ":" in launch.program:
            making.ask(launch.line, "several programs in one launch: make them roles; the job file has their words")
        if launch.doubtful and launch.program[:1] and not is_known(launch.program[0]):
            named = shown(launch.program[0])
            making.ask(launch.line, f"{named} may hold options of {launch.word}, and not begin the program: check both")
        unknown = [option for option in launch.reading.options if not option.name]
        if launch.reading.doubtful and unknown and launch.program:
            named = f"{launch.program[0]} may be the value of {unknown[-1].written}, and not the program"
            making.ask(launch.line, f"{named}: check program")
    words = chain[-1].program if chain else tuple(unwrapped(list(started.argv)))
    if words[:2] == ("ray", "symmetric-run") and "--" in words:  # its own words start a cluster, as the backend does
        words = words[words.index("--") + 1 :]
    if chain and any(command.launch is chain[-1] for command in making.script.inner):
        return  # the commands of a shell, each of which is looked at
    notes = "\n".join(making.notes)
    left = [shown(word) for word in words if shown(word) not in program and not any(shown(word) in p for p in program)]
    left = [word for word in left if word and word not in notes and word.rsplit("/", 1)[-1] != "python"]
    if left:
        making.ask(started.line, f"words of the launch that the job file has not: {' '.join(left)}")


def _environment(making: IntentDraft, started: ResolvedCommand) -> None:
    """Note exported variables of the script that the ranks of the job would lack, or have with another value."""
    notes = "\n".join((*making.notes, *(making.values.get("variables") or {})))
    text = "\n".join(making.values.get("prologue") or ())
    after = resolve([*parse_shell(text), *parse_shell(":")])[-1].environment
    for name, value in started.environment.items():
        if not value.exported or OWN_VARIABLES.match(name) or re.search(rf"\b{name}\b", notes) or not value.line:
            continue
        if _differs(value, after, name):
            making.note(value.line, f"the variable {name}={value.source} is not so in the job file")
    for name, value in after.items():
        other = started.environment.get(name)
        if value.exported and not (other and other.exported) and not re.search(rf"\b{name}\b", notes):
            making.note(started.line, f"the variable {name} is not set in the script's launch, as in the job file")


def _differs(value: Value, after: Mapping[str, Value], name: str) -> bool:
    other = after.get(name)
    return other is None or not other.exported or _source(other) != _source(value)


def _source(value: Value) -> str:
    return " ".join(value.source.replace("\\\n", " ").split())
