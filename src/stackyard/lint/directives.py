"""The head of a batch script: which lines the scheduler reads, and the options in them.

Slurm reads ``#SBATCH`` at the very start of a line, up to the first line that is neither blank nor a comment; quotes
group, ``#`` starts a comment (slurm/src/common/slurm_opt, `sbatch` manual page). PBS stops at the first executable line
as well (qsub, "Directive"). LSF reads every ``#BSUB`` line. Flux reads lines whose first word after ``#`` is ``flux:``
(flux-batch(1), "SUBMISSION DIRECTIVES").
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

from stackyard.lint.options import Option, read_options
from stackyard.lint.tables import HEADS

_TAG = re.compile(
    r"^(?P<lead>[ \t]*)(?P<hash>#+)(?P<gap>[ \t]*)(?P<tag>SBATCH|BSUB|PBS|COBALT|flux:|\$(?=\s+-))(?P<rest>.*)$"
)
_KINDS = {"SBATCH": "slurm", "BSUB": "lsf", "PBS": "pbs", "flux:": "flux", "COBALT": "cobalt", "$": "sge"}


@dataclass(frozen=True)
class Directive:
    """One directive line.

    `state`: "read" by the scheduler; or why it does not count: "spaced", "late", "disabled" (``##SBATCH``), "component"
    (of a heterogeneous job's further components: the request is that of the first).
    """

    kind: str
    line: int
    text: str
    options: tuple[Option, ...] = ()
    state: str = "read"


def read_directives(text: str, inner: set[int]) -> tuple[Directive, ...]:
    """All directive lines of a script; `inner` are lines inside here-documents and strings, which do not count."""
    found: list[Directive] = []
    begun = further = False
    template = "{%" in text or "<%" in text  # which lines the engine leaves is unknown
    for number, row in enumerate(text.splitlines(), 1):
        match = _TAG.match(row)
        if match and number not in inner:
            made = _directive(match, number, begun)
            further = further or (made.state == "read" and made.text.split()[:1] in (["hetjob"], ["packjob"]))
            found.append(replace(made, state="component") if further and made.state == "read" else made)
        elif row.strip() and not row.lstrip().startswith(("#", "{{")):
            begun = not template
    return tuple(found)


def _directive(match: re.Match[str], number: int, begun: bool) -> Directive:
    kind, rest = _KINDS[match["tag"]], match["rest"]
    state = "read"
    if len(match["hash"]) > 1 or (kind in ("slurm", "lsf", "pbs") and rest and not rest[0].isspace()):
        state = "disabled"
    elif kind in ("slurm", "pbs", "lsf") and (match["lead"] or match["gap"]):
        state = "spaced"
    elif kind in ("slurm", "pbs") and begun:
        state = "late"
    table = HEADS.get(kind)
    words = split_directive(rest)
    options = read_options(table, words, all_words=True).options if table else ()
    return Directive(kind, number, rest.strip(), options, state)


def split_directive(text: str) -> list[str]:
    """The words of a directive: quotes group, ``#`` at the start of a word begins a comment."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escape = ""
    words: list[str] = []
    try:
        for word in lexer:
            if word.startswith("#"):
                break
            words.append(word)
    except ValueError:
        return text.split(" #", maxsplit=1)[0].split()
    return words


def scheduler_of(directives: tuple[Directive, ...]) -> str:
    """The scheduler that most directives belong to; "" without any."""
    kinds = [each.kind for each in directives if each.state != "disabled"]
    return max(dict.fromkeys(kinds), key=kinds.count) if kinds else ""
