"""The grammars of texts that enter a modulefile, a script, a path or a launch line: one constant for each.

A *name* becomes part of a program's syntax: a shell evaluates ``export NAME=...``, a module system derives variables
from a family. So a name has a strict grammar, and is validated on reading: in users' files (the annotated types of
`inputs.reading.words`), in a package, in a record on disk. A *value* is data, which every renderer quotes, with any
content that an environment variable can have.

This module is pure: standard library only, no I/O, cheap to import.
"""

from __future__ import annotations

import re

from stackyard.core.late import dataclass

_SHOWN = 60


class GrammarError(ValueError):
    """A text violates its grammar. `hint`: the allowed texts."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Grammar:
    """The valid texts of one kind.

    Attributes:
        kind: with its article, for messages: ``a variable name``.
        pattern: matches a whole valid text; compiled on first use.
        hint: the hint for an invalid text.
        reserved: matching texts with a special meaning in a shell or a module system.
        most_bytes: the maximal length in UTF-8, as programs and the kernel count.
    """

    kind: str
    pattern: str
    hint: str
    reserved: frozenset[str] = frozenset()
    most_bytes: int = 130_000

    def __call__(self, text: str) -> str:
        """The text itself.

        Raises:
            GrammarError: it violates this grammar.
        """
        if not self._fits(text):
            raise GrammarError(f"{shown(text)} is not {self.kind}", self.hint)
        if text in self.reserved:
            raise GrammarError(f"{shown(text)} is not {self.kind} to use here: it is reserved", "use another name")
        return text

    def accepts(self, text: str) -> bool:
        """Whether a text is valid."""
        return self._fits(text) and text not in self.reserved

    def _fits(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text) is not None and len(text.encode("utf-8", "replace")) <= self.most_bytes


def shown(text: str) -> str:
    """A rejected name for a message: quoted, truncated, and in ASCII, since foreign letters may look alike.

    A URL is left out rather than truncated: half of a login is not recognised as one, and would not be redacted.
    """
    if len(text) > _SHOWN:
        text = re.sub(r"://\S*$", "://", text[:_SHOWN]) + "..."
    return ascii(text)


_LETTERS = "use letters, digits and _, and begin with a letter or _"
_READ_ONLY = "UID EUID PPID SHELLOPTS BASHOPTS BASH_VERSINFO GROUPS FUNCNAME DIRSTACK HISTCMD RANDOM LINENO _"
_OF_ZSH = "status pipestatus ARGC argv path cdpath fpath manpath module_path commands functions aliases USERNAME"
_KEYWORDS = (
    "if then elif else fi for foreach while until do done case esac select function in time coproc end repeat "
    "nocorrect switch begin and or not breaksw endsw endif default exec eval builtin command"
)

VARIABLE = Grammar("a variable name", r"[A-Za-z_][A-Za-z0-9_]{0,254}", _LETTERS)
"""The name of an environment variable, in anything that was written to disk."""

SETTABLE = Grammar(VARIABLE.kind, VARIABLE.pattern, _LETTERS, frozenset(f"{_READ_ONLY} {_OF_ZSH}".split()))
"""The name of a variable to set. Not those that are read-only in bash, or that zsh derives its own state from: there
the assignment fails and ends the load half done, or PATH is lost."""

LOADED = Grammar(
    VARIABLE.kind, VARIABLE.pattern, _LETTERS, SETTABLE.reserved | {"PATH", "MODULEPATH", "LOADEDMODULES", "_LMFILES_"}
)
"""The name of a variable that a module sets for users. Not PATH, which would lose all other programs (a stack's are put
in front of it), and not the module system's own."""

COMMAND = Grammar(
    "a name of a function or an alias", r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,254}",
    "use letters, digits and _ . + @ : -, and begin with a letter, a digit or _", frozenset(_KEYWORDS.split()),
)  # fmt: skip
"""The name of a shell function or an alias: what bash, zsh, fish and csh all accept."""

PROGRAM = Grammar(
    "a program", r"/?[A-Za-z0-9_.+@][A-Za-z0-9_.+@:/-]{0,4094}",
    "write the name of a program, or its absolute path, in letters, digits and _ . + @ : -",
)  # fmt: skip
"""A program of the host that a build requires."""

MODULE = Grammar(
    "a module name", r"[A-Za-z0-9_][A-Za-z0-9_.+@:=,~-]*(/[A-Za-z0-9_.+@:=,~-]+)*",
    "write name or name/version in letters, digits and _ . + @ : = , ~ -",
)  # fmt: skip
"""The name of any module of the site, as ``module load`` takes it."""

LABEL = Grammar(
    "a module name", r"(?!.*\.lua$)[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,200}",
    "use at most 201 letters, digits and . _ + -; do not begin with . or -, or end with .lua", frozenset({"__spider"}),
)  # fmt: skip
"""One part of the name of a module of our own (the stack's name, a version, an alias), which is also a file's name."""

FAMILY = Grammar("a module family", r"[A-Za-z0-9_]{1,100}", "use letters, digits and _")
"""A module family: Lmod and Environment Modules make the name of a variable from it, and do not quote that."""

HOST = Grammar(
    "a hostname", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}", "hostnames have letters, digits and . _ -"
)  # fmt: skip
"""A host as schedulers name it; it enters host files and launch lines."""

INTERFACE = Grammar(
    "a network interface", r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,63}", "`ip link` lists interfaces, e.g. hsn0"
)  # fmt: skip
"""A network interface."""

WORD = Grammar(
    "a word for the scheduler", r"(?!-)[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]{1,4096}",
    "write one line that does not begin with -",
)  # fmt: skip
"""A word of a scheduler or a launcher (queue, account, constraint ...): its own syntax, on one line, not an option."""

ROLE = Grammar("a name of a role", r"[a-z][a-z0-9_]{0,31}", "use small letters, digits and _, and begin with a letter")
"""A role of a job: its name in capitals is part of the names of variables, and it begins lines of output."""

JOB = Grammar(
    "a job name", r"(?!-)[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\[\]]{1,230}",
    "write one line without brackets that does not begin with -; an array's indices are `array:`",
)  # fmt: skip
"""A job's name. LSF reads the indices of an array from brackets in it."""

ARRAY = Grammar(
    "a list of array indices", r"\d{1,9}([,:-]\d{1,9})*(%\d{1,9})?", "write e.g. 0-9, 1-100%4 or 1,3,5-9:2"
)  # fmt: skip

PATH = Grammar(
    "a path", r"[^\x00-\x1f\x7f\ud800-\udfff]{1,4095}",
    "write a path on one line, without control characters",
)  # fmt: skip

INNER_PATH = Grammar(
    "a path below another directory", r"(?!/)(?!(.*/)?\.\.(/|$))[^\x00-\x1f\x7f\ud800-\udfff:,]{1,4095}",
    "write a relative path without `..`, colons and commas",
)  # fmt: skip
"""A relative path that is appended to a directory, and stands in lists that are split at colons or commas."""

COLLISION_WINNER = Grammar(
    "a package", r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}( \((conda|pip|base)\))?",
    "write the name of a package; of two with one name, the one that conda installed is `NAME (conda)`",
)  # fmt: skip
"""A package whose file is taken where several install one."""

WHOLE_PATH = Grammar(
    "an absolute path", r"/(?!(.*/)?\.\.(/|$))[^\x00-\x1f\x7f\ud800-\udfff:,]{0,4094}",
    "write an absolute path without `..`, colons and commas",
)  # fmt: skip
"""An absolute path that stands in lists which are split at colons or commas."""

NODE_PATH = Grammar(
    "a path on a node", r"[/$][A-Za-z0-9_.+@:/${}-]{0,4094}",
    "write an absolute path; $NAME and ${NAME} are variables of the node",
)  # fmt: skip
"""A directory of a node, in a batch script, where the shell fills in variables."""

VALUE = Grammar(
    "a value that a variable can hold", r"[^\x00\ud800-\udfff]*",
    "remove null characters and characters that are not Unicode text; it may be 130,000 bytes long",
)  # fmt: skip
"""The value of a variable, and the text of a function, an alias or a notice: any Unicode text without a null character.
Linux refuses to start programs with a longer string in their environment: a name and its value may have 128 KiB
together (MAX_ARG_STRLEN)."""

YARD = Grammar(
    "a path that module systems and search paths can hold", r"/(?:(?![:\\\"{}])[!-~])*",
    "choose a path of ASCII letters, digits and / . _ - with --yard or $STACKYARD_HOME",
)  # fmt: skip
"""The absolute path of a yard. Lmod fails on blanks, backslashes, quotes, braces and other scripts, PATH on colons."""
