"""Slips in the shell of a batch script: what bash reads as something else, without a word at the submission.

Each kind is a row of `_OF_COMMANDS` or `_OF_ROWS`. ShellCheck has most of them under its own numbers, among
5 or 50 remarks on style; here are those that make a job do nothing, or the wrong thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from stackyard.core.hints import nearest
from stackyard.lint.rules.base import Case, Hit, rule
from stackyard.lint.shell.scope import ResolvedCommand
from stackyard.lint.shell.words import open_quote, shown

_GIVEN = r"SLURM_\w+|PBS_(?:ARRAY\w*|JOBID|NODEFILE|O_WORKDIR)|LSB_(?:JOBID|JOBINDEX|HOSTS)|SGE_TASK_ID|NSLOTS"
_LIST = re.compile(
    r"\"?(?:\$\(\s*(?:scontrol\s+show\s+hostnames?|ls|find|cat|cut|awk|sort|uniq|nodeset|seq)\b|`\s*(?:ls|cat|find|scontrol)\b)"
)
"""The beginning of a command that prints several lines."""
_NUMBER_TAKEN = re.compile(r"--parsable|-terse|awk|cut|sed|grep|tail|tr\b|egrep|\$\{\w+##|##\* ")


_STARTS = ("srun", "mpirun", "mpiexec")
_STRICT = r"(?m)^[ \t]*set\s+-\w*e|^#!\S+ -\w*e"


def _brackets(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    name = command.command.words[0].raw
    if len(name) > 1 and re.match(r"\[[$\"'A-Za-z0-9!-]", name) and not re.search(r"[*?]|\]", name):
        return f"{name} is taken for the name of a command", f"[ {name[1:]}"
    return None


def _blanks(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    words = [word.raw for word in command.command.words]
    words = words[1:] if words[0] == "export" else words
    if len(words) > 2 and words[1] == "=" and re.fullmatch(r"[A-Za-z_]\w*", words[0]):
        return f"{words[0]} is taken for the name of a command: there are blanks around =", f"{words[0]}={words[2]}"
    match = re.match(r"\$([A-Za-z_]\w*)=\S", words[0]) if words and len(words) == 1 else None
    return (f"${match[1]}=... is a command and not an assignment", words[0][1:]) if match else None


def _order(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    pairs = [(operator, "".join(part.text for part in word.parts)) for operator, word in command.command.redirects]
    first = next((at for at, pair in enumerate(pairs) if pair == ("2>&", "1")), len(pairs))
    later = [name for operator, name in pairs[first + 1 :] if operator in (">", ">>", "1>", "1>>")]
    if later and not command.command.piped and later[0] != "/dev/null":
        return f"errors do not go to {later[0]}: 2>&1 stands before it", f"> {later[0]} 2>&1"
    return None


def _trapped(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    words = [shown(word) for word in command.argv]
    if words[:1] == ["trap"] and "EXIT" in words[2:] and re.search(r"(?:^|[;\s])exit 0\s*;?$", words[1]):
        return "the job ends with 0, whatever has failed", "leave out exit 0"
    return None


def _quotes(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    for word, behind in pairwise(command.command.words):
        ends = len(word.parts) > 1 and word.parts[-2].quoted and word.parts[-2].text[-1:] == " "
        inner = word.parts[-1]
        begins = len(behind.parts) > 1 and behind.parts[1].quoted and behind.parts[1].text[:1] == " "
        if ends and begins and not inner.quoted and not behind.parts[0].quoted and inner.kind == "literal":
            return f"the quote before {inner.text} ends the quoted text", "'...' outside, or \\\" inside"
    return None


def _array(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    for each in command.command.assignments:
        match = re.fullmatch(r"\(\s*\"\$\{?(\w+)\}?\"\s*\)|\(\s*\"(\$\([^\"]*\))\"\s*\)", each.raw)
        value = command.environment.get(match[1]) if match and match[1] else None
        source = (match[2] or (value.source if value else "")) if match else ""
        if _LIST.match(source) and not re.search(r"head|tail -n? ?1\b|wc\b", source):
            return f"the quotes make {each.name} a list of one item", each.raw.replace('"', "")
    return None


def _dollar(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    for name, value in command.sets:
        if re.fullmatch(_GIVEN, value.strip("\"'")):
            return f"{name} is the text {value}, and not the value of that variable", f"{name}=${value}"
    for word in command.command.words[1:]:
        match = re.fullmatch(rf"(\S*/)?({_GIVEN})(?:/\S*)?", word.raw)
        if match and (match[1] or command.argv[0] == "cd"):
            return f"{match[2]} is plain text here, not the value of that variable", f"${match[2]}"
    return None


def _submission(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    for name, value in command.sets:
        taken = re.match(r"[\"']?(?:\$\(|`)\s*sbatch\b", value) and not _NUMBER_TAKEN.search(value)
        if taken and re.search(rf"(?:depend\w*[= ]|after\w*:)\S*\$\{{?{name}\b(?!\}}?##|##)", case.script.code):
            return f"{name} is 'Submitted batch job N', and not N", f"{name}=$(sbatch --parsable ...)"
    return None


def _tilde(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    values = (each.value for each in command.command.assignments if each.value)
    words = [word.raw for word in (*command.command.words[1:], *values)]
    odd = next((word for word in words if re.match(r"(?:--?[\w-]+=|\w+=)?[\"']~/", word)), "")
    opens = command.argv[:1] in (("cd",), ("source",), (".",), ("ls",), ("cp",), ("mkdir",), ("export",), ())
    return (f"~ stays as it is in {odd}", odd.replace("~", "$HOME").replace("'", '"')) if odd and opens else None


def _zero(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    text = " ".join(word.raw for word in command.command.words)
    match = re.fullmatch(r"(?:\(\(|let) *[\"']?(\w+)\+\+[\"']? *(?:\)\))?", text)
    if not match or command.command.conditional or command.command.piped:
        return None
    strict = re.search(_STRICT, case.script.text)
    starts = re.search(rf"(?m)^[ \t]*(?:\w+ )?{match[1]}=[\"']?0\b", case.script.code)
    if strict and starts and "||" not in case.script.row(command.line):
        return (f"(({match[1]}++)) of 0 counts as a failure, which ends the script under set -e",
                f"{match[1]}=$(({match[1]} + 1))")  # fmt: skip
    return None


def _literal(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    text = " ".join(command.argv)
    if text.partition(" ")[0] not in _STARTS or re.search(r"\b(?:\w*sh|eval|awk|parallel|xargs)\b", text):
        return None
    text = re.sub("\ue000[^\ue001]*\ue001", "", text)
    match = re.search(r"(?<!\S)[^\s\ue000]*\$\{?((?:SLURM|OMPI_COMM|PMI|PMIX|PALS)_\w+)", text)
    return (f"the program gets the text ${match[1]}: no shell replaces it", "srun bash -c '...'") if match else None


_SHELLS = re.compile(
    r"(?:/\S*/)?(?:ba|t?c|z|k)?sh(?: -[il]+)*|newgrp \S+|su(?: -)? \S+|screen|tmux|nix-shell"
    r"|(?:apptainer|singularity) shell .*|srun .*--pty (?:\S+ )*?\S*sh(?: -\w+)*|salloc(?: -\S+(?: [\w:,-]+)?)*"
    r"|qsub .*-I\b.*"
)
_OF_ARGV = (
    (r"(?:(?:ba)?sh )?\S*bin/activate", "it runs in a shell of its own and changes nothing here: source it"),
    (r"(?:docker|podman) (?:run|exec) (?:\S+ )*?-(?:it|ti)\b.*|python[\d.]* -i .*"
     r"|read -p .*|(?:vim?|nano|less|top|htop)(?: .*)?",
     "a batch job has no terminal"),
)  # fmt: skip
_DETACHED = re.compile(r"screen (?:-S \S+ )?-\w*d|tmux new(?:-session)? .*-d")
_OF_HOST = (
    r"(?:apptainer|singularity) (?:exec|run) .*\s(sbatch|squeue|scontrol|qsub|--(?:batchSystem|executor)[ =]slurm)\b"
)


def _shells(case: Case, command: ResolvedCommand) -> tuple[str, str] | None:
    text, fed = shown(" ".join(command.argv)), command.command.redirects or command.command.fed or command.command.here
    if case.script.is_batch and _SHELLS.fullmatch(text) and not fed:
        return f"{text} gets no commands: the next lines run after it, in the shell of the script", ""
    odd = next((message for pattern, message in _OF_ARGV if re.fullmatch(pattern, text)), "")
    if case.script.is_batch and odd and not fed:
        return odd, ""
    if command.command.piped and command.argv[:2] in (("module", "load"), ("ml", "load")):
        return "a pipe has a shell of its own: the module is not loaded in this one", text
    name = re.match(r"(?:mpirun|mpiexec|srun) (?:\S+ )*?-(?:np?|c) ([A-Za-z]\w*) ", text)
    if name and name[1] in command.environment:
        return f"{name[1]} is plain text here, not the value of that variable", f"${name[1]}"
    if case.script.is_batch and _DETACHED.match(text):
        return "the job ends while this runs in the background", "the command itself"
    image = command.argv[1:2] == ("exec",) and re.search(r"\.(?:sif|simg)\b.*", text.partition(" exec ")[2])
    if image and re.fullmatch(r"\.(?:sif|simg)", image[0]) and command.argv[0] in ("apptainer", "singularity"):
        return "exec has no command: the next lines run outside of the container", "... IMAGE bash -c '...'"
    inside = re.match(_OF_HOST, re.sub("\ue000[^\ue001]*\ue001", "", " ".join(command.argv)))
    return (f"{inside[1]}: the commands of the scheduler are not in the image", "") if inside else None


def _removes(case: Case, command: ResolvedCommand, before: ResolvedCommand) -> tuple[str, str] | None:
    if command.argv[:1] != ("rm",) or before.argv[:1] != ("cd",) or not {"*", "./*"} & {*command.argv}:
        return None
    if before.command.conditional or command.command.conditional or re.search(_STRICT, case.script.code):
        return None
    return "where the cd of the line before fails, this removes the files of another directory", "cd ... || exit 1"


_OF_COMMANDS: tuple[Callable[[Case, ResolvedCommand], tuple[str, str] | None], ...] = (
    _brackets, _blanks, _order, _trapped, _quotes, _array, _dollar, _submission, _tilde, _zero, _literal, _shells,
)  # fmt: skip
_OF_VALUES = (_array, _dollar, _submission, _tilde)
_OF_ROWS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"(?<!\\)\$\(([A-Z][A-Z0-9]*_[A-Z0-9_]+)\)"), "$({0}) runs a command of that name", "${{{0}}}"),
    (re.compile(r"(?<![$\w])\{(\w+\.\.\$\{?\w+\}?)\}"),
     "{{{0}}} is not expanded: braces come before variables", "$(seq ...)"),
    (re.compile(r"(?:^|[\s=])[“”‘’](\S*)"), "a typographic quote is part of the word {0}", "\" or '"),
    (re.compile(r"(?<!\[)\[ (-n \$\{?\w+\}?) \]"), "[ {0} ] is true for an empty value, too", '[ -n "$NAME" ]'),
    (re.compile(r"(?:^|[;&]\s*)srun\s(?:-\S+\s+(?:\d+\s)?)*(module|ml|conda activate|cd|source|export|ulimit)\s"),
     "{0} is a command of the shell, which srun cannot start", "the line without srun"),
    (re.compile(r"(?:file\s+|\bcat\s+)\"?\$\{?(SLURM_(?:JOB_)?NODELIST)\b"),
     "{0} is a list of names, not a file", "scontrol show hostnames > hosts"),
    (re.compile(r"(?:--container-image|\b(?:apptainer|singularity) exec\b)[^'\"|]*?"
                r"(?:;|&&)\s*((?:python\S*|torchrun|pip) \S+)"),
     "{0} runs outside of the container", "bash -c '...'"),
    (re.compile(r"\bsbatch .*(?:--dependency|-d)[ =][\"']?"
                r"(?!(?i:after(?:any|ok|notok|corr|burstbuffer)?[:+]|singleton|expand:))"
                r"([a-zA-Z]\w*):"), "sbatch has no dependency {0}", "afterok:JOB"),
    (re.compile(r"\b(MASTER_ADDR|MASTER_NODE|HEAD_NODE)=[\"']?\$\(scontrol show hostnames?(?: [^|)]*)?\)"),
     "{0} has the names of all nodes", "scontrol show hostnames | head -n 1"),
    (re.compile(r"^!\s*(/\S*sh)\b"), "the # of the first line is missing", "#!{0}"),
    (re.compile(r"\bexport\s+(TMPDIR|\w*PATH|\w+_(?:ARGS|OPTS|FLAGS|DEVICES|THREADS|ADDR|PORT))=\((?!\s*\))"),
     "{0} is an array, which programs do not get", "export {0}='...'"),
    (re.compile(r"^\s*(?:cp|mv|rm|rsync|ls|cat|ln)\s(?:.*\s)?([\"'][^\"':\s]*/[^\"'\s:]*\*[^\"'\s]*[\"'])(?:\s|$)"),
     "* stays as it is in {0}", "the * outside of the quotes"),
    (re.compile(r"='((?:cat|hostname|nproc|wc|date|pwd|basename|dirname) [^']*\$[^']*|hostname|nproc|pwd)'(?:\s|$)"),
     "'{0}' is plain text: the command does not run", "$({0})"),
)  # fmt: skip
"""Patterns in a line, what is wrong with what they match, and what to write."""
_OF_SHELLS = re.compile(
    r"#!\s*\S*\b(?:t?csh|perl|python[\d.]*|Rscript|fish)\b|#!\s*\S*/env\s+(?:perl|python|Rscript|julia|t?csh)"
)


@rule(
    "shell-slip",
    why="bash reads it as something else than it looks like: the job does nothing, or the wrong thing",
    example='run.py --index $(SLURM_ARRAY_TASK_ID)\nnodes=("$hostnames")\nfor i in {1..$N}; do',
    instead="run.py --index ${SLURM_ARRAY_TASK_ID}\nnodes=($hostnames)\nfor i in $(seq $N); do",
)
def shell_slip(case: Case) -> Iterator[Hit]:
    """What the shell takes for something else: blanks, quotes, brackets, braces, redirections, a missing dollar."""
    first = case.script.text.partition("\n")[0]
    if _OF_SHELLS.match(first) or "{%" in case.script.text or re.search(r"zsh", first):
        return
    commands = case.script.commands
    for before, command in pairwise((*commands[:1], *commands)):
        for check in _OF_COMMANDS if command.command.words else _OF_VALUES:
            if found := check(case, command):
                yield Hit(command.line, *found)
        if found := _removes(case, command, before):
            yield Hit(command.line, *found)
    for number, row in enumerate(case.script.rows, 1):
        for pattern, text, remedy in _OF_ROWS if number not in case.script.inner_lines else ():
            match = pattern.search(row) if not row.lstrip().startswith("#") else None
            if match and f"{match[1]}[" not in case.script.code \
                    and not re.search(rf"'[^']*{re.escape(match[0])}[^']*'", row):  # fmt: skip
                yield Hit(number, text.format(match[1]), remedy.format(match[1]))
    if case.script.unreached and case.script.is_batch:
        yield Hit(case.script.unreached[0], "nothing after exit or exec runs", "", "note")
    last = case.script.commands[-1].command if case.script.commands else None
    for word in (*last.words, *(each.value for each in last.assignments if each.value)) if last else ():
        if open_quote(word.raw):
            yield Hit(
                word.line, "a quote begins here and has no end: perhaps an apostrophe ends one before", "close it"
            )


_OF_OTHERS = re.compile(
    r"(?:SLURM|PBS|LSB|SGE|OMPI|PMI|CUDA|CONDA|LD)_\w*|NSLOTS|PWD|HOME|USER|PATH|HOSTNAME|SHELL|TMPDIR|LOGNAME|SCRATCH|WORK"
    r"|\w*[A-Z]\w*_\w*proxy|_|\d+|\W"
)
_SOURCES = re.compile(
    r"(?m)^[ \t]*(?:source|\.)\s+(?!\S*(?:activate|conda\.sh|bashrc|profile|/etc/))|\beval\b|getopts|\$1\b"
    r"|--export|#PBS -v|\$\{?@"
)
"""What may set variables that the script does not show."""
_READERS = re.compile(
    r"\b(?:read|for|mapfile|readarray|select|printf -v|local|declare|typeset|export|readonly|let)\b([^\n;|&]*)"
    r"|\(\((.*?)\)\)"
)


@rule(
    "name-never-set",
    why="A variable that nothing sets is empty: its option takes the next word for its value",
    example="API_KEY=abc\nwandb login $api_key",
    instead="API_KEY=abc\nwandb login $API_KEY",
)
def name_never_set(case: Case) -> Iterator[Hit]:
    """A variable that is never set: one with its letters is, or ``set -u`` is in force, or a launch counts by it."""
    code, script = case.script.code, case.script
    if not script.is_batch or script.is_filled_in or _SOURCES.search(script.text) or "{{" in script.text:
        return
    known = {name for command in script.commands for name, _ in command.sets}
    known |= {each.name for command in script.commands for each in command.command.assignments}
    known |= {name for match in _READERS.finditer(code) for name in re.findall(r"(?<![\w${])\w+", match[0])}
    strict = re.search(r"(?m)^[ \t]*set\s+(?:-\w*u|-o\s+nounset)", code)
    alike = {name.lower(): name for name in sorted(known)}
    idle = [name for name in sorted(known) if not re.search(rf"\$\{{?[#!]?{name}\b", code)]
    for command in script.commands:
        parts = [part for word in command.command.words for part in word.parts if part.kind == "variable"]
        for name in (match[1] for part in parts if (match := re.fullmatch(r"(\w+)(?:\[.*)?", part.text))):
            if name in known or _OF_OTHERS.fullmatch(name):
                continue
            known.add(name)
            close = [
                each
                for each in nearest(name, known - {name}, cutoff=0.87 if len(name) > 8 else 0.9)
                if not re.search(r"\d", each + name)
            ]
            parts_of = (each for each in idle if each.endswith(f"_{name}") or name.endswith(f"_{each}"))
            like = alike.get(name.lower(), close[0] if close else next(parts_of, ""))
            if len(like) > 3 and re.search(rf"\b{like}=", code):
                yield Hit(command.line, f"{name} is never set, and {like} is", f"${like}")
            elif strict and name.islower() and "module" not in code:
                yield Hit(command.line, f"{name} is never set: set -u ends the script", "set it before")
            elif re.search(rf"\s-np?[ =]\$\{{?{name}\b", command.raw) and command.argv[0] in _STARTS:
                yield Hit(command.line, f"{name} is never set in this script", "set it before", "note")
            elif name.isupper() and re.search(rf"\[\[?\s+\$\{{?{name}\}}?\s+-[lgen][etq]\s", command.raw):
                yield Hit(command.line, f"{name} is never set in this script: the test fails", "set it before", "note")
