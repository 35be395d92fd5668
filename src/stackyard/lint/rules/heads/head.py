"""Rules on the head: directives that the scheduler ignores, rejects or reads differently than intended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stackyard.launch.request.options import Option, read_options
from stackyard.lint.directives import TAGS, Directive, foreign_name, split_directive
from stackyard.lint.request import mebibytes, minutes
from stackyard.lint.rules.base import Case, Hit, is_template, rule
from stackyard.lint.tables import HEADS

_SIZES = {
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "gpus-per-node",
    "gpus",
    "gres",
    "cpus-per-task",
    "gpus-per-task",
    "time",
    "nnodes",
    "n",
    "W",
    "l",
}


def read_by_scheduler(case: Case) -> list[Directive]:
    """The directives that the script's scheduler reads."""
    return [
        directive
        for directive in case.script.directives
        if directive.kind == case.script.scheduler and directive.state == "read"
    ]


@rule(
    "no-shebang",
    "refused",
    why="sbatch accepts only scripts whose first line starts with #!",
    example="#SBATCH --nodes=2    (as the first line)",
    instead="#!/bin/bash",
)
def no_shebang(case: Case) -> Iterator[Hit]:
    """A Slurm script whose first line is not ``#!``."""
    text = case.script.text
    template = any(mark in text for mark in ("<%", "{{", "{%"))  # its engine generates the first line
    late = any(directive.state == "late" for directive in case.script.directives) and "sbatch" not in case.script.code
    meant = read_by_scheduler(case) or late
    if case.script.scheduler == "slurm" and not text.startswith("#!") and meant and not template:
        yield Hit(1, "the first line does not start with #!: sbatch rejects the script", "#!/bin/bash")


@rule(
    "dos-line-ends",
    "refused",
    why="With DOS line endings schedulers reject a script or misread it, and bash reads \\r as part of a word",
    example="#SBATCH --nodes=2\\r",
    instead="dos2unix job.sh",
)
def dos_line_ends(case: Case) -> Iterator[Hit]:
    """Windows line endings."""
    if "\r\n" in case.script.text:
        line = case.script.text[: case.script.text.index("\r\n")].count("\n") + 1
        yield Hit(line, "lines end with a carriage return", "sed -i 's/\\r$//' " + case.script.name.rsplit("/", 1)[-1])


@rule(
    "directive-late",
    why="Slurm and PBS stop reading directives at the first command; later ones are comments",
    example="cd $HOME\n#SBATCH --time=1:00:00",
    instead="#SBATCH --time=1:00:00\ncd $HOME",
)
def directive_late(case: Case) -> Iterator[Hit]:
    """A directive after the first command."""
    kind = case.script.scheduler
    active = {option.name for directive in read_by_scheduler(case) for option in directive.options}
    for directive in case.script.directives:
        if directive.kind == kind and directive.state == "late" and directive.options and active:
            yield Hit(directive.line, f"{directive.tag} after the first command is ignored: {directive.text}",
                      "move it above the first command")  # fmt: skip


@rule(
    "directive-spaced",
    why="The scheduler reads only lines that start exactly with its tag; other lines are comments",
    example="# SBATCH --nodes=4",
    instead="#SBATCH --nodes=4",
)
def directive_spaced(case: Case) -> Iterator[Hit]:
    """A directive with a space before or after ``#``, which makes it a comment; a note if that may be intended."""
    script = case.script
    if not any(directive.state == "read" for directive in script.directives) or _SWITCHED_ON.search(script.text):
        return  # no-directive-read says so once
    active = {
        option.name for directive in script.directives if directive.state == "read" for option in directive.options
    }
    off = sum(directive.state == "disabled" for directive in script.directives)
    for directive in script.directives:
        if directive.state != "spaced" or directive.kind != script.scheduler or not directive.options:
            continue
        names = {option.name for option in directive.options}
        if names & active or is_template(directive.text) or is_prose(directive):
            continue
        pasted = script.text[:1] in " \t" and script.text.lstrip().startswith("#!")  # all of it is indented alike
        meant = bool(names & _SIZES) and not off and not pasted
        remedy = f"{TAGS[directive.kind]} {directive.text}"
        yield Hit(directive.line, f"{NAMES[directive.kind]} reads this line as a comment: spaces around #", remedy,
                  None if meant else "note")  # fmt: skip


_SWITCHED_ON = re.compile(r"^#.*\b(?:remove|delete)\b.*\b(?:white)?spaces?\b", re.M | re.I)
"""A comment that says how to switch a directive of the script on."""


def is_prose(directive: Directive) -> bool:
    """Whether a comment only mentions the tag: ``# BSUB -nnodes, $n and the like must be set``."""
    table = HEADS[directive.kind]
    reading = read_options(table, split_directive(directive.text, directive.kind))
    return bool(reading.rest) or any(not option.name for option in reading.options)


NAMES = {
    "slurm": "Slurm", "lsf": "LSF", "pbs": "PBS", "flux": "Flux", "sge": "Grid Engine", "cobalt": "Cobalt",
    "nqsv": "NQSV",
}  # fmt: skip


@rule(
    "directive-variable",
    why="The scheduler reads directives without a shell; sbatch expands patterns such as %j and %x",
    example="#SBATCH --output=$HOME/log-$SLURM_JOB_ID",
    instead="#SBATCH --output=log-%j",
)
def directive_variable(case: Case) -> Iterator[Hit]:
    """A shell variable, or ``~``, in a directive."""
    if case.script.is_filled_in:
        return  # what fills in whole lines of the head fills in these, too
    if case.script.scheduler != "slurm":
        yield from _unexpanded(case)
        return
    for directive in read_by_scheduler(case):
        apart = re.match(r"--(container-[\w-]+)\s+(\$\S+)", directive.text)
        if apart:
            yield Hit(directive.line, f"sbatch does not expand {apart[2]} in --{apart[1]}",
                      f"sbatch --{apart[1]}={apart[2]} ...")  # fmt: skip
    for directive in read_by_scheduler(case):
        for option in directive.options:
            if option.name in ("output", "error") and option.value.endswith("/"):
                yield Hit(
                    directive.line,
                    f"{option.value} is a directory, and --{option.name} a file",
                    f"{option.value}%j.log",
                )
            if option.name in ("output", "error", "input", "chdir") and option.value.startswith("~"):
                yield Hit(directive.line, f"sbatch does not expand ~ in --{option.name}", "the whole path")
            match = re.search(r"\$\{?\w+\}?|\$\(", option.value)
            if match and option.name not in ("export", "wrap", "comment") and not _is_filled(option.value):
                known = {
                    "$SLURM_JOB_ID": "%j",
                    "$SLURM_JOBID": "%j",
                    "$SLURM_JOB_NAME": "%x",
                    "$USER": "%u",
                    "${SLURM_JOB_ID}": "%j",
                    "$SLURM_ARRAY_TASK_ID": "%a",
                }
                value = option.value
                for name, pattern in known.items():
                    value = value.replace(name, pattern)
                name = option.name or option.written
                remedy = f"#SBATCH --{name}={value}" if "$" not in value else f"sbatch --{name}={value} ..."
                yield Hit(directive.line, f"sbatch does not expand {match.group()} in --{name}", remedy)


_UNEXPANDED = {
    "pbs": ("A", "l", "N", "P", "q"),
    "lsf": ("n", "P", "q", "W"),
    "sge": ("A", "l", "l.h_rt", "N", "P", "pe", "q", "t", "wd"),
}
"""Options in which each scheduler surely takes a variable literally; some expand it in the names of files."""


def _unexpanded(case: Case) -> Iterator[Hit]:
    for directive in read_by_scheduler(case):
        for option in directive.options:
            match = re.search(r"\$\{?\w+\}?|\$\(", option.value)
            names = _UNEXPANDED.get(case.script.scheduler, ())
            output = case.script.scheduler in ("pbs", "sge") and option.name in ("o", "e")
            pro = "PBS_JOB" not in option.value or "l.select" in case.script.request.values  # not Torque
            own = re.search(r"\$\{?(?!HOME\b|USER\b|JOB_|HOSTNAME\b|TASK_ID\b)\w", option.value)
            output = output and bool(own if case.script.scheduler == "sge" else pro)
            if match and (option.name in names or output) and not _is_filled(option.value):
                program = {"lsf": "bsub"}.get(case.script.scheduler, "qsub")
                remedy = f"{program} -{option.name} ... when it is submitted" if option.name != "wd" else "#$ -cwd"
                yield Hit(directive.line, f"{program} does not expand {match.group()} in -{option.name}", remedy)


def _is_filled(value: str) -> bool:
    """Whether a template engine replaces part of the value."""
    return any(mark in value for mark in ("{{", "<%", "{%", "%>"))


_ADDING_UP = {"R", "w", "verbose", "bb", "Q", "N", "a", "B", "", "mail-type", "hint"}
"""Options of sbatch and bsub that add up where they are given twice."""


@rule(
    "option-twice",
    why="When an option is repeated, only the last value takes effect",
    example="#SBATCH --time=1:00:00\n#SBATCH --time=2:00:00",
    instead="#SBATCH --time=2:00:00",
)
def option_twice(case: Case) -> Iterator[Hit]:
    """An option given twice with different values."""
    kind = case.script.scheduler
    if kind not in ("slurm", "lsf", "pbs"):
        return
    many = {"", "l", "W", "v", "V"} if kind == "pbs" else _ADDING_UP
    seen: dict[str, tuple[str, int]] = {}
    for directive in read_by_scheduler(case):
        for name, value in _single(kind, directive.options):
            before = seen.get(name)
            if before and before[0] != value and name not in many:
                yield Hit(directive.line, f"{name} is {before[0]!r} on line {before[1]}, and this line overrides it",
                          f"remove line {before[1]}")  # fmt: skip
            seen[name] = (value, directive.line)


def _single(kind: str, options: Sequence[Option]) -> Iterator[tuple[str, str]]:
    """The options and their values; of ``-l`` of PBS the resources of which the last counts."""
    for option in options:
        pieces = re.split(r",(?=[\w.]+=)", option.value) if kind == "pbs" and option.name == "l" else []
        items = [piece.partition("=") for piece in pieces]
        yield from [(f"-l {name}", value) for name, _, value in items if name in ("select", "nodes", "walltime")]
        yield option.name or (f"--{option.written}" if option.written in _PLUGIN_LISTS else ""), option.value


_PLUGIN_LISTS = ("container-mounts", "container-env", "container-image")
"""Options of pyxis that do not add up."""
_SPOKEN = re.compile(r"(?:(\d+)\s*d(?:ays?)?)?\s*(?:(\d+)\s*h(?:(?:ou)?rs?)?)?\s*(?:(\d+)\s*m(?:in(?:ute)?s?)?)?", re.I)


def _meant(text: str) -> int:
    """The minutes of ``1d``, ``6h``, ``2h30m`` or ``90 min``; for other texts two hours, as an example."""
    match = _SPOKEN.fullmatch(text.strip())
    days, hours, rest = (int(part or 0) for part in match.groups()) if match else (0, 2, 0)
    return days * 1440 + hours * 60 + rest


@rule(
    "time-format",
    "refused",
    why="The scheduler rejects a wall time that it cannot parse",
    example="#SBATCH --time=2h",
    instead="#SBATCH --time=2:00:00",
)
def time_format(case: Case) -> Iterator[Hit]:
    """A wall time in a format that the scheduler does not accept."""
    kind, values = case.script.scheduler, case.script.request.values
    name, own = _time_option(case), case.script.own
    text = values.get(name, "")
    unfilled = re.search(r"hh|mm|\$", text.lower()) or (re.search(r"[A-Z]{3}", text) and kind != "slurm")
    if not text or is_template(text) or not re.search(r"\d", text) or unfilled:
        return
    if kind == "slurm" and minutes(text.split()[0], kind) == 0:
        yield Hit(case.script.request.line(name), f"{text} asks for no limit at all", "--time=H:MM:SS", "warning")
    if re.fullmatch(r"24|48|72|96|120|168", text) and kind in ("slurm", "pbs"):
        unit = "minutes" if kind == "slurm" else "seconds"
        yield Hit(case.script.request.line(name), f"{text} without a unit is {text} {unit}", f"{text}:00:00", "note")
    if minutes(text.split()[0], kind) is None and not case.script.request.time_min:
        meant = _meant(text)
        clock = f"{meant // 60}:{meant % 60:02}"
        forms = {"slurm": f"--time={clock}:00", "lsf": f"-W {clock}", "pbs": f"-l walltime={clock}:00"}
        forms["flux"] = f"-t {meant}m" if meant % 60 else f"-t {meant // 60}h"
        yield Hit(case.script.request.line(name), f"{text!r} is not a valid wall time for {NAMES.get(kind, kind)}",
                  f"{read_by_scheduler(case)[0].tag} {own.time_option(meant) if own else forms[kind]}")  # fmt: skip


def _time_option(case: Case) -> str:
    """The option for the wall time, of a plug-in that which the head has; empty if the scheduler has none."""
    if (own := case.script.own) is None:
        return {"slurm": "time", "lsf": "W", "pbs": "l.walltime", "flux": "time-limit"}.get(case.script.scheduler, "")
    names = own.named("time") if own.time_pattern else ()
    return next((name for name in names if name in case.script.request.values), names[0] if names else "")


@rule(
    "time-missing",
    "note",
    why="Without a wall time the queue's default or maximum applies: the job may end early or wait long",
    example="#SBATCH --nodes=2   (and no --time)",
    instead="#SBATCH --time=1:00:00",
)
def time_missing(case: Case) -> Iterator[Hit]:
    """No wall time; always a note, since many queues have a suitable default."""
    name = _time_option(case)
    values = case.script.request.values
    if (
        name
        and values
        and name not in values
        and not case.script.is_filled_in
        and not ("l.cput" in values or "We" in values or _SUBMITS_ITSELF.search(case.script.code))
    ):
        yield Hit(read_by_scheduler(case)[0].line, "no wall time is requested")


_SUBMITS_ITSELF = re.compile(r"\b(?:sbatch|qsub|bsub)\b[^\n]*\$\{?(?:0\b|BASH_SOURCE)")
"""A script that submits itself, with the options that its head has not."""


@rule(
    "memory-unit",
    why="sbatch reads a number without a unit as MiB",
    example="#SBATCH --mem=64",
    instead="#SBATCH --mem=64G",
)
def memory_unit(case: Case) -> Iterator[Hit]:
    """A --mem so small that its unit must be missing, or that sbatch cannot parse."""
    if case.script.scheduler != "slurm":
        return
    request = case.script.request
    for name, most in (("mem", 400), ("mem-per-cpu", 64), ("mem-per-gpu", 400)):
        text = request.values.get(name, "")
        if not text[:1].isdigit() or is_template(text) or "$" in text:
            continue
        size = mebibytes(text)
        if size is None:
            whole = re.match(r"(\d+)\.(\d+)([GT])", text, re.I)
            remedy = (
                f"#SBATCH --{name}={round(float(f'{whole[1]}.{whole[2]}') * 1024)}{'M' if whole[3] in 'gG' else 'G'}"
                if whole
                else f"#SBATCH --{name}=64G"
            )
            yield Hit(request.line(name), f"{text!r} is not a memory size: use an integer with K, M, G or T", remedy,
                      "refused")  # fmt: skip
        elif 0 < size < most and text.isdecimal() and not _says_megabytes(case, request.line(name)):
            least = 100 if request.all_tasks in (None, 1) else 300
            small = size >= least and not request.node_gpus  # may be intended
            remedy = f"#SBATCH --{name}={text}G"
            yield Hit(request.line(name), f"--{name}={text} requests {text} MiB", remedy, "note" if small else None)


def _says_megabytes(case: Case, line: int) -> bool:
    """Whether the comment after a directive names the unit."""
    row = case.script.text.splitlines()[line - 1]
    return bool(re.search(r"#.*\s#.*\b(?:mb|mib|mega)", row, re.I))


@rule(
    "not-understood",
    "note",
    why="Lint knows the directives of Slurm, LSF, PBS, Flux and Grid Engine, and of a plug-in that site.yaml names",
    example="#COBALT -n 16",
    instead="check the head by hand, or describe it in a plug-in",
)
def not_understood(case: Case) -> Iterator[Hit]:
    """Directives of a scheduler whose options lint does not know: what they request is not judged."""
    for line, text in case.script.foreign[:1]:
        yield Hit(line, f"not judged: what the {foreign_name(text)} directives request")
    for directive in case.script.directives:
        known = directive.kind in HEADS or (case.script.own and case.script.own.kind == directive.kind)
        if not known and directive.state != "disabled":
            yield Hit(
                directive.line,
                f"not judged: what the directives of {NAMES.get(directive.kind, directive.kind)} request",
            )
            return
