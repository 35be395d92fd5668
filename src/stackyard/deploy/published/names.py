"""Short names (``pytorch``, ``pytorch/2.13``, ``pytorch/2.13-py311``) and the published revisions that they load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from stackyard.core.errors import InputError
from stackyard.deploy.published.versions import version_keys
from stackyard.yard.revision.manifest import Entry


def claim(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Set the aliases and the default mark of every entry; withdrawn, missing and hidden entries get none.

    Among the newest revisions of one version's variants the highest `rank` gets the version's name, and the default is
    the highest version, unless one is pinned. Superseded revisions rank below all others.

    Raises:
        InputError: two revisions would claim one name.
    """
    plain = [replace(entry, aliases=(), default=False) for entry in entries]
    stacks: dict[str, list[Entry]] = defaultdict(list)
    for entry in plain:
        stacks[entry.stack].append(entry)
    result = tuple(e for _, members in sorted(stacks.items()) for e in _claim_stack(members))
    check_unique(result)
    return result


def check_unique(entries: Iterable[Entry]) -> None:
    """Raise InputError if one name would load two revisions."""
    owners: dict[str, str] = {}
    for entry in entries:
        for name in {entry.module, *(f"{entry.stack}/{alias}" for alias in entry.aliases)}:
            other = owners.setdefault(name, entry.module)
            if other != entry.module:
                raise InputError(
                    f"name conflict: {name} would load both {other} and {entry.module}",
                    hint="change the version or the variant name of one of them, or the site's `modules: naming:`",
                )


def _claim_stack(members: Collection[Entry]) -> list[Entry]:
    """The entries of one stack with their names, by version, rank and revision."""
    keys = version_keys({e.version for e in members})
    names = _names({e.module: e for e in members if e.is_visible and not e.hidden}, keys)
    ordered = sorted(members, key=lambda e: (keys[e.version], e.version, e.rank, e.variant, e.revision))
    return [names.get(e.module, e) for e in ordered]


def _names(visible: Mapping[str, Entry], keys: Mapping[str, Any]) -> dict[str, Entry]:
    """The visible entries of one stack with their names; `keys` has the order of their versions."""
    aliases: dict[str, list[str]] = defaultdict(list)
    newest: dict[tuple[str, str], Entry] = {}
    for entry in sorted(visible.values(), key=lambda e: (not e.superseded, e.revision)):
        newest[(entry.version, entry.variant)] = entry
    for (version, variant), entry in newest.items():
        if variant:
            aliases[entry.module].append(f"{version}-{variant}")
    best: dict[str, Entry] = {}
    for entry in sorted(newest.values(), key=lambda e: (not e.superseded, e.rank, e.variant)):
        best[entry.version] = entry
    for version, entry in best.items():
        aliases[entry.module].append(version)
    pinned = [e for e in visible.values() if e.pinned]
    default = max(pinned or best.values(), key=lambda e: (not e.superseded, keys[e.version], e.version), default=None)
    return {
        module: replace(
            e, aliases=tuple(a for a in aliases[module] if f"{e.stack}/{a}" != module), default=e is default
        )
        for module, e in visible.items()
    }
