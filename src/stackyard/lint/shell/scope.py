"""The values of a script's variables at each command, as far as the script determines them.

A value known only at run time stays unknown (`words.unknown` around its source); what is set in a branch or a loop is
known only inside it. Nothing is guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stackyard.lint.shell.command import Assignment, Command
from stackyard.lint.shell.words import CLOSE, OPEN, Part, Word, WordReader, is_known, unknown

_EXPRESSION = re.compile(r"^([A-Za-z_]\w*|[@*#?$!0-9-])(?:(:?[-=+?])(.*))?$", re.S)
_ARITHMETIC = re.compile(r"([A-Za-z_]\w*)[ \t]*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)[ \t]*([A-Za-z_]\w*)")
_INNER = re.compile(r"\(\((.*?)\)\)", re.S)
CHANGERS = ("read", "mapfile", "readarray", "getopts", "unset")
_CONDITION = (-1, "branch")
_ENDED = ("branch", "loop", "subshell")
"""Blocks that may not run, or whose variables end with them."""
SETTERS = {"export", "declare", "local", "readonly", "typeset", "setenv"}
_LONGEST = 100_000
"""Characters of a value beyond which it counts as unknown: ``A=$A$A`` in a row doubles it each time."""
_GIVEN = re.compile(
    r"SLURM_(?:ARRAY_\w+|JOB_?ID|JOB_NAME|(?:JOB_)?NODELIST|PROCID|NODEID|LOCALID|SUBMIT_DIR)"
    r"|PBS_(?:JOBID|JOBNAME|ARRAY\w+|O_WORKDIR|NODEFILE)|LSB_(?:JOB\w+|HOSTS|MCPU_HOSTS|DJOB_HOSTFILE)|LS_SUBCWD"
)
"""Variables that a scheduler gives a job: a default for them is for when the script runs without one."""
_ONE_UNKNOWN = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")
_SPLIT = re.compile(f"(?:{OPEN}[^\ue001]*\ue001|[^ \t\n])+")


@dataclass(frozen=True)
class Value:
    """A variable: its text (with unknown parts), its source, its line, whether it is exported, an array's items."""

    text: str
    source: str
    line: int = 0
    blocks: tuple[tuple[int, str], ...] = ()
    exported: bool = False
    items: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ResolvedCommand:
    """A command with its words expanded. `environment` has the variables at its start."""

    command: Command
    argv: tuple[str, ...]
    environment: Mapping[str, Value] = field(repr=False, default_factory=dict)

    @property
    def line(self) -> int:
        """Its first line."""
        return self.command.line

    @property
    def raw(self) -> str:
        """Its words and the values of its assignments as they are written."""
        words = [word.raw for word in self.command.words]
        return " ".join([*words, *(assignment.raw for assignment in self.command.assignments)])

    @property
    def sets(self) -> list[tuple[str, str]]:
        """The variables that it assigns, exports or declares, and their new values as they are written."""
        assigned = [(each.name, each.raw) for each in self.command.assignments if not each.append]
        words = self.command.words[1:] if self.argv[:1] in (("export",), ("declare",)) else ()
        parted = (word.raw.partition("=") for word in words)
        return assigned + [(name, value) for name, equals, value in parted if equals]


def arithmetic_names(text: str) -> list[str]:
    """The variables that an arithmetic expression sets: ``i++``, ``a += b``."""
    return [first or second for first, second in _ARITHMETIC.findall(text)]


def _names(piece: str) -> list[str]:
    """The variables in an unknown piece: ``$A``, ``${A}``, and in an index or a sum ``A`` alone."""
    return re.findall(r"[A-Za-z_]\w*" if "[" in piece or "((" in piece else r"\$\{?([A-Za-z_]\w*)", piece)


def resolve(
    commands: Iterable[Command], known: Mapping[str, str] | None = None, *, zsh: bool = False
) -> list[ResolvedCommand]:
    """The commands with their words expanded; `known` are variables set by the scheduler. `zsh`: by zsh's rules."""
    commands = list(commands)
    scope = Scope({name: Value(text, f"${name}", exported=True) for name, text in (known or {}).items()}, zsh=zsh)
    scope.doubtful = _set_twice(commands)
    return [scope.run(command) for command in commands]


def _set_twice(commands: Sequence[Command]) -> frozenset[str]:
    """Variables set both in a function and outside of it: their value depends on the time of the call."""
    inside, outside = set[str](), set[str]()
    for command in commands:
        names = {
            assignment.name
            for assignment in command.assignments
            if not command.words or command.words[0].plain == "export"
        }
        if command.words and command.words[0].plain == "export":
            names |= {word.raw.partition("=")[0] for word in command.words[1:] if "=" in word.raw}
        (inside if command.within("function") else outside).update(names)
    return frozenset(inside & outside)


class Scope:
    """The variables while the commands are processed."""

    def __init__(self, values: dict[str, Value], task: bool = False, zsh: bool = False) -> None:
        self.values = values
        self._task = task
        self._zsh = zsh
        self._blocks: tuple[tuple[int, str], ...] = ()
        self._exports_all = False
        self.doubtful: frozenset[str] = frozenset()

    def run(self, command: Command) -> ResolvedCommand:
        """Expand one command and apply its effect on the variables."""
        self._blocks = (*command.blocks, *([_CONDITION] if command.conditional else []))
        argv = tuple(word for raw_word in command.words for word in self.expand(raw_word))
        own = not command.words or command.words[0].plain in SETTERS
        before = self.values if own else dict(self.values)
        for assignment in command.assignments:
            self._assign(assignment, command.line, exported=not own or self._exports_all)
        snapshot = self.values.copy()
        self.values = before if not own else self.values
        self._builtin(command, argv)
        return ResolvedCommand(command, argv, snapshot)

    def _unknown(self, source: str) -> str:
        return unknown(source, self._task)

    def _builtin(self, command: Command, argv: tuple[str, ...]) -> None:
        name = argv[0] if argv else ""
        if name in SETTERS:
            for word in command.words[1:]:
                self._export(word, command.line, name == "export")
        elif name == "set" and {"a", "allexport"} & {*"".join(argv[1:2]), *argv[2:3]} and argv[1:2] != ("--",):
            self._exports_all = argv[1].startswith("-")
        texts = (
            word.raw
            for word in (*command.words, *(assignment.value for assignment in command.assignments if assignment.value))
        )
        pieces = (text if name in ("let", "((") else " ".join(_INNER.findall(text)) for text in texts)
        changed = [word for piece in pieces for word in arithmetic_names(piece)]
        if name in CHANGERS or argv[:2] == ("printf", "-v"):
            changed += [word for word in argv[1:] if re.fullmatch(r"[A-Za-z_]\w*", word)]
        for variable in changed:
            old = self.values.get(variable)
            is_exported = bool(old and old.exported) and name != "unset"
            self._set(variable, Value(self._unknown(f"${variable}"), "", command.line, command.blocks, is_exported))

    def _export(self, word: Word, line: int, exported: bool) -> None:
        match = re.match(r"^([A-Za-z_]\w*)(\+?)=(.*)$", word.raw, re.S)
        if match:
            value = WordReader(match[3]).read(line, set())
            self._assign(Assignment(match[1], value, match[3], bool(match[2])), line, exported)
        elif word.plain in self.values and exported:
            old = self.values[word.plain or ""]
            self.values[word.plain or ""] = Value(old.text, old.source, old.line, old.blocks, True)

    def _assign(self, assignment: Assignment, line: int, exported: bool) -> None:
        name, old = assignment.name, self.values.get(assignment.name)
        text = self._unknown(f"${name}")
        if assignment.value is not None:
            text = self.text(assignment.value)
            in_loop = any(kind == "loop" for _, kind in self._blocks)
            if in_loop and re.search(rf"\b{name}\b", assignment.raw):
                text = self._unknown(f"${name}")
        items = self._items(assignment, old)
        if assignment.append:
            text = (self._lookup(name) or "") + text
        text = text if len(text) <= _LONGEST else self._unknown(f"${name}")
        is_exported = exported or bool(old and old.exported)
        self._set(name, Value(text, assignment.raw, line, self._blocks, is_exported, items))

    def _items(self, assignment: Assignment, old: Value | None) -> tuple[str, ...] | None:
        """The items of ``NAME=(a "b c" $D)``; for ``NAME+=(..)`` after the existing ones."""
        if assignment.value is not None or not assignment.raw.startswith("("):
            return None
        inner, at, items = assignment.raw[1:-1], 0, list[str]()
        while at < len(inner):
            if inner[at] == "#":
                at = (inner.find("\n", at) + 1) or len(inner)
            elif inner[at] in " \t\n;&|<>()" or inner.startswith("\\\n", at):
                at += 1
            else:
                reader = WordReader(inner, at)
                items += self.expand(reader.read(0))
                at = max(reader.at, at + 1)
        before = (old.items if old else ()) if assignment.append else ()
        return None if before is None else (*before, *items)

    def _set(self, name: str, value: Value) -> None:
        self.values[name] = value

    def _lookup(self, name: str) -> str | None:
        """The value; None if never set; unknown if set in a block that has ended."""
        value = self.values.get(name)
        if value is None:
            return None
        numbers = {number for number, kind in self._blocks}
        ended = [kind for number, kind in value.blocks if number not in numbers and kind in _ENDED]
        stale = ended or name in self.doubtful or self._has_changed(value)
        return self._unknown(f"${name}") if stale else value.text

    def _has_changed(self, value: Value) -> bool:
        """Whether a variable in an unknown value was set again since."""
        names = {name for piece in _ONE_UNKNOWN.findall(value.text) for name in _names(piece)}
        return any(name in self.values and self.values[name].line > value.line for name in names)

    def _lookup_items(self, name: str) -> str:
        """Unknown if the array was set in a block that has ended, else empty."""
        numbers = {number for number, _ in self._blocks}
        ended = [kind for number, kind in self.values[name].blocks if number not in numbers and kind != "group"]
        return self._unknown(name) if ended else ""

    def text(self, word: Word) -> str:
        """A word's text without field splitting."""
        return "".join(self._part(part) for part in self._home(word.parts))

    def _home(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts of a word with an unquoted ``~`` or ``~user`` at its start as a value known only at run time."""
        first = parts[0] if parts else None
        home = (
            re.match(r"~[\w.-]*(?=/|$)", first.text) if first and first.kind == "literal" and not first.quoted else None
        )
        if first is None or home is None or ("/" not in first.text and len(parts) > 1):
            return parts
        rest = Part("literal", self._unknown(home.group()) + first.text[home.end() :])
        return (rest, *parts[1:])

    def expand(self, word: Word) -> list[str]:
        """The fields that result from a word."""
        array = re.fullmatch(self._array, word.parts[0].text) if len(word.parts) == 1 else None
        if array and word.parts[0].kind == "variable":
            value = self.values.get(array[1])
            if value and value.items is not None and is_known(self._lookup_items(array[1])):
                return list(value.items)
        if all(part.kind == "literal" or part.quoted for part in word.parts):
            return [self.text(word)]
        pieces: list[list[str]] = [[""]]
        for part in self._home(word.parts):
            text = self._part(part)
            if part.kind == "literal" or part.quoted or self._stays(part):
                pieces[-1].append(text)
                continue
            fields = _SPLIT.findall(text)
            if text[:1] in (" ", "\t", "\n") and fields:
                pieces.append([])
            for index, piece in enumerate(fields):
                if index:
                    pieces.append([])
                pieces[-1].append(piece)
            if text[-1:] in (" ", "\t", "\n") and fields:
                pieces.append([])
        joined = ["".join(piece) for piece in pieces]
        return [item for item in joined if item]

    @property
    def _array(self) -> str:
        """The text of a variable that stands for all items of an array: in zsh, its name alone."""
        return r"(\w+)(?:\[[@*]\])?" if self._zsh else r"(\w+)\[[@*]\]"

    def _stays(self, part: Part) -> bool:
        """Whether an unquoted value stays one word: a variable's in zsh (zshexpn, SH_WORD_SPLIT)."""
        return self._zsh and part.kind == "variable" and not part.text.startswith("=")

    def _part(self, part: Part) -> str:
        if part.kind == "literal":
            return part.text
        if part.kind == "variable":
            return self._variable(part.text)
        if part.kind == "arithmetic":
            value = self.arithmetic(part.text)
            return self._unknown(f"$(({part.text}))") if value is None else str(value)
        comment = part.text.startswith("#") and "\n" not in part.text  # `# what the next word is for`
        return "" if comment else self._unknown(f"$({part.text})")

    def _variable(self, text: str) -> str:
        text = text.removeprefix("=") if self._zsh else text
        match = _EXPRESSION.match(text)
        source = self._unknown("${" + text + "}" if not re.fullmatch(r"\w+|[@*#?$!-]", text) else "$" + text)
        if not match:
            return source
        value, operator = self._lookup(match[1]), match[2]
        if operator in (":-", "-", ":=", "="):
            if (value is None and _GIVEN.fullmatch(match[1])) or (value and _ONE_UNKNOWN.fullmatch(value)):
                return source  # which of the two it is shows when it runs
            empty = value is None or (value == "" and operator.startswith(":"))
            return (
                self.text(WordReader(match[3]).read(0, set())) if empty and match[1].isidentifier() else value or source
            )
        if operator in (":+", "+"):
            return source if value is None or not is_known(value) else self.text(WordReader(match[3]).read(0, set()))
        return source if value is None else value

    def arithmetic(self, text: str) -> int | None:
        """The value of ``$((..))`` if all of it is known, else None."""
        replaced = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", lambda m: f"({self._lookup(m[1]) or 'x'})", text)
        if not re.fullmatch(r"[\d\s()+*/%-]+", replaced) or len(replaced) > 200 or "**" in replaced:
            return None
        try:
            return _evaluated(ast.parse(replaced.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None


def _evaluated(node: ast.expr) -> int:
    """Integer arithmetic of the shell: division rounds towards zero."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp):
        value = _evaluated(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp):
        raise ValueError
    left, right = _evaluated(node.left), _evaluated(node.right)
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    quotient = abs(left) // abs(right) * (1 if left * right >= 0 else -1)
    return quotient if isinstance(node.op, ast.Div | ast.FloorDiv) else left - right * quotient
