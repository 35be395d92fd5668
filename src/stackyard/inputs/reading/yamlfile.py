"""YAML with the place of every value, for all spec files.

A file becomes a `Document`, a tree of `Node`s that each know their line, their column, the text as it was written and
the comment next to them. The text matters because YAML reads ``python: 3.10`` as the number 3.1; the comment because
selectors such as ``# [linux64]`` are comments to YAML. Values follow YAML 1.2, as conda's own reader does.

    document = read_yaml(Path("stack.yaml"))
    document.value                          # plain dicts, lists and scalars; mapping keys are always text
    document.where("matrix", "python", 0)   # the place of that value, or of the nearest one above it
    document.key_where("matrix", "python")   # the place of that key
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import InputError, ManyErrors, Where, cause
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut, quoted
from stackyard.host.files import at

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TRAILING_COMMENT = re.compile(r"[\s,:]*\s#(?P<comment>.*)$")
_BLOCK_COMMENT = re.compile(r"[|>+\d-]+\s+#(?P<comment>.*)$")
_JINJA = re.compile(r"\{%.*|\{\{.*|\{#.*")
_TAG = "tag:yaml.org,2002:"
Kind = Literal["mapping", "sequence", "scalar"]

MOST_CHARACTERS = 500_000
MOST_VALUES = 10_000
MOST_LEVELS = 60
"""Bounds of a file that people write. Beyond them it is generated, damaged, or made to use up a machine's memory."""
_LONGEST_NUMBER = 100


@dataclass(frozen=True, eq=False)
class Node:
    """One value of a YAML file.

    `value` is plain data; `text` is a scalar as it was written (``3.10``), empty for collections; `quoted` marks a
    string in quotes or a block; `comment` is the text after ``#`` on the value's line. `size` counts the values in it,
    those of an alias at every place where it is used.
    """

    kind: Kind
    value: Any
    where: Where
    text: str = ""
    quoted: bool = False
    comment: str = ""
    entries: tuple[tuple[Node, Node], ...] = field(default=(), repr=False)
    items: tuple[Node, ...] = field(default=(), repr=False)
    size: int = 1

    @property
    def is_null(self) -> bool:
        """Whether the value is empty, ``~`` or ``null``."""
        return self.kind == "scalar" and self.value is None

    def get(self, key: str) -> Node | None:
        """The value of a mapping's key, or None."""
        return next((value for name, value in self.entries if name.text == key), None)

    def key(self, key: str) -> Node | None:
        """The node of a mapping's key itself, or None."""
        return next((name for name, _ in self.entries if name.text == key), None)

    def child(self, step: str | int) -> Node | None:
        """One step down: a key of a mapping or an index of a sequence."""
        if isinstance(step, int) and self.kind == "sequence":
            return self.items[step] if 0 <= step < len(self.items) else None
        return self.get(str(step))


@dataclass(frozen=True, eq=False)
class Document:
    """One YAML file. `root` is None for a file with nothing but comments."""

    file: str
    text: str
    root: Node | None

    @property
    def value(self) -> Any:
        """The whole content as plain data."""
        return self.root.value if self.root else None

    def at(self, *path: str | int) -> Node | None:
        """The node at a path of keys and indices, or None."""
        node = self.root
        for step in path:
            node = node.child(step) if node else None
        return node

    def where(self, *path: str | int) -> Where:
        """The place of the value at a path; for a path that does not exist, of the nearest value above it."""
        node, best = self.root, self.root
        for step in path:
            node = node.child(step) if node else None
            best = node or best
        return best.where if best else Where(self.file)

    def key_where(self, *path: str | int) -> Where:
        """The place of the last key of a path; for an index, or a missing key, as `where`."""
        parent = self.at(*path[:-1]) if path else None
        key = parent.key(str(path[-1])) if parent else None
        return key.where if key else self.where(*path)


def raise_problems(problems: Sequence[InputError]) -> None:
    """Raise the one problem, or several as one `ManyErrors`, in the order of the file; nothing without problems."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise ManyErrors(sorted(problems, key=lambda problem: problem.where or Where("")))


_PASSED = ("/dev/", "/proc/")
_URL = re.compile(r"(?:^|/)([a-z][a-z0-9+.]*):/+(\S+)$")  # a Path joins its slashes
"""Where a pipe is that the caller's shell has passed, as ``/dev/stdin``: that is waited for, any other is refused."""


def read_text(path: Path) -> str:
    """A user's text file: UTF-8 or UTF-16, with or without a byte order mark.

    Raises:
        InputError: the file does not exist, cannot be read or is not text.
    """
    try:
        data = path.read_bytes() if str(path).startswith(_PASSED) else at.read_regular(path)
    except OSError as error:
        if url := _URL.search(str(path)):
            text = f"{url[1]}://{url[2]} is a URL, not a file"
            raise InputError(text, hint="download it first, and name the file") from error
        hint = "check the path of the file"
        if isinstance(error, PermissionError):
            hint = "ask its owner for read permission, or use a copy"
        elif isinstance(error, IsADirectoryError):
            hint = "name a file in it"
        raise InputError(f"cannot read {path}: {cause(error)}", hint=hint) from error
    if data.startswith((b"\x7fELF", b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")):
        raise InputError("not a text file: a program or an archive", where=Where(str(path)), hint="use a text file")
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
        if "\0" in text:
            place = Where(str(path), text[: text.index("\0")].count("\n") + 1)
            raise InputError("not a text file: it contains a NUL character", where=place, hint="use a text file")
        return text
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"not UTF-8 text (byte 0x{data[error.start]:02x})"
        hint = "save the file as UTF-8, or remove that character"
        raise InputError(message, where=Where(str(path), line, column), hint=hint) from error


def read_yaml(path: Path) -> Document:
    """Read one YAML file. Raises `InputError` with line and column for everything that is not valid YAML."""
    return parse_yaml(read_text(path), str(path))


def packaged(package: str, name: str) -> Any:
    """The values of a YAML file inside a package of this program."""
    from importlib import resources  # late: it imports much, and most commands read none

    return parse_yaml(resources.files(package).joinpath(name).read_text(encoding="utf-8"), name).value


@lru_cache(maxsize=4)  # one command asks the same file for its kind, its keys and its content
def parse_yaml(text: str, file: str) -> Document:
    """Read YAML text; `file` is the name that places carry. Raises as `read_yaml`."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    from stackyard.inputs.reading.bounds import compose

    if len(text) > MOST_CHARACTERS:
        raise too_large(f"more than {MOST_CHARACTERS} characters", Where(file))
    try:
        root = compose(text, file)
    except MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from error
    except YAMLError as error:  # a character that YAML forbids
        before = text[: getattr(error, "position", 0)]
        place = Where(file, len(_LINE_BREAK.findall(before)) + 1)
        raise InputError(
            "this character is not allowed in YAML", where=place, hint="remove it", detail=str(error)
        ) from (error)
    if root is None:
        return Document(file, text, None)
    builder = _Builder(file, text)
    node = builder.build(root, None)
    raise_problems(builder.problems)
    return Document(file, text, node)


def too_large(what: str, where: Where) -> InputError:
    """The error for a file that exceeds the size limits for users' files."""
    return InputError(f"too large: {what}", where=where, hint="split it, or check how it was made")


class _Builder:
    """Turns ruamel.yaml's nodes into `Node`s; collects problems on the way."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = _LINE_BREAK.split(text)
        self.problems: list[InputError] = []
        self._done: dict[int, Node] = {}
        self._open: set[int] = set()

    def build(self, raw: Any, above: Node | None) -> Node:
        """The `Node` for a raw node; `above` is the key of the value, which gives the place of an empty value."""
        known = self._done.get(id(raw))
        if known:
            return known
        if id(raw) in self._open:
            self._problem(raw, "an alias refers to the value that contains it", "write the value instead")
            return Node("scalar", None, self._place(raw))
        self._open.add(id(raw))
        makers = {"mapping": self._mapping, "sequence": self._sequence}
        node = makers[raw.id](raw, above) if raw.id in makers else self._scalar(raw, above)
        self._open.discard(id(raw))
        self._done[id(raw)] = node
        return node

    def _sequence(self, raw: Any, above: Node | None) -> Node:
        items = tuple(self.build(item, None) for item in raw.value)
        comment = self._collection_comment(raw, above)
        values, size = [item.value for item in items], self._size(raw, items)
        return Node("sequence", values, self._place(raw), comment=comment, items=items, size=size)

    def _mapping(self, raw: Any, above: Node | None) -> Node:
        entries = list(self._entries(raw))
        merged = [(key, value) for key, value in entries if key.text != "<<"]
        own = {key.text for key, _ in merged}
        for key, value in entries:
            if key.text == "<<":
                merged += self._merge(value, own)
        values = {key.text: value.value for key, value in merged}
        comment = self._collection_comment(raw, above)
        size = self._size(raw, [value for _, value in merged])
        return Node("mapping", values, self._place(raw), comment=comment, entries=tuple(merged), size=size)

    def _size(self, raw: Any, inner: Sequence[Node]) -> int:
        """The number of values in a collection. Few aliases of aliases make many."""
        size = 1 + sum(node.size for node in inner)
        if size > MOST_VALUES:
            raise too_large(f"its aliases expand to more than {MOST_VALUES} values", self._place(raw))
        return size

    def _entries(self, raw: Any) -> Iterator[tuple[Node, Node]]:
        seen: dict[str, Where] = {}
        for raw_key, raw_value in raw.value:
            if raw_key.id != "scalar":
                self._key_problem(raw_key)
                continue
            key = self.build(raw_key, None)
            if key.text in seen and key.text != "<<":
                first = seen[key.text].line
                self._problem(
                    raw_key, f"duplicate key {quoted(key.text)} (first on line {first})", "keep one of the two"
                )
            seen.setdefault(key.text, key.where)
            yield key, self.build(raw_value, key)

    def _merge(self, value: Node, own: set[str]) -> Iterator[tuple[Node, Node]]:
        for source in value.items if value.kind == "sequence" else (value,):
            if source.kind != "mapping":
                problem = InputError(
                    "`<<` requires a mapping", where=source.where, hint="refer to a mapping: `<<: *name`"
                )
                self.problems.append(problem)
            for key, inner in source.entries:
                if key.text not in own:
                    own.add(key.text)
                    yield key, inner

    def _scalar(self, raw: Any, above: Node | None) -> Node:
        quoted = bool(raw.style)
        empty = raw.value == "" and not quoted
        place = above.where if empty and above else self._place(raw)
        comment = above.comment if empty and above else self._comment(raw)
        return Node("scalar", self._value(raw), place, text=str(raw.value), quoted=quoted, comment=comment)

    def _value(self, raw: Any) -> Any:
        tag, text = str(raw.tag), str(raw.value)
        name = tag.removeprefix(_TAG)
        if re.search("[\ud800-\udfff]", text):
            self._problem(raw, "half of a character (U+D800 to U+DFFF)", "write the whole character")
            return ""
        if name in ("str", "timestamp", "merge", "value"):
            return text
        if name in _READERS:
            try:
                return _READERS[name](text)
            except ValueError:
                self._problem(raw, f"{quoted(text)} is not a valid {name}", "put it in quotes if it is text")
                return text
        self._problem(raw, f"unsupported tag {quoted(tag)}", "write the value without a tag")
        return text

    def _comment(self, raw: Any) -> str:
        if raw.id == "scalar" and raw.style in ("|", ">"):
            return self._comment_at(raw.start_mark, _BLOCK_COMMENT)
        return self._comment_at(raw.end_mark, _TRAILING_COMMENT)

    def _comment_at(self, mark: Any, pattern: re.Pattern[str]) -> str:
        line = self.lines[mark.line] if mark.line < len(self.lines) else ""
        match = pattern.match(line[mark.column :])
        return match["comment"].strip() if match else ""

    def _collection_comment(self, raw: Any, above: Node | None) -> str:
        if raw.flow_style:
            return self._comment(raw)
        return above.comment if above else ""

    def _key_problem(self, raw_key: Any) -> None:
        line = self.lines[raw_key.start_mark.line]
        if "{{" in line:
            self.problems.append(_jinja_error(self.file, raw_key.start_mark.line + 1, line))
        else:
            self._problem(raw_key, "a key must be a scalar", "write `key: value`")

    def _place(self, raw: Any) -> Where:
        return Where(file=self.file, line=raw.start_mark.line + 1, column=raw.start_mark.column + 1)

    def _problem(self, raw: Any, message: str, hint: str) -> None:
        self.problems.append(InputError(message, where=self._place(raw), hint=hint))


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(text)
    digits = text.replace("_", "").lower()
    if digits.lstrip("+-").isdigit():
        return int(digits)
    return int(digits, 0)


def _float(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _boolean(text: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


_READERS: dict[str, Any] = {"int": _integer, "float": _float, "bool": _boolean, "null": lambda _: None}

# What to do about YAML's own messages in an environment file.
_REMEDIES = (
    ("found character '\\t'", "indent with spaces: YAML does not allow tabs"),
    ("mapping values are not allowed", "put the text in quotes, or check the indentation of this line"),
    ("expected <block end>", "indent this line like the other items of its list"),
    ("could not find expected ':'", "check that the line has `key: value` or begins with `- `"),
    ("found another document", "keep one document per file: remove the second `---`"),
    ("undefined alias", "put text that begins with `*` in quotes"),
    ("chomping or indentation", 'put text that begins with `>` or `|` in quotes: "numpy >=1.2"'),
    ("cannot start any token", "put text that begins with this character in quotes"),
    ("unexpected end of stream", "close the quotes or brackets that are opened here"),
)


def _syntax_error(error: Any, text: str, file: str) -> InputError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    for number, content in enumerate(_LINE_BREAK.split(text), 1):
        if _outside_comment(content):
            return _jinja_error(file, number, content)
    problem = str(error.problem or error.context or "not valid YAML")
    hint = next((remedy for part, remedy in _REMEDIES if part in problem), "check the YAML on and above this line")
    context = f" ({error.context})" if error.context else ""
    place = Where(file, line, mark.column + 1 if mark else 0)
    return InputError(f"not valid YAML: {cut(problem)}{context}", where=place, hint=hint)


def _outside_comment(line: str) -> bool:
    code = "" if line.lstrip().startswith("#") else line.split(" #", maxsplit=1)[0]
    return bool(_JINJA.search(code))


def _jinja_error(file: str, number: int, line: str) -> InputError:
    match = _JINJA.search(line)
    shown = match.group() if match else line.strip()
    hint = (
        "render the template first and use the result, or write the condition as a selector after the line "
        "(`- package  # [linux64]`); put a value that really contains `{{` in quotes"
    )
    column = match.start() + 1 if match else 1
    return InputError(f"a Jinja template, not YAML: {cut(shown.strip())}", where=Where(file, number, column), hint=hint)
