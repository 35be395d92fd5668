"""The head of a batch script: the lines that the scheduler reads, and their options.

Slurm reads ``#SBATCH`` at the very start of a line, up to the first line that is neither blank nor a comment; quotes
group, ``#`` starts a comment (slurm/src/common/slurm_opt, `sbatch` manual page). PBS stops at the first executable line
as well (qsub, "Directive"). LSF reads every ``#BSUB`` line. Flux reads lines that begin with other than letters or
digits, then ``flux:`` or ``FLUX:``, all alike and together (flux-batch(1), "SUBMISSION DIRECTIVES"; RFC 36).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import takewhile

from stackyard.launch.request.options import Option, read_options
from stackyard.lint.dialect import Dialect
from stackyard.lint.shell.words import PLACEHOLDER
from stackyard.lint.tables import HEADS

_TAG = re.compile(
    r"^(?P<lead>[ \t]*)(?P<hash>#+)(?P<gap>[ \t]*)"
    r"(?P<tag>SBATCH|BSUB|PBS|COBALT|flux:|FLUX:|\$(?=\s*-[A-Za-z]))(?P<rest>.*)$"
)
_FILLED_IN = re.compile(r"\s*\$\{[A-Z][A-Z0-9_]*\}\s*")
_PLACEHOLDER_ROW = re.compile(r"\s*<[A-Z]\w*>\s*")
TAGS = {"slurm": "#SBATCH", "lsf": "#BSUB", "pbs": "#PBS", "flux": "# flux:"}
_KINDS = {
    "SBATCH": "slurm",
    "BSUB": "lsf",
    "PBS": "pbs",
    "flux:": "flux",
    "FLUX:": "flux",
    "COBALT": "cobalt",
    "$": "sge",
}


@dataclass(frozen=True)
class Directive:
    """One directive line.

    `state`: "read" by the scheduler; or why it does not count: "spaced", "late", "disabled" (``##SBATCH``), "component"
    (of a heterogeneous job's further components: the request is that of the first), "changed" (a Flux directive that
    does not begin as the first one). `written`: how a directive of Flux or of a plug-in begins in the script.
    """

    kind: str
    line: int
    text: str
    options: tuple[Option, ...] = ()
    state: str = "read"
    written: str = ""

    @property
    def tag(self) -> str:
        """The tag of directives in this script: Flux reads ``#FLUX:`` and ``# flux:`` alike, the others one form."""
        return self.written or TAGS.get(self.kind, "")


def read_directives(text: str, inner: Collection[int], dialect: Dialect | None = None) -> tuple[Directive, ...]:
    """All directive lines of a script; `inner` are lines inside here-documents and strings, which do not count.

    Those of a dialect count wherever they are.
    """
    directives: list[Directive] = []
    begun = further = over = False
    sentinel = ""
    template = "{%" in text or "<%" in text  # which lines the engine leaves is unknown
    filled = filled_in(text)
    for number, row in enumerate(text.splitlines(), 1):
        match = _TAG.match(row)
        if dialect and number not in inner and re.match(re.escape(dialect.prefix) + r"\s*-", row):
            directives.append(_of_dialect(dialect, number, row))
        elif match and number not in inner:
            directive = _directive(match, number, begun)
            further = further or (directive.state == "read" and directive.text.split()[:1] in (["hetjob"], ["packjob"]))
            if directive.kind == "flux":
                sentinel = sentinel or row[: match.end("tag")]
                state = "late" if over else "read" if row.startswith(sentinel) else "changed"
                directive = replace(directive, state=state, written=sentinel.strip())
            directives.append(
                replace(directive, state="component") if further and directive.state == "read" else directive
            )
        elif row.strip() and not row.lstrip().startswith(("#", "{{")) and number not in filled:
            begun, over = not template, bool(sentinel) and not template
    return _of_nqsv(tuple(directives))


def _of_dialect(dialect: Dialect, number: int, row: str) -> Directive:
    text = row.removeprefix(dialect.prefix).strip()
    read = read_options(dialect.table, split_directive(text), all_words=True).options if dialect.meanings else ()
    options = tuple(resource for option in read for resource in dialect.resources(option))
    return Directive(dialect.kind, number, text, options, written=dialect.prefix)


_NQSV = re.compile(
    r"--group=|\b(?:elapstim_req|cpunum_job|gpunum_job|memsz_job)=|-T\s+(?:openmpi|intmpi|necmpi|mpich)\b"
)
"""What NEC's NQSV has in its directives and PBS has not (NQSV user's guide, qsub)."""


def _of_nqsv(directives: tuple[Directive, ...]) -> tuple[Directive, ...]:
    """The directives of NQSV, which begin as those of PBS, under their own kind: it is not supported."""
    if not any(
        directive.kind == "pbs" and directive.state == "read" and _NQSV.search(directive.text)
        for directive in directives
    ):
        return directives
    return tuple(
        replace(directive, kind="nqsv", options=()) if directive.kind == "pbs" else directive
        for directive in directives
    )


def filled_in(text: str) -> set[int]:
    """The lines of a template that a program fills in.

    They consist of ``<NAME>``, or of ``${NAME}`` with a directive below; without that it may be the program.
    """
    rows = text.splitlines()
    last = max((number for number, row in enumerate(rows, 1) if _TAG.match(row)), default=0)
    numbers = {number for number, row in enumerate(rows[:last], 1) if _FILLED_IN.fullmatch(row)}
    return numbers | {number for number, row in enumerate(rows, 1) if _PLACEHOLDER_ROW.fullmatch(row)}


def head_is_filled_in(text: str, first: int) -> bool:
    """Whether lines above or at the first command are filled in, so that the head may have any option."""
    blocks = (number for number, row in enumerate(text.splitlines(), 1) if row.lstrip().startswith("{%"))
    return any(number <= first for number in (*filled_in(text), *blocks))


def _directive(match: re.Match[str], number: int, begun: bool) -> Directive:
    kind, rest = _KINDS[match["tag"]], match["rest"]
    state = "read"
    glued = rest[:1].strip() and not (kind in ("slurm", "pbs") and rest[:1] == "-")  # sbatch, qsub: any text may follow
    if kind != "flux" and (len(match["hash"]) > 1 or (kind in ("slurm", "lsf", "pbs") and glued)):
        state = "disabled"
    elif kind in ("slurm", "pbs", "lsf") and (match["lead"] or match["gap"]):
        state = "spaced"
    elif kind in ("slurm", "pbs") and begun:
        state = "late"
    table = HEADS.get(kind)
    words = split_directive(rest, kind)
    options = read_options(table, words, all_words=True).options if table else ()
    return Directive(kind, number, rest.strip(), options, state)


_SBATCH_PIECE = re.compile(r"\\(.)|'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\s+)|([^\s'\"\\#]+)")
"""A piece of a line of sbatch: an escaped character, a quoted text, blanks, plain text."""


def _sbatch_words(text: str) -> list[str]:
    """The words as sbatch splits them (src/sbatch/opt.c, _get_argument): ``#`` begins a comment even inside a word."""
    words, word, at = list[str](), None, 0
    while match := _SBATCH_PIECE.match(text, at):
        escaped, single, double, blank, plain = match.groups()
        at = match.end()
        if blank:
            words += [] if word is None else [word]
            word = None
        else:
            quoted = next((content for content in (single, double) if content is not None), "")
            word = (word or "") + (escaped or plain or re.sub(r"\\(.)", r"\1", quoted))
    if at < len(text) and text[at] != "#":
        raise ValueError("unmatched quote")
    return words if word is None else [*words, word]


def split_directive(text: str, kind: str = "") -> list[str]:
    """The words of a directive: quotes group, ``#`` at the start of a word begins a comment."""
    text = PLACEHOLDER.sub(lambda hole: re.sub(r"\s+", "", hole.group()), text)
    try:
        return _sbatch_words(text) if kind == "slurm" else _shell_words(text)
    except ValueError:
        return text.split(" #", maxsplit=1)[0].split()


def _shell_words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escape = ""
    return list(takewhile(lambda word: not word.startswith("#"), lexer))


_LOADLEVELER = (
    r"account_no|arguments|bg_\w+|blocking|checkpoint|class|\w+_limit|cluster_list|comment|coschedule|dependency|dstg_\w+"
    r"|env_copy|environment|error|executable|group|hold|host_file|image_size|initialdir|input|job_name|job_type"
    r"|large_page|ll_res_id|mcm_affinity_options|network|node|node_\w+|notification|notify_user|output|parallel_threads"
    r"|preferences|requirements|resources|restart\w*|rset|shell|smt|startdate|step_name|task_affinity|task_geometry"
    r"|tasks_per_node|total_tasks|user_priority"
)
"""The keywords of LoadLeveler's job command files."""
_FOREIGN = re.compile(
    r"#(?:(?:YBATCH|PJM|OAR|HQ|CCS|MOAB|(?!BSUB)[A-Z]SUB)(?=[ \t]+-)"
    rf"|(?i:[ \t]*@[ \t]*(?:queue[ \t]*$|(?:{_LOADLEVELER})[ \t]*=)))"
)
"""Directives of schedulers, and of programs around Slurm, that are not supported."""


def foreign_directives(text: str, inner: Collection[int]) -> tuple[tuple[int, str], ...]:
    """The lines, with numbers, that tell another program the needs of the job: ``#YBATCH -r a100_4``."""
    rows = enumerate(text.splitlines(), 1)
    return tuple((number, row.strip()) for number, row in rows if number not in inner and _FOREIGN.match(row))


def foreign_name(text: str) -> str:
    """The name for such a line: its tag, or the scheduler whose lines have no tag."""
    return "LoadLeveler" if re.match(r"#\s*@", text) else text.split(maxsplit=1)[0]


_NEARLY = re.compile(r"^[ \t]*#+[ \t]*(SBATCH|BSUB|PBS)[ \t:]*(?=-)(.*)$", re.I)


def would_be_directives(text: str, inner: Collection[int]) -> tuple[Directive, ...]:
    """Comments that nearly are directives, except for blanks, hashes or case: ``# SBATCH -N 4``, ``#sbatch -N 4``."""
    directives: list[Directive] = []
    for number, row in enumerate(text.splitlines(), 1):
        match = _NEARLY.match(row)
        if match and number not in inner:
            kind = _KINDS[match[1].upper()]
            words = split_directive(match[2], kind)
            reading = read_options(HEADS[kind], words)
            options = () if reading.rest else reading.options
            directives.append(Directive(kind, number, match[2].strip(), options, "disabled"))
    return tuple(directives)


def scheduler_of(directives: tuple[Directive, ...]) -> str:
    """The scheduler of most directives; empty without any."""
    kinds = [directive.kind for directive in directives if directive.state != "disabled"]
    return max(dict.fromkeys(kinds), key=kinds.count) if kinds else ""
