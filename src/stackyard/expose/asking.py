"""Wrapper commands for stacks whose licences each user must accept: the first one run asks.

Loading a module runs no program, so it cannot ask. The module puts a directory first on PATH with a link for each
command, all to one shell script. The script takes about a millisecond once the licences are accepted: either their
variables are set (by the user, or by a parent process from the same stack), or the user's home directory has a mark for
each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.core.change import EnvironmentChange, Prepend
from stackyard.expose.commands import commands_of
from stackyard.host.files.hashing import sha256_file
from stackyard.images.squashfs.stubs import commands
from stackyard.inputs.sites.siteyard import in_sites_yard
from stackyard.make import onhost
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, permissions

if TYPE_CHECKING:
    from stackyard.inputs.models import Site

_SCRIPT = Path(__file__).with_suffix(".sh")
NAME = ".ask"


def asked_of_users(record: BuildRecord, site: Site) -> list[Mapping[str, Any]]:
    """The licences that each user of a revision must accept, because loading its module does not."""
    if not in_sites_yard(record.path, site):
        return []
    named = (entry for entry in record.licences if entry.get("variable"))
    return [entry for entry in named if entry["name"] not in site.licences.on_behalf_of_users]


def asking_change(record: BuildRecord, site: Site) -> EnvironmentChange:
    """The change that puts the directory of these commands first on PATH, if there are such licences."""
    if not asked_of_users(record, site) or not _directories(record):
        return EnvironmentChange()
    return EnvironmentChange((Prepend("PATH", str(RevisionPaths.of(record.path).asking)),))


def write_asking(record: BuildRecord, site: Site) -> None:
    """Write the script and its links, if there are such licences."""
    if not asked_of_users(record, site):
        return
    for path, text in asking_scripts(record).items():
        atomic.write_text(path, text, mode=permissions.program_mode() & 0o555, top=RevisionPaths.of(record.path).yard)
    directory = RevisionPaths.of(record.path).asking
    for name in names(record):
        if not (directory / name).is_symlink() or str((directory / name).readlink()) != NAME:
            atomic.replace_symlink(directory / name, NAME, top=RevisionPaths.of(record.path).yard)


def asking_scripts(record: BuildRecord) -> dict[Path, str]:
    """The text of the script, by its path in the revision's directory."""
    lines = (_line(record, entry) for entry in record.licences if entry.get("variable"))
    words = {
        "{module}": shlex.quote(record.module),
        "{licences}": "\n".join(lines),
        "{folders}": shlex.join(map(str, _directories(record))),
    }
    text = _SCRIPT.read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(word, value)
    return {RevisionPaths.of(record.path).asking / NAME: text}


def mark_name(name: str, sha256: str) -> str:
    """The file name of a user's mark for an accepted text."""
    return hashlib.sha256(f"{name}\n{sha256}".encode()).hexdigest()[:32] + ".json"


def _line(record: BuildRecord, entry: Mapping[str, Any]) -> str:
    """The script's line that asks for one licence, unless its variable is set, and then sets it."""
    name, variable, digest = str(entry["name"]), str(entry["variable"]), str(entry["sha256"])
    fields = json.dumps({"name": name, "sha256": digest, "variable": variable})[1:-1]
    words = (name, shlex.quote(name), variable, mark_name(name, digest), _text(record, digest), fields)
    return f'[ -n "${{{variable}-}}" ] || sy_agree {shlex.join(words)}\nexport {variable}="${{{variable}:-yes}}"'


def _text(record: BuildRecord, sha256: str) -> str:
    """The path of a licence's text; empty if the stack's file has none."""
    directory = RevisionPaths.of(record.path).recipe
    files = (Path(entry.path) for entry in os.scandir(directory) if entry.is_file()) if directory.is_dir() else iter(())
    return next((str(path) for path in sorted(files) if sha256_file(path) == sha256), "")


def _directories(record: BuildRecord) -> list[Path]:
    """The directories of commands that loading the module adds to PATH."""
    if record.settings.get("variables_only"):
        return []
    return [RevisionPaths.of(record.path).commands] if commands_of(record) else list(record.payload.program_directories)


def names(record: BuildRecord) -> Iterator[str]:
    """The names of these commands, without those of the host."""
    if commands_of(record):
        yield from commands_of(record)
        return
    for directory in _directories(record):
        yield from (name for name in commands(directory) if not onhost.is_one(directory / name))
