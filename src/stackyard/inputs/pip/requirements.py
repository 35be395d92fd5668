"""Parses pip's requirements format: whole files, the ``pip:`` list of an environment, and included files.

Lines go through the same steps as in pip, in the same order: continuation lines are joined, comments removed,
``${NAME}`` replaced, requirement and options separated. Paths follow pip's rules too: ``-r`` and ``-c`` are relative
to the file that holds them, requirements and editables to the directory that pip would run in, which for an environment
file is the directory of that file, as conda has it, and for a requirements file its own directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

from stackyard.core import secrets
from stackyard.core.errors import InputError, StackyardError, Where, cause
from stackyard.core.late import dataclass
from stackyard.core.quoting import cut, quoted
from stackyard.inputs.conda.selectors import both, in_comment, is_selector
from stackyard.inputs.foreign import GIVE
from stackyard.inputs.models import Environment, PipRequirement
from stackyard.inputs.pip.options import ON_ANY_LINE, PER_REQUIREMENT, OptionsBuilder, parse_options, split_line
from stackyard.inputs.pip.requirement import ANY_FORM, NOT_THERE, Context, Options, expand, parse_requirement
from stackyard.inputs.reading.paths import absolute, require_file
from stackyard.inputs.reading.yamlfile import raise_problems, read_text, too_large

_COMMENT = re.compile(r"(?<!\S)#(?P<comment>.*)$")
_SHOWN_ABSENT = 3
_UNLIKE = 5
"""Lines that resemble no requirement, from which on a file is something else if most of its lines are wrong."""
_MOST_LINES = 10_000
_LONGEST_LINE = 100_000
_SWALLOWED = "is ignored, as by pip: the comment before it ends with a backslash, and so goes on in this line"
_SCHEME = re.compile(r"(?:https?|file):", re.IGNORECASE)
_UNSET = re.compile(r"\$\{([A-Z0-9_]+)\}")
DOWNLOAD_TIMEOUT_S = 10


@dataclass(frozen=True)
class Line:
    """One line with its place and its selector."""

    text: str
    place: Where
    selector: str = ""


@dataclass
class RequirementsReader:
    """Reads lines and files of pip's requirements format and collects their contents.

    Args:
        base_dir: the directory to which local requirements are relative.
        strict: reject included files that do not exist, and download those that are URLs. Otherwise they are listed in
            `missing`, so that a file can be shown without the rest of its project.
        environ: for ``${NAME}``; the process's environment by default.
    """

    base_dir: Path
    strict: bool = True
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    pip: list[PipRequirement] = field(default_factory=list)
    constraints: list[PipRequirement] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[InputError] = field(default_factory=list)
    option_places: dict[str, Where] = field(default_factory=dict)
    _options: OptionsBuilder = field(default_factory=OptionsBuilder)

    def fields(self, *others: str) -> dict[str, Any]:
        """The fields of an `Environment` for the lines read so far; `others` are notices to put before."""
        return {
            "pip": tuple(self.pip),
            "constraints": tuple(self.constraints),
            "pip_options": self._options.build(),
            "notices": tuple(dict.fromkeys((*others, *self.told()))),
            "files": tuple(dict.fromkeys(self.files)),
            "missing": tuple(dict.fromkeys(self.missing)),
            "option_places": self.option_places,
        }

    def told(self) -> tuple[str, ...]:
        """The notices without duplicates. Of many missing paths, as in `pip freeze` output, only the first ones."""
        notices = tuple(dict.fromkeys(self.notices))
        absent = [notice for notice in notices if notice.endswith(NOT_THERE)]
        if len(absent) <= 2 * _SHOWN_ABSENT:
            return notices
        rest = set(absent[_SHOWN_ABSENT:])
        more = f"{absent[0].partition(':')[0]}: {len(rest)} more paths in it do not exist (yet)"
        return (*(notice for notice in notices if notice not in rest), more)

    def add_option(self, name: str, value: str) -> None:
        """Add an option that is written differently than in pip, e.g. conda-lock's ``pip-repositories``."""
        self._options.add(name, value)

    def read_file(self, path: Path, *, constraint: bool = False) -> None:
        """Read a requirements file, or one of constraints as included by ``-c``, and its included files."""
        self._read_text(read_text(path), str(path), selector="", constraint=constraint, stack=(str(path.resolve()),))
        self.files.append(str(path.resolve()))

    def read_lines(self, lines: list[Line], origin: str) -> None:
        """Read the lines of a ``pip:`` list; `origin` is the file that has them."""
        self._read_lines(lines, origin, constraint=False, stack=())

    def _read_text(self, text: str, origin: str, *, selector: str, constraint: bool, stack: tuple[str, ...]) -> None:
        written = text.splitlines()
        if len(written) > _MOST_LINES:
            raise too_large(f"more than {_MOST_LINES} lines", Where(origin))
        lines = [Line(line, Where(file=origin, line=n, column=1), selector) for n, line in enumerate(written, 1)]
        for line in lines:
            self._notice_selector(line)
        self._notice_swallowed(lines)
        self._read_lines(lines, origin, constraint=constraint, stack=stack)

    def _read_lines(self, lines: list[Line], origin: str, *, constraint: bool, stack: tuple[str, ...]) -> None:
        for line in logical_lines(lines):
            try:
                self._read_line(line, origin, constraint, stack)
            except InputError as problem:
                self.problems.append(problem)
            except OSError as error:  # a path that no file system accepts
                reason = f"cannot look up its path: {cause(error)}"
                self.problems.append(InputError(reason, where=line.place, hint="check the path"))

    def _read_line(self, line: Line, origin: str, constraint: bool, stack: tuple[str, ...]) -> None:
        if len(line.text) > _LONGEST_LINE:
            raise too_large(f"a line of more than {_LONGEST_LINE} characters", line.place)
        self._notice_unset(line)
        requirement, options_text = split_line(line.text)
        options, ignored = parse_options(options_text, line.place)
        context = Context(self.base_dir, self.environ, self.notices)
        if ignored:
            context.notice(line.place, f"{quoted(' '.join(ignored))} after an option is ignored, as by pip")
        editables = [value for name, value in options if name == "--editable"]
        target = self.constraints if constraint else self.pip
        # a requirement with its own options; those of the whole file count on any line
        if requirement or editables:
            self._notice_ignored(line, options, context)
            text, editable = (requirement, False) if requirement else (editables[0], True)
            own = _own_options(options)
            read = parse_requirement(text, line.place, context, editable=editable, options=own, selector=line.selector)
            if constraint:
                _require_constraint(read)
            target.append(read)
            for name, value in options:
                if name in ON_ANY_LINE:
                    self._take_option(name, value, line, origin)
            return
        # a line of options alone
        for name, value in options:
            if name in ("--requirement", "--constraint"):
                self._include(self._place_of(value), line, origin, name == "--constraint", stack)
            else:
                self._take_option(name, value, line, origin)

    def _place_of(self, value: str) -> str:
        """The included file: a path with variables replaced, or the address of a URL."""
        expanded = expand(value, self.environ)
        if not _SCHEME.match(expanded):
            return expanded
        return secrets.with_server(secrets.address(value, self.environ), self.environ)

    def _take_option(self, name: str, value: str, line: Line, origin: str) -> None:
        if name in PER_REQUIREMENT:
            self.notices.append(f"{line.place.in_short}: {name} without a requirement is ignored, as by pip")
            return
        if line.selector:
            text = f"the selector [{cut(line.selector)}] of the option {name} is ignored: options apply everywhere"
            self.notices.append(f"{line.place.in_short}: {text}")
        taken = self._find_links(value, origin) if name == "--find-links" else value
        if name in ("--index-url", "--pypi-url", "--extra-index-url", "--find-links"):
            self.option_places.setdefault(taken, line.place)
        self._options.add(name, taken)

    def _find_links(self, value: str, origin: str) -> str:
        """A URL unchanged, a directory as an absolute path: next to the file, else relative to the base directory."""
        if "://" in value or _SCHEME.match(value):
            return value
        text = expand(value, self.environ)
        beside = absolute(text, Path(origin).resolve().parent)
        return str(beside if beside.exists() else absolute(text, self.base_dir))

    def _include(self, target: str, line: Line, origin: str, constraint: bool, stack: tuple[str, ...]) -> None:
        location = _location(target, origin, self.base_dir)
        if location in stack:
            hint = "remove one of the two lines"
            raise InputError(f"{location} includes itself", where=line.place, hint=hint)
        try:
            text = _fetch(location, line.place, self.strict)
        except InputError as problem:
            if self.strict:
                raise
            self.missing.append(location)
            self.notices.append(f"{line.place.in_short}: {problem.message}")
            return
        if "://" not in location:
            self.files.append(location)
        self._read_text(text, location, selector=line.selector, constraint=constraint, stack=(*stack, location))

    def _notice_ignored(self, line: Line, options: list[tuple[str, str]], context: Context) -> None:
        ignored = [name for name, _ in options if name not in (*PER_REQUIREMENT, *ON_ANY_LINE, "--editable")]
        if ignored:
            names = cut(", ".join(ignored))
            context.notice(
                line.place, f"{names} on the line of a requirement is ignored, as by pip: move it to its own line"
            )

    def _notice_unset(self, line: Line) -> None:
        for name in _UNSET.findall(line.text):
            if not self.environ.get(name):
                text = f"the variable {cut(name)} is not set; it is needed when the line is used"
                self.notices.append(f"{line.place.in_short}: {text}")

    def _notice_swallowed(self, lines: list[Line]) -> None:
        """Add a notice on comments that end with a backslash, since pip joins lines first."""
        inside = False
        for line in lines:
            text = line.text.strip()
            inside = inside and not text.startswith("#")
            if inside and text.rstrip("\\"):
                self.notices.append(f"{line.place.in_short}: {quoted(text)} {_SWALLOWED}")
            commented = inside or (_COMMENT.search(line.text) and not text.startswith("#"))
            inside = bool(commented) and line.text.endswith("\\")

    def _notice_selector(self, line: Line) -> None:
        match = _COMMENT.search(line.text)
        selector = in_comment(match["comment"]) if match else ""
        if selector and not line.text.lstrip().startswith("#") and is_selector(selector):
            text = f"[{cut(selector)}] is a comment for pip, not a selector; use a marker: `; sys_platform == 'linux'`"
            self.notices.append(f"{line.place.in_short}: {text}")


def read_requirements(path: Path, *, strict: bool = True) -> Environment:
    """A requirements.txt as an environment without a conda part.

    Raises:
        InputError: pip does not accept a line, with its place; `ManyErrors` if there are several.
    """
    reader = RequirementsReader(path.resolve().parent, strict=strict)
    reader.read_file(path)
    _refuse_other_text(reader)
    raise_problems(reader.problems)
    return Environment(**reader.fields())


def _refuse_other_text(reader: RequirementsReader) -> None:
    """One error for a file that is not a requirements file at all, instead of one for each line."""
    odd, read = len(reader.problems), len(reader.pip) + len(reader.constraints)
    unlike = [problem for problem in reader.problems if problem.hint == ANY_FORM]
    if len(unlike) >= _UNLIKE and odd > read:
        what = f"not a requirements file: {odd} of {odd + read} lines are invalid, starting here"
        raise InputError(what, where=unlike[0].where, hint=GIVE)


def logical_lines(lines: list[Line]) -> list[Line]:
    """Join continuation lines, remove comments and drop empty lines; each line keeps its first line's place."""
    joined: list[Line] = []
    parts: list[Line] = []
    for line in lines:
        comment = line.text.lstrip().startswith("#")
        if line.text.endswith("\\") and not comment:
            parts.append(Line(line.text.rstrip("\\"), line.place, line.selector))
            continue
        parts.append(Line(f" {line.text}" if comment else line.text, line.place, line.selector))
        joined.append(_join(parts))
        parts = []
    if parts:
        joined.append(_join(parts))
    cleaned = [Line(_COMMENT.sub("", line.text).strip(), line.place, line.selector) for line in joined]
    return [line for line in cleaned if line.text]


def _join(parts: list[Line]) -> Line:
    selector = ""
    for part in parts:
        selector = both(selector, part.selector)
    return Line("".join(part.text for part in parts), parts[0].place, selector)


def _require_constraint(read: PipRequirement) -> None:
    """Raise InputError for a requirement that pip forbids as a constraint (``check_invalid_constraint_type``)."""
    hint = "write it as a requirement: in the file that is installed, not in the constraints"
    if not read.name:
        problem = "unnamed requirements are not allowed as constraints"
    elif read.editable:
        problem = "editable requirements are not allowed as constraints"
    elif read.extras:
        problem = "constraints cannot have extras"
        extras = f"[{','.join(read.extras)}]"
        plain = read.line.replace(extras, "", 1)
        hint = f"write {plain} here, and {read.name}{extras} as a requirement if you need these extras"
    else:
        return
    raise InputError(f"{quoted(read.text)}: {problem}", where=read.place, hint=cut(hint))


def _own_options(options: list[tuple[str, str]]) -> Options:
    def values(*names: str) -> list[str]:
        return [value for name, value in options if name in names]

    backend = [f"{name}={value}" for name, value in options if name in ("--global-option", "--build-option")]
    settings = values("--config-settings", "--config-setting")
    return Options(hashes=tuple(values("--hash")), config_settings=(*settings, *backend))


def _location(target: str, origin: str, base_dir: Path) -> str:
    """The absolute path or the URL of an included file."""
    if origin.lower().startswith(("http:", "https:")):
        return urljoin(origin, target)
    if target.lower().startswith("file:"):
        return str(absolute(unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", target)), base_dir))
    if _SCHEME.match(target):
        return target
    return str(absolute(target, Path(origin).parent))


def _fetch(location: str, place: Where, strict: bool) -> str:
    if not location.lower().startswith(("http:", "https:")):
        path = Path(location)
        require_file(path, "create the file, or remove the line", place, kind="included file")
        return read_text(path)
    if not strict:
        raise InputError(f"the included file {location} is downloaded when the stack is locked", where=place)
    return _download(location, place)


def _download(url: str, place: Where) -> str:
    from stackyard.host.net import http  # late: most files include nothing over the network

    try:
        return http.read(url, timeout_s=DOWNLOAD_TIMEOUT_S).decode("utf-8-sig")
    except StackyardError as error:
        hint = "check the URL and the network, or save the file next to this one and include that"
        raise InputError(error.message, where=place, hint=hint) from error
    except UnicodeDecodeError as error:
        hint = "check the URL, or save the file next to this one and include that"
        raise InputError(f"not a UTF-8 text file: {url}", where=place, hint=hint) from error
