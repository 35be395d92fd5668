"""Checks the files beside the prefix that users run or checks use: each is unmodified, and no others exist.

commands/<name> on PATH, where a module offers some commands of its stack asking/<name> before them on PATH: links to
``.ask``, which asks for licences checks/<name> scripts of checks that were added after the build, named by the
beginning of their hash
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from stackyard.core.errors import StackyardError, cause
from stackyard.expose import asking, commands
from stackyard.host.files.hashing import sha256_file, sha256_once
from stackyard.images.squashfs.launcher import compare
from stackyard.yard import checksum, disk
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import temporaries

_DIGITS = 12
"""Of the hash in the name of a check's script (`verify.expectations`)."""


def problems(record: BuildRecord) -> Iterator[str]:
    """Problems beside the prefix of a published revision, each with its path."""
    paths = RevisionPaths.of(record.path)
    if not disk.is_there(paths.module):
        return
    yield from _text_problem(paths.condarc, None)
    if not compare.problem(record):  # what the scripts must hold is read through the launcher of an image
        try:
            files, links = _wanted(record, paths)
        except (OSError, StackyardError) as error:
            yield str(error)
        else:
            yield from (problem for path, text in files.items() for problem in _program_problem(path, text))
            lost = record.base is None  # what its user installs in an extension has commands too
            yield from (problem for path, to in links.items() for problem in _link_problem(path, to, lost=lost))
            yield from (f"{path}: was added" for path in added(record, {*files, *links}))
    yield from _checks(paths)
    yield from _interpreter(record)


def _interpreter(record: BuildRecord) -> Iterator[str]:
    """Problems of the interpreter that uv installed; those of the host or of conda are not checked here."""
    path, digest = record.interpreter.get("path", ""), record.interpreter.get("sha256", "")
    if record.interpreter.get("source") != "uv" or not digest:
        return
    try:
        if sha256_once(Path(path).resolve()) != digest:
            yield f"{path}: is another program than the one that the record names"
    except StackyardError as error:
        yield f"{path}: {error.message}"


def added(record: BuildRecord, chosen: set[Path] | None = None) -> list[Path]:
    """Unknown files in the directories of commands, which were not written at publication.

    Raises:
        StackyardError: the expected files cannot be determined.
    """
    paths = RevisionPaths.of(record.path)
    if chosen is None:
        files, links = _wanted(record, paths)
        chosen = {*files, *links}
    present = (path for directory in (paths.commands, paths.asking) for path in disk.entries(directory))
    return sorted(path for path in present if path not in chosen and not temporaries.is_one(path.name))


def _wanted(record: BuildRecord, paths: RevisionPaths) -> tuple[Mapping[Path, str], Mapping[Path, str]]:
    """The expected scripts with their text, and the expected links with their targets."""
    operations = disk.content(paths.module) or b""
    asks = disk.is_there(paths.asking) or json.dumps(str(paths.asking)).encode() in operations
    scripts = commands.scripts(record)
    if not asks:
        return scripts, {}
    return scripts | asking.asking_scripts(record), {paths.asking / name: asking.NAME for name in asking.names(record)}


def _program_problem(path: Path, text: str) -> Iterator[str]:
    try:
        status = path.lstat()
    except OSError as error:
        yield f"{path}: {cause(error)}"
        return
    if stat.S_ISLNK(status.st_mode):
        yield f"{path}: is a link to {path.readlink()}"
    elif not stat.S_ISREG(status.st_mode):
        yield f"{path}: is not a file"
    else:
        yield from _text_problem(path, text)
        mode = stat.S_IMODE(status.st_mode)
        if mode & (0o022 | stat.S_ISUID | stat.S_ISGID) or not mode & stat.S_IXUSR:
            yield f"{path}: mode {mode:04o} instead of 0555"


def _link_problem(path: Path, target: str, *, lost: bool) -> Iterator[str]:
    try:
        if os.readlink(path) != target:  # noqa: PTH115
            yield f"{path}: is a link to {path.readlink()}"
    except FileNotFoundError as error:
        yield from [f"{path}: {cause(error)}"] if lost else []
    except OSError:
        yield f"{path}: is not a link to {target}"


def _text_problem(path: Path, text: str | None) -> Iterator[str]:
    """The problem of a file that must have this text, or the right checksum."""
    changed = f"{path}: the file was changed after it was written"
    try:
        if text not in (None, checksum.read(path)):
            yield changed
    except UnicodeError:
        yield changed
    except (OSError, ValueError) as error:
        yield f"{path}: {cause(error)}"


def _checks(paths: RevisionPaths) -> Iterator[str]:
    """Problems of check scripts: a modified one could pass everything."""
    for path in disk.entries(paths.check_scripts):
        digest, _, name = path.name.partition("-")
        if name and len(digest) == _DIGITS and not path.name.startswith("."):
            try:
                good = not path.is_symlink() and sha256_file(path).startswith(digest)
            except StackyardError:
                good = False
            if not good:
                yield f"{path}: the file was changed after it was kept: deploy the stack's file again"
