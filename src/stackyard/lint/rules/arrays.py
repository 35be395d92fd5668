"""Rules on job arrays: their indices, and files that all tasks share."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.rules.heads.head import read_by_scheduler
from stackyard.lint.shell.words import is_known


@rule(
    "array-output",
    why="All tasks of the array write to the same file at the same time",
    example="#SBATCH --array=0-9\n#SBATCH --output=train.log",
    instead="#SBATCH --array=0-9\n#SBATCH --output=train-%A_%a.log",
)
def array_output(case: Case) -> Iterator[Hit]:
    """A job array whose output file is the same for every task."""
    kind, values, own = case.script.scheduler, case.script.request.values, case.script.own
    index = {"slurm": r"%\d*[ajJ]|^/dev/null", "lsf": r"%I|^/dev/null"}.get(kind)
    is_array = "array" in values if kind == "slurm" else "[" in (values.get("J") or "")
    names, better = {"output", "o", "oo"}, "%A_%a" if kind == "slurm" else "%J_%I"
    if own and (better := own.index):  # what may be a directory gets files with other names
        index, names = rf"{re.escape(better)}|^/dev/null|^(?!.*\w\.\w+$)", {*own.named("output")}
        is_array = not values.keys().isdisjoint(own.named("array"))
    if index is None or not is_array or case.script.is_filled_in:
        return
    for directive in read_by_scheduler(case):
        for option in directive.options:
            expanded = "$" in option.value and not own
            if option.name in names and not re.search(index, option.value) and not expanded:
                yield Hit(
                    directive.line, f"every task of the array writes to {option.value}", f"put {better} into the name"
                )


@rule(
    "array-disabled",
    why="Without an array its index is empty: the commands that use it get nothing",
    example="##SBATCH --array=1-100\n./work $SLURM_ARRAY_TASK_ID",
    instead="#SBATCH --array=1-100\n./work $SLURM_ARRAY_TASK_ID",
)
def array_disabled(case: Case) -> Iterator[Hit]:
    """The index of an array in a script whose ``--array`` is commented out."""
    if case.script.scheduler != "slurm" or "array" in case.script.request.values:
        return
    disabled = next((number for number, row in enumerate(case.script.rows, 1)
                     if re.match(r"##+\s*SBATCH\s+(?:--array|-a)\b", row)), 0)  # fmt: skip
    if disabled and re.search(r"\$\{?SLURM_ARRAY_TASK_ID\b", case.script.code):
        yield Hit(disabled, "--array is commented out, but the script uses SLURM_ARRAY_TASK_ID",
                  case.script.rows[disabled - 1].lstrip("#").strip().join(("#", "")))  # fmt: skip


_INDEX = r"\$?\{?(?:SLURM_ARRAY_TASK_ID|LSB_JOBINDEX|PBS_ARRAY_INDEX|PBS_ARRAYID|SGE_TASK_ID)\}?"


@rule(
    "array-item-missing",
    why="Items of an array of bash count from 0, lines of a file from 1: a task without an item works on nothing",
    example='#SBATCH --array=0-9\n./work "$(sed -n "${SLURM_ARRAY_TASK_ID}p" list.txt)"',
    instead='#SBATCH --array=1-10\n./work "$(sed -n "${SLURM_ARRAY_TASK_ID}p" list.txt)"',
)
def array_item_missing(case: Case) -> Iterator[Hit]:
    """A job array that begins at 0 where lines are counted, or goes past the end of the list that it indexes."""
    first, last = _array(case)
    if first is None:
        return
    for command in case.script.commands:
        row = case.script.row(command.line)
        by_line = re.search(
            rf"sed\s+(?:-n\s+)?[\"']?{_INDEX}\s*[pq]|head\s+-n?\s*{_INDEX}|NR\s*==\s*[\"']*{_INDEX}", row)  # fmt: skip
        if first == 0 and by_line:
            better = f"1-{last + 1}" if last else "1-N"
            yield Hit(command.line, "task 0 of the array asks for line 0", f"indices {better}")
            return
        for name, sign, offset in re.findall(rf"\$\{{(\w+)\[\s*{_INDEX}\s*(?:([+-])\s*(\d+))?\s*\]\}}", row):
            known = command.environment.get(name)
            items = known.items if known else None
            plain = items and all(is_known(item) and not re.search(r"[*?{]", item) for item in items)
            moved = int(f"{sign}{offset}" or 0)
            if items and plain and last is not None and (last + moved >= len(items) or first + moved < 0):
                text = (
                    f"{name} has items 0 to {len(items) - 1}, and the array asks for {first + moved} to {last + moved}"
                )
                yield Hit(command.line, text, f"indices {-moved}-{len(items) - 1 - moved}")
                return


@rule(
    "array-without-index",
    "note",
    why="Without its index every task of the array does the same, and writes the same files",
    example="#SBATCH --array=1-16\n./simulate input.dat",
    instead="#SBATCH --array=1-16\n./simulate input-$SLURM_ARRAY_TASK_ID.dat",
)
def array_without_index(case: Case) -> Iterator[Hit]:
    """A job array in which nothing but a sleep uses the index; a program may read it itself."""
    first, last = _array(case)
    code = re.sub(r"(?m)^[ \t]*(?:sleep|echo)\b.*$", "", case.script.code)
    code = re.sub(r"(?m)^#.*$", "", code)
    index = r"ARRAY_TASK|ARRAY_INDEX|PBS_ARRAYID|LSB_JOBINDEX|SGE_TASK_ID|SLURM_ARRAY|\$@|\$1"
    one_by_one = re.search(r"%1\b", case.script.request.values.get("array") or "")
    if first is None or not last or last <= first or re.search(index, code) or case.script.is_filled_in or one_by_one:
        return
    if any(
        command.argv and command.argv[0] not in ("module", "cd", "echo", "sleep") for command in case.script.commands
    ):
        line = case.script.request.line("array", "J", "t")
        text = f"{last - first + 1} tasks, and this script does not use their index"
        yield Hit(line, text, "the index in the names of its files")


def _array(case: Case) -> tuple[int | None, int | None]:
    """The first and the last index of the job array; None for what is not a plain range."""
    values = case.script.request.values
    named = re.search(r"\[([^\]]*)\]", values.get("J") or "")
    texts = {
        "slurm": values.get("array"),
        "pbs": values.get("J") or values.get("t"),
        "sge": values.get("t"),
        "lsf": named[1] if named else None,
    }
    text = texts.get(case.script.scheduler)
    first, last = re.match(r"(\d+)", text or ""), re.fullmatch(r"\d+-(\d+)(?:[:%]\d+)*", text or "")
    return int(first[1]) if first else None, int(last[1]) if last else None


@rule(
    "array-same-file",
    why="All tasks of the array write to the same file at the same time",
    example="#SBATCH --array=1-10\n./work $SLURM_ARRAY_TASK_ID > result.txt",
    instead="#SBATCH --array=1-10\n./work $SLURM_ARRAY_TASK_ID > result-$SLURM_ARRAY_TASK_ID.txt",
)
def array_same_file(case: Case) -> Iterator[Hit]:
    """Output of a program of a job array that goes to one file."""
    values = case.script.request.values
    is_array = "array" in values or (case.script.scheduler == "pbs" and "J" in values)
    moves = any(command.argv[:1] in (("cd",), ("pushd",)) for command in case.script.commands)
    for command in case.script.commands if is_array and not moves else ():
        uses = " ".join(word.raw for word in command.command.words)
        for operator, word in command.command.redirects:
            name = word.plain or ""
            if operator in (">", "1>", "&>") and re.fullmatch(r"(?!/dev/)[\w./-]+", name) and "ARRAY" in uses:
                yield Hit(command.line, f"every task of the array writes to {name}", f"put the index into {name}")
                return


@rule(
    "array-index-of-other-pbs",
    why="PBS Pro and OpenPBS set PBS_ARRAY_INDEX for -J, Torque sets PBS_ARRAYID for -t: the other one is empty",
    example="#PBS -J 1-10\n./work $PBS_ARRAYID",
    instead="#PBS -J 1-10\n./work $PBS_ARRAY_INDEX",
)
def array_index_of_other_pbs(case: Case) -> Iterator[Hit]:
    """The index of an array by the name that the other PBS gives it."""
    options, pairs = case.script.request.values.keys(), {"J": ("PBS_ARRAYID", "PBS_ARRAY_INDEX")}
    pairs["t"] = ("PBS_ARRAY_INDEX", "PBS_ARRAYID")
    for option, (wrong, right) in pairs.items():
        if case.script.scheduler != "pbs" or option not in options or right in case.script.code:
            continue
        for command in case.script.commands:
            if re.search(rf"\${{?{wrong}\b", command.raw) and f"{wrong}=" not in case.script.code:
                yield Hit(command.line, f"{wrong} is not set with -{option}", f"${right}")
                return
