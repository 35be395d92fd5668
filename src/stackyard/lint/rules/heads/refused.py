"""Rules on values and words that the scheduler or srun rejects at once, in all versions.

Sources: sbatch(1), "--mail-type"; Slurm's NEWS (17.11: --workdir becomes --chdir; 19.05 drops it); LSF's lsf.conf,
LSB_BSUB_PARSE_SCRIPT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.directives import split_directive
from stackyard.lint.rules.base import Case, Hit, is_template, rule
from stackyard.lint.rules.heads.head import read_by_scheduler
from stackyard.lint.shell.words import is_known, shown

_MAIL = re.compile(
    r"NONE|BEGIN|END|FAIL|REQUEUE|ALL|INVALID_DEPEND|STAGE_OUT|TIME_LIMIT(?:_[985]0)?|ARRAY_TASKS", re.IGNORECASE
)
_DASHES = "\u2012\u2013\u2014\u2015\u2212"
_DASH = re.compile(f"^[{_DASHES}]+(?=[A-Za-z])")
_REMOVED = {"workdir": ("chdir", "-D", (19, 5))}
"""Options of sbatch that later versions lack: the new name, the letter that all versions take, the first without it."""
_ALONE = ("help", "version", "multi-prog", "test-only")


@rule(
    "option-removed",
    why="Later versions of Slurm reject the option",
    example="#SBATCH --workdir=/scratch/me",
    instead="#SBATCH -D /scratch/me",
)
def option_removed(case: Case) -> Iterator[Hit]:
    """An option that sbatch had in former versions."""
    for directive in read_by_scheduler(case) if case.script.scheduler == "slurm" else ():
        for option in directive.options:
            better, short, since = _REMOVED.get(option.written, ("", "", (0, 0)))
            if better and (not case.version or case.version >= since):
                text = f"--{option.written} is --{better} since Slurm {since[0]}.{since[1]:02}"
                yield Hit(directive.line, text, f"#SBATCH {short} {option.value}".rstrip())


@rule(
    "mail-type-unknown",
    "refused",
    why="sbatch rejects a job with a type of mail that it does not have",
    example="#SBATCH --mail-type=BEGIN,ABORT",
    instead="#SBATCH --mail-type=BEGIN,FAIL",
)
def mail_type_unknown(case: Case) -> Iterator[Hit]:
    """A --mail-type that is none of sbatch's."""
    for directive in read_by_scheduler(case) if case.script.scheduler == "slurm" else ():
        for option in directive.options:
            words = [word.strip() for word in option.value.split(",")] if option.name == "mail-type" else []
            wrong = [word for word in words if re.fullmatch(r"\w+", word) and not _MAIL.fullmatch(word)]
            wrong = [] if is_template(option.value) else wrong
            if wrong:
                valid = ",".join(word for word in words if word not in wrong) or "FAIL"
                yield Hit(directive.line, f"sbatch has no mail type {', '.join(wrong)}", f"#SBATCH --mail-type={valid}")


@rule(
    "dash-not-hyphen",
    "refused",
    why="An option begins with a hyphen; a dash, which word processors make of it, begins an ordinary word",
    example="#SBATCH –n 4",
    instead="#SBATCH -n 4",
)
def dash_not_hyphen(case: Case) -> Iterator[Hit]:
    """An option of a directive or a launch that begins with a dash."""
    for directive in read_by_scheduler(case):
        words = split_directive(directive.text, directive.kind)
        if any(map(_DASH.match, words)):
            mended = " ".join(_hyphened(word, case.script.scheduler) for word in words)
            yield Hit(directive.line, "an option begins with a dash, not with a hyphen", f"{directive.tag} {mended}")
    for launch in case.launches:
        if launch.program and _DASH.match(launch.program[0]):
            mended = " ".join(_hyphened(word, "") for word in (launch.word, *launch.program[:2]))
            yield Hit(launch.line, f"an option of {launch.word} begins with a dash, not with a hyphen", f"{mended} ...")


def _hyphened(word: str, scheduler: str) -> str:
    name = re.split(r"[=\d]", word.lstrip(_DASHES))[0]
    short = scheduler in ("lsf", "pbs") or len(name) == 1
    return _DASH.sub("-" if short else "--", word)


@rule(
    "srun-without-program",
    "refused",
    why="srun ends with an error if no program follows its options",
    example="srun -n 4 --mem 8G",
    instead="srun -n 4 --mem=8G ./program",
)
def srun_without_program(case: Case) -> Iterator[Hit]:
    """An srun whose words are all options."""
    for launch in case.launches:
        known = all(map(is_known, launch.words)) and not launch.doubtful and not is_template(" ".join(launch.words))
        if launch.kind == "srun" and re.search(r"./bin/?$", (*launch.program, "")[0]):
            yield Hit(launch.line, f"{shown(launch.program[0])} is a directory, and no program", ".../bin/PROGRAM")
        if launch.kind == "srun" and known and not launch.program and not launch.given(*_ALONE):
            yield Hit(launch.line, "srun has no program to start", f"{' '.join(map(shown, launch.words))} ./program")


@rule(
    "bsub-without-input",
    "note",
    why="bsub reads the #BSUB lines of its standard input; a file among its words is run as a command, without them",
    example="bsub job.lsf",
    instead="bsub < job.lsf",
)
def bsub_without_input(case: Case) -> Iterator[Hit]:
    """A bsub with the name of a batch script and no ``<``, which only LSB_BSUB_PARSE_SCRIPT=Y makes read it."""
    for resolved in case.script.commands:
        words, command = resolved.argv, resolved.command
        fed = command.fed or command.here or any(op.startswith("<") for op, _ in command.redirects)
        alone = words[:1] == ("bsub",) and len(words) == 2 and not fed
        if alone and _is_batch_file(case, words[1], command.words[-1].raw):
            text = "bsub runs this file as a command: its #BSUB lines do not count"
            yield Hit(resolved.line, text, f"bsub < {shown(words[1])}")


def _is_batch_file(case: Case, word: str, raw: str) -> bool:
    """Whether a word names a batch script of LSF: by its suffix, or since this script writes #BSUB lines into it.

    A job without any option needs its #BSUB lines, also where a job submits a next one by the name of a shell script.
    """
    if case.script.scheduler == "lsf" and word.endswith(".sh"):
        return True
    written = (
        target.raw
        for command in case.script.commands
        if "#BSUB" in command.command.here or any("#BSUB" in text for text in command.argv)
        for operator, target in command.command.redirects
        if operator in (">", ">>", ">|")
    )
    return bool(re.search(r"\.(lsf|bsub)$", word)) or raw in written
