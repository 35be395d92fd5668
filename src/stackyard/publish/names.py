"""Short names (``pytorch``, ``pytorch/2.13``, ``pytorch/2.13-py311``) and the published revisions that they load.

Versions are compared number by number: 2.9 is before 2.13.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from stackyard.errors import InputError
from stackyard.yard.record import Entry


def claim(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Set the aliases and the default mark of every entry; withdrawn and hidden entries get none.

    Among the newest revisions of one version's variants the highest `rank` gets the version's name, and the default is
    the highest version.

    Raises:
        InputError: two revisions would claim one name.
    """
    plain = [replace(entry, aliases=(), default=False) for entry in entries]
    stacks: dict[str, list[Entry]] = defaultdict(list)
    for entry in plain:
        stacks[entry.stack].append(entry)
    named: dict[str, Entry] = {}
    for members in stacks.values():
        named.update(_claim_stack(members))
    result = tuple(sorted((named.get(e.module, e) for e in plain), key=_order))
    check_unique(result)
    return result


def check_unique(entries: Iterable[Entry]) -> None:
    """Raise InputError where one name would load two revisions."""
    owners: dict[str, str] = {}
    for entry in entries:
        for name in {entry.module, *(f"{entry.stack}/{alias}" for alias in entry.aliases)}:
            other = owners.setdefault(name, entry.module)
            if other != entry.module:
                raise InputError(
                    f"name conflict: {name} would load both {other} and {entry.module}",
                    hint="change the version or the variant name of one of them, or the site's `modules: naming:`",
                )


def _claim_stack(members: list[Entry]) -> dict[str, Entry]:
    visible = [e for e in members if e.state != "withdrawn" and not e.hidden]
    aliases: dict[str, list[str]] = defaultdict(list)
    newest: dict[tuple[str, str], Entry] = {}
    for entry in sorted(visible, key=lambda e: e.revision):
        newest[(entry.version, entry.variant)] = entry
    for (version, variant), entry in newest.items():
        if variant:
            aliases[entry.module].append(f"{version}-{variant}")
    best: dict[str, Entry] = {}
    for entry in sorted(newest.values(), key=lambda e: (e.rank, e.variant)):
        best[entry.version] = entry
    for version, entry in best.items():
        aliases[entry.module].append(version)
    default = max(best.values(), key=lambda e: version_key(e.version), default=None)
    return {
        e.module: replace(
            e,
            aliases=tuple(a for a in aliases[e.module] if f"{e.stack}/{a}" != e.module),
            default=e is default,
        )
        for e in visible
    }


def version_key(version: str) -> tuple[object, ...]:
    """A sort key for versions: 2.9 before 2.13, 1.0rc1 before 1.0, dates by their numbers."""
    parts: list[tuple[int, int, str]] = []
    for number, word in re.findall(r"(\d+)|([A-Za-z]+)", version):
        if number:
            parts.append((2, int(number), ""))
        else:
            parts.append((0, 0, word.lower()))
    return (*parts, (1, 0, ""))


def _order(entry: Entry) -> tuple[object, ...]:
    return (entry.stack, version_key(entry.version), entry.rank, entry.variant, entry.revision)
