"""Checks whether each library defines the symbol versions that others need from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from stackyard.core.findings import Finding, some
from stackyard.images.bindings.drivers import numbers
from stackyard.images.bindings.elf.versions import read_versions
from stackyard.images.bindings.loader import Closure, LoadedFile, Loader, is_c_library
from stackyard.images.bindings.tree import Tree
from stackyard.images.bindings.view import View

_SHOWN = 3


def version_findings(closures: Iterable[Closure], seen: View, *, besides: Collection[Path] = ()) -> Iterator[Finding]:
    """One finding for each library that lacks versions, if it or its user comes from the host.

    Args:
        besides: files whose unmet needs are known already.
    """
    lacking: dict[Path, tuple[LoadedFile, dict[str, dict[str, None]]]] = {}
    for closure in closures:
        for item in (file for file in closure.loaded if file.elf.path not in besides):
            for provider, version in _lacking(item, closure, seen):
                _, versions = lacking.setdefault(provider.elf.path, (provider, {}))
                versions.setdefault(version, {})[item.name] = None
    yield from (_lacks(provider, versions, seen) for provider, versions in lacking.values())


def _lacking(item: LoadedFile, closure: Closure, seen: View) -> Iterator[tuple[LoadedFile, str]]:
    """The libraries that lack a version which a loaded file needs, and the version."""
    for name, names in read_versions(item.elf.path).needed.items():
        provider = closure.get(name)
        if provider is None or not (seen.is_host(item) or seen.is_host(provider)):
            continue
        defined = read_versions(provider.elf.path).defined
        yield from ((provider, version) for version in sorted(names - defined if defined else ()))


def _lacks(provider: LoadedFile, versions: dict[str, dict[str, None]], seen: View) -> Finding:
    newest = max(versions, key=numbers)
    needing = list(versions[newest])
    whose = "host" if seen.is_host(provider) else "image"
    has = _highest(provider.elf.path, newest)
    return Finding(
        "symbol-version", "refused",
        f"{some(needing, _SHOWN)} need{'s' if len(needing) == 1 else ''} {newest} of {provider.name}, which the "
        f"{whose}'s does not define" + (f" (it has {has})" if has else ""),
        f"the loader stops the program: version `{newest}' not found",
        _remedy(provider, newest, seen),
    )  # fmt: skip


def _remedy(provider: LoadedFile, version: str, seen: View) -> str:
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
    return next(iter(Loader(Tree()).cached(name)), None)


def _highest(path: Path, like: str) -> str:
    """The highest version of the same kind that a library defines: ``GLIBC_2.31``."""
    kind = re.split(r"_\d", like)[0]
    same = [version for version in read_versions(path).defined if re.fullmatch(rf"{re.escape(kind)}_[\d.]+", version)]
    return max(same, key=numbers, default="")
