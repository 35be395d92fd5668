"""Rules on lines that bash reads differently from how they are meant: cut commands, lost paths, moved scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.launch.request.options import read_options
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.words import is_known, shown
from stackyard.lint.tables import PLUGIN_OPTIONS, SBATCH


@rule(
    "option-alone",
    why="Without a backslash at its end the command is over: what follows runs as a command of its own, and fails",
    example="srun python train.py \\\n  --lr 0.1\n  --epochs 3",
    instead="srun python train.py \\\n  --lr 0.1 \\\n  --epochs 3",
)
def option_alone(case: Case) -> Iterator[Hit]:
    """A line that begins with an option, since the line before does not end with a backslash."""
    for command in case.script.commands:
        name = command.argv[0] if command.argv else ""
        row = case.script.row(command.line).lstrip()
        if re.match(r"--?[A-Za-z]", name) and row.startswith("-") and not _is_comment(case, command.line - 1):
            yield Hit(
                command.line, f"{shown(name)} begins a command of its own", "end the line before with a backslash"
            )


@rule(
    "comment-in-command",
    why="A backslash joins the comment to the command, which ends there: the lines behind it are lost",
    example="srun python train.py \\\n  # --lr 0.1 \\\n  --epochs 3",
    instead="srun python train.py \\\n  --epochs 3",
)
def comment_in_command(case: Case) -> Iterator[Hit]:
    """A commented line between the continued lines of a command."""
    for number, row in enumerate(case.script.rows, 1):
        following = case.script.row(number + 1).strip()
        goes_on = row.rstrip().endswith("\\") or following.startswith("-")
        if _is_comment(case, number) and goes_on and following:
            yield Hit(number, "the command ends at this comment: the lines behind it do not belong to it",
                      "move the comment above the command")  # fmt: skip


def _is_comment(case: Case, number: int) -> bool:
    """Whether a line is a comment that the line before continues into."""
    rows = case.script.rows
    if number < 2 or number > len(rows) or number in case.script.inner_lines:
        return False
    before = rows[number - 2]
    return rows[number - 1].lstrip().startswith("#") and bool(re.search(r"(?<!\\)\\$", before)) \
        and not before.lstrip().startswith("#")  # fmt: skip


_SPOOLED = re.compile(
    r"(?:dirname|realpath|readlink)\b[^\n;|]{0,200}?(?:\$\{?0\b|BASH_SOURCE)|\$\{(?:0|BASH_SOURCE\[0\]|BASH_SOURCE)%/"
)
"""The directory of the script itself, as scripts find it that are not copied."""
_OF_SUBMISSION = {"slurm": "SLURM_SUBMIT_DIR", "pbs": "PBS_O_WORKDIR", "lsf": "LS_SUBCWD", "sge": "SGE_O_WORKDIR"}


@rule(
    "script-directory",
    why="The scheduler runs a copy of the script from its spool directory: $0 and BASH_SOURCE name that copy",
    example='#SBATCH --nodes=1\nsource "$(dirname "$0")/env.sh"',
    instead='#SBATCH --nodes=1\nsource "$SLURM_SUBMIT_DIR/env.sh"',
)
def script_directory(case: Case) -> Iterator[Hit]:
    """A batch script that looks for files beside itself."""
    variable, code = _OF_SUBMISSION.get(case.script.scheduler, ""), case.script.code
    if (
        not variable
        or variable in code
        or re.search(r"scontrol\s+show\s+job|_JOB_?ID\b[^\n]*\]|sbatch\s+\S*\$\{?0", code)
    ):
        return
    for number, row in enumerate(code.splitlines(), 1):
        if _SPOOLED.search(row) and number not in case.script.inner_lines:
            yield Hit(
                number, "the directory of this script is the scheduler's, which has none of its files", f"${variable}"
            )
            return


_BASH = re.compile(r"^[ \t]*\w+\+?=\((?!\()|(?:^|[\s;!])\[\[\s|<<<|[\s=]<\("
                   r"|^[ \t]*source\s|\[ [^\]\n]*\s==\s|\s&>|\{\d+\.\.\d+\}|^[ \t]*function\s", re.M)  # fmt: skip


@rule(
    "bash-in-sh",
    "note",
    why="Where sh is not bash, as on Debian and Ubuntu, these are syntax errors",
    example="#!/bin/sh\n#SBATCH --nodes=1\nfiles=(a b)",
    instead="#!/bin/bash\n#SBATCH --nodes=1\nfiles=(a b)",
)
def bash_in_sh(case: Case) -> Iterator[Hit]:
    """Arrays, ``[[``, ``<<<`` or ``<( )`` in a script whose first line names sh, or that ``sh FILE`` runs."""
    for command in case.script.commands:
        text = case.text_of(command.argv[1]) or "" if command.argv[:1] == ("sh",) and command.argv[1:] else ""
        if re.match(r"#!\s*\S*[/ ]bash", text) and _BASH.search(text):
            yield Hit(
                command.line, f"{shown(command.argv[1])} is written in bash, and sh runs it", f"bash {command.argv[1]}"
            )
    first = case.script.text.partition("\n")[0].strip()
    named = "bash" in (case.script.request.values.get("S") or "")
    if not case.script.is_batch or not re.fullmatch(r"#!\s*/bin/sh(\s+-\w+)?", first) or named:
        return
    rows = case.script.code.splitlines()
    for number, row in enumerate(rows, 1):
        if _BASH.search(row) and number not in case.script.inner_lines:
            yield Hit(number, "this is bash, and the first line names sh", "#!/bin/bash")
            return
    for command in case.script.commands:
        if command.argv[:1] in (("module",), ("ml",)) and not re.search(r"(?m)^\s*(?:\.|source)\s", case.script.code):
            text = f"{command.argv[0]} is a function that sh may not have, and the first line names sh"
            yield Hit(command.line, text, "#!/bin/bash")
            return


@rule(
    "expanded-at-submission",
    why="In a here-document without quotes the shell that submits replaces the variables: those of the job are empty",
    example="sbatch <<EOF\n#!/bin/bash\nsrun python run.py --seed $SLURM_ARRAY_TASK_ID\nEOF",
    instead="sbatch <<'EOF'\n#!/bin/bash\nsrun python run.py --seed $SLURM_ARRAY_TASK_ID\nEOF",
)
def expanded_at_submission(case: Case) -> Iterator[Hit]:
    """A variable of the job in a script that is submitted as a here-document."""
    for command in case.script.commands if not case.script.is_batch else ():
        row = case.script.row(command.line)
        submits = command.argv[:1] in (("sbatch",), ("qsub",), ("bsub",))
        if not submits or not command.command.here or re.search(r"<<-?\s*(?:['\"]|\\)", row):
            continue
        for number, text in enumerate(command.command.here.splitlines(), command.command.here_line):
            own = "|".join(re.findall(r"(?m)^(?:export )?([A-Za-z_]\w*)=", command.command.here)) or "SLURM_JOB_ID"
            match = re.search(rf"(?<!\\)\$\{{?((?:SLURM|PBS|LSB|SGE)_\w+|(?:{own})\b)|awk [^\n]*(?<!\\)\$(\d|NF)", text)
            if match and not text.lstrip().startswith("#SBATCH"):
                name = match[1] or match[2]
                yield Hit(number, f"${name} is replaced when the job is submitted", f"\\${name}, or <<'EOF'")
                return


_FOREIGN = {
    "slurm": re.compile(
        r"\$\{?((?:PBS_(?:O_\w+|NODEFILE|JOBID|NP|NUM_PPN|ARRAY\w*)|LS_SUBCWD|LSB_\w+|SGE_TASK_ID|PE_HOSTFILE))"
    ),
    "pbs": re.compile(r"\$\{?((?:SLURM_\w+|LS_SUBCWD|LSB_\w+|SGE_TASK_ID|PE_HOSTFILE))"),
    "lsf": re.compile(r"\$\{?((?:SLURM_\w+|PBS_\w+|SGE_TASK_ID|PE_HOSTFILE))"),
}


@rule(
    "other-schedulers-variable",
    why="Each scheduler sets variables of its own: this one is empty in the job",
    example="#SBATCH --nodes=1\ncd $PBS_O_WORKDIR",
    instead="#SBATCH --nodes=1\ncd $SLURM_SUBMIT_DIR",
)
def other_schedulers_variable(case: Case) -> Iterator[Hit]:
    """A variable of another scheduler in a script with one head, which does not look whether it is set."""
    kind = case.script.scheduler
    if (
        {directive.kind for directive in case.script.directives} != {kind}
        or kind not in _FOREIGN
        or case.script.foreign
    ):
        return
    for command in case.script.commands:
        match = _FOREIGN[kind].search(command.raw)
        if match and not re.search(rf"{match[1]}\}}?[\"']?\s*\]|{match[1]}:?[-+=?]|\b{match[1]}=|-[nz]\s+\S*{match[1]}",
                                   case.script.code) and not command.command.within("branch"):  # fmt: skip
            yield Hit(command.line, f"{match[1]} is not a variable of this scheduler", _OF_SUBMISSION.get(kind, ""))
            return


@rule(
    "options-behind-script",
    why="What follows the script's name are its own arguments: the scheduler does not see them",
    example="sbatch job.sh --nodes=2",
    instead="sbatch --nodes=2 job.sh",
)
def options_behind_script(case: Case) -> Iterator[Hit]:
    """Options of sbatch behind the name of the script; a word before them that is none; words behind ``--wrap``."""
    for command in case.script.commands:
        words = command.argv
        if words[:1] != ("sbatch",):
            continue
        reading = read_options(SBATCH, words[1:])
        first, *rest = reading.rest or ("",)
        late = [word for word in rest if word[:2] == "--" and SBATCH.canonical(word[2:].partition("=")[0])]
        cut = " " not in (reading.get("wrap") or " ") and (first or any(not option.name for option in reading.options))
        names = (option.written for option in reading.options if not option.name)
        odd = next((name for name in names if len(name) > 1 and name not in PLUGIN_OPTIONS and is_known(name)), "")
        if odd and not cut:
            yield Hit(command.line, f"sbatch has no option --{odd}", "", "refused")
        if cut:
            yield Hit(command.line, "--wrap ends at the blank", "--wrap='...'", "refused")
        elif late and (re.search(r"\.(?:sh|slurm|sbatch|job|batch)$", first) or re.fullmatch(r"[NntcpAJ]\d+", first)):
            text = f"{shown(late[0])} is an argument of {shown(first)}"
            yield Hit(command.line, text, f"sbatch {shown(late[0])} {shown(first)}")


@rule(
    "conda-run-holds-output",
    "note",
    why="conda run shows what the program prints when it ends: the log of a running job is empty",
    example="#SBATCH --nodes=1\nconda run -n train python train.py",
    instead="#SBATCH --nodes=1\nconda run --no-capture-output -n train python train.py",
)
def conda_run_holds_output(case: Case) -> Iterator[Hit]:
    """``conda run`` in a job, which keeps the output."""
    for command in case.script.commands if case.script.is_batch else ():
        words = " ".join(command.argv)
        if re.search(r"(?:^|\s)conda run\s", words) and not re.search(
            r"--no-capture-output|--live-stream|\s-s\s", words
        ):
            yield Hit(
                command.line, "conda run keeps the output until the program ends", "conda run --no-capture-output ..."
            )
            return


@rule(
    "waits-for-one",
    why="wait with a number waits for that process only: when the script ends, the scheduler ends the others",
    example="srun -n1 ./a &\nsrun -n1 ./b &\nwait $!",
    instead="srun -n1 ./a &\nsrun -n1 ./b &\nwait",
)
def waits_for_one(case: Case) -> Iterator[Hit]:
    """Several programs in the background, and a ``wait`` for the last of them only."""
    background = [command for command in case.script.commands if command.command.background and command.argv]
    waits = [command for command in case.script.commands if command.argv[:1] == ("wait",)]
    several = len(background) > 1 and not any(command.command.within("loop") or command.command.within("function")
                                              for command in (*background, *waits))  # fmt: skip
    if (
        several
        and len(waits) == 1
        and shown(" ".join(waits[0].argv[1:])) == "$!"
        and waits[0].line > background[-1].line
    ):
        yield Hit(waits[0].line, f"wait $! waits for 1 of {len(background)} programs", "wait")


@rule(
    "directory-left",
    why="The second cd leaves the directory of the first one before anything has run there",
    example="cd work/step1\ncd $PBS_O_WORKDIR\n./run.sh",
    instead="cd $PBS_O_WORKDIR\ncd work/step1\n./run.sh",
)
def directory_left(case: Case) -> Iterator[Hit]:
    """A cd to a relative directory, and one to the directory of the submission behind it."""
    before = None
    for command in case.script.commands:
        name, target = (command.argv[0], shown(command.argv[1])) if len(command.argv) == 2 else ("", "")
        if name == "cd" and not command.command.within("function") and not command.command.within("subshell"):
            goes_back = re.search(r"PBS_O_WORKDIR|SLURM_SUBMIT_DIR|LS_SUBCWD|SGE_O_WORKDIR", target)
            if before and goes_back and target.strip('"').endswith(("DIR}", "DIR", "CWD", "CWD}")):
                yield Hit(command.line, f"this leaves the directory of line {before}", "the other way round")
                return
            relative = not target.startswith(("/", "$", "~", "-", ".."))
            before = command.line if relative and not goes_back else None
        elif command.argv and command.argv[0] not in ("[", "[[", "test", "echo", "export", "module", "set", "if", "ml"):
            before = None


@rule(
    "blank-before-comma",
    why="A blank ends the value: what follows is a word of its own, a name of a script or of a program",
    example="sbatch --dependency=afterok:$A ,afterok:$B job.sh",
    instead="sbatch --dependency=afterok:$A,afterok:$B job.sh",
)
def blank_before_comma(case: Case) -> Iterator[Hit]:
    """A word of a submission or a launch that begins with a comma, or an option that ends with one."""
    for command in case.script.commands:
        if command.argv[:1] in (("sbatch",), ("srun",), ("qsub",), ("bsub",), ("mpirun",), ("mpiexec",)):
            odd = next((word for word in command.argv[1:] if re.match(r",\w|--?[\w-]+=\S*,$", shown(word))), "")
            if odd:
                yield Hit(
                    command.line, f"{shown(odd)!r} is not the whole value: it ends at the blank", "remove the blank"
                )


@rule(
    "option-behind-image",
    why="What follows the image is the command in the container: options of the runtime belong before it",
    example="singularity exec image.sif --nv python train.py",
    instead="singularity exec --nv image.sif python train.py",
)
def option_behind_image(case: Case) -> Iterator[Hit]:
    """A container whose command begins with an option."""
    for launch in case.launches:
        if launch.kind == "container" and launch.program and re.match(r"--?[A-Za-z]", launch.program[0]) \
                and launch.words[1:2] != ("run",):  # fmt: skip
            yield Hit(
                launch.line, f"{launch.program[0]} is the command that {launch.word} runs", "move it before the image"
            )


@rule(
    "dollar-in-single-quotes",
    why="In single quotes the backslash stays, so that the inner shell gets the text $NAME and not its value",
    example="srun bash -c 'torchrun --rdzv_id=\\$SLURM_JOB_ID train.py'",
    instead="srun bash -c 'torchrun --rdzv_id=$SLURM_JOB_ID train.py'",
)
def dollar_in_single_quotes(case: Case) -> Iterator[Hit]:
    """A backslash before ``$NAME`` in the single-quoted text that a shell of the tasks runs."""
    for match in re.finditer(r"(?:ba)?sh\s+-\w*c\s+'([^']*)'", case.script.text):
        variable = re.search(r"\\\$\{?\w+", match[1])
        if variable:
            line = case.script.text.count("\n", 0, match.start(1) + variable.start()) + 1
            yield Hit(line, f"{variable[0]} stays as it is written", variable[0][1:])
            return


@rule(
    "wait-hides-failures",
    "note",
    why="wait without a number returns 0, whatever the programs in the background returned",
    example="set -e\n./a &\n./b &\nwait\ntouch done",
    instead="set -e\n./a & a=$!\n./b & b=$!\nwait $a\nwait $b\ntouch done",
)
def wait_hides_failures(case: Case) -> Iterator[Hit]:
    """A plain ``wait`` under ``set -e``, with further commands behind it."""
    strict = re.search(r"(?m)^[ \t]*set\s+-\w*e", case.script.code)
    background = [command.line for command in case.script.commands if command.command.background]
    for at, command in enumerate(case.script.commands) if strict and background else ():
        behind = [after for after in case.script.commands[at + 1 :] if after.argv[:1] not in (("echo",), ("date",), ())]
        if command.argv == ("wait",) and behind and background[0] < command.line:
            text = "set -e does not see a failure of what ran in the background"
            yield Hit(command.line, text, "wait for each number")
            return


@rule(
    "still-to-be-filled-in",
    "note",
    why="The shell reads <NAME> as a redirection from a file of that name",
    example="#SBATCH --nodes=1\nimage=<container_image>",
    instead="#SBATCH --nodes=1\nimage=/images/train.sif",
)
def still_to_be_filled_in(case: Case) -> Iterator[Hit]:
    """A placeholder in the value of a variable."""
    for number, row in enumerate(case.script.rows if case.script.is_batch else (), 1):
        match = re.match(r"\s*(?:export\s+)?\w+=(<[a-z][\w -]*>)\s*$", row)
        if match and number not in case.script.inner_lines:
            yield Hit(number, f"{match[1]} is still to be filled in", "the value")
            return


@rule(
    "keeps-output-at-home",
    why="-k leaves the output in the home directory of the execution host: -o and -e are not used",
    example="#PBS -k oe\n#PBS -o /data/logs",
    instead="#PBS -o /data/logs",
)
def keeps_output_at_home(case: Case) -> Iterator[Hit]:
    """``-k`` of PBS beside a path for the same stream."""
    values = case.script.request.values
    option = values.get("k") or "" if case.script.scheduler == "pbs" else ""
    lost = [name for name in "oe" if name in option and "d" not in option and "n" not in option and name in values]
    if lost:
        text = f"-k {option} makes PBS ignore -{' and -'.join(lost)}"
        yield Hit(case.script.request.line("k"), text, "leave out -k")
