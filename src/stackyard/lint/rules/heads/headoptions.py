"""Rules on the options of the head, and on a head of which nothing is read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.core.hints import nearest
from stackyard.launch.request.options import Option, Table, read_options
from stackyard.lint.directives import TAGS, Directive, split_directive, would_be_directives
from stackyard.lint.rules.base import Case, Hit, is_template, rule
from stackyard.lint.rules.heads.head import NAMES, read_by_scheduler
from stackyard.lint.script import Script
from stackyard.lint.shell.words import is_known
from stackyard.lint.tables import FLUX, HEADS, PLUGIN_OPTIONS, SBATCH, SRUN

_RUNNERS = {"slurm": ("srun", SRUN), "flux": ("flux run", FLUX)}
_PROGRAMS = {"slurm": "sbatch", "lsf": "bsub", "pbs": "qsub", "flux": "flux batch"}


@rule(
    "unknown-option",
    "refused",
    why="The scheduler rejects a job with an unknown option",
    example="#SBATCH --ntask-per-node=4",
    instead="#SBATCH --ntasks-per-node=4",
)
def unknown_option(case: Case) -> Iterator[Hit]:
    """An option that the scheduler does not have, or an ambiguous one; a warning if a plugin may define it."""
    if (table := case.script.table) is None:
        return
    for directive in read_by_scheduler(case):
        for option in directive.options:
            if len(option.written) == 1 and re.search(rf"(?<!\S)--{option.written}(?==|\s|$)", directive.text) \
                    and case.script.scheduler == "slurm":  # fmt: skip
                better = directive.text.replace(f"--{option.written}=", f"-{option.written} ").replace("--", "-", 1)
                yield Hit(directive.line, f"sbatch has no option --{option.written}", f"{directive.tag} {better}")
                continue
            plugin = option.written in PLUGIN_OPTIONS and case.script.scheduler == "slurm"
            if not option.name and not plugin and not is_template(option.written):
                yield _unknown(case.script, table, directive, option)


def _unknown(script: Script, table: Table, directive: Directive, option: Option) -> Hit:
    scheduler, line, tag, name = script.scheduler, directive.line, directive.tag, option.written
    near, shortest = table.nearest(name), len(name) == 1
    begins = sorted(known for known in table.valued if known.startswith(name) and len(name) > 2)
    hyphens = "--" if scheduler in ("slurm", "flux") and not shortest else "-"
    if scheduler == "slurm" and len(begins) > 1:
        text = f"--{name} is ambiguous: {', '.join('--' + known for known in begins[:4])}"
        return Hit(line, text, f"{tag} --{min(begins, key=len)}={option.value}")
    if scheduler == "slurm" and (resource := re.search(r"-l\s*(\w+)=(\S+)", directive.text)) and name == "l":
        better = f"--time={resource[2]}" if resource[1] == "walltime" else "--nodes=N --ntasks-per-node=N"
        return Hit(line, "-l with a resource is an option of qsub, not of sbatch", f"{tag} {better}")
    runner, options = _RUNNERS.get(scheduler, ("", table))
    if runner and options.canonical(name):
        text = f"{hyphens}{name} is an option of {runner}, not of {_PROGRAMS[scheduler]}"
        return Hit(line, text, f"{runner} {hyphens}{name} ...")
    if near and len(name) > 3:
        text = f"unknown option {name!r}: did you mean {near!r}?"
        mended = re.sub(rf"(?<![\w-])(-+){re.escape(name)}(?![\w-])", rf"\g<1>{near}", directive.text)
        return Hit(line, text, f"{tag} {mended}")
    text = f"{script.own.program if script.own else _PROGRAMS[scheduler]} has no option {hyphens}{name}"
    if scheduler in ("slurm", "flux") and not shortest:
        hint = f"remove it, or run {_PROGRAMS[scheduler]} --help"
        return Hit(line, f"{text}, unless a plugin of the site adds it", hint, "warning")
    return Hit(line, text, "remove it")


_NUMBERS = {"nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-task", "gpus-per-node", "mem", "time"}


@rule(
    "option-without-value",
    "refused",
    why="The scheduler rejects an option that lacks its value",
    example="#SBATCH -o",
    instead="#SBATCH -o log-%j",
)
def option_without_value(case: Case) -> Iterator[Hit]:
    """An option at the end of a directive that needs a value, also a number with nothing behind its ``=``."""
    if own := case.script.own:
        for directive in read_by_scheduler(case):
            for short in filter(own.lacks, directive.options):
                text = f"{own.written[short.name]} has no value: {own.program} rejects the directive"
                yield Hit(directive.line, text, f"{directive.tag} {directive.text} VALUE")
    kind = case.script.scheduler
    for directive in read_by_scheduler(case) if kind in HEADS else ():
        table, option = HEADS[kind], directive.options[-1] if directive.options else None
        if option is None or option.value or not option.name or option.written in (*table.flags, *table.optional):
            continue
        hyphens = "--" if kind in ("slurm", "flux") and len(option.written) > 1 else "-"
        dashed, words = hyphens + option.written, split_directive(directive.text, directive.kind)
        if words[-1:] == [dashed] or (words[-1:] == [f"{dashed}="] and option.name in (*_NUMBERS, "gres", "gpus")):
            remedy = f"{directive.tag} {' '.join(words).removesuffix('=')} VALUE"
            yield Hit(directive.line, f"{dashed} has no value: {_PROGRAMS[kind]} rejects the directive", remedy)


_BLANKS = re.compile("[\u00a0\u2007\u202f\u3000\u200b\ufeff]")
"""Blanks of Unicode, which schedulers read as parts of a word."""


@rule(
    "blank-not-ascii",
    "refused",
    why="The scheduler takes a no-break space, as web pages have them, for a letter of the option",
    example="#SBATCH --partition\u00a0milan    (a no-break space)",
    instead="#SBATCH --partition=milan",
)
def blank_not_ascii(case: Case) -> Iterator[Hit]:
    """A blank in a directive that is not a space or a tab."""
    for directive in read_by_scheduler(case):
        row = case.script.rows[directive.line - 1]
        if match := _BLANKS.search(row):
            better = " ".join(_BLANKS.sub(" ", row).split())
            yield Hit(
                directive.line, f"a blank that is not a space (U+{ord(match[0]):04X}) is part of an option", better
            )


@rule(
    "pbs-words",
    "refused",
    why="qsub takes each word of a directive for an option and rejects others",
    example="#PBS walltime=04:00:00",
    instead="#PBS -l walltime=04:00:00",
)
def pbs_words(case: Case) -> Iterator[Hit]:
    """A directive of PBS that does not begin with an option; resources of PBS in a head of Grid Engine."""
    for directive in read_by_scheduler(case) if case.script.scheduler == "sge" else ():
        for option in directive.options:
            match = re.search(r"(?:^|,)(nodes|ppn|walltime|select|ncpus|mpiprocs)=", option.value)
            if option.name == "l" and match:
                better = "-l h_rt=H:M:S" if match[1] == "walltime" else "-pe NAME SLOTS"
                text = f"{match[1]} is a resource of PBS, which Grid Engine does not know"
                why = "qsub of Grid Engine rejects a resource that the cluster does not define"
                yield Hit(directive.line, text, f"#$ {better}", reason=why)
    for directive in read_by_scheduler(case) if case.script.scheduler == "pbs" else ():
        first, rest = directive.text.split()[:1], re.sub(r"\s#.*", "", directive.text)
        apart = re.search(r"-l\s+\S*[=,:]\s+\w|-l\s+\w+\s+=", rest)
        if apart and not is_template(rest):
            yield Hit(
                directive.line, f"{apart[0]!r}: a blank ends the list of resources", f"#PBS {rest.replace('= ', '=')}"
            )
        elif re.match(r"-n\s+[A-Za-z]", rest):
            yield Hit(
                directive.line, "-n takes no value: the name of a job is -N", f"#PBS {rest.replace('-n', '-N', 1)}"
            )
        elif first and (
            re.match(r"(?:walltime|mem|vmem|pmem|ncpus|nodes|select|place|ngpus)=", first[0])
            or rest.startswith("rundir")
        ):
            text = f"{first[0]!r} does not belong to an option: qsub rejects it"
            yield Hit(directive.line, text, f"#PBS -l {directive.text}" if "=" in first[0] else "cd in the script")


_APART = re.compile(r"(?<!\S)(--[\w-]+)(?:\s+=\s*|=\s+)(?=[^\s#])")
"""A long option whose value is not joined to it, as ``--ntasks = 4``."""
_HOLE = re.compile(r"(?<!\S)<\w[\w ,-]*>(?!\S)")
"""A word that is to be filled in by hand, ``<MORE OPTIONS>``."""


@rule(
    "stray-words",
    "refused",
    why="sbatch parses each word of a directive as an option and rejects other words",
    example="#SBATCH --time=2:00:00 two hours",
    instead="#SBATCH --time=2:00:00   # two hours",
)
def stray_words(case: Case) -> Iterator[Hit]:
    """Words in a directive that do not belong to an option; a note for ``<MORE OPTIONS>``, to be filled in."""
    if case.script.scheduler == "lsf":
        yield from _unquoted(case)
    if case.script.scheduler != "slurm":
        return
    for directive in read_by_scheduler(case):
        words = split_directive(directive.text, directive.kind)
        reading = read_options(SBATCH, words)
        joined = _APART.sub(r"\1=", directive.text)
        odd = next((option.value for option in reading.options if option.value.startswith("=")), "")
        stray = [word for word in reading.rest if not re.match(r"-|\(\d+\)|[\u2012-\u2015\u2212]", word)]
        certain = not reading.doubtful and all(option.name for option in reading.options)
        blank = re.search(r"=(\[[A-Za-z][\w -]*\])(?!\S)", directive.text)  # --account=[budget code]
        hole = (
            blank[1]
            if blank and stray and blank[1].endswith(stray[-1])
            else next((hole for hole in _HOLE.findall(directive.text) if stray and hole.startswith(stray[0])), "")
        )
        if hole and certain and not case.script.is_filled_in and hole != directive.text.strip():
            text = f"{hole!r} is still to be filled in: sbatch rejects the directive"
            yield Hit(directive.line, text, f"#SBATCH {' '.join(directive.text.replace(hole, '').split())}", "note")
        elif stray and certain and not is_template(directive.text):
            remedy = f"#SBATCH {' '.join(words[: words.index(stray[0])])}   # {' '.join(stray)}".replace("  #", " #")
            remedy = f"#SBATCH --{directive.text}" if stray[0] == words[0] and "=" in stray[0] else remedy
            listed = re.sub(r",\s+", ",", directive.text)  # -p a, b
            remedy = f"#SBATCH {listed}" if listed != directive.text else remedy
            remedy = f"#SBATCH {joined}" if joined != directive.text else remedy
            yield Hit(
                directive.line, f"{stray[0]!r} does not belong to an option: sbatch rejects the directive", remedy
            )
        elif odd and joined != directive.text:
            yield Hit(directive.line, f"{odd!r} is not a value: an option ends at the blank", f"#SBATCH {joined}")


def _unquoted(case: Case) -> Iterator[Hit]:
    """A resource of LSF behind a blank without quotes, which bsub takes for the command."""
    for directive in read_by_scheduler(case):
        match = re.search(
            r"-R\s+([a-z]\w*\[[^\]\"']*\])\s+((?:span|rusage|select|affinity|order|cu|same)\[)", directive.text
        )
        if match:
            whole = directive.text[match.start(1) :].strip()
            reason = "bsub takes the second word for the command of the job"
            yield Hit(directive.line, f"{match[2]} ...] does not belong to -R: blanks need quotes",
                      f'#BSUB -R "{whole}"', None, reason)  # fmt: skip


@rule(
    "unknown-launch-option",
    "refused",
    why="srun stops at an option that it does not have",
    example="srun -gpus 3 ./a.out",
    instead="srun --gpus=3 ./a.out",
)
def unknown_launch_option(case: Case) -> Iterator[Hit]:
    """An srun with an option that it does not have; a warning for a long one, which a plugin of the site may add."""
    for launch in case.launches:
        for option in launch.reading.options if launch.kind == "srun" else ():
            if not option.name and len(option.written) == 1 and option.written.isalpha():
                text = f"srun has no option -{option.written}"
                meant = f"--{option.written}{option.value}"
                better = meant if SRUN.canonical(meant[2:]) else "srun --help has its options"
                yield Hit(launch.line, text, better)
            elif not option.name and len(option.written) > 1 and option.written not in PLUGIN_OPTIONS:
                near = SRUN.nearest(option.written)
                if near and is_known(option.written):
                    text = f"srun has no option --{option.written}: did you mean {near!r}?"
                    yield Hit(launch.line, text, f"--{near}", "warning")


@rule(
    "no-directive-read",
    why="The scheduler reads only lines that start exactly with its tag: the job gets defaults for everything",
    example="#!/bin/bash\n# SBATCH --nodes=4\n##SBATCH --time=1:00:00",
    instead="#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --time=1:00:00",
)
def no_directive_read(case: Case) -> Iterator[Hit]:
    """Lines like directives, none of which the scheduler reads."""
    text = case.script.text
    if (
        any(directive.state in ("read", "component") for directive in case.script.directives)
        or "{%" in text
        or "<%" in text
    ):
        return
    lines = [
        directive for directive in would_be_directives(text, case.script.inner_lines) if not is_template(directive.text)
    ]
    lines = [line for line in lines if any(o.name for o in line.options) and all(o.name for o in line.options)]
    late = {directive.line for directive in case.script.directives if directive.state == "late"}
    lines = [line for line in lines if line.line in late] or lines
    if lines:
        first = lines[0]
        count = "this directive" if len(lines) == 1 else f"none of {len(lines)} directives"
        verb = "is not read" if len(lines) == 1 else "is read"
        why, remedy = f"reads lines that start with {TAGS[first.kind]} and a blank", f"{TAGS[first.kind]} {first.text}"
        if all(line.line in late for line in lines):
            why, remedy = "stops at the first command", "move the directives above the first command"
        yield Hit(first.line, f"{count} {verb}: {NAMES[first.kind]} {why}", remedy)


_LIKE_A_TAG = re.compile(r"^(#(?:[A-Z]{4,8}|(?i:SBATCH|BSUB))|[^\w\s#]?#?(?:SBATCH|BSUB|PBS))[ \t]+(?=-)(.*)$")
"""``#SBTACH -n 4``, ``#sbatch -n 4``, and what is not a comment at all: ``!#SBATCH -n 4``, ``SBATCH -n 4``."""


@rule(
    "directive-misspelt",
    why="The scheduler reads only lines that start exactly with its tag; other lines are comments",
    example="#SBTACH --gres=gpu:4",
    instead="#SBATCH --gres=gpu:4",
)
def directive_misspelt(case: Case) -> Iterator[Hit]:
    """A comment whose first word is nearly a scheduler's tag, with options that the scheduler has."""
    script = case.script
    others = script.inner_lines.union(number for number, _ in script.foreign)
    for number, row in enumerate(script.text.splitlines(), 1):
        match = _LIKE_A_TAG.match(row) if number not in others else None
        tags = {tag[1:]: kind for kind, tag in TAGS.items() if script.scheduler in (kind, "")}
        near = nearest(re.sub(r"\W", "", match[1]).upper(), tags, cutoff=0.75) if match else []
        if not match or not near or match[1] == f"#{near[0]}":
            continue
        reading = read_options(HEADS[tags[near[0]]], split_directive(match[2], tags[near[0]]))
        if reading.options and all(option.name for option in reading.options) and not reading.rest:
            name = NAMES[tags[near[0]]]
            what = f"{name} reads this line as a comment" if match[1].startswith("#") else "this line is a command"
            yield Hit(number, f"{what}: {match[1]}", f"#{near[0]} {match[2].strip()}")


_SHORT = re.compile(r"(?<!\S)-([A-Za-z])=(\S+)")


@rule(
    "equals-in-short-option",
    "refused",
    why="A short option takes its value without =: the sign becomes part of the value",
    example="#SBATCH -o=train.log",
    instead="#SBATCH -o train.log",
)
def equals_in_short_option(case: Case) -> Iterator[Hit]:
    """``-N=2``, which sbatch rejects, or ``-o=FILE``, which names another file."""
    for directive in read_by_scheduler(case) if case.script.scheduler in ("slurm", "lsf", "pbs") else ():
        for letter, value in _SHORT.findall(directive.text.partition(" #")[0]):
            taken = case.script.scheduler == "slurm" and letter in "oeiJA"
            text = f"-{letter}={value}: the value is '={value}'"
            yield Hit(directive.line, text, f"{directive.tag} -{letter} {value}", "warning" if taken else None)


_LONG_NAMES = frozenset(name for name in (*SBATCH.valued, *SBATCH.flags, *SBATCH.optional) if len(name) > 2)


@rule(
    "one-hyphen",
    why="One hyphen begins a short option: -mem=4G is -m with the value em=4G, and the memory is not requested",
    example="#SBATCH -mem=4G",
    instead="#SBATCH --mem=4G",
)
def one_hyphen(case: Case) -> Iterator[Hit]:
    """The long name of an option of sbatch with one hyphen."""
    for directive in read_by_scheduler(case) if case.script.scheduler == "slurm" else ():
        for word in split_directive(directive.text, "slurm"):
            name = word[1:].partition("=")[0] if word[:1] == "-" else ""
            if name in _LONG_NAMES and not re.search(rf"-J\s+{re.escape(word)}", directive.text):
                yield Hit(directive.line, f"{word} is read as -{word[1]} with the value {word[2:]}", f"#SBATCH -{word}")
