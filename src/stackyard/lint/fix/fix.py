"""`lint --fix`: the job file that is equivalent to a batch script, with notes on parts that cannot be converted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stackyard.core.errors import InputError, ManyErrors, Where
from stackyard.core.secrets import HIDDEN
from stackyard.inputs.reading.validate import said
from stackyard.launch.request.intent import BatchOptions, Intent
from stackyard.lint.fix.closing import close
from stackyard.lint.fix.enclosed import enclose
from stackyard.lint.fix.head import head
from stackyard.lint.fix.hidden import SECRET, without_secrets
from stackyard.lint.fix.making import IntentDraft
from stackyard.lint.fix.program import container, interpreter_kept, plain_words, program_of_shell
from stackyard.lint.fix.prologue import OWN_VARIABLES, lines_before, place_of
from stackyard.lint.fix.rest import left_out
from stackyard.lint.fix.size import sizes
from stackyard.lint.launches import AGENTS, Launch, python_program, unwrapped
from stackyard.lint.rules.base import Case
from stackyard.lint.rules.schedulers.pbs import runs_at_home
from stackyard.lint.script import Script, parse_script
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import CLOSE, OPEN, command_name, is_known, shown
from stackyard.lint.smallcommands import is_no_program
from stackyard.lint.systems import of_program

M = TypeVar("M", bound=BaseModel)
_HINT = "keep the script for sbatch, or change this line"
_LONGEST_NAME = 200
"""Characters of a command's name beyond which it is not a function's: it would be searched for."""
_BACKENDS = {"torchrun": "torchrun", "accelerate": "torchrun", "deepspeed": "deepspeed", "horovodrun": "horovod"}


def to_intent(script: Script) -> tuple[Intent, list[str]]:
    """The intent of a batch script, and a sentence for each part that could not be converted.

    The last launch of the script is converted; earlier ones (staging, ``hostname``) are listed in the notes.

    Raises:
        InputError: a job without some part of the script would run on the bare host, or in another image.
    """
    if (plain := without_secrets(script.text)) != script.text:
        script = parse_script(plain, script.name, script.dialect)
    making = IntentDraft(script)
    case = Case(script)
    head(making)
    # the program: that of the main launch, else the one that runs without a launcher
    ray = [launch for launch in case.launches if launch.kind == "ray"]
    main = None if ray else _main_launch(case, making)
    if main:
        sizes(case, making, main, main.line)
        _program(case, making, main)
        _variables(making, main.command, main)
        started: ResolvedCommand | None = main.command
    else:
        started = _plain_program(case, making, ray)
    first = ray[0].command if ray else started
    # the prologue: the lines before the program that it depends on
    place = place_of(script, first)
    words = " ".join(making.values.get("program") or ())
    before = lines_before(script, place, first, words, making.values.get("cwd") or "")
    making.notes += before.notes
    making.note_lines(before.quiet, "only prints, looks or waits")
    making.values["prologue"] = tuple(before.lines) or None
    making.values["cwd"] = before.directory or None
    left_out(case, making, started, main, place)
    if runs_at_home(case, place):
        line = started.line if started else 1
        making.note(line, "the script runs in the home directory, the job file where it is submitted")
    # everything else is noted: nothing of the script is dropped without a sentence
    enclose(case, making, case.chain(main) if main else [])
    if making.refused:
        raise ManyErrors([InputError(f"no job file can be made: {why}", where=Where(script.name, line), hint=_HINT)
                          for line, why in dict.fromkeys(making.refused)])  # fmt: skip
    for number, text in script.foreign:
        making.note(number, f"a directive that is not supported, {text}")
    if script.unreached:
        making.note(script.unreached[0], f"to line {script.unreached[1]}: what stands after exit or exec is not run")
    for function in script.uncalled:
        making.note(function.first, f"to line {function.last}: the function {function.name}, which nothing calls")
    # notes that need an answer keep the job file from being submitted
    values = {name: value for name, value in making.values.items() if value is not None}
    close(making, started, main, case.chain(main) if main else [], place)
    batch = _valid(BatchOptions, making.batch, making.notes)
    notes = list(dict.fromkeys(shown(note) for note in making.notes))
    questions = {shown(note) for note in making.asked}
    open_ = tuple(note for note in notes if note in questions)
    return _valid(Intent, {**values, "batch": batch, "unanswered": open_}, making.notes), notes


def _valid(model: type[M], values: dict[str, Any], notes: list[str]) -> M:
    """The model of these values; invalid ones are left out with a note."""
    try:
        return model(**values)
    except ValidationError as error:
        problems = {str(detail["loc"][0]): detail for detail in error.errors(include_url=False)}
    notes += [f"left out: {said(detail, name)[0]}" for name, detail in problems.items()]
    return model(**{name: value for name, value in values.items() if name not in problems})


def _main_launch(case: Case, making: IntentDraft) -> Launch | None:
    """The last launch that is not of a small command; those before and after it are noted."""
    every = [launch for launch in case.launches if not launch.via and not launch.wrapped]
    real = [launch for launch in every if not case.is_helper(launch)]
    other = _last_program(case) or _last_command(case) or any(launch.kind == "ray" for launch in every)
    small = [] if other else [launch for launch in every if launch.program]
    main = [*small[-1:], *real][-1] if real or small else None
    if main:
        _note_others(case, making, [main.command])
    return main


def _note_others(case: Case, making: IntentDraft, own: Sequence[ResolvedCommand]) -> None:
    """Note the launches of other commands than the job file's."""
    for other in case.launches:
        if not (other.via or other.wrapped) and all(other.command is not command for command in own):
            say, kind = (
                (making.note, "a small command on the nodes")
                if case.is_helper(other)
                else (making.ask, "a further launch")
            )
            say(other.line, f"{kind}, {' '.join(other.words)}")


def _program(case: Case, making: IntentDraft, launch: Launch) -> None:
    chain = case.chain(launch)
    last = chain[-1]
    backend = next((_BACKENDS[member.kind] for member in chain if member.kind in _BACKENDS), None)
    if backend:
        making.values["backend"] = backend
    inside = next((member for member in chain if member.kind == "container"), None)
    if inside and not of_program(command_name(inside.word)):
        container(making, inside)
    words = last.program[len(_assigned(last)) :]
    if len(words) > 2 and words[0].rsplit("/", 1)[-1] in ("bash", "sh"):
        words = program_of_shell(case, making, last, words)
    words = interpreter_kept(last, words) if last.kind in AGENTS else plain_words(words)
    making.values["program"] = _known_words(making, last.line, words)


def _assigned(launch: Launch) -> tuple[str, ...]:
    """The words before a program that set variables for it: ``mpirun_rsh -np 2 A=1 ./a``."""
    return tuple(takewhile(lambda word: re.match(r"[A-Za-z_]\w*=", word), launch.program))


def _variables(making: IntentDraft, command: ResolvedCommand, launch: Launch | None) -> None:
    """Carry over variables set on the launch line: ``A=1 srun``, --export, -E, -x, ``env A=1``."""
    pairs = [(assignment.name, assignment.raw) for assignment in command.command.assignments]
    for option in launch.reading.options if launch else ():
        items = _listed(option.name, option.value)
        if option.name == "export" and all("=" in item for item in items):
            making.note(command.line, "--export without ALL: every rank gets the whole environment")
        for item in items if option.name in ("export", "env", "x") else ():
            name, equals, value = item.partition("=")
            if equals:
                pairs.append((name, value))
            elif name not in ("ALL", "all", ""):
                making.note(command.line, f"{option.name} {item}: every rank gets the whole environment")
    for word in _assigned(launch) if launch else ():
        name, _, value = word.partition("=")
        pairs.append((name, value))
    variables: dict[str, str] = {}
    for name, value in pairs:
        if OWN_VARIABLES.match(name):
            making.note(command.line, f"{name}, which Stackyard sets")
        elif is_known(value) and "$" not in value and "`" not in value:
            variables[name] = value.strip("\"'")
        else:
            making.ask(command.line, f"the variable {name}={value}")
    making.values["variables"] = variables or None


def _listed(name: str, value: str) -> list[str]:
    """The items of an option: those of srun's --export and of a container's --env are a list."""
    if name == "export":
        return value.split(",")
    return re.split(r",(?=[A-Za-z_]\w*=)", value) if name == "env" else [value]


def _plain_program(case: Case, making: IntentDraft, ray: list[Launch]) -> ResolvedCommand | None:
    """The driver of a Ray cluster, or the program of a script that starts no ranks; returns its command.

    Ray: the last Python command, bare or as a launch of its own; `backend: ray` starts the head and the workers.
    """
    request = making.script.request
    started = _symmetric(ray) or _last_program(case) or (None if ray else _last_command(case))
    line = started[0].line if started else 1
    sizes(case, making, None, line, whole=bool(ray) or started is None)
    making.values["backend"] = "ray" if ray else "any"
    if ray:
        making.notes.append("the lines that start, await and stop Ray: backend: ray does this")
        making.values["cores_per_rank"] = request.cpus_per_task
        making.values["ranks_per_node"] = 1
    _note_others(case, making, [*(launch.command for launch in ray), *((started[0],) if started else ())])
    if started:
        making.values["program"] = _known_words(making, line, plain_words(started[1]))
        _variables(making, started[0], None)
        return started[0]
    making.notes.append("no launch line found: fill in program")
    making.asked.add(making.notes[-1])
    return None


def _symmetric(ray: list[Launch]) -> tuple[ResolvedCommand, tuple[str, ...]] | None:
    """The driver behind ``ray symmetric-run ... --``, which starts a cluster around it on all nodes."""
    for launch in ray:
        words = tuple(launch.words)
        if "symmetric-run" in words and "--" in words:
            return launch.command, words[words.index("--") + 1 :]
    return None


def _last_program(case: Case) -> tuple[ResolvedCommand, tuple[str, ...]] | None:
    """The last command that runs Python, with its words."""
    for resolved in reversed(case.script.commands):
        starts = [launch for launch in case.launches if launch.command is resolved and not launch.wrapped]
        if any(start.kind == "ray" for start in starts) or resolved.command.within("function"):
            continue
        words = tuple(starts[-1].program) if starts else tuple(unwrapped(list(resolved.argv)))
        if not starts and (python_program(words) or ())[:1] == ("-c",):
            continue  # it looks at something, or is the last command of all
        if starts and not python_program(words):
            inner = (command.resolved.argv for command in case.script.inner if command.launch in starts)
            words = next((argv for argv in inner if (python_program(argv) or ("-c",))[0] != "-c"), ())
        if python_program(words):
            return resolved, words
    return None


def _last_command(case: Case) -> tuple[ResolvedCommand, tuple[str, ...]] | None:
    """The last command that does more than prepare the run, print or wait, with its words."""
    started = {id(launch.command) for launch in case.launches if not launch.wrapped}
    for resolved in reversed([other for other in case.script.commands if id(other) not in started]):
        words, command = tuple(unwrapped(list(resolved.argv))), resolved.command
        if words and _is_named(words[0]) and not is_no_program(words) and not command.within("function"):
            joined = command.piped or command.fed or command.conditional
            return (resolved, words) if not joined and not _is_of_the_shell(case, words[0]) else None
    return None


def _is_named(word: str) -> bool:
    """Whether a command has a known name although its directory is unknown, as ``$BIN/solve``."""
    return is_known(word) or bool(re.fullmatch(rf".*{CLOSE}[^{OPEN}{CLOSE}]*/[\w.+-]+", word, re.S))


def _is_of_the_shell(case: Case, name: str) -> bool:
    """Whether a name is a function or an alias of the script, which only its shell can run."""
    if len(name) > _LONGEST_NAME:
        return False
    pattern = rf"^\s*(?:function\s+{re.escape(name)}\b|{re.escape(name)}\s*\(\s*\)|alias\s+{re.escape(name)}=)"
    return bool(re.search(pattern, case.script.code, re.M))


def _known_words(making: IntentDraft, line: int, words: tuple[str, ...]) -> tuple[str, ...]:
    """The program's words as written; a note if they contain variables of the script."""
    words = ("python", *words) if words[:1] in (("-m",), ("-c",)) else words
    words = (*(command_name(word) for word in words[:1]), *words[1:])
    open_words = " ".join(shown(word) for word in words if not is_known(word))
    if open_words:
        making.ask(line, f"variables of the script in {open_words}")
    if any(SECRET in word for word in words):
        making.ask(line, f"a secret in the program's words, which a job file must not hold: it is {HIDDEN} there")
    return tuple(shown(word) for word in words)
