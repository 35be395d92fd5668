"""The licence of each locked package, as an SPDX expression if possible, and whether a site denies it.

A lock has the licences of conda packages. Those of pip packages are in their metadata: the file that an index serves
beside a wheel (PEP 658), else the metadata inside the wheel or inside a local source archive. The results are kept in
the yard's cache.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.error import HTTPError

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.secrets import host_of
from stackyard.host.files.hashing import local_path
from stackyard.host.net import http
from stackyard.host.net.ranged import RangedFile
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from stackyard.lock.licencetexts import noted, of_conda, of_metadata, spdx
from stackyard.lock.lockfile.model import CondaPackage, LockedVariant, PipPackage
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic

_AT_ONCE = 8
_TIMEOUT_S = 20
_UNREADABLE = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)
"""What reading a member of an archive raises that is damaged, encrypted or of an unknown form."""


@dataclass(frozen=True)
class PackageLicence:
    """The licence of one package: `licence` is SPDX if possible, else the original text; empty if unknown."""

    name: str
    version: str
    kind: str
    licence: str


def is_denied(expression: str, patterns: Sequence[str]) -> bool:
    """Whether a licence is denied: every alternative of an OR has to be, and any part of an AND.

    Args:
        patterns: shell patterns, case-insensitive: ``AGPL-*``. Text other than SPDX expressions is compared as a whole.
    """
    if not spdx(expression):
        return bool(expression) and _matches(expression, patterns)
    words = re.findall(r"[()]|[^\s()]+", expression)
    return _any_of(words, patterns)


def _any_of(words: list[str], patterns: Sequence[str]) -> bool:
    """Evaluate an OR at the front of the words, and remove it from them."""
    return all(_parts(words, "OR", lambda: _all_of(words, patterns)))


def _all_of(words: list[str], patterns: Sequence[str]) -> bool:
    return any(_parts(words, "AND", lambda: _one(words, patterns)))


def _parts(words: list[str], between: str, part: Callable[[], bool]) -> list[bool]:
    parts = [part()]
    while words and words[0] == between:
        words.pop(0)
        parts.append(part())
    return parts


def _one(words: list[str], patterns: Sequence[str]) -> bool:
    word = words.pop(0)
    if word == "(":
        is_match = _any_of(words, patterns)
        words.pop(0)
        return is_match
    if words and words[0] == "WITH":
        word = f"{word} WITH {words[1]}"
        del words[:2]
    return _matches(word, patterns)


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(text.lower(), pattern.lower()) for pattern in patterns)


def stated(locked: LockedVariant, settings: PipSettings, yard: Yard) -> list[PackageLicence]:
    """The licence of every package of a locked variant, in the lock's order; unknown if metadata cannot be read.

    After a failed request, a server gets no further ones.
    """
    silent: set[str] = set()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pip = list(pool.map(lambda package: _of_pip(package, settings, yard, silent), locked.pip))
    return [*map(_of_conda, locked.conda), *pip]


def _of_conda(package: CondaPackage) -> PackageLicence:
    return PackageLicence(package.name, package.version, "conda", of_conda(package))


def _of_pip(package: PipPackage, settings: PipSettings, yard: Yard, silent: set[str]) -> PackageLicence:
    known = noted(package.sha256, yard)
    if known is not None:
        return PackageLicence(package.name, package.version, "pip", known)
    text = _metadata(package, settings, silent)
    licence = of_metadata(text) if text else ""
    if text and package.sha256 and os.access(yard.cache, os.W_OK):
        place = yard.licence_note(package.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(place, f"{licence}\n", synced=False)
    return PackageLicence(package.name, package.version, "pip", licence)


def _metadata(package: PipPackage, settings: PipSettings, silent: set[str]) -> str:
    """The text of a package's metadata; empty if it cannot be read without downloading the package."""
    path = local_path(package.url) if package.url else None
    try:
        if package.kind == "wheel" and path is None:
            return _beside_wheel(package.url.partition("#")[0], settings, silent)
        return _in_archive(path) if path is not None and path.is_file() else ""
    except (StackyardError, KeyError, *_UNREADABLE):
        return ""


def _beside_wheel(url: str, settings: PipSettings, silent: set[str]) -> str:
    """The metadata of a wheel on a server: from the file beside it, else from the wheel by range requests."""
    trust, server = uv.trust(url, settings), host_of(url)
    if server in silent:
        return ""
    try:
        return http.read(f"{url}.metadata", timeout_s=_TIMEOUT_S, trust=trust).decode("utf-8", "replace")
    except StackyardError as error:
        if not isinstance(error.__cause__, HTTPError):  # no answer at all
            silent.add(server)
            raise
    with zipfile.ZipFile(RangedFile(url, _TIMEOUT_S, trust)) as wheel:
        return wheel.read(_first(wheel.namelist())).decode("utf-8", "replace")


def _in_archive(path: Path) -> str:
    """The metadata in a wheel or in a source archive."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as bundle:
            return bundle.read(_first(bundle.namelist())).decode("utf-8", "replace")
    with tarfile.open(path) as tar:
        member = tar.extractfile(_first(tar.getnames()))
        return member.read().decode("utf-8", "replace") if member else ""


def _first(names: Sequence[str]) -> str:
    """The metadata file nearest to the top. Raises KeyError if there is none."""
    candidates = [n for n in names if n.count("/") == 1 and n.endswith((".dist-info/METADATA", "/PKG-INFO"))]
    if not candidates:
        raise KeyError("metadata")
    return candidates[0]


@dataclass(frozen=True)
class Policy:
    """The licences that a site denies; `allowed`: packages exempt from it; `unknown`: deny unknown licences too."""

    deny: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    unknown: bool = False


def require_allowed(
    label: str, packages: Sequence[PackageLicence], policy: Policy, notice: Callable[[str], None]
) -> None:
    """Reject a locked variant with a licence that the site denies.

    Args:
        label: the name of the variant, for the message.
        notice: is called with the unknown licences, if these are not denied.

    Raises:
        InputError: lists every such package.
    """
    looked_at = [package for package in packages if package.name not in policy.allowed]
    bad = [f"{p.name} {p.version} ({p.licence})" for p in looked_at if is_denied(p.licence, policy.deny)]
    unknown = [f"{p.name} {p.version}" for p in looked_at if not p.licence]
    if policy.unknown:
        bad += [f"{licence_label} (not known)" for licence_label in unknown]
    elif unknown:
        notice(f"the licences of these packages of {label} are not known: {', '.join(unknown)}")
    if bad:
        raise InputError(
            f"{label} has licences that the site denies: {', '.join(bad)}",
            hint="require other packages or versions; the site may except one: `licences: {allow: [NAME]}`",
        )
