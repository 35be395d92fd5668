"""The launch lines of a script: the starter of ranks, its options, and its program.

A line nests: ``srun ... singularity exec img bash -c "torchrun train.py"`` is an srun whose program is a container
whose program is a shell whose program is torchrun. `find_launches` gives one `Launch` for each of these that matters,
each with `via`, the launches around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stackyard.launch.request.options import Option, Reading, Table, mapped, read_options
from stackyard.launch.request.starters import MODULES, PROGRAMS, TABLES
from stackyard.lint.containers import container_options, container_verb, image_at
from stackyard.lint.request import number
from stackyard.lint.shell.beginnings import may_be_options, plain_variables
from stackyard.lint.shell.command import Command
from stackyard.lint.shell.commands import parse_shell
from stackyard.lint.shell.scope import ResolvedCommand, Scope, Value
from stackyard.lint.shell.words import command_name
from stackyard.lint.systems import of_program
from stackyard.lint.systems.base import System
from stackyard.lint.tables import APRUN, DDLRUN, FLUX, IBRUN, JSRUN, SRUN

STARTERS: dict[str, tuple[str, Table]] = {
    "srun": ("srun", SRUN),
    "jsrun": ("jsrun", JSRUN),
    "ibrun": ("ibrun", IBRUN),
    "aprun": ("aprun", APRUN),
    **{name: (kind, TABLES[kind]) for name, kind in PROGRAMS.items()},
    "ddlrun": ("mpirun", DDLRUN),
}
RANKS = ("srun", "jsrun", "mpirun", "ibrun", "aprun", "flux")
AGENTS = ("torchrun", "deepspeed", "accelerate")
REMOTE = ("ssh", "pdsh", "clush", "blaunch", "parallel", "pbsdsh", "pssh", "xargs")
_PLAIN = ("exec", "nohup", "command", "catchsegv", "unbuffer", "builtin")
_VALUED = {  # wrappers: options that take a value, and how many words of their own follow
    "time": ("-f -o --format --output", 0),
    "timeout": ("-k -s --signal --kill-after", 1),
    "nice": ("-n", 0),
    "stdbuf": ("-i -o -e", 0),
    "numactl": ("-C -N -m -i -p", 0),
    "taskset": ("", 1),
    "strace": ("-o -e", 0),
    "dlprof": ("", 0),
}
_PROFILERS = ("map", "perf-report", "ddt")  # of Linaro Forge, before a launcher only
_ENVIRONMENTS = {  # NAME run: options that take a value
    **dict.fromkeys(("conda", "mamba", "micromamba"), "-n --name -p --prefix --cwd"),
    **dict.fromkeys(("poetry", "pipenv"), "-C --directory -P --project"),
    **dict.fromkeys(("uv", "pixi"), "-p --python --with --extra --group --project --directory -e --environment"),
}
_BEHIND = ("singularity", "apptainer", "shifter", "podman-hpc", "sarus", "torchrun", "deepspeed", "accelerate")
_PYTHON = re.compile(r"^(?:.*/)?(?:[\w.]+[.-])?python(?:\d(?:\.\d+)?)?$")
_SHELL = re.compile(r"^(?:.*/)?(?:bash|sh|zsh|dash|ksh)$")


_MOST = 400
"""The most launches that are checked; longer lists are generated and repetitive."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One starter with its options. `program`: the command it starts; `via`: the launches around it, outermost first.

    `remote`: started through ssh or similar, so its node is unknown. `wrapped`: among the arguments of an unknown
    script, which sets up the environment and then runs them: `./env.sh singularity exec ...`.
    """

    kind: str
    word: str
    line: int
    words: tuple[str, ...]
    reading: Reading
    program: tuple[str, ...]
    command: ResolvedCommand = field(repr=False)
    via: tuple[Launch, ...] = ()
    remote: bool = False
    doubtful: bool = False
    wrapped: bool = False

    def get(self, name: str) -> str | None:
        """An option's last value as text; None if it is not given."""
        return self.reading.get(name)

    def count(self, name: str) -> int | None:
        """An option's value if it is a plain number."""
        return number(self.get(name))

    def given(self, *names: str) -> bool:
        """Whether one of these options was given."""
        return any(option.name in names for option in self.reading.options)

    @property
    def ranks_of(self) -> Launch | None:
        """The enclosing launch that starts tasks (srun, jsrun, mpirun, ...), if any."""
        return next((launch for launch in reversed(self.via) if launch.kind in RANKS), None)

    @property
    def environment(self) -> Mapping[str, Value]:
        """The script's variables at the launch."""
        return self.command.environment


@dataclass(frozen=True)
class InnerCommand:
    """A command inside a launch, run in the shell of each task."""

    launch: Launch
    resolved: ResolvedCommand
    line: int


@dataclass
class _ScriptLaunches:
    launches: list[Launch] = field(default_factory=list)
    inner: list[InnerCommand] = field(default_factory=list)
    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Shell scripts that the script itself writes, by name: their text and first line."""
    plain: Mapping[str, bool] = field(default_factory=dict)
    """Variables that hold no options, and whether they may be empty."""


def find_launches(commands: Iterable[ResolvedCommand]) -> tuple[list[Launch], list[InnerCommand]]:
    """The launches of the commands in their order, and the commands of the shells that they start."""
    commands = list(commands)
    launches = _ScriptLaunches(plain=plain_variables(commands))
    for resolved in commands:
        if resolved.argv and len(launches.launches) < _MOST:
            launches.files.update(_written(resolved))
            _look(launches, resolved, list(resolved.argv), resolved.line, (), False, 0)
    return launches.launches, launches.inner


def launches_inside(launch: Launch, commands: Sequence[Command]) -> list[Launch]:
    """The launches of a shell script that each task of a launch runs, all of them on the line of that launch."""
    launches = _ScriptLaunches()
    for command in commands:
        command.line = launch.line
    _look_at(launches, launch.command, commands, (*launch.via, launch), launch.remote, 1)
    return launches.launches[:_MOST]


def _written(resolved: ResolvedCommand) -> dict[str, tuple[str, int]]:
    """The shell scripts that ``cat > run.sh <<EOF`` or ``tee run.sh <<EOF`` write."""
    command = resolved.command
    if not command.here or resolved.argv[0] not in ("cat", "tee"):
        return {}
    targets = ["".join(part.text for part in word.parts) for op, word in command.redirects if op in (">", ">|")]
    targets += [word for word in resolved.argv[1:] if resolved.argv[0] == "tee" and not word.startswith("-")]
    shell = re.match(r"#!.*\b(?:ba|z|k)?sh\b", command.here)
    text = command.here.replace("\\$", "$")
    return {name.rsplit("/", 1)[-1]: (text, command.here_line) for name in targets if shell or name.endswith(".sh")}


def _look(
    launches: _ScriptLaunches,
    resolved: ResolvedCommand,
    words: list[str],
    line: int,
    via: tuple[Launch, ...],
    remote: bool,
    depth: int,
) -> None:
    """Parse one command, and recursively those it starts."""
    words = list(unwrapped(words))
    if not words or depth > 8:
        return
    name = words[0].rsplit("/", 1)[-1]
    if name in REMOTE:
        _look_remote(launches, resolved, words, line, via, depth)
        return
    if name == "flux" and words[1:2] == ["start"]:  # an instance, in which the words behind its options run
        _look(launches, resolved, words[_after_options(words, 2, ("-o", "-s")) :], line, via, remote, depth + 1)
        return
    file = launches.files.get((words[1] if _SHELL.match(words[0]) and len(words) > 1 else words[0]).rsplit("/", 1)[-1])
    if file and via:
        _look_inside(launches, resolved, *file, via, remote, depth)
        return
    inside = _behind_script(words)
    if not inside and (_SHELL.match(words[0]) or name == "eval"):
        _look_shell(launches, resolved, words, line, via, remote, depth)
        return
    words = words[inside:]
    start = starter(words)
    if start is None:
        return
    kind, reading = start
    doubtful = reading.doubtful or may_be_options(reading.rest, launches.plain)
    wrapped = inside > 0 or any(outer.wrapped for outer in via)
    launch = Launch(kind, words[0], line, tuple(words), reading, reading.rest, resolved, via, remote, doubtful, wrapped)
    launches.launches.append(launch)
    _look(launches, resolved, list(reading.rest), line, (*via, launch), remote, depth + 1)


def _behind_script(words: Sequence[str]) -> int:
    """The index of a container or an agent among the arguments of a ``.sh`` script; 0 without one."""
    script = words[1] if _SHELL.match(words[0]) and len(words) > 1 else words[0]
    if not script.endswith((".sh", ".bash")):
        return 0
    inside = (at for at in range(1, len(words)) if words[at].rsplit("/", 1)[-1] in _BEHIND or _PYTHON.match(words[at]))
    return next((at for at in inside if _is_whole_launch(list(words[at:]))), 0)


def _is_whole_launch(words: list[str]) -> bool:
    """Whether words are a container or an agent with a program, and not a mere argument, as ``torchrun`` alone."""
    start = starter(words)
    return start is not None and start[0] in ("container", *AGENTS) and bool(start[1].rest) and not start[1].doubtful


def _look_remote(
    launches: _ScriptLaunches,
    resolved: ResolvedCommand,
    words: list[str],
    line: int,
    via: tuple[Launch, ...],
    depth: int,
) -> None:
    for index, word in enumerate(words[1:], 1):
        head = word.split(maxsplit=1)[0] if word.split() else ""
        if head and (starter([head]) or _PYTHON.match(head)):
            rest = words[index:] if " " not in word else word.split()
            _look(launches, resolved, rest, line, via, True, depth + 1)
            return


def _look_shell(
    launches: _ScriptLaunches,
    resolved: ResolvedCommand,
    words: list[str],
    line: int,
    via: tuple[Launch, ...],
    remote: bool,
    depth: int,
) -> None:
    text = " ".join(words[1:]) if words[0] == "eval" else _command_string(words)
    if text is None and resolved.command.here and all(word.startswith("-") for word in words[1:]):
        text, line = resolved.command.here, resolved.command.here_line
    if text is not None:
        _look_inside(launches, resolved, text, line, via, remote, depth)


def _look_inside(
    launches: _ScriptLaunches,
    resolved: ResolvedCommand,
    text: str,
    line: int,
    via: tuple[Launch, ...],
    remote: bool,
    depth: int,
) -> None:
    """Parse the commands in a shell's text."""
    _look_at(launches, resolved, parse_shell(text, line), via, remote, depth)


def _look_at(
    launches: _ScriptLaunches,
    resolved: ResolvedCommand,
    commands: Iterable[Command],
    via: tuple[Launch, ...],
    remote: bool,
    depth: int,
) -> None:
    exported = {name: value for name, value in resolved.environment.items() if value.exported or not via}
    scope = Scope(exported, task=bool(via))
    for command in commands:
        ran = scope.run(command)
        if via:
            launches.inner.append(InnerCommand(via[-1], ran, command.line))
        if ran.argv:
            command.background = command.background or resolved.command.background
            _look(launches, ran, list(ran.argv), command.line, via, remote, depth + 1)


def _command_string(words: list[str]) -> str | None:
    """The text of ``bash -lc "text"``, else None."""
    for index, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            return None
        if re.fullmatch(r"-[a-z]*c[a-z]*", word) and index + 1 < len(words):
            return words[index + 1]
    return None


def unwrapped(words: list[str]) -> Iterator[str]:
    """The words without prefixes such as ``time``, ``env A=b``, ``timeout 10``, ``nsys profile ...``."""
    at = 0
    while at < len(words):
        name = words[at].rsplit("/", 1)[-1]
        if name in _PLAIN or re.fullmatch(r"[A-Za-z_]\w*=.*", words[at], re.S):
            at += 1
        elif name == "env":
            at += 1
            while at < len(words) and (words[at].startswith("-") or "=" in words[at]):
                at += 2 if words[at] in ("-u", "-C") else 1
        elif name in _VALUED:
            valued, own = _VALUED[name]
            at = _after_options(words, at + 1, valued.split()) + own
        elif name in _ENVIRONMENTS and words[at + 1 : at + 2] == ["run"]:
            at = _after_options(words, at + 2, _ENVIRONMENTS[name].split())
        elif name == "nsys" and words[at + 1 : at + 2] == ["profile"]:
            at = _after_options(words, at + 2, ())
        elif name in _PROFILERS and any(starter([word]) for word in words[at + 1 :]):
            at = _after_options(words, at + 1, ())
        else:
            break
    yield from words[at:]


def _after_options(words: list[str], at: int, valued: Iterable[str]) -> int:
    """The index after the options; for a wrapper with unknown options, of the first word that starts a program."""
    known = tuple(valued)
    while at < len(words):
        if words[at].startswith("-"):
            at += 2 if words[at] in known else 1
        elif not known and at and words[at - 1].startswith("-") and not _starts(words[at]):
            at += 1
        else:
            break
    return at


def _starts(word: str) -> bool:
    return bool(starter([word]) or _PYTHON.match(word) or _SHELL.match(word) or word.endswith((".py", ".sh")))


def starter(words: list[str]) -> tuple[str, Reading] | None:
    """The kind of launch at the start of the words and its options; None if they start no ranks."""
    words = [command_name(words[0]), *words[1:]]
    name = words[0].rsplit("/", 1)[-1]
    if name in STARTERS:
        kind, table = STARTERS[name]
        reading = read_options(table, words[1:])
        return kind, mapped(reading) if kind == "mpirun" else reading
    if name == "flux" and words[1:2] and words[1] in ("run", "submit", "mini", "bulksubmit"):
        skip = 3 if words[1] == "mini" else 2
        return "flux", read_options(FLUX, words[skip:])
    if name == "accelerate" and words[1:2] == ["launch"]:
        return "accelerate", read_options(TABLES["accelerate"], words[2:])
    if name == "ray" and words[1:2] and words[1] in ("start", "symmetric-run"):
        return "ray", Reading(tuple(Option(w.lstrip("-").partition("=")[0], w) for w in words[2:] if w[:2] == "--"), ())
    if name in ("singularity", "apptainer") and (verb := container_verb(words)):
        reading, unsure = container_options(words[verb + 1 :])
        image = image_at(reading.rest)
        return "container", Reading(reading.options, reading.rest[image + 1 :], reading.doubtful or unsure or image > 0)
    if system := of_program(name):
        return _container(system, words)
    return _python_module(words)


def _container(system: System, words: list[str]) -> tuple[str, Reading] | None:
    """The options of a container behind the verb of its program; None if another verb follows."""
    verb = system.programs[words[0].rsplit("/", 1)[-1]]
    at = words.index(verb, 1) if verb in words[1:4] else None
    if verb and at is None:
        return None
    reading = read_options(system.table, words[(at or 0) + 1 :])
    return "container", replace(reading, rest=reading.rest[1:]) if system.positional else reading


def _python_module(words: list[str]) -> tuple[str, Reading] | None:
    """``python -m torch.distributed.run``, ``.launch``, ``deepspeed``; ``python $(which torchrun)``."""
    if not _PYTHON.match(words[0]):
        return None
    first = next((at for at, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    if command_name(words[first]) != words[first]:
        return starter(words[first:])
    at = _module_at(words)
    if at is None:
        return None
    module = words[at + 1] if at + 1 < len(words) else ""
    if module not in MODULES:
        return None
    return MODULES[module], read_options(TABLES[MODULES[module]], words[at + 2 :])


def _module_at(words: Sequence[str]) -> int | None:
    """The index of Python's own ``-m``: after only Python's options, two of which take a value."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return at
        at += 2 if words[at] in ("-W", "-X") else 1
    return None


def python_program(words: Iterable[str]) -> tuple[str, ...] | None:
    """The script (or ``-m module``) and its arguments in a Python command line; None if it does not run Python."""
    words = list(unwrapped(list(words)))
    if not words:
        return None
    words[0] = command_name(words[0])
    if words[0].endswith(".py"):
        return tuple(words)
    if not _PYTHON.match(words[0]):
        return None
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] in ("-m", "-c"):
            return tuple(words[at:])
        at += 2 if words[at] in ("-W", "-X") else 1
    return tuple(words[at:])
