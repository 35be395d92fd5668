"""Converts the commands of a batch script before its launch to lines of a job file's `prologue`."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from stackyard.core.quoting import cut
from stackyard.lint.fix.hidden import SECRET
from stackyard.lint.script import Script
from stackyard.lint.shell.command import Assignment
from stackyard.lint.shell.commands import parse_shell
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import Part, is_known, shown
from stackyard.lint.smallcommands import is_carried, is_filter, is_quiet, only_prints

OWN_VARIABLES = re.compile(
    r"^(?:MASTER_(?:ADDR|PORT)$|RANK$|LOCAL_RANK$|WORLD_SIZE$|NODE_RANK$|SLURM_|SRUN_CPUS|LSB_|PBS_|OMP_NUM_THREADS$"
    r"|CUDA_VISIBLE_DEVICES$|ROCR_VISIBLE|HIP_VISIBLE)"
)
"""Variables that Stackyard sets for every rank."""

_DEFAULT = re.compile(r"[A-Za-z_]\w*:?=")
"""``${A:=1}``, which sets the variable, whatever the command does."""
_LOGIN = r"PATH|HOME|TMPDIR|SHELL|USER|LANG|LC_\w+|\w+_PATH|\w+PATH"
"""Variables that the environment has before a script begins."""
_DIRECTORIES = re.compile(r"\$\{?(?:PBS_O_WORKDIR|SLURM_SUBMIT_DIR|LS_SUBCWD)(?::?-[^}]*)?\}?/?")
"""The directory of submission itself, which is where a job file's program starts."""
_DIRECTORY_LINE = re.compile(rf'cd "?(?:{_DIRECTORIES.pattern})"?$')


@dataclass
class Prologue:
    """The lines before the launch, the program's working directory, and notes on omitted parts.

    `names` maps a line that only sets a variable of the script to the variable's name, `runs` to a note for when it is
    not needed, where the value comes from a command that may do more than print.
    """

    lines: list[str] = field(default_factory=list)
    directory: str = ""
    at_home: bool = False
    """Whether a batch script begins in your home directory, and not where it was submitted."""
    notes: list[str] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    runs: dict[int, str] = field(default_factory=dict)
    unsure: list[tuple[str, str]] = field(default_factory=list)
    quiet: list[str] = field(default_factory=list)
    around: tuple[tuple[int, str], ...] = ()
    sourced: int = -1
    """How many lines stand before the last ``source`` of a script that may use and export any variable; -1: none."""
    astray: list[str] = field(default_factory=list)
    """Notes on directories that are known only in the run, for as long as no later ``cd`` leaves them."""

    def in_subshell(self, resolved: ResolvedCommand) -> bool:
        """Whether a command is in a subshell without the launch, so that its settings are lost there."""
        return any(kind == "subshell" and (number, kind) not in self.around for number, kind in resolved.command.blocks)


def place_of(script: Script, first: ResolvedCommand | None) -> int:
    """The number of commands before one of the script, or before the line that has it (``eval``); all without one."""
    for number, resolved in enumerate(script.commands):
        if first is not None and (resolved is first or resolved.line > first.line or _evaluates(resolved, first)):
            return number
    return len(script.commands)


def _evaluates(resolved: ResolvedCommand, first: ResolvedCommand) -> bool:
    return resolved.line == first.line and resolved.argv[:1] == ("eval",)


def lines_before(
    script: Script, place: int, first: ResolvedCommand | None, program: str = "", directory: str = ""
) -> Prologue:
    """The first `place` commands of a script that prepare the run: modules, environments, variables, files.

    `first` is the command after them, `program` its words, whose variables and files are kept; `directory` is their
    initial directory by the head. Order and text are kept. Variables that Stackyard sets, and commands in a condition,
    a subshell or a loop, are noted.
    """
    before = Prologue(directory=directory, at_home=script.scheduler == "pbs")
    before.around = first.command.blocks if first else ()
    started = {id(launch.command) for launch in script.launches}
    for pipe in pipelines(script.commands[:place]):
        if any(id(command) in started for command in pipe):
            continue  # a further launch
        if any(_reads_variables(command.argv) for command in pipe):
            before.sourced = len(before.lines)
        if len(pipe) > 1:
            _carry_pipe(before, pipe)
        else:
            _carry(script, before, pipe[0])
    before.notes += before.astray
    _prune(before, program)
    if before.at_home and _DIRECTORY_LINE.match((before.lines or [""])[-1]):
        before.lines.pop()  # the job's script goes there before the program anyway
    if directory and before.directory != directory:
        before.lines.insert(0, f"cd {shlex.quote(directory)}")
    _leave_out_secrets(before)
    return before


_ENVIRONMENTS = re.compile(
    r"(?:.*/)?(?:activate|(?:activate|conda|mamba|modules|setvars|setup-env|env)\.sh|\.?\w*(?:rc|profile))|.*/init/\w+"
)
"""Scripts that set an environment up by themselves."""


def _reads_variables(argv: Sequence[str]) -> bool:
    """Whether a command is ``source core.sh``, which sees all variables of the script, exported or not."""
    return len(argv) > 1 and argv[0] in ("source", ".") and not _ENVIRONMENTS.fullmatch(shown(argv[1]))


def _leave_out_secrets(before: Prologue) -> None:
    """Leave out lines with secrets other than as the value of a variable."""
    for line in before.lines:
        if SECRET in line:
            before.notes.append(f"left out, since a secret stands in it: {cut(shown(line), 80)}")
    before.lines = [line for line in before.lines if SECRET not in line]


def _is_secret(before: Prologue, name: str, value: str) -> bool:
    """Whether a variable's value is a secret of the script; if so, add a note."""
    if SECRET in value:
        how = f"export it in your shell and submit with `--env {name}`"
        before.notes.append(f"{name}: its value may be a secret, which a job file must not hold: {how}")
    return SECRET in value


def pipelines(commands: Iterable[ResolvedCommand]) -> Iterator[list[ResolvedCommand]]:
    """The commands grouped into pipelines."""
    pipe: list[ResolvedCommand] = []
    for resolved in commands:
        if pipe and not resolved.command.fed:
            yield pipe
            pipe = []
        pipe.append(resolved)
    if pipe:
        yield pipe


def pipe_text(pipe: Sequence[ResolvedCommand]) -> str:
    """A pipeline as one line."""
    return " | ".join(text_of(command) + "".join(_redirects(command)) for command in pipe)


def text_of(resolved: ResolvedCommand) -> str:
    """A command with the variables set for it, ``A=1 ./a``; or the redirections of a block: ``done > log``."""
    command = resolved.command
    own = [*(_setting(assignment) for assignment in command.assignments), *(word.raw for word in command.words)]
    files = "".join(_redirects(resolved)).strip()
    return _joined(" ".join(own)) if own else f"the redirection {files} of the commands before it"


def _setting(assignment: Assignment) -> str:
    if assignment.value is None and assignment.raw.startswith("in "):
        return f"for {assignment.name} {assignment.raw}"
    return f"{assignment.name}{assignment.index}{'+' if assignment.append else ''}={assignment.raw}"


def _carry_pipe(before: Prologue, pipe: Sequence[ResolvedCommand]) -> None:
    """Carry over a pipeline whose commands only print or filter, if it writes a file."""
    first, last, text = pipe[0], pipe[-1].command, pipe_text(pipe)
    plain = all(
        command.argv and (is_quiet(command.argv) or is_filter(command.argv) or is_carried(command.argv))
        for command in pipe
    )
    nested = any(first.command.within(kind) for kind in ("branch", "loop", "function")) or before.in_subshell(first)
    writes = any(acts(command) or command.argv[:1] == ("tee",) for command in pipe)
    if plain and not writes:
        before.quiet.append(str(first.line))
    elif plain and not (nested or last.background or first.command.conditional or any(e.command.here for e in pipe)):
        before.lines.append(text)
    else:
        before.notes.append(f"line {first.line}: piped: {cut(shown(text), 80)}")


def _uses(line: str, name: str) -> bool:
    """Whether a line names a variable: ``$A``, ``${A}``, ``export A``, ``$((A + 1))``."""
    own = rf"\$\{{?[#!]?{name}\b|^(?:export|let|unset)\b.*\b{name}\b|\(\((?:(?!\)\)).)*\b{name}\b"
    return bool(re.search(own, line, re.S))


def _prune(before: Prologue, program: str) -> None:
    """Drop variables that neither a later line nor the program uses; note used ones that are set conditionally."""
    lines: list[str] = [program]
    for at in reversed(range(len(before.lines))):
        name = before.names.get(at)
        if name is None or at < before.sourced or any(_uses(line, name) for line in lines):
            lines.insert(0, before.lines[at])
        elif at in before.runs:
            before.notes.append(before.runs[at])
    for name, note in before.unsure:
        if any(_uses(line, name) for line in lines):
            before.notes.append(note)
    before.lines = lines[:-1]


def _carry(script: Script, before: Prologue, resolved: ResolvedCommand) -> None:
    command, name, text = resolved.command, resolved.argv[0] if resolved.argv else "", text_of(resolved)
    if command.within("function"):
        before.notes.append(f"line {resolved.line}: in a function: {cut(shown(text), 80)}")
        return
    nested = command.within("branch") or command.within("loop")
    # a line is carried over if it runs once, before the launch, in the script's own shell
    if not command.words and not command.assignments:
        before.notes.append(f"line {resolved.line}: {text}")
    elif not command.words:
        _assignments(before, resolved, nested or command.conditional or before.in_subshell(resolved))
    elif name == "popd" and before.pushed and not nested:
        before.lines.append("popd")
        before.directory = before.pushed.pop()
    elif is_quiet(resolved.argv) and not command.background and not acts(resolved):
        before.quiet.append(str(resolved.line))
    elif before.in_subshell(resolved):
        before.notes.append(f"line {resolved.line}: in a subshell: {cut(shown(text), 80)}")
    # the directory and the variables become fields of the job; other lines are copied
    elif name in ("cd", "pushd"):
        _directory(before, resolved, nested or _is_guarded(script, resolved))
    elif nested or command.background or command.piped or command.conditional:
        why = "in the background" if command.background else "piped" if command.piped else "conditional"
        before.notes.append(f"line {resolved.line}: {why}: {cut(shown(text), 80)}")
    elif name == "export" and "-f" in resolved.argv:
        before.notes.append(f"line {resolved.line}: a function for the ranks: {cut(shown(text), 80)}")
    elif name in ("export", "declare"):
        _exports(before, resolved)
    elif not _calls(script, resolved) and (is_carried(resolved.argv) or acts(resolved)):
        before.lines += _source(script, resolved)
    else:
        before.notes.append(f"line {resolved.line}: {cut(shown(text), 80)}")


def _calls(script: Script, resolved: ResolvedCommand) -> bool:
    """Whether a command runs a function of the script, as ``trap clean EXIT`` does: functions are not carried over."""
    if resolved.argv[:1] not in (("trap",), ("eval",)):
        return False
    names = {name for command in script.commands for name in command.command.functions}
    return any(re.split(r"[;&|\s]+", word)[0] in names for word in resolved.argv[1:2])


def acts(resolved: ResolvedCommand) -> bool:
    """Whether a printing command also writes a file, or sets a variable's default: ``: "${A:=1}"``."""
    if any(_DEFAULT.match(part.text) for part in _variables_of(resolved)):
        return True
    targets = ["".join(part.text for part in word.parts) for op, word in resolved.command.redirects if ">" in op]
    return any(not target.startswith("/dev/") and not target.isdigit() for target in targets)


def _variables_of(resolved: ResolvedCommand) -> Iterator[Part]:
    return (part for word in resolved.command.words for part in word.parts if part.kind == "variable")


def _is_of_the_environment(resolved: ResolvedCommand, name: str) -> bool:
    """Whether a variable set without ``export`` is exported already, earlier or by the login."""
    value = resolved.environment.get(name)
    return bool(value and value.exported) or bool(re.fullmatch(_LOGIN, name))


def _assignments(before: Prologue, resolved: ResolvedCommand, nested: bool) -> None:
    for assignment in resolved.command.assignments:
        if OWN_VARIABLES.match(assignment.name):
            before.notes.append(f"line {resolved.line}: {assignment.name}, which Stackyard sets")
        elif _is_secret(before, assignment.name, assignment.raw):
            continue
        elif nested:
            note = f"line {resolved.line}: conditional: {cut(_setting(assignment), 80)}"
            if _runs(assignment):
                before.notes.append(note)
            else:
                before.unsure.append((assignment.name, note))
        else:
            exported = before.sourced >= 0 and assignment.name.isupper()  # perhaps, by what was sourced
            if not (exported or _is_of_the_environment(resolved, assignment.name)):
                before.names[len(before.lines)] = assignment.name
            if assignment.name == "IFS":
                before.notes.append(f"line {resolved.line}: {_setting(assignment)}: words may be split otherwise")
            if _runs(assignment):
                note = f"line {resolved.line}: {cut(_setting(assignment), 80)}"
                before.runs[len(before.lines)] = note
            before.lines.append(_joined(_setting(assignment)))


def _runs(assignment: Assignment) -> bool:
    """Whether a value is the output of a command with other effects: ``JOB=$(qsub next.sh)``."""
    parts = assignment.value.parts if assignment.value else ()
    inside = (command for part in parts if part.kind == "command" for command in parse_shell(part.text))
    names = [[word.raw for word in command.words] for command in inside if command.words]
    return not all(only_prints(argv) for argv in names)


def _exports(before: Prologue, resolved: ResolvedCommand) -> None:
    words = [word.raw for word in resolved.command.words]
    own = [word for word in words[1:] if OWN_VARIABLES.match(word.partition("=")[0])]
    for word in own:
        before.notes.append(f"line {resolved.line}: {word.partition('=')[0]}, which Stackyard sets")
    texts = [word for word in words if word not in own and not _is_secret(before, word.partition("=")[0], word)]
    texts += [_setting(assignment) for assignment in resolved.command.assignments]
    if any(not word.startswith("-") for word in texts[1:]):
        before.lines.append(_joined(" ".join(texts)))


def _directory(before: Prologue, resolved: ResolvedCommand, nested: bool) -> None:
    """Handle ``cd``: it changes the working directory of the program and of later lines."""
    name, path = resolved.argv[0], resolved.argv[1] if len(resolved.argv) > 1 else ""
    line = _joined(" ".join(word.raw for word in resolved.command.words))
    if name == "pushd":
        before.pushed.append(before.directory)
    if path in (".", "./") or _DIRECTORIES.fullmatch(shown(path)):
        carried = len(before.lines)
        _to_submission(before, line, nested, stays=path in (".", "./"))
        if nested and carried < len(before.lines):
            before.notes.append(f"line {resolved.line}: conditional: {line}, which the job file does once")
        return
    if is_known(path) or not nested:
        before.lines.append(line)
    if name == "pushd" and not path:
        return
    known = bool(path) and is_known(path) and path != "-" and (path.startswith("/") or bool(before.directory))
    before.directory = posixpath.normpath(posixpath.join(before.directory, path)) if known else ""
    if not known:
        before.astray.append(f"line {resolved.line}: {f'cd {shown(path)}'.strip()}: set cwd, or submit from there")
    elif path.startswith("/") and not nested:
        before.astray.clear()
    if known and nested:
        before.notes.append(f"line {resolved.line}: conditional: cd {shown(path)}, which the job file does once")


def _is_guarded(script: Script, resolved: ResolvedCommand) -> bool:
    """Whether a command depends on a test: ``[ -d run ] && cd run``."""
    row = script.rows[resolved.line - 1]
    return resolved.command.conditional and bool(re.match(r"\s*(?:\[|test\s)", row))


def _to_submission(before: Prologue, line: str, nested: bool, *, stays: bool) -> None:
    """Handle ``cd .``, or a return to the submission directory, where a job file's lines begin."""
    moved = before.at_home or any(re.match(r"(?:cd|pushd)\b", row) for row in before.lines)
    if line.startswith("pushd") or (moved and not stays):
        before.lines.append(line)
    if stays:
        return
    before.directory = ""
    if not nested:
        before.astray.clear()


def _source(script: Script, resolved: ResolvedCommand) -> Sequence[str]:
    """The source lines of a command, including its here-document."""
    rows, command = script.rows, resolved.command
    if command.here:
        return rows[resolved.line - 1 : command.here_line + command.here.count("\n")]
    first = rows[resolved.line - 1].strip()
    text = " ".join(
        [*(_setting(assignment) for assignment in command.assignments), *(word.raw for word in command.words)]
    )
    alone = first.startswith(text.split()[0]) and not re.search(r"[;|]|&[^>\d]", first)
    whole = alone and not first.endswith("\\") and "\n" not in text
    return [first.rstrip() if whole else _joined(text + "".join(_redirects(resolved)))]


def _redirects(resolved: ResolvedCommand) -> Iterator[str]:
    for operator, word in resolved.command.redirects:
        yield f" {operator}{word.raw}"


_CONTINUED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\[^\n]|[ \t]*(?:\\\n[ \t]*)+", re.S)


def _joined(text: str) -> str:
    """Continued lines as one, as the shell joins them: ``A=\\`` and ``'b'`` are ``A='b'``."""
    return _CONTINUED.sub(_one_line, text)


def _one_line(match: re.Match[str]) -> str:
    piece = match[0]
    if piece.startswith('"'):
        return piece.replace("\\\n", "")
    if "\\\n" not in piece or piece.startswith("'"):
        return piece
    return " " if piece[0] in " \t" or piece[-1] in " \t" else ""
