"""The yards that extend revisions of this one: those that registered here, and those that can be found.

    <yard>/children/<hash of a path>.json   {"yard": "/home/anna/.local/share/stackyard"}

A yard registers with its parent when it extends one of its revisions (`register`). Where it may not write, the owner of
the parent looks where the site says that users' yards are (``user_yard``), as far as it may read there.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from stackyard import grammar
from stackyard.errors import StackyardError, cause
from stackyard.findings import some
from stackyard.host.identity import whoami
from stackyard.host.quoting import LONG, plain
from stackyard.late import dataclass
from stackyard.yard import atomic, disk, formats, trash
from stackyard.yard.layout import Yard, is_yard

_MOST_BYTES = 16_384
_MOST_RECORD = 1 << 25


@dataclass
class Children:
    """Yards below one, and what could not be seen: a sentence for each."""

    yards: list[Yard] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def register(parent: Yard, child: Yard) -> bool:
    """Note in a parent that this yard extends its revisions; False where that cannot be written."""
    note = parent.child(child.root)
    try:
        if not disk.is_there(note):
            atomic.write_text(note, json.dumps({"yard": str(child.root)}), mode=0o644, synced=False)
    except OSError:
        return False
    return True


def known(yard: Yard, template: str) -> Children:
    """The yards that extend revisions of this one, as far as they can be seen.

    Args:
        template: where users' yards are: the site's ``user_yard``; empty: only those that registered are looked at.
    """
    found = Children()
    expected = _places(template, found) if template else ()
    roots = dict.fromkeys((*_registered(yard, found), *expected))
    _look(found, [root for root in roots if root != yard.root])
    return found


def _look(found: Children, roots: Sequence[Path]) -> None:
    """Add those of some directories that are yards. Each is opened first where that may hang: it is on another disk."""
    closed = []
    for root, error in disk.looked_into(roots):
        try:
            if error is not None:
                raise error
            if is_yard(root):
                found.yards.append(Yard(root))
        except disk.ABSENT:
            continue
        except PermissionError:
            closed.append(plain(str(root), LONG))
        except (OSError, StackyardError) as error:
            found.unseen.append(f"cannot look into the yard {plain(str(root), LONG)}: {cause(error)}")
    if closed:
        found.unseen.append(f"permission denied: {some(closed, 3)}")


def _registered(yard: Yard, found: Children) -> Iterator[Path]:
    try:
        notes = sorted(disk.entries(yard.children))
    except OSError as error:
        found.unseen.append(f"cannot read {yard.children}: {error.strerror}")
        return
    for note in notes:
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            root = Path(formats.content(disk.of_anybody(note, _MOST_BYTES)[0])["yard"])
            if root.is_absolute() and str(root).isprintable() and not note.name.startswith("."):
                yield root


def _places(template: str, found: Children) -> Iterator[Path]:
    """The yards of all accounts at the place that a template names: below their homes, or beside one's own."""
    plain = template.replace("${", "$").replace("}", "")
    first, _, rest = plain.partition("/")
    if first in ("~", "$HOME"):
        yield from (Path(home, rest) for home in _homes())
        return
    parts = Path(os.path.expandvars(plain)).parts
    mine = [at for at, part in enumerate(parts) if part == whoami()]
    if not mine or any("$" in part for part in parts):
        found.unseen.append(f"yards of other users are not looked for: {template} does not say where they are")
        return
    above, below = Path(*parts[: mine[0]]), parts[mine[0] + 1 :]
    try:
        disk.look_into(above)
        yield from (above.joinpath(name, *below) for name in sorted(disk.names(above)))
    except disk.ABSENT:
        return
    except (OSError, StackyardError) as error:
        found.unseen.append(f"cannot look into {above}: {cause(error)}")


def _homes() -> list[str]:
    """The homes of the accounts that the system lists; a home directly below the root directory is no user's."""
    return sorted({entry.pw_dir for entry in pwd.getpwall() if len(Path(entry.pw_dir).parts) > 2})


def bases(yards: Iterable[Yard]) -> Iterator[tuple[dict[str, Any], str]]:
    """What the records of these yards say of their bases, each with the module that extends it."""
    for value, yard in _records(yards):
        if isinstance(value.get("base"), dict):
            yield value["base"], f"{_name(value.get('module'))} in {yard.root}"


def interpreters(yards: Iterable[Yard]) -> Iterator[tuple[Path, Yard]]:
    """The paths of the interpreters that the records of these yards name, each with its yard."""
    for value, yard in _records(yards):
        found = value.get("interpreter")
        if isinstance(found, dict) and isinstance(found.get("path"), str):
            yield Path(found["path"]), yard


def _records(yards: Iterable[Yard]) -> Iterator[tuple[dict[str, Any], Yard]]:
    """What these yards have as records, also in their trash, from where it can be brought back."""
    for yard in yards:
        built = disk.matching(yard.stacks, "*/*/record.json")  # first: what is removed meanwhile is in the trash then
        for file in (*built, *disk.matching(yard.trash, f"*/{trash.CONTENT}/record.json")):
            value = None
            with suppress(OSError, ValueError, RecursionError):
                top = yard.root if file.is_relative_to(yard.trash) else None
                value = formats.content(disk.of_anybody(file, _MOST_RECORD, top)[0])
            if isinstance(value, dict):
                yield value, yard


def _name(module: object) -> str:
    """The name of a module, as its owner wrote it down."""
    is_one = isinstance(module, str) and all(grammar.LABEL.accepts(part) for part in module.split("/"))
    return str(module) if is_one else "an extension"
