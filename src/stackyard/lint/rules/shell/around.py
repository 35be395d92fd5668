"""Rules on the shell around a launch: its standard input, its signals, its environment, its exit status, its output."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.launches import RANKS
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.heads.head import read_by_scheduler
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import is_known, shown
from stackyard.lint.smallcommands import is_no_program, is_small


@rule(
    "loop-input",
    why="The first launch reads the rest of the list, the standard input of the loop: only one line is worked on",
    example="while read host; do\n  srun -N1 -n1 ./work.sh $host\ndone < hosts.txt",
    instead="while read host; do\n  srun -N1 -n1 ./work.sh $host < /dev/null\ndone < hosts.txt",
)
def loop_input(case: Case) -> Iterator[Hit]:
    """A launch, or ssh, in a ``while read`` loop, which reads the loop's input."""
    readers = {}
    for reader in case.script.commands:
        if reader.argv[:1] == ("read",) and not any(word.startswith("-u") for word in reader.argv):
            loops = [number for number, kind in reader.command.blocks if kind == "loop"]
            if loops:
                readers[loops[-1]] = reader.line
    for launch in case.script.launches:
        command = launch.command.command
        within = [number for number, kind in command.blocks if kind == "loop" and number in readers]
        own = any(redirect.lstrip("0").startswith("<") for redirect, _ in command.redirects) or command.fed
        silent = launch.given("input") or command.background or ("-n" in launch.words[:2] and launch.word == "ssh")
        if within and launch.kind in RANKS and not launch.via and not own and not silent:
            text = f"{launch.word} reads the input of the loop of line {readers[within[-1]]}"
            yield Hit(launch.line, text, f"{launch.word} ... < /dev/null")


def _signal(case: Case) -> tuple[str, int] | None:
    """The value of --signal of Slurm or Flux in the head, and its line."""
    for directive in read_by_scheduler(case) if case.script.scheduler in ("slurm", "flux") else ():
        for option in directive.options:
            if option.name == "signal":
                return option.value, directive.line
    return None


@rule(
    "signal-not-received",
    why="Without B: Slurm signals the job's steps only, and with it the batch shell only",
    example="#SBATCH --signal=USR1@60\npython train.py",
    instead="#SBATCH --signal=USR1@60\nsrun python train.py",
)
def signal_not_received(case: Case) -> Iterator[Hit]:
    """``--signal`` in a script without a step; with ``B:``, a script that neither traps it nor hands it on by exec."""
    signal = _signal(case)
    if signal is None or case.script.is_filled_in:
        return
    value, line = signal
    steps = [launch for launch in case.launches if launch.kind == "srun"]
    programs = [launch for launch in case.launches if not launch.remote]
    to_steps = not value.upper().startswith(("B:", "RB:", "BR:", "R:B"))
    if to_steps and case.script.scheduler == "slurm":
        if not steps and not any(launch.kind in RANKS for launch in programs) and not case.script.inner:
            text = f"--signal={value} reaches the job's steps, and this script starts none"
            yield Hit(line, text, f"start the program with srun, or #SBATCH --signal=B:{value} with a trap and wait")
        return
    named = value.rpartition(":")[2].partition("@")[0].upper()
    traps = [
        command
        for command in case.script.commands
        if command.argv[:1] == ("trap",) or (command.argv[1:] and named in command.argv[1:])
    ]  # a function of the site that sets a trap for the signal
    execs = any(command.argv[:1] == ("exec",) for command in case.script.commands)
    if not traps and not execs:
        name = value.rpartition(":")[2].partition("@")[0] or "USR1"
        text = f"--signal={value} reaches the batch shell, which does not trap it: it ends the script"
        yield Hit(line, text, f"trap 'kill -{name} $pid' {name}; srun ... & pid=$!; wait $pid")
        return
    last = next((command for command in reversed(case.script.commands) if _works(command)), None)
    functions = {name for command in case.script.commands for name in command.command.functions}
    behind = [command for command in case.script.commands if command.command.background and command.argv[:1] != () and
              command.argv[0] not in functions]  # fmt: skip
    waits = bool(behind) and any(command.argv[:1] == ("wait",) for command in case.script.commands)
    works = last is not None and last.argv and last.argv[0] not in ("echo", "exit", "date", "trap", "wait")
    if last is not None and works and traps and not (execs or waits or last.command.background):
        name = last.argv[0]
        text = f"the shell runs its trap only after {shown(name)} in the foreground has ended"
        yield Hit(last.line, text, f"{shown(name)} ... & wait $!")


def _works(command: ResolvedCommand) -> bool:
    """Whether a command is a program that runs for a while, and not a small one or one of the shell."""
    name = command.argv[0] if command.argv else ""
    quiet = (
        is_small(command.argv) or is_no_program(command.argv) or name in ("kill", "wait", "trap", "exit", "cp", "mv")
    )
    return bool(name) and not quiet and not command.command.within("function") and is_known(name)


@rule(
    "export-none",
    why="srun takes --export=NONE of the job for its own: the step has neither PATH nor what modules have set",
    example="#SBATCH --export=NONE\nmodule load pytorch\nsrun python train.py",
    instead="#SBATCH --export=NONE\nmodule load pytorch\nsrun --export=ALL python train.py",
)
def export_none(case: Case) -> Iterator[Hit]:
    """``#SBATCH --export=NONE`` and an srun without ``--export``, a note for a program by its path; a job with NIL."""
    value = (case.script.request.values.get("export") or "").upper() if case.script.scheduler == "slurm" else ""
    if value == "NIL" and not re.search(r"\bPATH=|/etc/profile", case.script.code):
        yield Hit(case.script.request.line("export"), "this job gets no environment, not even PATH", "--export=NONE")
    if value not in ("NONE", "NIL"):
        return
    if re.search(r"unset\s+[^\n]*SLURM_EXPORT_ENV|SLURM_EXPORT_ENV=ALL", case.script.code):
        return
    for launch in case.launches:
        if launch.kind == "srun" and not launch.given("export") and not launch.via:
            by_path = "/" in (launch.program or ("",))[0] and not re.search(
                r"\bexport \w|module load|\bml \w", case.script.code
            )
            yield Hit(launch.line, "this step gets no environment: the job has --export=NONE", "srun --export=ALL ...",
                      "note" if by_path else None)  # fmt: skip
            return


@rule(
    "mkdir-too-late",
    why="The scheduler opens the output file before the script runs; without its directory the output is lost",
    example="#SBATCH --output=logs/%j.out\nmkdir -p logs",
    instead="mkdir -p logs; sbatch job.sh",
)
def mkdir_too_late(case: Case) -> Iterator[Hit]:
    """An output file in a directory that the script itself makes."""
    directories = {
        shown(word).rstrip("/").removeprefix("./") + "/"
        for command in case.script.commands if command.argv[:1] == ("mkdir",)
        for word in command.argv[1:] if word[:1] != "-"
    }  # fmt: skip
    for directive in read_by_scheduler(case):
        for option in directive.options:
            directory = option.value.rpartition("/")[0].removeprefix("./")
            if option.name not in ("output", "error", "o", "e", "oo", "eo") or not directory:
                continue
            fixed, of_job, _ = (directory + "/").partition("%")
            slurm = case.script.scheduler == "slurm"
            form = re.sub(r"%\d*\w", "[^/]+", re.escape(directory + "/"))
            if any(re.fullmatch(form, name) for name in directories):
                yield Hit(directive.line, f"{directory} is made by the script, after its output file is opened",
                          f"mkdir -p {directory} before the job is submitted")  # fmt: skip
            elif slurm and of_job and re.search(r"%\d*[jJAa]", directory):
                yield Hit(directive.line, f"{directory} has the number of the job: it cannot be made before",
                          f"{fixed}{option.value[len(fixed):].replace('/', '-')}")  # fmt: skip


@rule(
    "blank-behind-backslash",
    why="A backslash continues a line only as its last character: what follows is a command of its own",
    example="srun -n 4 \\ \n  python train.py",
    instead="srun -n 4 \\\n  python train.py",
)
def blank_behind_backslash(case: Case) -> Iterator[Hit]:
    """A backslash with blanks behind it at the end of a line."""
    rows = case.script.rows
    for number, row in enumerate(rows, 1):
        ends = re.search(r"(?<!\\)\\[ \t]+(?:#(?! ?\(\d+\)).*)?$", row) and not row.lstrip().startswith("#")
        if ends and number < len(rows) and number not in case.script.inner_lines and rows[number].strip():
            yield Hit(number, "the backslash is not the last character of this line: the next line is another command",
                      "remove the blanks")  # fmt: skip


@rule(
    "status-behind-a-pipe",
    "note",
    why="The status of a pipe is that of its last command: a failed launch ends the job as if it had succeeded",
    example="srun python train.py | tee train.log",
    instead="set -o pipefail\nsrun python train.py | tee train.log",
)
def status_behind_a_pipe(case: Case) -> Iterator[Hit]:
    """A launch whose output goes into a pipe, without ``pipefail``."""
    shebang = case.script.text.partition("\n")[0]
    if "pipefail" in case.script.code + shebang or "PIPESTATUS" in case.script.code or not case.script.is_batch:
        return
    for launch in case.script.launches:
        if launch.kind in RANKS and launch.command.command.piped and not launch.via:
            yield Hit(launch.line, f"the exit status of {launch.word} is lost behind the pipe", "set -o pipefail")
            return
    settings = [" ".join(command.argv[1:]) for command in case.script.commands if command.argv[:1] == ("set",)]
    strict = re.search(r"^#!\S+\s+-\w*e", shebang) or any(re.search(r"(?:^| )-\w*e", words) for words in settings)
    for command in case.script.commands if strict else ():
        name = command.argv[0] if command.argv else ""
        helper = (
            is_small(command.argv) or is_no_program(command.argv) or name in ("scontrol", "squeue", "yes", "printf")
        )
        if command.command.piped and not command.command.fed and name and not helper and is_known(name):
            yield Hit(
                command.line, f"set -e does not see a failure of {shown(name)} before the pipe", "set -o pipefail"
            )
            return


@rule(
    "conda-activate-hook",
    why="conda activate is a function of the shell, which a batch script does not have: the base Python runs instead",
    example="#SBATCH --nodes=1\nconda activate train\nsrun python train.py",
    instead='#SBATCH --nodes=1\neval "$(conda shell.bash hook)"\nconda activate train\nsrun python train.py',
)
def conda_activate_hook(case: Case) -> Iterator[Hit]:
    """``conda activate`` with nothing before it that could define the function."""
    if not case.script.is_batch and "sbatch" not in case.script.code:
        return
    for command in case.script.commands:
        if command.argv[:2] in (("conda", "activate"), ("mamba", "activate"), ("micromamba", "activate")):
            before = "\n".join(row for row in case.script.rows[: command.line - 1] if row[:1] != "#" or row[:2] == "#!")
            by_module = _MODULE.search(before) and not _HOOK.search(before)
            if not _HOOK.search(before):
                doubt = ", unless the module defines it" if by_module else ""
                yield Hit(command.line, f"{command.argv[0]} activate: the shell function is not defined here{doubt}",
                          f'eval "$({command.argv[0]} shell.bash hook)"', "note" if by_module else None)  # fmt: skip
            return


_HOOK = re.compile(
    r"(?m)^#!.*\s(?:-\w*[li]\w*|--login)\b|conda\.sh|shell[. ](?:\w+[. ])?(?:bash|zsh|posix)|\bhook\b|"
    r"^\s*(?:source|\.)\s|\beval\b|\bspack\b"
)
"""What defines the function: a login shell, conda's own script or hook, a sourced file."""
_MODULE = re.compile(r"\bmodule\b|\bml\b")


_OF_THE_TASK = re.compile(
    r"SLURM_(?:ARRAY_TASK_ID|ARRAY_JOB_ID|JOB_ID|PROCID|LOCALID)|PBS_(?:JOBID|ARRAY_INDEX)|LSB_JOBI(?:D|NDEX)"
)


@rule(
    "scheduler-variable-set",
    why="The scheduler sets this variable for each job or task; a value of the script is the same for all of them",
    example="#SBATCH --array=1-10\nexport SLURM_ARRAY_TASK_ID=3",
    instead="#SBATCH --array=1-10",
)
def scheduler_variable_set(case: Case) -> Iterator[Hit]:
    """A plain value for a variable by which jobs and tasks know themselves."""
    for command in case.script.commands if case.script.is_batch else ():
        persists = not command.argv or command.argv[0] in ("export", "declare")
        for name, value in command.sets if persists else ():
            if _OF_THE_TASK.fullmatch(name) and re.fullmatch(r"[\"']?\d+[\"']?", value):
                yield Hit(
                    command.line, f"{name} is set to {value} for every task", f"remove it: {name} is the scheduler's"
                )
