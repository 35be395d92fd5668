"""The file of an extension in a user's yard: `extend` writes it, `update` and `rebase` change it; each deploys it.

<yard>/extensions/<name>/stack.yaml          name, base, conda packages, files with more requirements
<yard>/extensions/<name>/requirements.txt    pip requirements, a line each
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path

from stackyard.core import grammar
from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.core.names import pip_name
from stackyard.host.files import at
from stackyard.yard import catalogue, disk
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, within

STACK, REQUIREMENTS, LOCK = "stack.yaml", "requirements.txt", "stack.yaml.lock"
_CREATE = "create one: stackyard extend --name NAME --pip REQUIREMENT"
_FILES = (STACK, REQUIREMENTS, LOCK)
_HEADER = "# An extension, as `stackyard extend` writes it. Edit it as you like; then run `stackyard update {name}`.\n"


@dataclass(frozen=True)
class ExtensionRequest:
    """The additions to an extension from a command line: requirements, and files with requirements."""

    pip: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pip or self.conda or self.files)


@dataclass(frozen=True)
class Files:
    """The texts of an extension's files by name. Pure: `write` puts them on disk."""

    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Files:
        """Read the files from disk; empty if the extension does not exist."""
        names = [name for name in _FILES if disk.is_there(directory / name)]
        return cls({name: at.read_regular(directory / name).decode() for name in names})

    def write(self, directory: Path) -> None:
        """Write the files to disk, and remove those that are not among them."""
        for name in _FILES:
            if name in self.texts:
                if (
                    not disk.is_there(directory / name)
                    or at.read_regular(directory / name).decode() != self.texts[name]
                ):
                    atomic.write_text(directory / name, self.texts[name], top=directory.parents[1])
            else:
                with suppress(FileNotFoundError):
                    within.unlink(directory.parents[1], directory / name)

    @property
    def requirements(self) -> list[str]:
        """The lines of the requirements."""
        return self.texts.get(REQUIREMENTS, "").splitlines()


def checked_name(name: str, yard: Yard) -> str:
    """Check the name of a new extension and return it.

    Raises:
        InputError: it is not a valid module name, or a stack of the site has this name.
    """
    try:
        grammar.LABEL(name)
    except grammar.GrammarError as error:
        raise InputError(f"--name: {error}", hint=error.hint) from error
    for parent in yard.lineage()[1:]:
        if disk.is_there(parent.stack(name)):
            hint = "choose another name with --name"
            raise InputError(f"{name} is the name of a stack in {parent.root}", hint=hint)
    published = any(entry.stack == name for entry in generations.entries(yard))
    if published and not disk.is_there(yard.extension(name) / STACK):
        raise InputError(f"{name} is a stack of yours, not an extension", hint="choose another name with --name")
    return name


def checked(request: ExtensionRequest) -> ExtensionRequest:
    """Check the requirements and make their paths absolute.

    Raises:
        InputError: a requirement is empty or has more than one line, or a file does not exist.
    """
    for option, texts in (("--pip", request.pip), ("--conda", request.conda)):
        for text in texts:
            if not text.strip() or not text.isprintable() or text.lstrip().startswith("-"):
                hint = f"write one requirement after each {option}, e.g. {option} 'einops>=0.8'; more with -r FILE"
                raise InputError(f"{option}: {text!r} is not a requirement", hint=hint)
    for file in request.files:
        if not file.is_file():
            raise InputError(f"no such file: {file}", hint="name a requirements.txt or an environment.yml with -r")
    return replace(request, files=tuple(file.absolute() for file in request.files))


def made(name: str, base: str, request: ExtensionRequest) -> Files:
    """The files of a new extension."""
    lines = [_HEADER.format(name=name), f"name: {_quoted(name)}\n", f"base: {_quoted(base)}\n", "environment:\n"]
    texts = {STACK: "".join(lines)}
    return with_more(Files(texts), request)


def with_more(files: Files, request: ExtensionRequest) -> Files:
    """Add requirements to an extension; existing ones for the same package are replaced."""
    stack, texts = files.texts[STACK], dict(files.texts)
    if request.pip:
        texts[REQUIREMENTS] = "".join(f"{line}\n" for line in _merged(files.requirements, request.pip))
    requirement_files = [REQUIREMENTS] * (REQUIREMENTS in texts) + [str(file) for file in request.files]
    items = [f"  - {_quoted(item)}\n" for item in requirement_files]
    items += [f"  - dependencies: [{_quoted(item)}]\n" for item in request.conda]
    return Files({**texts, STACK: _with_items(stack, items)})


def _with_items(stack: str, items: Sequence[str]) -> str:
    """Add items to the list ``environment`` of a stack.yaml; duplicates are skipped.

    Raises:
        InputError: the file has no such list, because it was edited by hand.
    """
    new = [item for item in items if item not in stack]
    match = re.search(r"^environment:[ \t]*\n(?:[ \t]+.*\n|[ \t]*#.*\n)*", stack, re.MULTILINE)
    if match is None or (new and re.search(r"^\s+[^\s#-]", match.group(), re.MULTILINE)):
        hint = "add the requirements to the file by hand, and run `stackyard update NAME`"
        raise InputError("cannot add requirements: `environment:` of its stack.yaml is not a list", hint=hint)
    return stack[: match.end()] + "".join(new) + stack[match.end() :]


def _merged(lines: Iterable[str], new: Iterable[str]) -> list[str]:
    added = {pip_name(line) or line: line.strip() for line in new}
    merged = [added.pop(pip_name(line), line) if pip_name(line) else line for line in lines]
    return [*merged, *(line for line in added.values() if line not in merged)]


def on_base(files: Files, base: str) -> Files:
    """Move an extension to another base.

    Raises:
        InputError: its file names no base.
    """
    text, count = re.subn(r"^base:.*$", lambda _: f"base: {_quoted(base)}", files.texts[STACK], flags=re.MULTILINE)
    if count != 1:
        raise InputError("its stack.yaml does not have one line `base:`", hint="write the base into it by hand")
    return Files({**files.texts, STACK: text})


def _quoted(text: str) -> str:
    """A text as a YAML scalar: quoted as in JSON unless it is a plain word."""
    return text if re.fullmatch(r"[A-Za-z][A-Za-z0-9_./+-]*", text) else json.dumps(text, ensure_ascii=False)


@contextmanager
def changed(directory: Path, change: Callable[[Files], Files]) -> Iterator[Path]:
    """Change an extension's stack.yaml for the time of a ``with`` block; restore it if the block fails."""
    before = Files.read(directory)
    try:
        change(before).write(directory)
        yield directory / STACK
    except BaseException:
        before.write(directory)
        if not before.texts:
            disk.remove_tree(directory, directory.parents[1])
        raise


# --------------------------------------------------------------------------- what is loaded


def base_of(yard: Yard, named: str) -> str:
    """The full name of the revision to extend: the named one, else the loaded one.

    Raises:
        InputError: none is named or loaded, or it does not exist.
    """
    if named:
        return catalogue.resolve(yard, named).module
    entries = catalogue.loaded(yard, os.environ)
    if not entries:
        hint = "load one first (module load NAME), or name it: stackyard extend --base REV ..."
        raise InputError("no revision to extend: none is loaded", hint=hint)
    return entries[0].module


def used(yard: Yard, name: str) -> BuildRecord:
    """The record of an extension's loaded revision, else of the revision that its name loads.

    Raises:
        StackyardError: it was never published, or its record cannot be read.
    """
    mine = (entry.module for entry in catalogue.loaded(yard, os.environ) if entry.stack == name)
    return catalogue.record_of(yard, next(mine, name))


def names(yard: Yard) -> list[str]:
    """The extensions of this yard that have a file in it."""
    directory = yard.extensions
    return sorted(name for name in disk.names(directory) if disk.is_there(directory / name / STACK))


def chosen(yard: Yard, named: str | None) -> str:
    """The extension that a command works on: the named one, else the loaded one, else the only one.

    Raises:
        InputError: no such extension, or several.
    """
    own = names(yard)
    if named is not None:
        name = named.partition("/")[0]
        if name not in own:
            is_stack = any(row["stack"] == name for row in catalogue.listing(yard))
            stack = f"{name} is a stack: stackyard lock FILE --update renews its lock; then deploy FILE"
            hint = stack if is_stack else f"yours are {', '.join(own)}" if own else _CREATE
            raise InputError(f"no such extension in {yard.root}: {named}", hint=hint)
        return name
    shown = [entry.stack for entry in catalogue.loaded(yard, os.environ) if entry.stack in own]
    if shown or len(own) == 1:
        return (shown or own)[0]
    hint = f"name one of {', '.join(own)}" if own else _CREATE
    raise InputError("no extension is loaded" if own else f"no extensions in {yard.root}", hint=hint)
