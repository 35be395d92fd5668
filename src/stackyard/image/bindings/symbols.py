"""Whether each library defines the symbol versions that others need of it, bound or the image's own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from stackyard.findings import Finding, some
from stackyard.image.bindings.drivers import numbers
from stackyard.image.bindings.loader import Closure, Loaded, Loader, is_c_library
from stackyard.image.bindings.tree import Tree
from stackyard.image.bindings.versions import read_versions
from stackyard.image.bindings.view import View

_SHOWN = 3


def version_findings(closure: Closure, seen: View, *, besides: Collection[Path] = ()) -> Iterator[Finding]:
    """One finding for each library that lacks versions, where it or what needs it is the host's.

    Args:
        besides: files whose own needs are known.
    """
    lacking: dict[str, dict[str, list[Loaded]]] = {}
    for item in (each for each in closure.loaded if each.elf.path not in besides):
        for name, wanted in read_versions(item.elf.path).needed.items():
            provider = closure.get(name)
            if provider is None or not (seen.is_host(item) or seen.is_host(provider)):
                continue
            defined = read_versions(provider.elf.path).defined
            for version in wanted - defined if defined else ():
                lacking.setdefault(name, {}).setdefault(version, []).append(item)
    for name, versions in lacking.items():
        provider = closure.get(name)
        if provider is not None:
            yield _lacks(provider, versions, seen)


def _lacks(provider: Loaded, versions: dict[str, list[Loaded]], seen: View) -> Finding:
    newest = max(versions, key=numbers)
    needing = list(dict.fromkeys(item.name for item in versions[newest]))
    whose = "host" if seen.is_host(provider) else "image"
    has = _highest(provider.elf.path, newest)
    return Finding(
        "symbol-version", "refused",
        f"{some(needing, _SHOWN)} need{'s' if len(needing) == 1 else ''} {newest} of {provider.name}, which the "
        f"{whose}'s does not define" + (f" (it has {has})" if has else ""),
        f"the loader stops the program: version `{newest}' not found",
        _remedy(provider, newest, seen),
    )  # fmt: skip


def _remedy(provider: Loaded, version: str, seen: View) -> str:
    if is_c_library(provider.name):
        least = version.partition("_")[2]
        return f"use an image with glibc {least} or newer, or the image's own MPI, without these bindings"
    if seen.is_host(provider):
        return f"remove {provider.name} from `libraries`: the image's own is newer"
    host = _of_host(provider.name)
    if host is None:
        return f"use an image with a {provider.name} that defines {version}"
    return f"add {host} to `libraries`"


def _of_host(name: str) -> str | None:
    return next(iter(Loader(Tree()).cache.get(name, ())), None)


def _highest(path: Path, like: str) -> str:
    """The highest version that a library defines of the same kind: ``GLIBC_2.31``."""
    kind = re.split(r"_\d", like)[0]
    same = [each for each in read_versions(path).defined if re.fullmatch(rf"{re.escape(kind)}_[\d.]+", each)]
    return max(same, key=numbers, default="")
